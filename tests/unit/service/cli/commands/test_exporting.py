"""``apsp export`` and ``apsp query`` on a solved store and a prepared graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from service.cli import main
from service.cli.commands import exporting
from storage.errors import Cancelled


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same small graph solved, prepared, and solved with a cutoff of 2."""
    folder = tmp_path_factory.mktemp("stores")
    graph = folder / "g.csv"
    graph.write_text("from,to,length\na,b,1\nb,c,1\nc,d,2\nd,a,5\n")
    found = {name: folder / name for name in ("solved", "prepared", "cut")}
    for command in (
        ["solve", graph, "--out", found["solved"], "--directed"],
        ["solve", graph, "--out", found["cut"], "--directed", "--cutoff", 2],
        ["prepare", graph, "--out", found["prepared"], "--directed"],
    ):
        assert main.run([str(word) for word in command]) == 0
    return found


@pytest.fixture(autouse=True)
def quiet(capsys, keep_signals):
    capsys.readouterr()


@pytest.fixture
def keep_signals():
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("store", ["solved", "prepared"])
def test_a_table_of_the_nearest(stores, store, tmp_path, capsys):
    out = tmp_path / "x.csv"
    assert main.run(["export", str(stores[store]), "-o", str(out), "--sources", "d,a", "--nearest", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(out), "sources": 2, "targets": 4, "bytes": out.stat().st_size,
    }  # fmt: skip
    assert out.read_text() == "source,target,distance\nd,a,5\nd,b,6\na,b,1\na,c,2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize("store", ["solved", "prepared"])
def test_distances_that_no_type_holds_are_limits(stores, store, tmp_path, capsys):
    out = tmp_path / "x.csv"
    for limit, rows in (("inf", 16), ("1e300", 16), ("-5", 0), ("-inf", 0)):
        assert main.run(["export", str(stores[store]), "-o", str(out), f"--within={limit}"]) == 0
        assert len(out.read_text().splitlines()) == 1 + rows
        capsys.readouterr()
        assert main.run(["query", str(stores[store]), "within", "--", "a", limit]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1 + rows // 4


@pytest.mark.parametrize("store", ["solved", "prepared"])
def test_an_array_and_a_wide_table(stores, store, tmp_path):
    assert main.run(["export", str(stores[store]), "-o", str(tmp_path / "x.npy")]) == 0
    assert np.load(tmp_path / "x.npy").tolist() == [[0, 1, 2, 4], [8, 0, 1, 3], [7, 8, 0, 2], [5, 6, 7, 0]]
    words = ["--targets", "c,a", "--within", "2", "--wide"]
    assert main.run(["export", str(stores[store]), "-o", str(tmp_path / "x.parquet"), *words]) == 0
    table = pl.read_parquet(tmp_path / "x.parquet")
    assert table.rows() == [("a", 2, 0), ("b", 1, None), ("c", 0, None), ("d", None, None)]


@pytest.mark.parametrize("store", ["solved", "prepared"])
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("nearest", "a", "2"), "target\tdistance\nb\t1\nc\t2\n"),
        (("within", "a", "2"), "target\tdistance\na\t0\nb\t1\nc\t2\n"),
        (("within", "d", "0.5"), "target\tdistance\nd\t0\n"),
    ],
)
def test_questions_about_what_is_near(stores, store, words, lines, capsys):
    assert main.run(["query", str(stores[store]), *words]) == 0
    assert capsys.readouterr().out == lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "solved", "-o", "x.omx", "--wide"], "holds whole matrices"),
        (["export", "solved", "-o", "x.omx", "--within", "2"], "holds whole matrices"),
        (["export", "solved", "-o", "x.omx", "--within", "0"], "holds whole matrices"),
        (["export", "solved", "-o", "x.npy", "--also", "toll"], "the store has no 'toll'; it has none"),
        (["export", "solved", "-o", "x.xlsx"], ".parquet"),
        (["export", "solved", "-o", "nowhere/x.csv"], "nowhere does not exist"),
        (["export", "solved", "-o", "x.csv", "--sources", "a,q"], "no vertex 'q'"),
        (["export", "solved", "-o", "x.csv", "--within", "nan"], "'nan' is no number"),
        (["export", "solved", "-o", "x.csv", "--nearest", "0"], "--nearest"),
        (["export", "cut", "-o", "x.csv", "--within", "2.5"], "cutoff of 2"),
        (["export", "cut", "-o", "x.csv", "--within", "2.00000001"], "2.00000001 is asked for"),
        (["export", "nothing", "-o", "x.csv"], "nothing"),
        (["query", "cut", "within", "a", "3"], "cutoff of 2"),
        (["query", "solved", "within", "a", "far"], "within takes a distance: 'far' is no number"),
        (["query", "solved", "within", "a", "1e-400"], "within takes a distance: '1e-400' is so small that float64"),
        (["query", "solved", "nearest", "a", "0"], "'0'"),
        (["query", "solved", "nearest", "a"], "2 needed"),
    ],
)
def test_what_cannot_be_done_is_one_line(stores, words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.run([str(stores.get(word, word)) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(stores, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(exporting.ExportedPart, "least_bytes", lambda *_: 10**18)
    assert main.run(["export", str(stores["solved"]), "-o", str(tmp_path / "x.npy")]) == 3
    assert "x.npy becomes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_an_interrupted_export_leaves_what_was_there(stores, kind, tmp_path, monkeypatch, capsys):
    out = tmp_path / f"x{kind}"
    out.write_text("before")
    there = set()

    def stop(*_):
        there.update(tmp_path.iterdir())
        raise Cancelled("the job was cancelled")

    monkeypatch.setattr(exporting.ProgressMonitor, "step", stop)
    assert main.run(["export", str(stores["solved"]), "-o", str(out)]) == 130
    assert len(there) == 3  # the old file, the new one, which nobody makes later, and its lock
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]


def test_the_header_of_a_table_of_vertices_is_skipped_and_told(stores, tmp_path, capsys):
    some, out = tmp_path / "some.csv", tmp_path / "x.csv"
    some.write_text("node,name\na,first\nc,third\n")
    assert main.run(["export", str(stores["solved"]), "-o", str(out), "--sources", f"@{some}", "--nearest", "1"]) == 0
    assert out.read_text() == "source,target,distance\na,b,1\nc,d,2\n"
    assert "note: 'node', the first line of" in capsys.readouterr().err
    some.write_text("node,name\nalso wrong,x\na,first\n")
    assert main.run(["export", str(stores["solved"]), "-o", str(out), "--sources", str(some)]) == 2
    assert "line 1: no vertex 'node'" in capsys.readouterr().err


def test_a_name_that_is_nearly_right_is_told(stores, tmp_path, capsys):
    graph = tmp_path / "g.csv"
    graph.write_text("from,to,w\nHarbour,Market,1\nMarket,Station,2\n")
    words = ["solve", str(graph), "--out", str(tmp_path / "s"), "--directed", "--sources", "Harbor"]
    assert main.run(words) == 2
    assert "Did you mean 'Harbour'?" in capsys.readouterr().err
