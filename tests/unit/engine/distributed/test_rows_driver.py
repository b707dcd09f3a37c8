"""The driver of searches over workers: every row once, whatever is lost when, and gone on with in any other way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.row_facts import count_rows, row_facts
from engine.devices.cpu.sweep import Sweeper
from engine.distributed import run
from engine.graph.partition import Lengths, Parts
from engine.model.backend import Arcs
from engine.model.dtypes import WorkType
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import RowFacts, Sink
from engine.streaming import checkpoint
from storage.errors import Cancelled, SolveFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.spreading import ToyCluster
from tests.unit.engine.distributed.dense.test_driver import same

N = 700


def sample(*, negative: bool = False, whole: bool = True, directed: bool = True) -> Graph:
    """A grid with some weights, which falls into parts well."""
    rng, side = np.random.default_rng(7), int(N**0.5)
    at = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:, 1:].ravel(), at[:-1].ravel(), at[1:].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[:, :-1].ravel(), at[1:].ravel(), at[:-1].ravel()])
    weights = rng.integers(1, 100, len(tails))
    if negative:
        height = rng.integers(0, 60, side * side)
        weights = weights + height[tails] - height[heads]
    return build_graph(tails, heads, weights if whole else weights / 8, n=side * side, directed=directed)[0]


def plan_for(graph: Graph, options: Options) -> Plan:
    return replace(make_plan(graph, replace(options, executor="local", scheduler=None)), from_targets=False, workers=2)


class ToySweep:
    """A GPU's sweep, as ``engine.devices.cuda.sweep`` has it, on the processors; batches leave late."""

    def __init__(self, parts: Parts, kind: WorkType, sources: np.ndarray, sink: Sink, nonnegative: bool) -> None:
        self.parts, self.kind, self.sources, self.sink, self.nonnegative = parts, kind, sources, sink, nonnegative

    def load(self, lengths: Lengths, potentials: np.ndarray | None) -> None:
        self.sweeper = Sweeper(self.parts, lengths, nonnegative=self.nonnegative, owner=CpuBackend(1))
        n = len(self.parts.position)
        self.arcs = Arcs(np.zeros(n + 1, np.int64), np.empty(0, np.int64), np.empty(0), potentials)

    def batches(self) -> Iterator[range]:
        for first in range(0, len(self.sources), 128):  # batches of a GPU are a multiple of as many rows
            yield range(first, min(first + 128, len(self.sources)))

    def begin(self, rows: range) -> None:
        self.rows, self.own = rows, self.sources[rows.start : rows.stop]
        self.block = np.empty((len(rows), len(self.parts.position)), self.kind.dtype)
        self.sweeper.search(self.arcs, self.own, self.block)

    def finish(self) -> RowFacts:
        return RowFacts(*row_facts(self.block, self.own))

    def histogram(self, width: float, counts: np.ndarray) -> int:
        return int(count_rows(self.block, self.own, width, counts))

    def leave(self) -> tuple[int, np.ndarray]:
        return self.rows.start, self.block

    def send(self, leaving: tuple[int, np.ndarray]) -> None:
        self.sink.write(leaving[0], 0, leaving[1])

    def written(self) -> None:
        self.sweeper.shutdown()


@contextmanager
def toy_sweep(
    parts: Parts, kind: WorkType, sources: np.ndarray, sink: Sink, *, threads: int, nonnegative: bool
) -> Iterator[ToySweep]:
    assert threads
    yield ToySweep(parts, kind, sources, sink, nonnegative)


def solve(
    cluster: ToyCluster,
    graph: Graph,
    options: Options,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str = "cpu",
    **more: object,
) -> None:
    found = {e.worker: e.info for e in cluster.news}  # type: ignore[union-attr]
    cluster.news.clear()
    monkeypatch.setattr(run, "Cluster", lambda address: cluster)
    monkeypatch.setattr(run, "gather", lambda *_: found)
    asked = replace(options, executor="dask", scheduler="toy")
    plan = replace(plan_for(graph, options), device=device)
    solve_to_store(graph, asked, path, plan=plan, **more)  # type: ignore[arg-type]


def expected(graph: Graph, options: Options, folder: Path) -> Path:
    path = folder / "expected.zarr"
    solve_to_store(graph, options, path)
    return path


CASES = [
    ("dijkstra", {}),
    ("johnson", {"negative": True}),
    ("johnson", {"negative": True, "whole": False}),
    ("partitioned", {}),
    ("partitioned", {"negative": True}),
    ("partitioned", {"negative": True, "whole": False}),
    ("partitioned", {"directed": False}),
]


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
def test_rows_over_workers_are_those_of_one_process(
    algorithm: str, kind: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, options, cluster = sample(**kind), Options(algorithm=algorithm), ToyCluster(3)
    solve(cluster, graph, options, tmp_path / "d.zarr", monkeypatch)
    assert cluster.done.count("search") >= 3
    same(tmp_path / "d.zarr", expected(graph, options, tmp_path), 0.0 if graph.integral else 1e-5)


@pytest.mark.parametrize("kind", [kind for algorithm, kind in CASES if algorithm == "partitioned"])
@pytest.mark.parametrize("narrow", [False, True])
def test_parts_swept_by_gpus_are_those_of_one_process(
    kind: dict[str, bool], narrow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.devices.cuda.sweep.device_sweep", toy_sweep)
    graph, cluster = sample(**kind), ToyCluster(3, device="cuda")
    some = {"sources": tuple(range(500, 90, -1)), "targets": (3, 9, 1), "cutoff": 300.0} if narrow else {}
    options = Options(algorithm="partitioned", **some)  # type: ignore[arg-type]
    solve(cluster, graph, options, tmp_path / "d.zarr", monkeypatch, "cuda")
    assert cluster.done.count("search") >= 3
    wanted = expected(graph, options, tmp_path)
    if not narrow:
        same(tmp_path / "d.zarr", wanted, 0.0 if graph.integral else 1e-5)
        return
    with open_matrix(tmp_path / "d.zarr") as a, open_matrix(wanted) as b:
        np.testing.assert_allclose(a.rows(a.sources), b.rows(b.sources), rtol=0.0 if graph.integral else 1e-5)


@pytest.mark.parametrize("algorithm", ["dijkstra", "partitioned"])
def test_a_rectangle_up_to_a_cutoff(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sample()
    options = Options(algorithm=algorithm, sources=tuple(range(500, 90, -1)), targets=(3, 9, 1), cutoff=300.0)
    solve(ToyCluster(2), graph, options, tmp_path / "d.zarr", monkeypatch)
    with open_matrix(tmp_path / "d.zarr") as a, open_matrix(expected(graph, options, tmp_path)) as b:
        np.testing.assert_array_equal(a.rows(a.sources), b.rows(b.sources))
        a.summary.pop("histogram"), b.summary.pop("histogram")
        assert a.summary == b.summary


@pytest.mark.parametrize("seed", range(4))
def test_workers_are_lost_and_come_at_any_time(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ToyCluster(3, seed=seed)

    def mischief(_: ToyCluster) -> None:
        if cluster.random.random() < 0.4 and len(cluster.workers) > 1:
            cluster.kill(cluster.random.choice(sorted(cluster.workers)), zombie=cluster.random.random() < 0.5)
        if cluster.random.random() < 0.4 and len(cluster.workers) < 5:
            cluster.add()

    cluster.mischief = mischief
    graph, options = sample(), Options(algorithm="dijkstra")
    solve(cluster, graph, options, tmp_path / "d.zarr", monkeypatch)
    assert cluster.number > 3
    same(tmp_path / "d.zarr", expected(graph, options, tmp_path))


class Until(Monitor):
    """Asks to stop after some rows."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0

    def advance(self, amount: int) -> None:
        self.seen += amount

    def cancelled(self) -> bool:
        return self.seen > self.most


@pytest.mark.parametrize("first", ["local", "dask"])
@pytest.mark.parametrize("then", ["local", "dask"])
def test_a_cancelled_solve_is_gone_on_with(
    first: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    monkeypatch.setattr("engine.algorithms.dijkstra.FIRST_ENTRIES", 64 * N)
    monkeypatch.setattr("engine.algorithms.dijkstra.BUSY_SECONDS", 0.0)
    monkeypatch.setattr("engine.algorithms.dijkstra.BATCH_SECONDS", 0.0)
    graph, path = sample(), tmp_path / "d.zarr"
    options = Options(algorithm="dijkstra", threads=2)  # with more threads, one batch would hold all rows
    if first == "dask":
        with pytest.raises(Cancelled):
            solve(ToyCluster(1, ordered=True), graph, options, path, monkeypatch, monitor=Until(300))
    else:
        with pytest.raises(Cancelled):
            solve_to_store(graph, options, path, monitor=Until(300))
    found = find_checkpoint(path)
    assert found is not None
    assert 0 < found.record["rows"] < graph.n
    if then == "dask":
        cluster = ToyCluster(2)
        solve(cluster, graph, options, path, monkeypatch, resume=True)
        assert "observe" in cluster.done
    else:
        solve_to_store(graph, options, path, resume=True)
    same(path, expected(graph, options, tmp_path))


def test_the_scheduler_lost_costs_back_to_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    graph, options, path, cluster = (
        sample(),
        Options(algorithm="dijkstra"),
        tmp_path / "d.zarr",
        ToyCluster(1, ordered=True),
    )
    cluster.mischief = lambda c: setattr(c, "lost", len(c.done) == 4)
    with pytest.raises(SolveFailed, match="lost"):
        solve(cluster, graph, options, path, monkeypatch)
    assert find_checkpoint(path) is not None
    solve(ToyCluster(2), graph, options, path, monkeypatch, resume=True)
    same(path, expected(graph, options, tmp_path))
