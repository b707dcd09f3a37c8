"""Points of tables in place of vertices, and files with geometry, compared with all distances and with formulas."""

from __future__ import annotations

import csv
import json
import shutil
import struct
from itertools import pairwise

import networkx as nx
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pyogrio
import pytest

import apsp
from service.cli import main
from service.cli.vertex_lists import points_or_names, sent_points
from service.views import near_points
from storage.errors import InvalidRequest
from storage.geography.tables import read_points
from tests.unit.storage.geography.test_snapping import haversine

SIDE = 7


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """A lattice of streets one way round, as OSMnx writes it, solved and prepared; homes and hospitals."""
    folder, rng = tmp_path_factory.mktemp("city"), np.random.default_rng(5)
    graph = nx.MultiDiGraph(crs="epsg:4326")
    for i in range(SIDE):
        for j in range(SIDE):
            graph.add_node(100 + i * SIDE + j, x=24.93 + j * 0.002, y=60.16 + i * 0.001)
    for i in range(SIDE):
        for j in range(SIDE):
            here = 100 + i * SIDE + j
            graph.add_edge(here, 100 + i * SIDE + (j + 1) % SIDE, length=float(rng.integers(1, 100)))
            graph.add_edge(here, 100 + (i + 1) % SIDE * SIDE + j, length=float(rng.integers(1, 100)))
    nx.write_graphml(graph, folder / "city.graphml")
    spots = np.stack([24.93 + rng.random(14) * 0.012, 60.16 + rng.random(14) * 0.006], axis=1).round(6)
    rows = [f"{k},{lon!r},{lat!r}" for k, (lon, lat) in enumerate(spots.tolist(), 1)]
    (folder / "homes.csv").write_text("id,lon,lat\n" + "\n".join(rows[:8]) + "\n")
    hospitals = [f"H{row},clinic {row[0]}" for row in rows[8:]]
    (folder / "hospitals.csv").write_text("id,lon,lat,name\n" + "\n".join(hospitals) + "\n")
    file = folder / "city.graphml"
    run("solve", file, "--unit", "m", "--out", folder / "solved", "--dtype", "float64")
    run("prepare", file, "--unit", "m", "--out", folder / "prepared", "--dtype", "float64")
    (folder / "plain.csv").write_text("from,to,length\n100,101,4\n101,100,4\n")
    run("solve", folder / "plain.csv", "--out", folder / "plain")
    return folder


def run(*words, code=0):
    assert main.run([str(word) for word in words]) == code


def points(city, name):
    with (city / f"{name}.csv").open() as file:
        return [(row["id"], float(row["lon"]), float(row["lat"])) for row in csv.DictReader(file)]


def expected(city, sides=("homes", "hospitals")):
    """All distances between homes and hospitals, by hand: nearest vertices by the haversine, NetworkX between them."""
    graph = nx.read_graphml(city / "city.graphml", node_type=int)
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, weight="length"))
    names = sorted(graph.nodes)
    x, y = (np.array([graph.nodes[name][axis] for name in names]) for axis in "xy")
    vertex = {
        key: names[int(np.argmin(haversine(lon, lat, x, y)))]
        for name in ("homes", "hospitals")
        for key, lon, lat in points(city, name)
    }
    return {
        (home, hospital): lengths[vertex[home]][vertex[hospital]]
        for home, *_ in points(city, sides[0])
        for hospital, *_ in points(city, sides[1])
    }


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def nearest(wanted, count):
    found = {}
    for (home, hospital), distance in wanted.items():
        found.setdefault(home, []).append((distance, hospital))
    return {home: sorted(pairs)[:count] for home, pairs in found.items()}


def both(city):
    return "--sources", city / "homes.csv", "--targets", f"@{city / 'hospitals.csv'}"


@pytest.mark.parametrize("way", ["solved", "prepared", "near"])
def test_tables_of_points(city, tmp_path, way, capsys):
    wanted, out = expected(city), tmp_path / "x.csv"
    if way == "near":
        run("near", city / "city.graphml", "--unit", "m", *both(city), "--nearest", 3, "-o", out)
    else:
        run("export", city / way, *both(city), "--nearest", 3, "-o", out)
    told = capsys.readouterr().err
    assert "note: --sources: 8 points of homes.csv were taken to" in told
    rows = table(out)
    assert list(rows[0]) == ["source", "source_snap", "target", "target_name", "target_snap", "distance"]
    found = {}
    for row in rows:
        assert wanted[row["source"], row["target"]] == float(row["distance"])
        assert row["target_name"] == f"clinic {row['target'][1]}"
        found.setdefault(row["source"], []).append(float(row["distance"]))
    assert found == {home: [distance for distance, _ in pairs] for home, pairs in nearest(wanted, 3).items()}


def test_a_target_at_the_vertex_of_its_source_is_at_distance_0(city, tmp_path):
    twins = tmp_path / "twins.csv"
    twins.write_text("id,lon,lat\nA,24.93,60.16\nB,24.93001,60.16001\n")
    for words in (("near", city / "city.graphml"), ("export", city / "prepared")):
        run(*words, "--sources", twins, "--targets", twins, "--nearest", 2, "-o", tmp_path / f"{words[0]}.csv")
        rows = [(row["source"], row["target"], float(row["distance"])) for row in table(tmp_path / f"{words[0]}.csv")]
        assert rows == [("A", "B", 0), ("B", "A", 0)]
    out = tmp_path / "itself.csv"
    run("export", city / "prepared", "--sources", twins, "--targets", twins, "--nearest", 2, "--itself", "-o", out)
    assert [(row["source"], row["target"]) for row in table(out)] == [("A", "A"), ("A", "B"), ("B", "A"), ("B", "B")]
    run("near", city / "city.graphml", "--targets", twins, "--nearest", 1, "-o", tmp_path / "all.csv")
    assert ("100", "A", "0") in [(row["source"], row["target"], row["distance"]) for row in table(tmp_path / "all.csv")]
    assert len(table(tmp_path / "all.csv")) == SIDE * SIDE


#: a table of all within a distance has the source itself when it is exported, as one of vertices has
WAYS = [(way, ("--nearest", count)) for way in ("solved", "prepared", "near") for count in (1, 3)]


@pytest.mark.parametrize(("way", "limit"), [*WAYS, ("near", ("--cutoff", 90))])
def test_a_point_is_not_its_own_target(city, tmp_path, way, limit, monkeypatch, capsys):
    monkeypatch.setattr(near_points, "PIECE", 5)  # several pieces, each with some of the sources
    more = tmp_path / "more.csv"  # the same homes in another order, and one more at the place of the first
    lines = (city / "homes.csv").read_text().split()
    more.write_text("\n".join([lines[0], *lines[:0:-1], "other" + lines[1][1:]]) + "\n")
    wanted = expected(city, ("homes", "homes"))
    first = points(city, "homes")[0][0]
    wanted |= {(home, "other"): wanted[home, first] for home, *_ in points(city, "homes")}
    wanted = {pair: distance for pair, distance in wanted.items() if pair[0] != pair[1]}
    words = ("near", city / "city.graphml", "--unit", "m") if way == "near" else ("export", city / way)
    run(*words, "--sources", city / "homes.csv", "--targets", more, *limit, "-o", tmp_path / "x.csv")
    rows = table(tmp_path / "x.csv")
    assert all(wanted[row["source"], row["target"]] == float(row["distance"]) for row in rows)
    found: dict = {}
    for row in rows:
        found.setdefault(row["source"], []).append(float(row["distance"]))
    most = limit[1] if limit[0] == "--nearest" else len(wanted)
    near = {pair: distance for pair, distance in wanted.items() if limit[0] == "--nearest" or distance <= limit[1]}
    expect = {home: [distance for distance, _ in pairs] for home, pairs in nearest(near, most).items()}
    assert {home: sorted(distances) for home, distances in found.items()} == expect
    if way == "near":
        assert f"pairs  {len(rows)} of 8 sources" in capsys.readouterr().out


def test_a_wide_table_has_a_row_and_a_column_for_each_point(city, tmp_path):
    run("export", city / "solved", *both(city), "--wide", "-o", tmp_path / "wide.csv")
    wanted = expected(city)
    for row in table(tmp_path / "wide.csv"):
        home = row.pop("source")
        assert {(home, hospital): float(distance) for hospital, distance in row.items()} == {
            pair: distance for pair, distance in wanted.items() if pair[0] == home
        }


@pytest.mark.parametrize("way", ["export", "near"])
def test_geojson(city, tmp_path, way):
    out = tmp_path / "x.geojson"
    graph = city / ("prepared" if way == "export" else "city.graphml")
    unit = () if way == "export" else ("--unit", "m")
    run(way, graph, *unit, *both(city), "--nearest", 1, "-o", out)
    found = json.loads(out.read_text())
    assert (found["type"], found["distance_unit"], len(found["features"])) == ("FeatureCollection", "m", 8)
    spots = {key: [lon, lat] for name in ("homes", "hospitals") for key, lon, lat in points(city, name)}
    wanted = expected(city)
    for feature in found["features"]:
        about = feature["properties"]
        assert about["distance"] == wanted[str(about["source"]), about["target"]]
        assert feature["geometry"] == {
            "type": "LineString", "coordinates": [spots[str(about["source"])], spots[about["target"]]],
        }  # fmt: skip
    run(way, graph, *unit, *both(city), "--nearest", 1, "--features", "sources", "-o", tmp_path / "y.geojson")
    first = json.loads((tmp_path / "y.geojson").read_text())["features"][0]["geometry"]
    assert first == {"type": "Point", "coordinates": spots["1"]}


def test_distances_from_one_vertex_are_points(city, tmp_path):
    run("export", city / "solved", "--sources", "100", "-o", tmp_path / "x.geojson")
    features = json.loads((tmp_path / "x.geojson").read_text())["features"]
    with apsp.open(city / "solved") as result:
        placed, row = result.coordinates, result.row(0)
        wanted = [
            (label, distance, [round(x, 7), round(y, 7)])
            for label, distance, x, y in zip(result.labels.tolist(), row.tolist(), placed.x, placed.y, strict=True)
        ]
    assert [
        (one["properties"]["target"], one["properties"]["distance"], one["geometry"]["coordinates"]) for one in features
    ] == wanted


@pytest.mark.parametrize("features", ["lines", "sources", "targets"])
@pytest.mark.parametrize("way", ["export", "near"])
def test_geopackage(city, tmp_path, way, features):
    """The layer has the table and the geometry of GeoParquet, whose bytes are compared with the standard below."""
    graph = city / ("prepared" if way == "export" else "city.graphml")
    for name in ("x.gpkg", "x.parquet"):
        run(way, graph, *both(city), "--nearest", 2, "--features", features, "-o", tmp_path / name)
    wanted = pl.read_parquet(tmp_path / "x.parquet")
    about, _, geometry, fields = pyogrio.raw.read(tmp_path / "x.gpkg", layer="distances")
    assert (about["crs"], about["geometry_type"]) == ("EPSG:4326", "LineString" if features == "lines" else "Point")
    found = pl.DataFrame([pl.Series(name, list(column)) for name, column in zip(about["fields"], fields, strict=True)])
    assert found.rows(named=True) == wanted.drop("geometry").rows(named=True)
    assert list(geometry) == wanted["geometry"].to_list()


def test_a_geopackage_of_points_is_read_back_as_points(city, tmp_path):
    run("export", city / "solved", "--sources", "100", "-o", tmp_path / "x.gpkg")
    table = read_points(tmp_path / "x.gpkg", first_is_id=True)
    with apsp.open(city / "solved") as result:
        np.testing.assert_array_equal(table.x, result.coordinates.x)
        np.testing.assert_array_equal(table.y, result.coordinates.y)
        assert table.columns["target"].tolist() == result.labels.tolist()


@pytest.mark.parametrize("features", ["lines", "sources", "targets"])
@pytest.mark.parametrize("way", ["export", "near"])
def test_geoparquet(city, tmp_path, way, features):
    """The metadata and the well-known binary, read by pyarrow and by hand, as the standard 1.1.0 has them."""
    graph, out = city / ("solved" if way == "export" else "city.graphml"), tmp_path / "x.parquet"
    run(way, graph, *both(city), "--nearest", 2, "--features", features, "-o", out)
    read = pq.read_table(out)
    about = json.loads(pq.read_metadata(out).metadata[b"geo"])
    kind = "LineString" if features == "lines" else "Point"
    assert about == {
        "version": "1.1.0", "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": [kind]}},
    }  # fmt: skip
    assert str(read.schema.field("geometry").type).endswith("binary")
    spots = {key: (lon, lat) for name in ("homes", "hospitals") for key, lon, lat in points(city, name)}
    for row in read.to_pylist():
        ends = spots[str(row["source"])], spots[row["target"]]
        data = struct.pack("<BII4d", 1, 2, 2, *ends[0], *ends[1])
        if features != "lines":
            data = struct.pack("<BI2d", 1, 1, *ends[features == "targets"])
        assert row["geometry"] == data


@pytest.mark.parametrize("name", ["n.csv", "n.parquet", "n.geojson", "n.gpkg", "g.parquet"])
@pytest.mark.parametrize("limit", [("--nearest", 2), ("--cutoff", 900), ("--cutoff", 1e-9)])
@pytest.mark.parametrize("sides", [slice(0, 2), slice(2, 4), slice(0, 4)])
def test_files_of_lines_in_pieces_are_the_whole_file(city, tmp_path, monkeypatch, name, limit, sides):
    """However few lines are made at a time, the file is the same, and the command says the same numbers."""
    words = ["near", city / "city.graphml", *both(city)[sides], *limit]
    words += ["--features", "lines"] if name == "g.parquet" else []
    (tmp_path / "one").mkdir()
    run(*words, "-o", tmp_path / "one" / name)
    monkeypatch.setattr(near_points.NearLines.pieces, "__defaults__", (3,))
    run(*words, "-o", tmp_path / name)
    if name.endswith(".gpkg"):
        pyogrio = pytest.importorskip("pyogrio")
        whole, pieces = (pyogrio.raw.read(folder / name) for folder in (tmp_path / "one", tmp_path))
        assert whole[0]["fields"].tolist() == pieces[0]["fields"].tolist()
        assert whole[2].tolist() == pieces[2].tolist()
        assert all(one.tolist() == other.tolist() for one, other in zip(whole[3], pieces[3], strict=True))
    elif name.endswith(".parquet"):
        assert pl.read_parquet(tmp_path / name).equals(pl.read_parquet(tmp_path / "one" / name))
        kept = [pl.read_parquet_metadata(folder / name) for folder in (tmp_path / "one", tmp_path)]
        assert [one.get("geo") for one in kept] == [kept[0].get("geo")] * 2
    else:
        assert (tmp_path / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["one", name])


def test_a_question_about_points(city, capsys):
    wanted = expected(city)
    both_tables = "--points", city / "homes.csv", "--points", city / "hospitals.csv"
    capsys.readouterr()
    for store in ("solved", "prepared"):
        run("query", city / store, "distance", "3", "clinic 9", *both_tables)
        said = capsys.readouterr()
        assert said.out == f"{wanted['3', 'H9']:g} m\n"
        assert "note: clinic 9 is a point of hospitals.csv" in said.err
    run("query", city / "solved", "nearest", "3", "2", *both_tables[:2], "--json")
    assert json.loads(capsys.readouterr().out)["unit"] == "m"
    run("query", city / "solved", "distance", "100", "100", "--points", city / "homes.csv")
    assert capsys.readouterr().out == "0 m\n"
    (city / "again.csv").write_bytes((city / "homes.csv").read_bytes())
    run("query", city / "solved", "distance", "3", "1", *both_tables[:2], "--points", city / "again.csv", code=2)
    assert "2 points are called '3': 3 of homes.csv, 3 of again.csv" in capsys.readouterr().err
    run("query", city / "solved", "distance", "3", "clinic 9", *both_tables, *both_tables[:2])
    assert capsys.readouterr().out == f"{wanted['3', 'H9']:g} m\n"


@pytest.mark.parametrize("way", ["solved", "prepared"])
def test_a_path_as_a_line(city, tmp_path, way, capsys):
    graph = nx.read_graphml(city / "city.graphml", node_type=int)
    out = tmp_path / "route.geojson"
    out.write_text("the one before")
    run("query", city / way, "path", "100", "131", "-o", out)
    feature = json.loads(out.read_text())
    told, line = feature["properties"], feature["geometry"]["coordinates"]
    length = nx.dijkstra_path_length(graph, 100, 131, weight="length")
    assert (told["source"], told["target"], told["distance"], told["unit"]) == (100, 131, length, "m")
    assert sum(graph[u][v]["length"] for u, v in pairwise(told["vertices"])) == length
    assert line == [[round(graph.nodes[v]["x"], 7), round(graph.nodes[v]["y"], 7)] for v in told["vertices"]]
    assert capsys.readouterr().out == f"{out}: {len(line)} vertices, {length:g} m\n"
    run("query", city / way, "path", "3", "H9", "--points", city / "homes.csv", "--points", city / "hospitals.csv",
        "-o", out, "--json")  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    assert printed["file"] == str(out)
    assert json.loads(out.read_text())["properties"]["vertices"] == printed["vertices"]
    assert printed["distance"] == expected(city)["3", "H9"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["route.geojson"]


def test_a_path_that_is_not_there_has_no_line(tmp_path, capsys):
    (tmp_path / "g.csv").write_text("from,to,length\n1,2,4\n")
    (tmp_path / "n.csv").write_text("id,lon,lat\n1,24.9,60.1\n2,24.8,60.2\n")
    run("solve", tmp_path / "g.csv", "--nodes", tmp_path / "n.csv", "--out", tmp_path / "s")
    capsys.readouterr()
    run("query", tmp_path / "s", "path", "2", "1", "-o", tmp_path / "x.geojson")
    assert capsys.readouterr().out == f"{tmp_path / 'x.geojson'}: no path from 2 to 1, so the feature has no line\n"
    assert json.loads((tmp_path / "x.geojson").read_text())["geometry"] is None


def test_a_solve_from_points(city, tmp_path, capsys):
    run("solve", city / "city.graphml", "--sources", city / "homes.csv", "--out", tmp_path / "some")
    with apsp.open(tmp_path / "some") as some, apsp.open(city / "solved") as every:
        assert 1 <= len(some.sources) <= 8
        np.testing.assert_array_equal(some.rows(some.sources), every.rows(some.sources))
    words = ("near", city / "city.graphml", "--cutoff", 1, "-o", tmp_path / "n.csv", *both(city))
    run(*words, "--snap-limit", 1, code=2)
    assert "homes.csv: points farther than 1 from every vertex: 8, " in capsys.readouterr().err
    assert not (tmp_path / "n.csv").exists()
    run(*words, "--snap-limit", 1000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "plain", "-o", "x.geojson"], "the graph has no coordinates"),
        (["export", "plain", "-o", "x.csv", "--sources", "homes.csv"], "points, and the graph has no coordinates"),
        (["export", "solved", "-o", "x.geojson", "--wide"], "--wide is for tables"),
        (["query", "plain", "path", "100", "101", "-o", "x.geojson"], "-o: the graph has no coordinates"),
        (["query", "solved", "path", "100", "101", "-o", "x.json"], "-o: x.json should end in .geojson"),
        (["query", "solved", "distance", "100", "101", "-o", "x.geojson"], "-o writes a path as a line"),
        (["export", "solved", "-o", "x.csv", "--features", "lines"], "--features is for .geojson, .gpkg and .parquet"),
        (["near", "city.graphml", "--cutoff", "1", "-o", "x.npz", "--sources", "homes.csv"], "points have names of"),
        (["near", "city.graphml", "--cutoff", "1", "-o", "x.csv", "--features", "lines"], "--features is for .geojson"),
        (["near", "plain.csv", "--cutoff", "1", "-o", "x.geojson"], "the graph has no coordinates"),
        (["export", "plain", "-o", "x.gpkg"], "the graph has no coordinates"),
        (["export", "solved", "-o", "x.gpkg", "--wide"], "--wide is for tables"),
        (["near", "plain.csv", "--cutoff", "1", "-o", "x.gpkg"], "the graph has no coordinates"),
        (["near", "city.graphml", "--cutoff", "1", "-o", "solved.geojson"], "exists already"),
        (["near", "city.graphml", "--coordinates", "plane", "--cutoff", "1", "-o", "x.geojson"], "those of a plane"),
    ],
)  # fmt: skip
def test_refusals(city, monkeypatch, capsys, words, message):
    (city / "solved.geojson").write_text("")
    (city / "flat.csv").write_text("id,x,y\n")
    monkeypatch.chdir(city)
    if "--coordinates" in words:
        text = (city / "city.graphml").read_text().replace("epsg:4326", "epsg:3067")
        (city / "city.graphml").with_stem("flat").write_text(text)
        words = ["near", "flat.graphml", *words[4:]]
    before = sorted(path.name for path in city.iterdir())
    assert main.run(words) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in city.iterdir()) == before


def test_points_of_a_request_are_those_of_the_table(tmp_path):
    file = tmp_path / "homes.csv"
    file.write_text("id,name,lon,lat\n7,Ann,24.9,60.1\n8,,24.8,60.2\n")
    expected = [{"id": "7", "name": "Ann", "lon": 24.9, "lat": 60.1}, {"id": "8", "name": "", "lon": 24.8, "lat": 60.2}]
    assert sent_points(f"@{file}", "--sources") == sent_points(str(file), "--sources") == expected
    assert sent_points("-", "--sources") is None
    assert sent_points("7,8", "--sources") is None
    assert points_or_names([file], ["Ann", "8", "x"]) == [*expected, "x"]
    with pytest.raises(InvalidRequest, match="2 points are called '7'"):
        points_or_names([file, shutil.copy(file, tmp_path / "again.csv")], ["7"])
    assert points_or_names([file, tmp_path / ".." / tmp_path.name / file.name], ["7"]) == expected[:1]
    file.write_text("id,lon,lat\n7,24.9,60.1\n8,,\n")
    with pytest.raises(InvalidRequest, match=r"--sources: .*line 3: the point has no coordinates"):
        sent_points(str(file), "--sources")
    plane, about = (
        tmp_path / "homes.parquet",
        {"encoding": "WKB", "crs": {"type": "ProjectedCRS"}, "geometry_types": ["Point"]},
    )
    text = json.dumps({"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}})
    frame = pl.DataFrame({"id": ["7"], "geometry": [struct.pack("<BIdd", 1, 1, 24.0, 60.0)]})
    frame.write_parquet(plane, metadata={"geo": text})
    with pytest.raises(InvalidRequest, match="those of a plane, which a request cannot say"):
        sent_points(str(plane), "--sources")
