"""What the tests of batched searches share: a backend that only searches, a sink and a monitor that keep account."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra as scipy_dijkstra

from engine.algorithms.context import SolveContext
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.searches import Searches
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.backend import Arcs
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import Sink
from storage.graph.graph import Graph

Array = npt.NDArray[np.generic]


class Searcher(CpuBackend):
    """A backend that only searches, with two threads if nothing is said; remembers how many rows each batch had."""

    def __init__(self, threads: int = 2) -> None:
        super().__init__(threads)
        self.calls: list[int] = []

    def begin_search(self, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, *given: Any) -> Searches:
        self.calls.append(len(sources))
        return super().begin_search(arcs, sources, out, *given)

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False) -> None:
        raise AssertionError("a search needs no product")

    def close(self, d: Array, *, nonnegative: bool, symmetric: bool = False) -> None:
        raise AssertionError("a search closes no block")


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


def context_of(
    graph: Graph, dtype: str, sink: Sink, monitor: Monitor, sources: npt.NDArray[np.int64] | None = None
) -> SolveContext:
    """A solve of whole rows in batches of 128."""
    plan = Plan("", dtype, "cpu", 2, (graph.n, graph.n), 0, 0, 0.0, "", "", batch=128)
    return SolveContext(GraphProfile(graph), plan, Options(), Rectangle(graph.n, sources, None, None), sink, monitor)


def oracle(graph: Graph, sources: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return np.asarray(scipy_dijkstra(matrix, indices=sources))
