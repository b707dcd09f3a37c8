"""Minimax and widest paths: weights become ranks, and rows follow from a spanning tree or from searches.

The widest path of a graph is the minimax path of the weights in descending order, so both are one search for the least
greatest rank.  Answers are weights of the graph itself, never a number that was computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings import bottlenecks
from storage.graph.graph import Graph
from storage.semirings import Semiring

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranks:
    """The weights of a graph as ranks: 1 for the best, ascending.

    Attributes:
        values: shape (ranks,): the value of each rank; the first is that of a vertex to itself, the last that of a pair
            without a path.
        arcs: int32, shape (arcs,): the rank of each arc.
    """

    values: Array
    arcs: npt.NDArray[np.int32]

    @classmethod
    def of(cls, graph: Graph, semiring: Semiring, dtype: npt.DTypeLike) -> Ranks:
        """Return the ranks of a graph's weights, with values of type ``dtype``, which holds every weight exactly."""
        distinct, ranks = np.unique(graph.weights, return_inverse=True)
        ranks = ranks.astype(np.int32)
        if semiring.greatest:
            distinct, ranks = distinct[::-1], np.int32(len(distinct) - 1) - ranks
        values = np.concatenate([[semiring.itself], distinct.astype(np.float64), [semiring.unreachable]])
        return cls(values.astype(dtype), ranks + np.int32(1))

    @property
    def none(self) -> int:
        """The rank that stands for no path."""
        return len(self.values) - 1


class LineRows:
    """Rows of an undirected graph, from its minimum spanning forest; O(n) each.

    Args:
        graph: the graph; undirected.
        ranks: its weights.
        targets: vertex index of each column.
    """

    def __init__(self, graph: Graph, ranks: Ranks, targets: Indices) -> None:
        n = graph.n
        tails = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.indptr))
        edges = np.flatnonzero(tails < graph.heads)
        edges = edges[np.argsort(ranks.arcs[edges], kind="stable")]
        line = np.empty(n, np.int32)
        self._gaps, self._values = np.empty(n, np.int32), ranks.values
        space = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
        arcs = tails, graph.heads, ranks.arcs
        bottlenecks.line_of(edges, arcs, np.int32(ranks.none), space, self._gaps, line)
        self._place = np.empty(n, np.int64)
        self._place[line] = np.arange(n)
        self._columns = np.full(n, -1, np.int32)
        self._columns[self._place[targets]] = np.arange(len(targets), dtype=np.int32)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:  # noqa: ARG002 - no work space
        """Write rows.

        Args:
            worker: number of the calling thread.
            sources: vertex indices, shape (k,).
            rows: the row of ``out`` of each.
            out: shape (rows, columns).
        """
        bottlenecks.rows_of_line(self._gaps, self._values, self._columns, self._place[sources], rows, out)


class RankRows:
    """Rows by one search for each source, for directed graphs.

    Args:
        graph: the graph.
        ranks: its weights.
        targets: vertex index of each column.
        threads: number of threads that may write rows.
    """

    def __init__(self, graph: Graph, ranks: Ranks, targets: Indices, threads: int) -> None:
        self._graph, self._ranks, self._targets = graph, ranks, targets
        self._spaces = Spaces(threads)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write rows as :meth:`LineRows.write`."""
        graph, ranks, n = self._graph, self._ranks, self._graph.n
        found, heap, place, stack = self._spaces.of(
            worker, n, lambda: (np.empty(n, np.int32), np.empty(n, np.int64), np.full(n, -1, np.int32),
                                np.empty(n, np.int32))
        )  # fmt: skip
        arcs = graph.indptr, graph.heads, ranks.arcs
        for source, row in zip(sources.tolist(), rows.tolist(), strict=True):
            bottlenecks.search_ranks(arcs, source, np.int32(ranks.none), found, heap, place, stack)
            bottlenecks.take_ranks(found, ranks.values, self._targets, out[row])
