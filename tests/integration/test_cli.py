"""Tests the real command ``apsp``, from a file to answers, with everything that can go wrong on the way.

Solves run in new processes; the many questions and refusals run in this process, through the same entry point.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cli import main
from storage.graph.graph import build_graph
from storage.readers.named import NO_DIRECTION
from tests.commands import APSP
from tests.wrong import sealed

ROADS = "from,to,minutes\nharbour,market,4.5\nmarket,church,2\nchurch,harbour,1.25\nmarket,mill,10\nisland,harbour,3\n"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def apsp(*arguments: object, cwd: Path | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [*APSP, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, cwd=cwd)


def done(*arguments: object, cwd: Path | None = None) -> str:
    result = apsp(*arguments, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return result.stdout


Run = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command in this process; checks its exit code and returns its one line on standard error."""

    def run(code: int, *arguments: object) -> str:
        assert main.run([str(argument) for argument in arguments]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith("apsp: ")
        return err

    with kept_signals():
        yield run


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command in this process that must succeed; it may say that it assumed directions.  Returns its output."""

    def run(*arguments: object) -> str:
        assert main.run([str(argument) for argument in arguments]) == 0
        out, err = capsys.readouterr()
        assert err in ("", f"note: {NO_DIRECTION}\n")
        return out

    with kept_signals():
        yield run


@contextlib.contextmanager
def kept_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "roads.csv"
    path.write_text(ROADS)
    return path


@pytest.fixture(scope="module")
def store(roads: Path) -> Path:
    path = roads.with_name("roads.zarr")
    done("solve", roads, "--out", path)
    return path


def test_solve_says_plan_progress_and_summary(roads, tmp_path):
    out = tmp_path / "d.zarr"
    result = apsp("solve", roads, "--out", out)
    assert result.returncode == 0, result.stderr
    assert "plan: " in result.stderr
    assert "seal: " in result.stderr
    assert str(out) in result.stdout
    assert "  diameter  17.5 from island to mill\n" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.zarr"]


def test_solve_with_json_prints_exactly_one_object(roads, tmp_path):
    result = apsp("solve", roads, "--out", tmp_path / "d.zarr", "--json", "--threads", 1, "--compression", "zstd")
    answer = json.loads(result.stdout)
    assert set(answer) == {"store", "graph", "plan", "seconds", "summary"}
    assert answer["plan"]["threads"] == 1
    assert answer["plan"]["candidates"][0]["rejected"] is None
    assert {"read", "plan", "seal"} <= set(answer["seconds"])
    assert answer["summary"]["diameter"] == 17.5
    assert answer["summary"]["reached"] == 13


def test_queries_name_vertices_as_in_the_file(store, ask):
    assert done("query", store, "distance", "island", "mill") == "17.5\n"
    assert ask("query", store, "distance", "mill", "island") == "inf\n"
    assert ask("query", store, "distance", "mill", "mill") == "0\n"
    assert ask("query", store, "row", "church").splitlines() == [
        "target\tdistance",
        "church\t0",
        "harbour\t1.25",
        "island\tinf",
        "market\t5.75",
        "mill\t15.75",
    ]
    assert ask("query", store, "path", "island", "church").splitlines() == [
        "vertex\tweight\tlength",
        "island\t-\t0",
        "harbour\t3\t3",
        "market\t4.5\t7.5",
        "church\t2\t9.5",
    ]
    assert ask("query", store, "path", "mill", "church") == "no path from mill to church\n"
    assert "diameter" in ask("query", store, "summary")
    assert ask("verify", store).splitlines() == [
        f"{store}: all tiles agree with the manifest",
        f"{store}: 5 of 5 rows agree with a new search of the graph",
    ]
    assert ask("verify", store, "--sample", "0") == f"{store}: all tiles agree with the manifest\n"


def test_queries_as_json_are_strict_objects(store, ask):
    def answer(*arguments: object) -> dict[str, Any]:
        return json.loads(ask("query", store, *arguments, "--json"), parse_constant=pytest.fail)

    assert answer("distance", "mill", "island")["distance"] is None
    assert answer("distance", "island", "mill")["distance"] == 17.5
    assert answer("path", "island", "market")["vertices"] == ["island", "harbour", "market"]
    assert answer("path", "mill", "market")["reachable"] is False
    row = answer("row", "church")
    assert dict(zip(row["targets"], row["distances"], strict=True))["island"] is None
    assert answer("summary")["summary"]["pairs"] == 20
    facts = {"store": str(store), "verified": True, "sources": 5}
    assert json.loads(ask("verify", store, "--json")) == {**facts, "searched": 5}
    assert json.loads(done("verify", store, "--sample", 2, "--json")) == {**facts, "searched": 2}


def test_inspect_and_plan_solve_nothing(roads, ask):
    facts = json.loads(ask("inspect", roads, "--json"))
    assert (facts["vertices"], facts["arcs"], facts["directed"]) == (5, 5, True)
    assert (facts["weak_components"], facts["strong_components"]) == (1, 3)
    assert facts["weights"]["smallest"] == 1.25
    assert "5" in ask("inspect", roads)
    plan = json.loads(ask("plan", roads, "--json"))["plan"]
    assert plan["shape"] == [5, 5]
    said = ask("plan", roads, "--dtype", "float64", "--algorithm", "recursive-floyd-warshall")
    assert "plan: recursive-floyd-warshall in float64" in said
    assert all(candidate["algorithm"] in said for candidate in plan["candidates"])
    assert sorted(path.name for path in roads.parent.iterdir() if path.suffix != ".zarr") == ["roads.csv"]


def test_reading_options_reach_the_reader(roads, tmp_path, ask):
    hops = json.loads(done("solve", roads, "--out", tmp_path / "h", "--unweighted", "--undirected", "--json"))
    assert hops["summary"]["diameter"] == 3
    assert hops["summary"]["reached"] == 20
    named = json.loads(ask("inspect", roads, "--weight", "minutes", "--format", "edges", "--json"))
    assert named["weights"]["largest"] == 10


def test_hop_limit_and_sources_make_a_labelled_rectangle(roads, tmp_path, ask, refused):
    names = tmp_path / "sources.txt"
    names.write_text("island\n\n market \nisland\n")
    out = tmp_path / "d.zarr"
    for given in ("island,market", str(names)):
        done("solve", roads, "--out", out, "--sources", given, "--max-hops", 2, "--overwrite")
        summary = json.loads(ask("query", out, "summary", "--json"))
        assert summary["shape"] == [2, 5]
        assert ask("query", out, "distance", "island", "market") == "7.5\n"
        assert ask("query", out, "distance", "island", "mill") == "inf\n"
        assert "church" in refused(2, "query", out, "row", "church")


@pytest.fixture
def solve_here(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """The command line in this process, whose standard input tests can replace."""

    def run(*arguments: object) -> None:
        code = main.run([str(argument) for argument in arguments])
        assert code == 0, capsys.readouterr().err
        capsys.readouterr()

    return run


def test_targets_and_a_cutoff_make_a_labelled_rectangle(roads, tmp_path, ask, refused, monkeypatch, solve_here):
    out, table = tmp_path / "d.zarr", tmp_path / "targets.csv"
    table.write_text('mill,1\n"market",2\n\nmill,3\n')
    names = tmp_path / "targets"
    names.write_text("mill\nmarket\n")
    for given in ("mill, market", str(table), f"@{names}", "-"):
        monkeypatch.setattr("sys.stdin", io.StringIO("mill\n market \n"))
        solve_here("solve", roads, "--out", out, "--sources", "island,church", "--targets", given, "--overwrite")
        facts = json.loads(ask("query", out, "summary", "--json"))
        assert (facts["shape"], facts["summary"]["pairs"]) == ([2, 2], 4)
        assert json.loads(ask("query", out, "row", "island", "--json"))["targets"] == ["mill", "market"]
        assert ask("query", out, "distance", "island", "mill") == "17.5\n"
        assert "mill" in ask("query", out, "path", "island", "mill")
        said = refused(2, "query", out, "distance", "island", "church")
        assert "vertex church was not solved as a target; this store holds 2 of 5" in said
    solve_here("solve", roads, "--out", out, "--targets", "mill,market", "--cutoff", "7.5", "--overwrite")
    assert ask("query", out, "distance", "island", "mill") == "inf\n"
    assert ask("query", out, "distance", "island", "market") == "7.5\n"
    assert "up to 7.5" in ask("plan", roads, "--cutoff", "7.5")


def test_what_is_both_a_vertex_and_a_file_is_the_vertex(tmp_path, ask, monkeypatch, solve_here):
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("a,b,1\nb,c,1\nb,-,1\n")
    Path("b").write_text("a\nc\n")
    for given, columns in (("b", 1), ("@b", 2), ('"-"', 1)):
        solve_here("solve", "g.csv", "--out", "d", "--targets", given, "--overwrite")
        assert json.loads(ask("query", "d", "summary", "--json"))["shape"] == [4, columns]


def test_sources_may_hold_commas_and_be_many(tmp_path, ask, refused):
    roads, out = tmp_path / "g.csv", tmp_path / "d.zarr"
    roads.write_text('from,to,km\n"B, c",A,2\nA,"A , z",3\n')
    for given, rows in (('"B, c", A,', ["B, c", "A"]), ("A , z", ["A , z"]), ("A," * 200, ["A"])):
        done("solve", roads, "--out", out, "--sources", given, "--overwrite")
        assert json.loads(ask("query", out, "summary", "--json"))["shape"] == [len(rows), 3]
        for name in rows:
            assert json.loads(ask("query", out, "row", name, "--json"))["source"] == name
    assert "--sources" in refused(2, "solve", roads, "--out", out, "--sources", '"A', "--overwrite")


def test_a_store_that_exists_is_left_alone_unless_told(roads, store, tmp_path, ask, refused):
    before = (store / "zarr.json").stat().st_mtime_ns
    assert "--overwrite" in refused(2, "solve", roads, "--out", store)
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b,1\nb,a,-2\n")
    refused(2, "solve", bad, "--out", store, "--overwrite")
    assert (store / "zarr.json").stat().st_mtime_ns == before
    assert ask("query", store, "distance", "island", "mill") == "17.5\n"


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["solve", "nowhere.gr", "--out", "d"], 2, "nowhere.gr"),
        (["solve", "broken.gr", "--out", "d"], 2, "line 2"),
        (["solve", "broken.gr", "--out", "no/d"], 2, "no does not exist"),
        (["solve", "cycle.csv", "--out", "d"], 2, "negative cycle"),
        (["solve", "roads.csv", "--out", "d", "--device", "cuda"], 2, "cuda"),
        (["solve", "roads.csv", "--out", "d", "--dtype", "uint16"], 2, "uint16"),
        (["solve", "roads.csv", "--out", "d", "--algorithm", "johnson"], 2, "johnson"),
        (["solve", "roads.csv", "--out", "d", "--format", "xlsx"], 2, "xlsx"),
        (["solve", "roads.csv", "--out", "d", "--weight", "hours"], 2, "hours"),
        (["solve", "roads.csv", "--out", "d", "--weight", "minutes", "--unweighted"], 2, "unweighted"),
        (["solve", "roads.csv", "--out", "d", "--memory", "lots"], 2, "--memory"),
        (["solve", "roads.csv", "--out", "d", "--memory", "1KiB"], 3, "memory"),
        (["solve", "roads.csv", "--out", "d", "--sources", "moon"], 2, "moon"),
        (["solve", "roads.csv", "--out", "d", "--sources", "@moon.txt"], 2, "moon.txt"),
        (["solve", "roads.csv", "--out", "d", "--sources", ","], 2, "--sources"),
        (["solve", "roads.csv", "--out", "d", "--targets", "mill,moon"], 2, "--targets: no vertex 'moon'"),
        (
            ["solve", "roads.csv", "--out", "d", "--targets", "@other.csv"],
            2,
            "--targets: other.csv, line 1: no vertex",
        ),
        (["solve", "roads.csv", "--out", "d", "--sources", "-", "--targets", "-"], 2, "cannot both"),
        (["solve", "roads.csv", "--out", "d", "--cutoff", "-1"], 2, "at least 0, found -1"),
        (["solve", "roads.csv", "--out", "d", "--cutoff", "nan"], 2, "'nan' is no number"),
        (["solve", "roads.csv", "--out", "d", "--cutoff", "1e-400"], 2, "'1e-400' is so small that float64 would"),
        (["inspect", "."], 2, "."),
        (["query", "nowhere.zarr", "summary"], 2, "nowhere.zarr"),
        (["query", "roads.csv", "summary"], 2, "roads.csv"),
        (["verify", "nowhere.zarr"], 2, "nowhere.zarr"),
        (["verify", "nowhere.zarr", "--sample", "half"], 2, "--sample takes a number of sources or all, found 'half'"),
        (["query", "photos", "summary"], 2, "photos is a folder, but no store"),
        (["query", "array.zarr", "distance", "a", "b"], 2, "array.zarr is a folder, but no store"),
        (["verify", "array.zarr"], 2, "array.zarr is a folder, but no store"),
        (["reweight", "roads.csv", "--weights", "other.csv"], 2, "roads.csv is a file"),
        (["reweight", "photos", "--weights", "roads.csv"], 2, "photos is a folder, but no store"),
        (["query", "spoiled.zarr", "summary"], 1, "spoiled.zarr"),
        # before anything is read: there is no such graph
        (["solve", "roads.csv", "--out", "photos", "--overwrite"], 2, "photos is no matrix store"),
        (["solve", "roads.csv", "--out", "array.zarr", "--overwrite"], 2, "array.zarr is no matrix store"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments, code, named, tmp_path, monkeypatch, refused):
    (tmp_path / "roads.csv").write_text(ROADS)
    (tmp_path / "other.csv").write_text("place\nmoon\n")
    (tmp_path / "broken.gr").write_text("p sp 2 1\na 1 x 3\n")
    (tmp_path / "cycle.csv").write_text("a,b,1\nb,c,1\nc,a,-3\n")
    for folder, document in (("photos", None), ("array.zarr", '{"zarr_format": 3}'), ("spoiled.zarr", '{"attri')):
        (tmp_path / folder).mkdir()
        if document is not None:
            (tmp_path / folder / "zarr.json").write_text(document)
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert named in refused(code, *arguments)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (["distance", "island", "moon"], "moon"),
        (["distance", "island"], "distance U V"),
        (["row"], "row U"),
        (["summary", "island"], "summary"),
        (["weather"], "weather"),
        (["row", "-5"], "-5"),
    ],
)
def test_questions_without_an_answer_are_refused(store, question, named, refused):
    assert named in refused(2, "query", store, *question)


def test_a_damaged_tile_is_told_and_fails(roads, tmp_path, refused):
    out = tmp_path / "d.zarr"
    done("solve", roads, "--out", out)
    tile = next(path for path in sorted((out / "distances").rglob("*")) if path.is_file() and path.name != "zarr.json")
    content = bytearray(tile.read_bytes())
    content[3] ^= 1
    tile.write_bytes(content)
    assert "distances" in refused(1, "verify", out)


def test_a_matrix_that_is_not_its_graph_s_is_told_and_fails(tmp_path, refused):
    """Every tile agrees with its checksum; one distance is wrong."""
    graph = build_graph([0, 1, 2], [1, 2, 0], [4, 5, 6], n=3, directed=True)[0]

    def change(array: Any) -> None:
        array[1, 0] = 10

    sealed(tmp_path / "d.zarr", graph, change).close()
    assert "from 1 to 0 it holds 10, and a new search of its graph finds 11" in refused(
        1, "verify", tmp_path / "d.zarr"
    )
    assert "from 1 to 0" in refused(1, "query", tmp_path / "d.zarr", "path", "1", "0")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough vertices that Floyd-Warshall on one thread takes some seconds."""
    path = tmp_path_factory.mktemp("large") / "large.txt"
    n, rng = 6000, np.random.default_rng(7)
    np.savetxt(path, np.column_stack([rng.integers(0, n, (4 * n, 2)), rng.random(4 * n)]), fmt=["%d", "%d", "%.6f"])
    return path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_solve_leaves_nothing(large, tmp_path, number, code):
    out = tmp_path / "d.zarr"
    options = ["--algorithm", "blocked-floyd-warshall", "--dtype", "float64", "--threads", "1"]
    # A shell starts background jobs with SIGINT ignored, and the tests may be one; apsp would respect that.
    start = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); from service.cli.main import main; main()"
    command = [sys.executable, "-c", start, "solve", str(large), "--out", str(out), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("plan: "):
            assert process.poll() is None
        time.sleep(1.0)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_error(large, tmp_path):
    out = tmp_path / "row.zarr"
    done("solve", large, "--out", out, "--sources", "0")
    command = f"{sys.executable} -m service.cli.main query {out} row 0 | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert result.stdout.splitlines()[0] == "target\tdistance"
    assert result.stdout.splitlines()[1] in {"0", "141"}
    with subprocess.Popen(
        [*APSP, "query", str(out), "summary", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_terminal_gets_a_bar(roads, tmp_path):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [*APSP, "solve", str(roads), "--out", str(tmp_path / "d.zarr")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux: the other side is closed
                break
            drawn += part
            if not part:
                break
    os.close(ours)
    assert process.returncode == 0
    assert b"100%" in drawn
    assert b"\x1b[" in drawn


@pytest.mark.parametrize("name", ["helsinki_drive.csv", "minnesota_km.mtx"])
def test_the_shipped_graphs_are_read_as_their_note_says(name, ask):
    facts = json.loads(ask("inspect", EXAMPLES / name, "--json"))
    notes = (EXAMPLES / "README.md").read_text()
    line = next(line for line in notes.splitlines() if line.startswith(f"| `{name}`"))
    assert f"| {facts['vertices']:,} |" in line
    assert f"| {facts['edges'] or facts['arcs']:,} {'arcs' if facts['directed'] else 'edges'} |" in line


def test_the_demo_goes_from_the_file_to_a_route():
    result = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"], capture_output=True, text=True, check=False, timeout=180
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "successful" in result.stdout
    assert "837,199 of 945,756 pairs are connected" in result.stdout
    assert ".sel(source=1483296617, target=760466577) = 113.722" in result.stdout
    assert "-(4.477 m)-> 760466577" in result.stdout


def test_version_names_the_release():
    assert done("version").startswith("apsp 0.")
    assert done("--version") == done("version")
