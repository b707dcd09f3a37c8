"""Minimax and widest paths.  Weights are replaced by their ranks.  The rows are then computed from a minimum spanning
tree, if the graph is undirected, or by searches along a line in which components are neighbours that merge early.

With the weights ranked in descending order, a widest path is a minimax path of ranks.  So both problems need the path
whose greatest rank is least.  Every result is the weight of an arc, so no result is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.semirings.components import joining_ranks, needed_arcs
from engine.algorithms.semirings.products import lanes_bytes
from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.atonce.lane_blocks import lane_space
from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings import bottlenecks, merging
from engine.devices.cpu.semirings.bottleneck_lanes import LANES, search_bottleneck_lanes
from engine.devices.cpu.semirings.joining import grouped
from storage.graph.graph import Graph
from storage.semirings import Semiring

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

#: A block of sources in lanes is given up, and found by merging components, after this many vector relaxations for
#: every arc plus four times this many for every vertex.  Merging takes as long as 10 to 30 such passes.
_PASSES: Final = 32
#: Whole weights are ranked by counting if their range is less than this many times their number.
_SPREAD: Final = 4
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
        distinct, ranks = _distinct(weights)
        if semiring.greatest:
            distinct, ranks = distinct[::-1], np.int32(len(distinct) - 1) - ranks
        values = np.concatenate([[semiring.itself], distinct.astype(np.float64), [semiring.unreachable]])
        return cls(values.astype(dtype), ranks + np.int32(1))

    @property
    def none(self) -> int:
        """The rank that means *no path*."""
        return len(self.values) - 1


def _distinct(weights: Array) -> tuple[Array, Numbers]:
    """Return the distinct weights, ascending, and the index of each weight among them."""
    if weights.dtype.kind == "i" and len(weights):
        low, high = int(weights.min()), int(weights.max())
        if high - low < _SPREAD * len(weights):  # counting takes a tenth of the time of sorting
            met = np.zeros(high - low + 1, np.bool_)
            met[weights - low] = True
            return np.flatnonzero(met) + low, (np.cumsum(met, dtype=np.int32) - np.int32(1))[weights - low]
    distinct, places = np.unique(weights, return_inverse=True)
    return distinct, places.astype(np.int32)


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
    """Rows of a directed graph.  As arcs are added rank by rank, strongly connected components merge.

    All vertices are arranged in a line in which each component, at any rank, is an interval.  So the gaps of the line
    stand for all arcs inside components, in both directions, and few arcs are left between components.  Blocks of
    sources in lanes sweep the line to and fro until no rank falls any more.

    A block that takes many sweeps is given up; its rows are found while components merge: a source that reaches a
    vertex reaches all vertices of its component, so one bit says whether a source reaches a component, and all its
    vertices get the same value.

    Args:
        graph: the graph.
        semiring: the semiring, ``max-min`` or ``min-max``.
        dtype: the type of the values, which holds every weight exactly.
        targets: vertex index of each column.
        threads: number of threads that may write rows.
    """

    at_once = LANES

    def __init__(self, graph: Graph, semiring: Semiring, dtype: npt.DTypeLike, targets: Indices, threads: int) -> None:
        tails, heads, weights = needed_arcs(graph, greatest=semiring.greatest)
        ranks = Ranks.of(weights, semiring, dtype)
        self._values, none = ranks.values, ranks.none
        inside, joined, between, component = joining_ranks(graph.n, (tails, heads, ranks.arcs), none)
        _, order = grouped(none, joined)
        edges = tails[inside[order]], heads[inside[order]], joined[order]
        gaps, line = _line(graph.n, np.arange(len(order)), edges, none)
        # arcs never lead to a component of a higher number, so those between components lead along the line
        _, order = grouped(graph.n, np.int32(graph.n - 1) - component[line])
        self._gaps, line = gaps[order], line[order]
        self._place = np.empty(graph.n, np.int32)
        self._place[line] = np.arange(graph.n, dtype=np.int32)
        self._between = self._place[tails[between]], self._place[heads[between]], ranks.arcs[between]
        self._targets, self._spaces, self._blocks = self._place[targets], Spaces(threads), Spaces(threads)
        arcs = _along(self._gaps, self._between, none)
        self._arcs = arcs, _PASSES * (len(arcs[1]) + 4 * graph.n)
        self._finished, self._given_up = 0, 0 if lanes_bytes(graph.n) else 2

    def together(self, sources: Indices) -> Indices:
        """Return an order of ``sources`` in which sources near each other on the line are adjacent."""
        return np.argsort(self._place[sources], kind="stable")

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write the rows of ``sources`` into the rows ``rows`` of ``out``; the calling thread has number ``worker``."""
        for first in range(0, len(sources), LANES):
            some = slice(first, first + LANES)
            starts = self._place[sources[some]].astype(np.int64)
            if not self._searched(worker, starts, rows[some], out):
                self._merged(worker, starts, rows[some], out)

    def _searched(self, worker: int, starts: Indices, rows: Indices, out: Array) -> bool:
        """Write the rows of a block, and return whether they were found before the block was given up."""
        if self._given_up > 1 + self._finished // 4:
            return False
        space = self._blocks.of(worker, "lanes", lambda: lane_space(len(self._gaps), np.int32(len(self._values) - 1)))
        arcs, budget = self._arcs
        done = search_bottleneck_lanes(arcs, space, self._targets, (starts, rows), self._values, out, budget)
        self._finished, self._given_up = self._finished + done, self._given_up + (not done)
        return bool(done)

    def _merged(self, worker: int, starts: Indices, rows: Indices, out: Array) -> None:
        """Write the rows of a block by merging components."""
        space, chains, found = self._spaces.of(worker, "merging", self._space)
        for first in range(0, len(starts), len(found)):
            some = slice(first, first + len(found))
            merging.rows_merging(self._events, self._gaps, self._values, starts[some], space, chains, found)
            merging.take_places(found, self._targets, rows[some], out)

    @cached_property
    def _events(self) -> tuple[Array, ...]:
        """The argument ``arcs`` of ``merging.rows_merging``."""
        tails, heads, ranks = self._between
        order = np.argsort(ranks, kind="stable")
        joins = np.flatnonzero(self._gaps < len(self._values) - 1)
        joins = joins[np.argsort(self._gaps[joins], kind="stable")].astype(np.int32)
        return tails[order], heads[order], ranks[order], joins

    def _space(self) -> tuple[Any, ...]:
        n = len(self._gaps)
        parent, first, last, stack, begin, end = (np.empty(n, np.int32) for _ in range(6))
        chains = begin, end, np.empty(len(self._between[0]), np.int32)
        # the padding lets rows begin in different sets of the processor's cache, so they do not displace each other
        found = np.empty((at_once(n, self._values.itemsize), (n // 1024 + 1) * 1024 + 16), self._values.dtype)
        return (parent, first, last, np.empty(n, np.uint64), stack, np.zeros(n, np.uint8)), chains, found


def _along(gaps: Numbers, between: tuple[Numbers, Numbers, Numbers], none: int) -> tuple[Array, ...]:
    """Return the argument ``arcs`` of ``search_bottleneck_lanes``.

    Between each place and the next there is an arc in either direction, which has the rank of the gap; then there are
    the arcs ``between`` components (tails, heads and ranks).
    """
    n, joins = len(gaps), np.flatnonzero(gaps < none).astype(np.int32)
    tails = np.concatenate([joins, joins + np.int32(1), between[0]])
    heads = np.concatenate([joins + np.int32(1), joins, between[1]])
    ranks = np.concatenate([gaps[joins], gaps[joins], between[2]])
    (begin_out, out), (begin_in, into) = grouped(n, tails), grouped(n, heads)
    return begin_out, heads[out], begin_in, tails[into], ranks[into]


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
