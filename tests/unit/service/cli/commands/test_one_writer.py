"""Every command that writes a result refuses, before it works, what another command writes; and leaves it as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from engine.api.near import near_pairs
from engine.api.prepared import prepare
from engine.model.problem import Options
from service.cli import main
from storage.errors import Conflict
from storage.files.writing import Writing
from storage.graph.graph import build_graph
from storage.matrix.download import Download
from storage.matrix.frame import MatrixSpec
from storage.matrix.working import open_working
from storage.matrix.writer import create_matrix
from storage.pairs.saving import save_pairs
from tests.stores import line_graph

GRAPH = build_graph([0, 1], [1, 2], [1, 2], n=3, directed=True)[0]

#: The words of each command that writes, and the ending of what it writes.
COMMANDS = {
    "solve": (["solve", "{graph}", "--overwrite", "-o", "{out}"], ".zarr"),
    "prepare": (["prepare", "{graph}", "--overwrite", "-o", "{out}"], ".zarr"),
    "reweight": (["reweight", "{prepared}", "--weights", "{graph}", "--overwrite", "-o", "{out}"], ".zarr"),
    "reweight in place": (["reweight", "{out}", "--weights", "{graph}"], ".zarr"),
    "near": (["near", "{graph}", "--cutoff", "3", "--overwrite", "-o", "{out}"], ".zarr"),
    "near, a table": (["near", "{graph}", "--cutoff", "3", "--overwrite", "-o", "{out}"], ".csv"),
    "measure": (["measure", "{graph}", "--overwrite", "-o", "{out}"], ".csv"),
    "betweenness": (["betweenness", "{graph}", "--overwrite", "-o", "{out}"], ".csv"),
    "assign": (["assign", "{graph}", "--demands", "{demands}", "--overwrite", "-o", "{out}"], ".csv"),
    "assign, what has no path": (
        ["assign", "{graph}", "--demands", "{demands}", "--overwrite", "--unreachable", "{out}"],
        ".csv",
    ),
    "export": (["export", "{prepared}", "-o", "{out}"], ".csv"),
    "plot": (["plot", "{solved}", "-o", "{out}"], ".png"),
    "query": (["query", "{solved}", "path", "0", "2", "-o", "{out}"], ".geojson"),
}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A graph file, a solved store and a prepared graph."""
    graph = tmp_path / "graph.csv"
    graph.write_text("from,to,km\n0,1,1\n1,2,2\n")
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("id,lon,lat\n0,24,60\n1,25,60\n2,25,61\n")
    assert main.run(["solve", str(graph), "--directed", "--nodes", str(nodes), "-o", str(tmp_path / "solved")]) == 0
    demands = tmp_path / "demands.csv"
    demands.write_text("origin,destination,flow\n0,2,5\n2,0,1\n")
    prepare(GRAPH, tmp_path / "prepared")
    return {name: tmp_path / name for name in ("solved", "prepared")} | {"graph": graph, "demands": demands}


def held(target: Path, act: Callable[[], object]) -> object:
    """Do something while another thread writes a place; like another process, it has the right alone."""
    taken, done = threading.Event(), threading.Event()

    def write() -> None:
        with Writing(target, "prepare"):
            taken.set()
            done.wait(60)

    thread = threading.Thread(target=write)
    thread.start()
    taken.wait(60)
    try:
        return act()
    finally:
        done.set()
        thread.join()


def in_another_thread(act: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_what_another_one_writes(places, tmp_path: Path, capsys, name: str):
    words, ending = COMMANDS[name]
    out = tmp_path / f"out{ending}"
    if name == "reweight in place":
        prepare(GRAPH, out)
    said = [word.format(out=out, **places) for word in words]
    if name not in ("plot", "export", "query"):
        said.append("--directed")
    before = contents(tmp_path)
    assert held(out, lambda: main.run(said)) == 2
    error = capsys.readouterr().err
    assert f"another process is writing {out}: apsp prepare, process" in error
    assert "plan:" not in error, "it is refused before it works"
    assert contents(tmp_path) == before
    assert main.run(said) == 0, "and it is not, afterwards"
    assert not (tmp_path / f".{out.name}.writing").exists()


def test_every_command_that_writes_a_place_is_here():
    """``plan`` and ``solve-many`` take a place, too: one writes nothing, the other many stores, see below."""
    group = typer.main.get_command(main.app)
    assert isinstance(group, TyperGroup)
    writers = {name for name, one in group.commands.items() if any("--out" in option.opts for option in one.params)}
    covered = {name.partition(" ")[0].rstrip(",") for name in COMMANDS}
    assert covered <= writers
    assert writers - covered == {"plan", "solve-many", "fetch"}


@pytest.mark.parametrize(
    "write",
    [
        lambda out: create_matrix(out, line_graph(3), MatrixSpec("float32", float("inf"))),
        lambda out: open_working(out, line_graph(3), MatrixSpec("float32", float("inf"))),
        lambda out: prepare(GRAPH, out),
        lambda out: save_pairs(near_pairs(GRAPH, Options(), nearest=1), out.with_suffix(".csv")),
    ],
    ids=["create_matrix", "open_working", "prepare", "save_pairs"],
)
def test_functions_refuse_it_likewise(tmp_path: Path, write):
    out = tmp_path / "out"
    with pytest.raises(Conflict, match="apsp prepare"):
        held(out.with_suffix(".csv"), lambda: held(out, lambda: write(out)))
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_download_refuses_it_likewise(places, tmp_path: Path):
    document = (places["solved"] / "zarr.json").read_bytes()
    out = tmp_path / "out"
    with pytest.raises(Conflict, match="apsp prepare"):
        held(out, lambda: Download(out, document))
    assert not out.exists()
    with Download(out, document), pytest.raises(Conflict, match="apsp fetch"):
        in_another_thread(lambda: create_matrix(out, line_graph(3), MatrixSpec("float32", float("inf"))))
    assert not (tmp_path / ".out.writing").exists()
