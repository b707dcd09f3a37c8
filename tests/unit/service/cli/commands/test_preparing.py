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


def test_new_weights_keep_the_cutoff_unless_another_is_given(roads, tmp_path, capsys):
    prepared, weights = tmp_path / "p", tmp_path / "w.csv"
    weights.write_text("from,to,km\na,b,2\n")
    said(capsys, "prepare", roads, "--out", prepared, "--cutoff", "7")
    for flags, there in (
        ((), "7\n"),
        (("--cutoff", "6"), "inf\n"),
        ((), "inf\n"),
        (("--cutoff", "8"), "7\n"),
        ((), "7\n"),
        (("--cutoff", "6.5"), "inf\n"),
    ):
        said(capsys, "reweight", prepared, "--weights", weights, "--changed", *flags)
        assert said(capsys, "query", prepared, "distance", "a", "e") == "inf\n"
        assert said(capsys, "query", prepared, "distance", "a", "c") == "6\n"
        assert said(capsys, "query", prepared, "distance", "a", "d") == there
    assert "6 of 6 rows agree with a new search" in said(capsys, "verify", prepared, "--sample", "all")


def test_json_has_plan_seconds_and_bytes(roads, tmp_path, capsys):
    told = json.loads(said(capsys, "prepare", roads, "--out", tmp_path / "p", "--json", "--threads", "1"))
    assert told["plan"]["algorithm"] == "prepared"
    assert {"read", "plan", "partition", "prepare", "write", "seal"} <= set(told["seconds"])
    assert told["summary"]["bytes"] == sum(table["entries"] for table in [told["summary"]]) * 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--out", "s3://B/p"], 2, "'s3://B/p' is no address of objects"),
        (["--out", "{new}", "--work", "{there}"], 2, "--work is for results that go to s3://"),
        (["--out", "{there}/inner"], 2, "lies inside the sealed store"),
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


def test_new_weights_are_answered_from_then_on(roads, tmp_path, capsys):
    path, weights = tmp_path / "p", tmp_path / "minutes.csv"
    said(capsys, "prepare", roads, "--directed", "--out", path)
    weights.write_text("a,b,1,30\nz,a,1,5\nb,c,1,40\nc,d,1,10\nd,e,1,20\n")
    told = said(capsys, "reweight", path, "--weights", weights, "--weight", "4", "--out", tmp_path / "q")
    assert "5 changed, 0 closed now" in told
    assert said(capsys, "query", tmp_path / "q", "distance", "a", "e") == "100\n"
    assert said(capsys, "query", path, "distance", "a", "e") == "10\n"
    weights.write_text("b,c,inf\n")
    told = json.loads(said(capsys, "reweight", path, "--weights", weights, "--changed", "--json"))
    assert (told["prepared"], told["summary"]["changed"], told["summary"]["closed"]) == (str(path), 1, 1)
    assert {"weights", "plan", "read tables", "prepare", "write", "seal"} <= set(told["seconds"])
    assert said(capsys, "query", path, "distance", "a", "e") == "inf\n"
    assert "6 of 6 rows agree" in said(capsys, "verify", path, "--sample", "all")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["{there}", "--weights", "{few}"], 2, "4 of 5 arcs have no new weight"),
        (["{there}", "--weights", "{wrong}", "--changed"], 2, "line 2: the prepared graph has no arc c -> a"),
        (["{there}", "--weights", "{few}", "--out", "s3://B/p"], 2, "'s3://B/p' is no address of objects"),
        (["s3://B/p", "--weights", "{few}"], 2, "'s3://B/p' is no address of objects"),
        (["{missing}", "--weights", "{few}"], 2, "there is no store"),
        (["{there}", "--weights", "{missing}"], 2, "missing"),
    ],
)
def test_weights_that_cannot_be_taken_are_refused(roads, tmp_path, capsys, words, code, message):
    (tmp_path / "few.csv").write_text("a,b,1\n")
    (tmp_path / "wrong.csv").write_text("a,b,1\nc,a,1\n")
    there = tmp_path / "there"
    said(capsys, "prepare", roads, "--directed", "--out", there)
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    places = {name: tmp_path / f"{name}.csv" for name in ("few", "wrong", "missing")}
    assert main.run(["reweight", *[word.format(there=there, **places) for word in words]]) == code
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before
    assert not list(tmp_path.glob(".*"))


def test_a_device_is_refused_where_it_cannot_answer(roads, tmp_path, capsys, monkeypatch):
    from engine.devices.cuda.tables import resident
    from storage.errors import InvalidRequest

    def none(memory, index=0):
        raise InvalidRequest(f"there is no NVIDIA driver on this machine ({memory})", field="device")

    monkeypatch.setattr(resident, "usable_memory", none)
    said(capsys, "prepare", roads, "--directed", "--out", tmp_path / "p")
    ask = ["query", tmp_path / "p", "distance", "a", "e"]
    assert said(capsys, *ask, "--device", "auto", "--device-memory", "4GiB") == "10\n"
    said(capsys, "solve", roads, "--directed", "--out", tmp_path / "s.zarr")
    solved = ["query", tmp_path / "s.zarr", "distance", "a", "e", "--device"]
    assert said(capsys, *solved, "auto") == "10\n"
    export = ["export", tmp_path / "p", "-o", tmp_path / "all.csv", "--device", "cuda"]
    for words, message in (
        ([*ask, "--device", "cuda", "--device-memory", "2k"], "there is no NVIDIA driver on this machine (2000)"),
        (export, "there is no NVIDIA driver on this machine (None)"),
        ([*solved, "cuda"], "is a solved store, whose distances are read and not computed"),
        ([*ask, "--device-memory", "4GiB"], "--device-memory needs --device cuda or auto"),
        ([*ask, "--device", "auto", "--device-memory", "much"], "--device-memory"),
        ([*ask, "--server", "http://127.0.0.1:9", "--device", "cuda"], "APSP_ANSWER_DEVICE"),
    ):
        assert main.run([str(word) for word in words]) != 0
        error = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert message in error, error
    assert not (tmp_path / "all.csv").exists()


def test_a_plan_says_what_preparing_takes_and_prepares_nothing(roads, tmp_path, capsys):
    told = said(capsys, "plan", roads, "--prepared", "--out", tmp_path / "p")
    assert told.startswith("plan: prepared in uint16 on cpu")
    assert "tables  for 6 x 6 distances" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["roads.csv"]
    found = json.loads(said(capsys, "plan", roads, "--prepared", "--cutoff", "7", "--json"))["plan"]
    assert (found["algorithm"], found["cutoff"]) == ("prepared", 7)
    assert (
        json.loads(said(capsys, "prepare", roads, "--out", tmp_path / "p", "--json"))["plan"]["disk"] == found["disk"]
    )
    compact = json.loads(said(capsys, "plan", roads, "--prepared", "--compact", "--json"))["plan"]
    assert "the compact form" not in compact["reason"]
    assert "closed parts" in compact["reason"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-hops", "3"], "--max-hops cannot be kept"),
        (["--sources", "a"], "--sources cannot be said"),
        (["--algorithm", "dijkstra"], "algorithm dijkstra was asked for"),
        (["--device", "cuda"], "device cuda was asked for"),
        (["--semiring", "max-min"], "max-min"),
        (["--also", "km"], "km"),
    ],
)
def test_a_plan_refuses_what_preparing_refuses(roads, capsys, flags, message):
    assert main.run(["plan", str(roads), "--prepared", *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_of_a_matrix_has_no_compact_form(roads, capsys):
    assert main.run(["plan", str(roads), "--compact"]) == 2
    assert "say --prepared" in capsys.readouterr().err


def test_a_plan_refuses_tables_beyond_the_memory_with_the_numbers(roads, capsys):
    assert main.run(["plan", str(roads), "--prepared", "--memory", "1MiB", "--json"]) == 3
    out, err = capsys.readouterr()
    refused = json.loads(out)
    assert (refused["plan"], refused["resource"], refused["available"]) == (None, "memory", 2**20)
    assert [one["feasible"] for one in refused["candidates"]] == [False]
    assert "of memory 1048576" in err


def test_reweight_lists_no_option_of_reading_that_new_weights_cannot_have(capsys):
    told = said(capsys, "reweight", "--help")
    assert "How FILE is read:" in told
    for option in ("--unweighted", "--unit", "--coordinates", "--nodes", "GRAPH"):
        assert option not in told
