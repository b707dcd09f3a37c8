"""Predicted bytes and seconds of every algorithm: pure arithmetic over a problem and a machine.

Memory is the projected peak of the whole process.  One update is c = min(c, a + b).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.plan import Candidate, Phase
from engine.problem import Machine, Problem
from engine.types import WorkType

#: Memory beyond the arrays that are counted: compiled kernels and their compiler, the store's writer, the allocator.
OVERHEAD: Final = 192 * 2**20

#: Rows of a tile of the store; ``storage.grid`` decides, the planner only needs the magnitude of write buffers.
BAND_ROWS: Final = 64

#: Most bytes of one batch of rows that a search fills before it is handed to the sink.
BATCH_BYTES: Final = 64 * 2**20

#: Share of the multiplicative peak that whole solves reach, beside the relax rate measured on large products.
DENSE_EFFICIENCY: Final = 0.85


@dataclass(frozen=True)
class Setting:
    """What an estimate is made for: the problem, the machine, the working type, and the bytes of the store."""

    problem: Problem
    machine: Machine
    kind: WorkType
    store: int

    @property
    def rate(self) -> float:
        """Updates a second in this type."""
        return self.machine.relax_rate[self.kind.name]

    @property
    def matrix(self) -> int:
        """Bytes of the whole n x n matrix in memory."""
        return self.problem.n**2 * self.kind.itemsize


def batch_rows(n: int, rows: int, itemsize: int) -> int:
    """Rows of a batch of sources: whole bands, at most ``BATCH_BYTES`` of them, at least one band."""
    bands = BATCH_BYTES // max(1, n * itemsize * BAND_ROWS)
    return min(max(1, rows), max(1, bands) * BAND_ROWS)


def _write(setting: Setting) -> Phase:
    return Phase("write", setting.store / setting.machine.write_rate, bytes=setting.store)


def _dense(  # noqa: PLR0917 - a row of a table
    setting: Setting, name: str, updates: int, matrices: int, workspace: int, efficiency: float
) -> Candidate:
    band = BAND_ROWS * setting.problem.n * setting.kind.itemsize * setting.machine.threads
    ingest = Phase("ingest", setting.matrix / 4e9, bytes=setting.matrix)
    work = Phase("relax", updates / (setting.rate * efficiency), updates=updates)
    write = _write(setting)
    return Candidate(
        algorithm=name,
        memory=setting.machine.resident + OVERHEAD + matrices * setting.matrix + workspace + band,
        disk=setting.store,
        seconds=ingest.seconds + work.seconds + write.seconds,
        phases=(ingest, work, write),
    )


def workspace(n: int, itemsize: int, threads: int) -> int:
    """Bytes of pack buffers of a min-plus product n wide: one k-panel of B, and one block of A a thread."""
    return 512 * (n + 64) * itemsize + threads * 2**20


def recursive_floyd_warshall(setting: Setting) -> Candidate:
    """Kleene's recursion over min-plus products: n^3 updates, half of that for an undirected graph."""
    n = setting.problem.n
    share = 1.0 if setting.problem.directed else 0.55
    space = workspace(n, setting.kind.itemsize, setting.machine.threads)
    return _dense(setting, "recursive-floyd-warshall", int(share * n**3), 1, space, DENSE_EFFICIENCY)


def blocked_floyd_warshall(setting: Setting) -> Candidate:
    """Rounds of pivot block, panels and remainder; the order that streaming needs, a little slower in memory."""
    n = setting.problem.n
    share = 1.0 if setting.problem.directed else 0.55
    space = workspace(n, setting.kind.itemsize, setting.machine.threads)
    panels = 4 * 512 * n * setting.kind.itemsize
    return _dense(setting, "blocked-floyd-warshall", int(share * n**3), 1, space + panels, 0.9 * DENSE_EFFICIENCY)


def squaring_products(n: int, rows: int, hops: int | None) -> tuple[int, int]:
    """Updates and matrices held by repeated squaring: by powers of two, or row by row where that is cheaper."""
    limit = max(1, n - 1) if hops is None else hops
    powers = (limit.bit_length() - 1) * n**3 + (limit.bit_count() - 1) * rows * n**2
    by_rows = max(0, limit - 1) * rows * n**2
    return min(powers, by_rows), 3


def repeated_squaring(setting: Setting) -> Candidate:
    """Min-plus powers of the weight matrix: the only one that answers a limit on hops."""
    problem = setting.problem
    updates, matrices = squaring_products(problem.n, problem.rows, problem.max_hops)
    space = workspace(problem.n, setting.kind.itemsize, setting.machine.threads)
    return _dense(setting, "repeated-squaring", updates, matrices, space, DENSE_EFFICIENCY)


def search_workspace(n: int, arcs: int, threads: int) -> int:
    """Bytes that searches need beside graph and rows.

    A thread holds a row of labels (256 bytes) for each vertex, or heap, positions and distances.  The arcs are copied
    into the searches' own form, both ways round, and while that is made half as much again; potentials and reduced
    weights, where there are any, come to less than the rest of the bytes counted here.
    """
    return threads * 288 * n + 80 * n + 72 * arcs


def _searches(setting: Setting, name: str, seconds: float, before: tuple[Phase, ...] = ()) -> Candidate:
    problem, threads = setting.problem, setting.machine.threads
    rows = batch_rows(problem.n, problem.rows, setting.kind.itemsize)
    buffers = 2 * rows * problem.n * setting.kind.itemsize
    own = search_workspace(problem.n, problem.arcs, threads)
    search, write = Phase("search", seconds, updates=problem.rows * problem.arcs), _write(setting)
    return Candidate(
        algorithm=name,
        memory=setting.machine.resident + OVERHEAD + buffers + own,
        disk=setting.store,
        # batches are written while the next ones are searched, on the same processors
        seconds=sum(p.seconds for p in before) + search.seconds + write.seconds,
        phases=(*before, search, write),
    )


def _search_seconds(setting: Setting, each: float) -> float:
    """Seconds of all searches: as tried on the graph, else ``each`` seconds a source."""
    tried = setting.machine.search_seconds
    return setting.problem.rows * (each if tried is None else tried)


def dijkstra(setting: Setting) -> Candidate:
    """One Dijkstra search a source, m + n log n each."""
    problem = setting.problem
    each = problem.arcs + 2 * problem.n * math.log2(problem.n + 2) / 8
    return _searches(setting, "dijkstra", _search_seconds(setting, each / setting.machine.search_rate))


def bfs(setting: Setting) -> Candidate:
    """One breadth-first search a source, m + n each; every arc weighs 1."""
    problem = setting.problem
    each = (problem.arcs + problem.n) / (4 * setting.machine.search_rate)
    return _searches(setting, "bfs", _search_seconds(setting, each))


def johnson(setting: Setting) -> Candidate:
    """Potentials by Bellman-Ford, then one Dijkstra search a source over reduced weights."""
    potentials = Phase("potentials", 30 * setting.problem.arcs / setting.machine.search_rate)
    base = dijkstra(setting)
    return _searches(setting, "johnson", base.phases[0].seconds, (potentials,))


ESTIMATES: Final[dict[str, Callable[[Setting], Candidate]]] = {
    "bfs": bfs,
    "dijkstra": dijkstra,
    "johnson": johnson,
    "recursive-floyd-warshall": recursive_floyd_warshall,
    "blocked-floyd-warshall": blocked_floyd_warshall,
    "repeated-squaring": repeated_squaring,
}
