"""Terminals are vertices where paths may begin and end, but not pass through: the zone centroids of traffic networks.

Algorithms need no special case for terminals, because the graph is *opened* before it is solved.  Each of the first
``Graph.terminals`` vertices, c, keeps its arcs out.  The arcs into c lead to a new vertex n + c instead, its arrival,
which has no arcs out.  An arc of length zero from c to its arrival makes the distance from c to itself 0.  The wanted
matrix is then a rectangle of the opened graph's matrix: rows are the vertices, columns the vertices with arrivals in
place of terminals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.graph.selection import Indices, Rectangle
from storage.graph.graph import Graph
from storage.matrix.sealed import SealedResult

Array = npt.NDArray[np.generic]


def opened(graph: Graph) -> Graph:
    """Return the opened graph, in which no path passes through a terminal; without terminals, return ``graph`` itself.

    Vertices n, n + 1, ... of the result are the arrivals; they have the labels of their terminals.  This takes
    O(n + arcs) time.
    """
    n, count = graph.n, graph.terminals
    if not count:
        return graph
    ends = np.arange(count)
    tails = np.concatenate([np.repeat(np.arange(n), np.diff(graph.indptr)), ends])
    heads = np.concatenate([arrivals(graph.heads.astype(np.int64), n, count), n + ends])
    size = n + count
    order = np.argsort(tails * size + heads, kind="stable")  # most arcs are in this order already, so it takes O(arcs)
    indptr = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(tails, minlength=size), out=indptr[1:])
    weights = np.concatenate([graph.weights, np.zeros(count, graph.weights.dtype)])[order]
    return Graph(
        indptr,
        heads[order].astype(np.int32),
        weights,
        np.concatenate([graph.labels, graph.labels[:count]]),
        directed=True,
        weighted=True,
    )


def arrivals(targets: Indices, n: int, count: int) -> Indices:
    """Return the vertices of the opened graph at which paths to ``targets`` end.

    Args:
        targets: vertex indices.
        n: number of vertices of the graph before it was opened.
        count: number of terminals.
    """
    return np.where(targets < count, targets + n, targets) if count else targets


def open_rectangle(graph: Graph, asked: Rectangle) -> Rectangle:
    """Return the rectangle of the opened graph's matrix that has the same values as ``asked``, which is a rectangle of
    the matrix of ``graph``.
    """
    n, count = graph.n, graph.terminals
    if not count:
        return asked
    targets = np.arange(n) if asked.targets is None else asked.targets
    return Rectangle(n + count, asked.rows, arrivals(targets, n, count), asked.cutoff)


class OpenedMatrix:
    """A solved matrix of a graph with terminals, presented as the matrix of the opened graph.

    All other attributes are those of ``storage.matrix.sealed.SealedResult``.  In the opened graph a terminal itself is
    reachable only from itself, because all other paths end at its arrival.
    """

    def __init__(self, matrix: SealedResult) -> None:
        self._matrix = matrix
        self._n, self._count = matrix.n, int(matrix.attributes.get("terminals", 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matrix, name)

    def graph(self) -> Graph:
        """Return the opened graph."""
        return opened(self._matrix.graph())

    def vertex(self, index: int) -> int:
        """Return the vertex of the original graph for an index of the opened graph."""
        return index - self._n if index >= self._n else index

    def arrival(self, target: int) -> int:
        """Return the index in the opened graph at which paths to ``target`` end."""
        return target + self._n if target < self._count else target

    def entries(self, sources: list[int], targets: list[int]) -> Array:
        """Return the entries at pairs of indices of the opened graph (see ``SealedResult.entries``)."""
        return self._matrix.entries(sources, [self.vertex(target) for target in targets])

    def row(self, source: int) -> Array:
        """Return a row (see ``SealedResult.row``) with one entry for each vertex of the opened graph."""
        row = self._matrix.row(source)
        if not self._count:
            return row
        found = np.concatenate([row, row[: self._count]])
        found[: self._count] = self._matrix.unreachable
        found[source] = 0
        return found
