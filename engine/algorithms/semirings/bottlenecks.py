"""Minimax and widest paths.  Weights are replaced by their ranks.  The rows are then computed from a minimum spanning
tree, if the graph is undirected, or by merging components in the order of ranks.

With the weights ranked in descending order, a widest path is a minimax path of ranks.  So both problems need the path
whose greatest rank is least.  Every result is the weight of an arc, so no result is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.semirings.components import joining_ranks, needed_arcs
from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings import bottlenecks, merging
from storage.graph.graph import Graph
from storage.semirings import Semiring

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: Most bytes of the rows that one thread finds at the same time; but it always finds at least 8 rows.
_ROWS_BYTES: Final = 2**26


@dataclass(frozen=True)
class Ranks:
    """The weights of a graph as ranks: 1 for the best weight, 2 for the next one, and so on.

    Attributes:
        values: shape (ranks,): the value of each rank; rank 0 stands for the path from a vertex to itself, the last
            rank for a pair without a path.
        arcs: int32, shape (arcs,): the rank of each arc.
    """

    values: Array
    arcs: npt.NDArray[np.int32]

    @classmethod
    def of(cls, weights: Array, semiring: Semiring, dtype: npt.DTypeLike) -> Ranks:
        """Rank weights, shape (arcs,); their values get the type ``dtype``, which must hold every weight exactly."""
        distinct, ranks = np.unique(weights, return_inverse=True)
        ranks = ranks.astype(np.int32)
        if semiring.greatest:
            distinct, ranks = distinct[::-1], np.int32(len(distinct) - 1) - ranks
        values = np.concatenate([[semiring.itself], distinct.astype(np.float64), [semiring.unreachable]])
        return cls(values.astype(dtype), ranks + np.int32(1))

    @property
    def none(self) -> int:
        """The rank that means *no path*."""
        return len(self.values) - 1


class LineRows(RowWriter):
    """Rows of an undirected graph, found from its minimum spanning forest in O(n) time each.

    Args:
        graph: the graph; undirected.
        ranks: the ranks of the graph's weights.
        targets: vertex index of each column.
    """

    def __init__(self, graph: Graph, ranks: Ranks, targets: Indices) -> None:
        n = graph.n
        tails = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.indptr))
        edges = np.flatnonzero(tails < graph.heads)
        edges = edges[np.argsort(ranks.arcs[edges], kind="stable")]
        self._values = ranks.values
        self._gaps, line = _line(n, edges, (tails, graph.heads, ranks.arcs), ranks.none)
        self._place = np.empty(n, np.int64)
        self._place[line] = np.arange(n)
        self._columns = np.full(n, -1, np.int32)
        self._columns[self._place[targets]] = np.arange(len(targets), dtype=np.int32)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:  # noqa: ARG002 - no work space
        """Write rows.

        Args:
            worker: number of the calling thread.
            sources: vertex indices, shape (k,).
            rows: the row of ``out`` for each source.
            out: shape (rows, columns).
        """
        bottlenecks.rows_of_line(self._gaps, self._values, self._columns, self._place[sources], rows, out)


class MergedRows(RowWriter):
    """Rows of a directed graph: arcs are added rank by rank, so that strongly connected components merge.

    A source that reaches a vertex reaches all vertices of its component, so one bit says whether a source reaches a
    component.  All vertices are arranged in a line in which each component is an interval; at the rank at which a
    source first reaches the component, all its vertices get the same value.

    Args:
        graph: the graph.
        semiring: the semiring, ``max-min`` or ``min-max``.
        dtype: the type of the values, which holds every weight exactly.
        targets: vertex index of each column.
        threads: number of threads that may write rows.
    """

    def __init__(self, graph: Graph, semiring: Semiring, dtype: npt.DTypeLike, targets: Indices, threads: int) -> None:
        tails, heads, weights = needed_arcs(graph, greatest=semiring.greatest)
        ranks = Ranks.of(weights, semiring, dtype)
        self._values, none = ranks.values, ranks.none
        inside, joined, between = joining_ranks(graph.n, (tails, heads, ranks.arcs), none)
        order = np.argsort(joined, kind="stable")
        edges = tails[inside[order]], heads[inside[order]], joined[order]
        self._gaps, line = _line(graph.n, np.arange(len(order)), edges, none)
        self._place = np.empty(graph.n, np.int32)
        self._place[line] = np.arange(graph.n, dtype=np.int32)
        between = between[np.argsort(ranks.arcs[between], kind="stable")]
        joins = np.flatnonzero(self._gaps < none)
        joins = joins[np.argsort(self._gaps[joins], kind="stable")].astype(np.int32)
        self._arcs = self._place[tails[between]], self._place[heads[between]], ranks.arcs[between], joins
        self._targets, self._spaces = self._place[targets], Spaces(threads)
        self._sources = at_once(graph.n, self._values.itemsize)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write the rows of ``sources`` into the rows ``rows`` of ``out``; the calling thread has number ``worker``."""
        space, chains, found = self._spaces.of(worker, "merging", self._space)
        for first in range(0, len(sources), self._sources):
            some = slice(first, first + self._sources)
            starts = self._place[sources[some]]
            merging.rows_merging(self._arcs, self._gaps, self._values, starts, space, chains, found)
            merging.take_places(found, self._targets, rows[some], out)

    def _space(self) -> tuple[Any, ...]:
        n = len(self._gaps)
        parent, first, last, stack, begin, end = (np.empty(n, np.int32) for _ in range(6))
        chains = begin, end, np.empty(len(self._arcs[0]), np.int32)
        # the padding lets rows begin in different sets of the processor's cache, so they do not displace each other
        found = np.empty((self._sources, (n // 1024 + 1) * 1024 + 16), self._values.dtype)
        return (parent, first, last, np.empty(n, np.uint64), stack, np.zeros(n, np.uint8)), chains, found


def at_once(n: int, itemsize: int) -> int:
    """Return how many sources share a word of 64 bits: 64, or fewer (at least 8) so that rows fit ``_ROWS_BYTES``."""
    return max(8, min(64, _ROWS_BYTES // max(1, n * itemsize)))


def _line(
    n: int, edges: Indices, arcs: tuple[Array, Array, Array], none: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Arrange vertices in a line (``bottlenecks.line_of``); return the rank of the gap behind each, and their order."""
    gaps, line = np.empty(n, np.int32), np.empty(n, np.int32)
    space = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    bottlenecks.line_of(edges, arcs, np.int32(none), space, gaps, line)
    return gaps, line
