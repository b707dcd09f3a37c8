"""``apsp prepare``, and ``query`` and ``verify`` of what it makes, beside those of a solved store."""

from __future__ import annotations

import json

import pytest

from service.cli import main

ROADS = "a,b,3\nb,c,4\nc,d,1\nd,e,2\nz,a,0\n"


@pytest.fixture
def roads(tmp_path):
    path = tmp_path / "roads.csv"
    path.write_text("from,to,km\n" + ROADS)
    return path


def said(capsys, *words):
    """The standard output of a command that succeeds."""
    assert main.run([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_every_question_has_the_answer_of_a_solved_store(roads, tmp_path, capsys):
    prepared, solved = tmp_path / "p", tmp_path / "s.zarr"
    assert "answers  6 x 6 distances" in said(capsys, "prepare", roads, "--directed", "--out", prepared)
    said(capsys, "solve", roads, "--directed", "--out", solved)
    for question in (["distance", "a", "e"], ["distance", "e", "a"], ["path", "z", "d"], ["row", "b"]):
        for flags in ([], ["--json"]):
            answer = said(capsys, "query", prepared, *question, *flags)
            assert answer == said(capsys, "query", solved, *question, *flags)
    assert said(capsys, "query", prepared, "distance", "a", "e") == "10\n"
    assert "6 x 6, uint16, directed" in said(capsys, "query", prepared, "summary")
    assert "6 of 6 rows agree with a new search" in said(capsys, "verify", prepared, "--sample", "all")


def test_a_cutoff_is_kept_as_by_a_solve(roads, tmp_path, capsys):
    prepared, solved = tmp_path / "p", tmp_path / "s.zarr"
    said(capsys, "prepare", roads, "--out", prepared, "--cutoff", "7")
    said(capsys, "solve", roads, "--out", solved, "--cutoff", "7")
    for question in (["distance", "a", "c"], ["distance", "a", "d"], ["row", "b"]):
        assert said(capsys, "query", prepared, *question) == said(capsys, "query", solved, *question)
    assert said(capsys, "query", prepared, "distance", "a", "c") == "7\n"
    assert "6 of 6 rows agree with a new search" in said(capsys, "verify", prepared, "--sample", "all")


def test_json_has_plan_seconds_and_bytes(roads, tmp_path, capsys):
    told = json.loads(said(capsys, "prepare", roads, "--out", tmp_path / "p", "--json", "--threads", "1"))
    assert told["plan"]["algorithm"] == "prepared"
    assert {"read", "plan", "partition", "prepare", "write", "seal"} <= set(told["seconds"])
    assert told["summary"]["bytes"] == sum(table["entries"] for table in [told["summary"]]) * 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--out", "s3://bucket/p"], 2, "is in an object store"),
        (["--out", "{there}"], 2, "exists already"),
        (["--out", "{new}", "--memory", "1MiB"], 3, "cannot be prepared"),
        (["--out", "{new}", "--dtype", "float16"], 2, "float16"),
        (["--out", "{missing}/p"], 2, "does not exist"),
    ],
)
def test_refusals_come_before_any_work(roads, tmp_path, capsys, words, code, message):
    there = tmp_path / "there"
    said(capsys, "prepare", roads, "--out", there)
    before = sorted(path.name for path in tmp_path.iterdir())
    filled = [word.format(there=there, new=tmp_path / "new", missing=tmp_path / "missing") for word in words]
    assert main.run(["prepare", str(roads), *filled]) == code
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_store_is_replaced_when_asked(roads, tmp_path, capsys):
    there = tmp_path / "there"
    said(capsys, "solve", roads, "--out", there)
    said(capsys, "prepare", roads, "--out", there, "--overwrite")
    assert (there / "tables").is_dir()
