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
