"""``apsp plot --map``: pictures, what is told, refusals."""

from __future__ import annotations

import json

import pytest

from service.cli import main


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    (folder / "roads.csv").write_text("from,to,minutes\n1,2,4\n2,3,2.5\n4,5,1\n6,1,1\n")
    (folder / "nodes.csv").write_text(
        "id,lon,lat\n1,24.93,60.16\n2,24.94,60.17\n3,24.95,60.16\n4,24.9,60.1\n5,24.9,60.2\n"
    )
    (folder / "places.csv").write_text("name,lon,lat\nhome,24.9301,60.1601\nschool,24.9499,60.1602\n")
    both = ("--undirected", "--nodes", str(folder / "nodes.csv"), "--unit", "min")
    assert main.run(["solve", str(folder / "roads.csv"), *both, "--out", str(folder / "solved")]) == 0
    assert main.run(["prepare", str(folder / "roads.csv"), *both, "--out", str(folder / "prepared")]) == 0
    assert main.run(["solve", str(folder / "roads.csv"), "--out", str(folder / "plain")]) == 0
    (folder / "line.csv").write_text("from,to\n" + "".join(f"{k},{k + 1}\n" for k in range(1, 1001)))
    assert main.run(["solve", str(folder / "line.csv"), "--directed", "--out", str(folder / "large")]) == 0
    return folder


@pytest.mark.parametrize("store", ["solved", "prepared"])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_map_with_a_route_between_points(town, tmp_path, capsys, store, ending):
    out = tmp_path / f"map.{ending}"
    capsys.readouterr()
    words = ["--from", "home", "--to", "school", "--points", str(town / "places.csv")]
    assert main.run(["plot", str(town / store), "--map", *words, "-o", str(out), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "picture": str(out), "source": 1, "unit": "min", "reached": 4, "vertices": 6, "length": 6.5,
    }  # fmt: skip
    assert "note: school is a point of places.csv, 2" in said.err
    text = out.read_bytes()
    assert text.startswith(b"\x89PNG") if ending == "png" else b"</svg>" in text
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_no_path_and_classes_and_dark(town, tmp_path, capsys):
    words = ["--from", "1", "--to", "4", "--classes", "2,5", "--dark"]
    assert main.run(["plot", str(town / "solved"), "--map", *words, "-o", str(tmp_path / "m.pdf")]) == 0
    said = capsys.readouterr()
    assert "a map of 4 of 6 vertices, reached from 1" in said.out
    assert "there is no path from 1 to 4" in said.err


def test_a_small_graph_without_coordinates(town, tmp_path, capsys):
    out = tmp_path / "network.svg"
    assert main.run(["plot", str(town / "plain"), "--map", "--from", "1", "--to", "3", "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert "a map of 3 of 6 vertices, reached from 1" in said.out
    assert "note: the graph has no coordinates, so short distances are drawn short; directions mean nothing" in said.err
    assert "</svg>" in out.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["solved", "--map"], "name it with --from VERTEX"),
        (["solved", "--from", "1"], "--from is for maps: say --map, too"),
        (["solved", "--dark"], "--dark is for maps"),
        (["large", "--map", "--from", "1"], "has no coordinates: give them with --nodes"),
        (["solved", "--map", "--from", "6"], "vertex 6 has no coordinates"),
        (["solved", "--map", "--from", "9"], "no vertex '9'"),
        (["solved", "--map", "--from", "1", "--classes", "5,2"], "ascending distances above 0"),
        (["solved", "--map", "--from", "1", "--classes", "0,2"], "ascending distances above 0"),
        (["solved", "--map", "--from", "1", "--classes", "a"], "ascending distances above 0"),
    ],
)
def test_refusals(town, tmp_path, capsys, words, message):
    out = tmp_path / "map.png"
    assert main.run(["plot", str(town / words[0]), *words[1:], "-o", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
