"""``apsp betweenness``: answers, forms, refusals."""

from __future__ import annotations

import json

import polars
import pytest

from service.cli import main

ROADS = "from,to,km\na,b,1\nb,d,1\na,c,1\nc,d,1\nd,e,2\n"


@pytest.fixture
def roads(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text(ROADS)
    return path


def said(capsys, *words):
    """What a command that succeeds prints on standard output and on standard error."""
    assert main.run([str(word) for word in words]) == 0
    return capsys.readouterr()


def test_vertices_are_printed_and_the_plan_is_told(roads, capsys):
    told = said(capsys, "betweenness", roads, "--directed", "--raw")
    assert told.out == "vertex,betweenness\na,0.0\nb,1.0\nc,1.0\nd,3.0\ne,0.0\n"
    assert "plan: Dijkstra in whole numbers" in told.err
    assert "5 vertices; no matrix" in told.err
    assert "for 5 sources" in told.err


def test_options_say_which_paths_count(roads, capsys):
    told = said(capsys, "betweenness", roads, "--undirected", "--of", "arcs", "--raw", "--sources", "a", "--targets",
                "e,d")  # fmt: skip
    assert told.out == "source,target,betweenness\na,b,0.5\na,c,0.5\nb,d,0.5\nc,d,0.5\nd,e,0.5\n"
    told = said(capsys, "betweenness", roads, "--directed", "--unweighted", "--endpoints", "--raw", "--sources", "d")
    assert told.out == "vertex,betweenness\na,0.0\nb,0.0\nc,0.0\nd,1.0\ne,1.0\n"


def test_a_table_is_written_and_described_as_json(roads, tmp_path, capsys):
    out = tmp_path / "between.parquet"
    told = json.loads(said(capsys, "betweenness", roads, "--directed", "-o", out, "--json").out)
    assert told["table"] == str(out)
    assert told["columns"] == ["vertex", "betweenness"]
    assert told["plan"]["sources"] == 5
    assert set(told["seconds"]) >= {"read", "plan", "search"}
    assert polars.read_parquet(out)["betweenness"].to_list() == pytest.approx([0, 1 / 12, 1 / 12, 3 / 12, 0])
    rows = json.loads(said(capsys, "betweenness", roads, "--directed", "--raw", "--json").out)["betweenness"]
    assert rows[3] == {"vertex": "d", "betweenness": 3.0}
    assert "rows     5" in said(capsys, "betweenness", roads, "--directed", "-o", out, "--overwrite").out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-o", "{new}.txt"], 2, "must end in .parquet or .csv"),
        (["-o", "{roads}"], 2, "exists already"),
        (["--of", "arcs", "--endpoints"], 2, "arcs were asked for"),
        (["--sources", "q"], 2, "q"),
        (["--sources", "-", "--targets", "-"], 2, "cannot both read standard input"),
        (["--memory", "1M"], 3, "may be used"),
        (["--memory", "much"], 2, "--memory"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_written(roads, tmp_path, capsys, words, code, message):
    before = sorted(tmp_path.iterdir())
    words = [word.format(new=tmp_path / "new", roads=roads) for word in words]
    assert main.run(["betweenness", str(roads), "--directed", *words]) == code
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    assert roads.read_text() == ROADS
