"""``apsp near``: answers, forms, refusals."""

from __future__ import annotations

import json

import pytest

from service.cli import main

ROADS = "from,to,km\na,b,3\nb,c,4\nc,d,1\nd,e,2\nz,a,0\n"


@pytest.fixture
def roads(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text(ROADS)
    return path


def said(capsys, *words):
    """The standard output of a command that succeeds."""
    assert main.run([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_pairs_up_to_a_cutoff(roads, tmp_path, capsys):
    out = tmp_path / "near.csv"
    assert "pairs  6 of 6 sources" in said(capsys, "near", roads, "--directed", "--cutoff", 3, "-o", out)
    assert out.read_text() == "source,target,distance\na,b,3\nc,d,1\nc,e,3\nd,e,2\nz,a,0\nz,b,3\n"


def test_the_nearest_of_chosen_targets(roads, tmp_path, capsys):
    out = tmp_path / "near.csv"
    told = json.loads(
        said(capsys, "near", roads, "--nearest", 1, "--targets", "a,e", "--sources", "z,c", "-o", out, "--json")
    )
    assert (told["pairs"], told["sources"], told["nearest"], told["cutoff"]) == (2, 2, 1, None)
    assert out.read_text() == "source,target,distance\nz,a,0\nc,e,3\n"
    assert set(told["seconds"]) == {"read", "search", "write"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-o", "{new}.csv"], 2, "--cutoff DISTANCE, --nearest K, or both"),
        (["-o", "{new}.txt", "--cutoff", "1"], 2, "the ending decides the format"),
        (["-o", "{roads}", "--cutoff", "1"], 2, "exists already"),
        (["-o", "{new}.csv", "--cutoff", "-1"], 2, "-1"),
        (["-o", "{new}.csv", "--cutoff", "1", "--targets", "q"], 2, "q"),
        (["-o", "{new}.csv", "--cutoff", "1", "--sources", "-", "--targets", "-"], 2, "standard input"),
        (["-o", "{new}.csv", "--cutoff", "1", "--memory", "1"], 3, "more memory"),
    ],
)
def test_refusals(roads, tmp_path, capsys, words, code, message):
    before = sorted(path.name for path in tmp_path.iterdir())
    told = [word.format(new=tmp_path / "new", roads=roads) for word in words]
    assert main.run(["near", str(roads), *told]) == code
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_prepared_graph_answers_as_its_file(roads, tmp_path, capsys):
    tables, one, other = (tmp_path / name for name in ("tables", "one.csv", "other.csv"))
    said(capsys, "prepare", roads, "--directed", "-o", tables)
    for words in (["--cutoff", 3], ["--nearest", 1, "--targets", "a,e", "--sources", "z,c"], ["--nearest", 2]):
        want = json.loads(said(capsys, "near", roads, "--directed", *words, "-o", one, "--overwrite", "--json"))
        told = json.loads(said(capsys, "near", tables, *words, "-o", other, "--overwrite", "--json"))
        assert other.read_bytes() == one.read_bytes()
        assert {name: told[name] for name in ("pairs", "sources", "unit", "type", "cutoff", "nearest")} == {
            name: want[name] for name in ("pairs", "sources", "unit", "type", "cutoff", "nearest")
        }
        assert told["graph"]["format"] == "prepared graph"


@pytest.mark.parametrize(
    ("place", "words", "message"),
    [
        ("tables", ["--cutoff", "1", "--undirected"], "--undirected says how a file is read, and"),
        ("tables", ["--cutoff", "6"], "cutoff 5 and knows no longer distances; 6 was asked for"),
        ("solved", ["--cutoff", "1"], "apsp near takes a graph file or a prepared graph"),
        (".", ["--cutoff", "1"], "no store that apsp has sealed"),
        ("nothing", ["--cutoff", "1"], "cannot open"),
    ],
)
def test_folders_that_cannot_be_asked_are_refused(roads, tmp_path, capsys, monkeypatch, place, words, message):
    monkeypatch.chdir(tmp_path)
    said(capsys, "prepare", roads, "--directed", "--cutoff", 5, "-o", "tables")
    said(capsys, "solve", roads, "--directed", "-o", "solved")
    assert main.run(["near", place, *words, "-o", "new.csv"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new.csv").exists()
