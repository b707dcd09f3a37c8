"""Batches: their sizes, the order of rows, what is held, how a cancelled or failing solve ends."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra as scipy_dijkstra

from engine.algorithms.dijkstra import Batches, run
from engine.backends.base import Arcs
from engine.backends.cpu_search import search
from engine.backends.team import Team
from engine.monitor import Monitor
from storage.errors import Cancelled, StorageFailed
from storage.graph import Graph

Array = npt.NDArray[np.generic]


class Searcher:
    """The search verb of a backend; remembers how many rows each call had."""

    name, threads = "searcher", 2

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._team = Team(2)

    def search(self, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, *, unit: bool = False) -> None:
        self.calls.append(len(sources))
        search(self._team, arcs, sources, out, unit)

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False) -> None:
        raise AssertionError("a search needs no product")

    def close(self, d: Array, *, nonnegative: bool, symmetric: bool = False) -> None:
        raise AssertionError("a search closes no block")

    def shutdown(self) -> None:
        self._team.close()


class Collect:
    """A sink in memory that checks what it is promised."""

    def __init__(self, rows: int, n: int, dtype: str, tile: int) -> None:
        self.array = np.full((rows, n), 99, dtype)
        self.tile = (tile, n)
        self.writers: set[int] = set()

    def write(self, row: int, column: int, block: Array) -> None:
        assert row % self.tile[0] == 0
        assert column == 0
        assert len(block) % self.tile[0] == 0 or row + len(block) == len(self.array)
        self.writers.add(threading.get_ident())
        self.array[row : row + len(block)] = block


class Tally(Monitor):
    def __init__(self, stop_after: int | None = None) -> None:
        self.begun: list[tuple[str, int, str]] = []
        self.done = 0
        self.stop_after = stop_after

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.begun.append((phase, total, unit))

    def advance(self, amount: int) -> None:
        self.done += amount

    def cancelled(self) -> bool:
        return self.stop_after is not None and self.done >= self.stop_after


def make_graph(n: int, m: int, seed: int = 1) -> Graph:
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, n, m) * n + rng.integers(0, n, m))
    keys = keys[keys // n != keys % n]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(keys // n, minlength=n))))
    weights = rng.integers(0, 50, len(keys)).astype(np.int32)
    return Graph(indptr, (keys % n).astype(np.int32), weights, np.arange(n), directed=True, weighted=True)


def oracle(graph: Graph, sources: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return np.asarray(scipy_dijkstra(matrix, indices=sources))


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 500])
def test_rows_come_out_whole_and_in_the_order_of_the_sources(rows: int) -> None:
    graph = make_graph(500, 2_000)
    sources = np.random.default_rng(3).permutation(500)[:rows]
    backend, sink, tally = Searcher(), Collect(rows, 500, "float64", 64), Tally()
    run(backend, graph, sources, "float64", sink, tally, 128)
    backend.shutdown()
    assert np.array_equal(sink.array, oracle(graph, sources))
    assert tally.begun == [("search", rows, "rows")]
    assert tally.done == rows == sum(backend.calls)
    assert max(backend.calls) <= 128
    assert threading.get_ident() not in sink.writers


def test_unit_weights_give_hops() -> None:
    graph = make_graph(200, 600)
    ones = Graph(graph.indptr, graph.heads, np.ones(graph.arcs, np.int32), graph.labels, directed=True, weighted=False)
    backend, sink = Searcher(), Collect(200, 200, "float32", 32)
    run(backend, ones, np.arange(200), "float32", sink, Monitor(), 64, unit=True)
    backend.shutdown()
    assert np.array_equal(sink.array, oracle(ones, np.arange(200)).astype(np.float32))


def test_a_cancelled_solve_stops_after_the_present_batch() -> None:
    graph = make_graph(400, 1_000)
    backend, tally = Searcher(), Tally(stop_after=1)
    with pytest.raises(Cancelled):
        run(backend, graph, np.arange(400), "int32", Collect(400, 400, "int32", 64), tally, 64)
    backend.shutdown()
    assert backend.calls == [64]


def test_a_sink_that_fails_ends_the_solve_with_its_error() -> None:
    class Full(Collect):
        def write(self, row: int, column: int, block: Array) -> None:
            raise StorageFailed("no space left")

    backend = Searcher()
    with pytest.raises(StorageFailed, match="no space"):
        run(backend, make_graph(400, 1_000), np.arange(400), "int32", Full(400, 400, "int32", 64), Monitor(), 64)
    backend.shutdown()
    assert len(backend.calls) <= 3


def test_batches_are_whole_tiles_that_grow_to_the_limit_and_cover_all_rows() -> None:
    batches = Batches(1_000, 16, 200)
    ranges = list(batches)
    assert batches.most == 192
    assert [len(r) for r in ranges[:4]] == [16, 64, 192, 192]
    assert all(a.stop == b.start for a, b in pairwise(ranges))
    assert ranges[0].start == 0
    assert ranges[-1].stop == 1_000
    assert Batches(10, 64, 1).most == 10


def test_slow_batches_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("engine.algorithms.dijkstra.time.perf_counter", lambda: clock[0])
    sizes = []
    for rows in Batches(4_000, 10, 4_000):
        sizes.append(len(rows))
        clock[0] += len(rows) * 0.003
    assert sizes[:4] == [10, 40, 100, 100]
