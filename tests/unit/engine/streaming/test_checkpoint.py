"""Searches that are stopped go on after their finished rows, and end as if they had never been stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api import solve as solving
from engine.api.solve import make_plan, solve_to_store
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.streaming import checkpoint
from storage.errors import Cancelled, Conflict, StorageFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.stores import verify_matrix


def sample(n: int = 700, low: int = 1, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    height = rng.integers(0, 30, n) * (low < 0)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    weights = rng.integers(1, 100, 4 * n) + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=n, directed=True)[0]


class StopAfter(Monitor):
    """Asks to stop once so many rows are searched."""

    def __init__(self, rows: int) -> None:
        self.left, self.searched, self.phase = rows, 0, ""

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.phase = phase

    def advance(self, amount: int) -> None:
        if self.phase == "search":
            self.left -= amount
            self.searched += amount

    def cancelled(self) -> bool:
        return self.phase == "search" and self.left <= 0


@pytest.fixture
def eager(monkeypatch):
    """Commits at every opportunity, and small batches."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    for name in ("BATCH_SECONDS", "BUSY_SECONDS", "FIRST_ENTRIES", "BUSY_ENTRIES"):
        monkeypatch.setattr(f"engine.algorithms.dijkstra.{name}", 0)


def same_matrix(one: Path, other: Path) -> None:
    with open_matrix(one) as a, open_matrix(other) as b:
        np.testing.assert_array_equal(a.sources, b.sources)
        np.testing.assert_array_equal(a.rows(a.sources), b.rows(b.sources))
        assert a.summary == b.summary
    verify_matrix(other)


@pytest.mark.parametrize("some", [False, True], ids=["all", "some sources"])
@pytest.mark.parametrize("algorithm", ["dijkstra", "johnson"])
def test_a_stopped_search_goes_on_after_its_finished_rows(tmp_path, eager, algorithm, some):
    graph = sample(low=-1 if algorithm == "johnson" else 1)
    sources = tuple(np.random.default_rng(1).permutation(graph.n)[:500].tolist()) if some else None
    options = Options(algorithm=algorithm, sources=sources)
    solve_to_store(graph, options, tmp_path / "once.zarr")
    path, total = tmp_path / "d.zarr", 0
    for attempt in range(20):
        monitor = StopAfter(100)
        try:
            outcome = solve_to_store(graph, options, path, resume=attempt > 0, monitor=monitor)
        except Cancelled:
            total += monitor.searched
            assert find_checkpoint(path).record["rows"] == total
            continue
        total += monitor.searched
        break
    assert attempt >= 2
    assert total == (500 if some else graph.n)
    assert set(outcome.seconds) >= {"create", "search", "seal"}
    same_matrix(tmp_path / "once.zarr", path)
    assert find_checkpoint(path) is None
    assert {p.name for p in tmp_path.iterdir()} == {"once.zarr", "d.zarr"}


def stopped(graph: Graph, path: Path, options: Options, rows: int = 100) -> None:
    with pytest.raises(Cancelled):
        solve_to_store(graph, options, path, monitor=StopAfter(rows))


def test_a_short_solve_that_is_stopped_leaves_nothing(tmp_path):
    stopped(sample(), tmp_path / "d.zarr", Options(algorithm="dijkstra"))
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_solve_keeps_what_was_much_work(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    stopped(sample(), tmp_path / "d.zarr", Options(algorithm="dijkstra"))
    assert find_checkpoint(tmp_path / "d.zarr").record["rows"] >= 64


def test_the_algorithm_and_type_of_a_checkpoint_are_kept(tmp_path, eager):
    graph, path = sample(), tmp_path / "d.zarr"
    stopped(graph, path, Options(algorithm="dijkstra", dtype="int32"))
    plan = make_plan(graph, Options(), out=path, resume=True)
    assert (plan.algorithm, plan.dtype) == ("dijkstra", "int32")
    with pytest.raises(Conflict, match="checkpoint of dijkstra, and algorithm repeated-squaring"):
        make_plan(graph, Options(algorithm="repeated-squaring"), out=path, resume=True)
    with pytest.raises(Conflict, match="checkpoint of int32, and type float64"):
        make_plan(graph, Options(dtype="float64"), out=path, resume=True)
    # a plan that was made without looking is made anew
    dense = make_plan(graph, Options(algorithm="recursive-floyd-warshall"))
    outcome = solve_to_store(graph, Options(), path, plan=dense, resume=True)
    assert outcome.plan.algorithm == "dijkstra"


def test_a_checkpoint_is_no_excuse_for_another_graph(tmp_path, eager):
    path = tmp_path / "d.zarr"
    stopped(sample(), path, Options(algorithm="dijkstra"))
    with pytest.raises(Conflict, match=r"another graph"):
        solve_to_store(sample(seed=1), Options(), path, resume=True)
    with pytest.raises(Conflict, match=r"--resume.*--overwrite"):
        solve_to_store(sample(), Options(), path)
    solve_to_store(sample(seed=1), Options(), path, overwrite=True)
    verify_matrix(path)


@pytest.mark.parametrize("also", [(), ("toll",)], ids=["distances", "sums"])
def test_a_plan_takes_nothing_from_the_checkpoint_of_another_matrix(tmp_path, eager, monkeypatch, also):
    """Neither type nor algorithm, whether the checkpoint is refused or replaced."""
    path, other = tmp_path / "d.zarr", sample()
    stopped(replace(other, weights=other.weights / 7), path, Options(algorithm="dijkstra", dtype="float32"))
    graph = replace(sample(seed=1), quantities={"toll": np.ones(sample(seed=1).arcs, np.int32)})
    options = Options(also=also, device="cpu")
    plan, fresh = make_plan(graph, options, out=path, resume=True), make_plan(graph, options)
    assert (plan.dtype, plan.sums) == (fresh.dtype, fresh.sums) == ("uint16", fresh.sums)
    asked = replace(options, algorithm="recursive-floyd-warshall", dtype="int32")
    assert make_plan(graph, asked, out=path, resume=True).dtype == "int32"
    with pytest.raises(Conflict, match="is of another graph"):
        solve_to_store(graph, options, path, resume=True)
    assert find_checkpoint(path).identity["type"] == "float32"
    monkeypatch.setattr(solving, "make_plan", lambda *_, **__: pytest.fail("a plan that suits was made anew"))
    outcome = solve_to_store(graph, options, path, plan=plan, resume=True, overwrite=True)
    assert outcome.plan is plan
    with open_matrix(path) as matrix:
        assert matrix.dtype.name == "uint16"
    verify_matrix(path)


def test_the_space_that_a_checkpoint_takes_is_not_asked_for_again(tmp_path, eager, monkeypatch):
    graph, path = sample(), tmp_path / "d.zarr"
    stopped(graph, path, Options(algorithm="dijkstra"), rows=400)
    found = find_checkpoint(path)
    plan = make_plan(graph, Options(), out=path, resume=True)
    free = type("usage", (), {"free": plan.disk - found.bytes + 1})
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    assert make_plan(graph, Options(), out=path, resume=True).disk == plan.disk


def test_rows_that_were_damaged_meanwhile_are_not_taken_for_done(tmp_path, eager):
    graph, path = sample(), tmp_path / "d.zarr"
    stopped(graph, path, Options(algorithm="dijkstra"))
    tile = tmp_path / ".d.zarr.working" / "store" / "distances" / "c" / "0" / "0"
    data = bytearray(tile.read_bytes())
    data[77] ^= 2
    tile.write_bytes(data)
    with pytest.raises(StorageFailed, match=r"rows 0 to 63.*damaged"):
        solve_to_store(graph, Options(), path, resume=True)
    solve_to_store(graph, Options(), path, overwrite=True)
    verify_matrix(path)
