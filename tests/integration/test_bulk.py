"""Tests many graphs in one call, of the engine and of ``apsp solve-many``.

Each graph has the result that it has alone, and a graph that fails does not affect the others.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api import bulk
from engine.api.solve import make_plan
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cuda import bulk as cuda_bulk
from engine.execution.survey import survey
from engine.graph.analysis import describe
from engine.model.dtypes import settle
from engine.model.problem import Device, Options
from engine.model.progress import Monitor
from engine.planning.bulk import plan_bulk
from service.cli import main
from storage.errors import Cancelled, SolveFailed
from storage.graph.graph import Graph
from storage.matrix.reader import open_matrix
from tests.bulks import cycle, graph_of, mixed, same_as_alone, solved
from tests.stores import verify_matrix

GPU = Device("GPU", 2**30, 2**30, dict.fromkeys(("uint16", "int32", "float32", "float64"), 1e13))


@pytest.mark.parametrize("processes", [False, True])
def test_each_graph_like_alone(processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if processes:
        monkeypatch.setattr(bulk, "PROCESSES", 0.0)
    graphs = mixed()
    same_as_alone(graphs, tmp_path, solved(graphs, tmp_path, Options(device="cpu", threads=2)))


class OnTheCpu:
    """Closes stacks as the device does, with the CPU's kernels."""

    closed: list[tuple[int, ...]]

    def __init__(self, broken: bool = False) -> None:
        self.closed, self.broken, self.backend = [], broken, CpuBackend(1)

    def close(self, stack: Any, *, nonnegative: bool) -> None:
        if self.broken:
            raise SolveFailed("the GPU failed")
        self.closed.append(stack.shape)
        for matrix in stack:
            self.backend.close(matrix, nonnegative=nonnegative)
            if not nonnegative:
                settle(matrix)


def stand_in(monkeypatch: pytest.MonkeyPatch, *, broken: bool = False) -> OnTheCpu:
    device = OnTheCpu(broken)

    @contextmanager
    def device_stacks(*, memory: int | None = None) -> Iterator[OnTheCpu]:
        yield device

    monkeypatch.setattr(cuda_bulk, "device_stacks", device_stacks)
    return device


def stacked_plan(graphs: list[Graph], options: Options, memory: int = 2**30) -> Any:
    machine = replace(survey(), cuda=replace(GPU, memory=memory))
    return plan_bulk({i: describe(graph) for i, graph in enumerate(graphs)}, machine, options, stores=True)


@pytest.mark.parametrize("memory", [2**30, 2**26 + 2**20])
def test_stacks_give_what_each_graph_gives_alone(memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, graphs = stand_in(monkeypatch), [graph for graph in mixed() if graph.n]
    options = Options(device="cuda")
    results = solved(graphs, tmp_path, options, plan=stacked_plan(graphs, options, memory))
    same_as_alone(graphs, tmp_path, results)
    assert sum(shape[0] for shape in device.closed) == len(graphs)
    assert all(result.plan is not None and result.plan.device == "cuda" for result in results)
    assert "in one launch" in str(results[0].plan and results[0].plan.device_reason)


def test_a_device_that_fails_costs_nothing_but_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, broken=True)
    graphs = [graph_of(60, i, degree=50) for i in range(4)]
    plan = stacked_plan(graphs, Options(device="cuda"))
    same_as_alone(graphs, tmp_path, solved(graphs, tmp_path, Options(), plan=plan))
    results = solved(graphs, tmp_path / "asked", Options(device="cuda"), plan=plan)
    assert [result.failure.message for result in results if result.failure] == ["the GPU failed"] * 4


def test_a_negative_cycle_fails_its_graph_alone_and_is_named(tmp_path: Path) -> None:
    graphs = [graph_of(40, 1), cycle(), graph_of(50, 2)]
    results = solved(graphs, tmp_path)
    assert [result.failure is None for result in results] == [True, False, True]
    assert results[1].failure is not None
    assert results[1].failure.kind == "negative-cycle"
    assert sorted(results[1].failure.details["cycle"]) == [0, 1, 2]  # type: ignore[call-overload]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.zarr", "2.zarr"]


def test_a_store_that_cannot_be_written_fails_its_graph_alone(tmp_path: Path) -> None:
    (tmp_path / "1.zarr").write_text("not a store")
    results = solved([graph_of(40, i) for i in range(3)], tmp_path)
    assert [result.failure.kind if result.failure else None for result in results] == [None, "conflict", None]
    assert (tmp_path / "1.zarr").read_text() == "not a store"


def test_large_graphs_are_solved_alone_with_their_own_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.planning.bulk.ALONE_FROM", 1e-9)
    graphs = [graph_of(40, 1), graph_of(60, 2)]
    results = solved(graphs, tmp_path)
    same_as_alone(graphs, tmp_path, results)
    assert results[0].plan == make_plan(graphs[0], Options(device="cpu"), out=tmp_path) or results[0].plan


def test_a_stop_leaves_whole_stores_only(tmp_path: Path) -> None:
    class Stops(Monitor):
        done = 0

        def advance(self, amount: int) -> None:
            self.done += amount

        def cancelled(self) -> bool:
            return self.done >= 3

    with pytest.raises(Cancelled):
        solved([graph_of(40, i) for i in range(40)], tmp_path, monitor=Stops())
    stores = list(tmp_path.iterdir())
    assert 3 <= len(stores) < 40
    for store in stores:
        verify_matrix(store)


# ---- the command ----------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, n: int, seed: int) -> None:
    graph = graph_of(n, seed)
    tails = np.repeat(np.arange(n), np.diff(graph.indptr))
    rows = [f"{u},{v},{w}" for u, v, w in zip(tails, graph.heads, graph.weights, strict=True)]
    (folder / name).write_text("\n".join(["from,to,length", *rows]) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    for i, n in enumerate((20, 40, 70)):
        write(graphs, f"{i}.csv", n, i)
    (graphs / "bad.gr").write_text("p sp 3 1\na 1 9 4\n")
    (graphs / "cycle.csv").write_text("from,to,length\na,b,1\nb,a,-4\n")
    (graphs / ".hidden").write_text("")
    return graphs


def command(*arguments: object) -> int:
    return main.run(["solve-many", *map(str, arguments)])


def test_a_folder_becomes_stores_and_a_table(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = tmp_path / "stores", tmp_path / "table.csv"
    assert command(folder, "--out", out, "--summary", table, "--device", "cpu", "--json") == 1
    printed, said = capsys.readouterr()
    facts = json.loads(printed)
    assert (facts["graphs"], facts["done"], facts["skipped"], facts["failed"]) == (5, 3, 0, 2)
    assert [failure["code"] for failure in facts["failures"]] == ["invalid-graph", "negative-cycle"]
    assert sum(group["graphs"] for group in facts["groups"]) == 3
    assert "bad.gr: line 2: vertex 9" in said
    assert "a -> b -> a" in said or "b -> a -> b" in said
    assert sorted(p.name for p in out.iterdir()) == ["0.csv.zarr", "1.csv.zarr", "2.csv.zarr"]
    with table.open(newline="") as stream:
        rows = {Path(row["graph"]).name: row for row in csv.DictReader(stream)}
    assert len(rows) == 5
    assert rows["bad.gr"]["status"] == "failed"
    for name in ("0.csv", "1.csv", "2.csv"):
        with open_matrix(out / f"{name}.zarr") as matrix:
            assert int(rows[name]["diameter"]) == matrix.summary["diameter"]
            assert int(rows[name]["sum"]) == matrix.summary["sum"]


def test_a_second_run_skips_what_is_finished(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = tmp_path / "stores", tmp_path / "table.jsonl"
    for name in ("bad.gr", "cycle.csv"):
        (folder / name).unlink()
    assert command(folder / "0.csv", "--out", out, "--device", "cpu") == 0
    before = (out / "0.csv.zarr").stat().st_ino
    assert command(folder, "--out", out, "--device", "cpu", "--summary", table) == 0
    assert "3 graphs" in capsys.readouterr().out
    assert (out / "0.csv.zarr").stat().st_ino == before
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    assert [row["status"] for row in rows] == ["skipped", "done", "done"]
    assert all(row["diameter"] > 0 for row in rows)
    write(folder, "1.csv", 41, 9)  # another graph of the same name
    assert command(folder, "--out", out, "--device", "cpu") == 1
    assert "the store of another graph" in capsys.readouterr().err
    assert command(folder, "--out", out, "--device", "cpu", "--overwrite") == 0
    assert command(folder, "--out", out, "--device", "cpu", "--dtype", "float64") == 1
    assert "was solved with type uint16" in capsys.readouterr().err


def test_a_table_needs_no_stores_and_a_list_names_the_graphs(folder: Path, tmp_path: Path) -> None:
    table, names = tmp_path / "table.csv", tmp_path / "list.txt"
    names.write_text(f"{folder / '0.csv'}\n\n{folder / '2.csv'}\n")
    assert command(f"@{names}", "--summary", table, "--device", "cpu") == 0
    assert [line.split(",")[1] for line in table.read_text().splitlines()] == ["status", "done", "done"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graphs", "list.txt", "table.csv"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{0}"], "--out"),
        (["{0}/nothing", "--summary", "{1}/t.csv"], "there is no file or folder"),
        (["{0}/0.csv", "{1}/0.csv", "--out", "{1}/out"], "would all have the store"),
        (["{1}/empty", "--summary", "{1}/t.csv"], "no graph file"),
        (["{0}", "--out", "{0}/0.csv"], "is no folder"),
        (["{0}", "--out", "{1}/out", "--memory", "much"], "--memory"),
    ],
)
def test_bad_use_is_refused_before_anything_is_solved(
    arguments: list[str], says: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path, "0.csv", 10, 1)
    assert command(*(text.format(folder, tmp_path) for text in arguments)) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert says in err
    assert not (tmp_path / "out").exists()
