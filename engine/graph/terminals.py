"""Vertices that paths may begin and end at, but not pass through: the zone centroids of traffic networks.

No algorithm knows them.  The graph is *opened* before it is solved: each of the first ``Graph.terminals`` vertices, c,
keeps its arcs out and loses those into it, which lead to a new vertex n + c, its arrival, from which no arc leads on.
An arc of length zero from c to its arrival makes the distance from c to itself 0.  The matrix asked for is then a
rectangle of the opened graph's: rows are the vertices, columns the vertices with arrivals in place of terminals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from engine.graph.selection import Indices, Rectangle
from storage.graph.graph import Graph
from storage.matrix.reader import Matrix

Array = npt.NDArray[np.generic]


def opened(graph: Graph) -> Graph:
    """The graph in which no path passes through a terminal; a graph without terminals as it is.

    Vertices n, n + 1, ... of the result are the arrivals; they have the labels of their terminals.  O(n + arcs).
    """
    n, count = graph.n, graph.terminals
    if not count:
        return graph
    ends = np.arange(count)
    tails = np.concatenate([np.repeat(np.arange(n), np.diff(graph.indptr)), ends])
    heads = np.concatenate([arrivals(graph.heads.astype(np.int64), n, count), n + ends])
    # positions, not weights, are sorted: SciPy would change the type of some
    size = n + count
    rows = coo_array((np.arange(len(tails)), (tails, heads)), shape=(size, size)).tocsr()
    rows.sort_indices()
    weights = np.concatenate([graph.weights, np.zeros(count, graph.weights.dtype)])[rows.data]
    return Graph(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32),
        weights,
        np.concatenate([graph.labels, graph.labels[:count]]),
        directed=True,
        weighted=True,
    )


def arrivals(targets: Indices, n: int, count: int) -> Indices:
    """The vertices of the opened graph at which paths to ``targets`` end."""
    return np.where(targets < count, targets + n, targets)


def open_rectangle(graph: Graph, asked: Rectangle) -> tuple[Graph, Rectangle]:
    """The opened graph, and what of its matrix is the rectangle ``asked`` of ``graph``'s; as they are where no vertex
    is a terminal."""
    n, count = graph.n, graph.terminals
    if not count:
        return graph, asked
    targets = np.arange(n) if asked.targets is None else asked.targets
    return opened(graph), Rectangle(n + count, asked.rows, arrivals(targets, n, count), asked.cutoff)


class OpenedMatrix:
    """A matrix, solved with terminals, as that of the opened graph; where it differs from
    ``storage.matrix.reader.Matrix``.

    Entries into a terminal itself, which no path has but one that begins there, are unreachable.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._n, self._count = matrix.n, int(matrix.attributes.get("terminals", 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matrix, name)

    def graph(self) -> Graph:
        """The opened graph."""
        return opened(self._matrix.graph())

    def vertex(self, index: int) -> int:
        """The vertex that an index of the opened graph means."""
        return index - self._n if index >= self._n else index

    def arrival(self, target: int) -> int:
        """The index at which paths to ``target`` end."""
        return target + self._n if target < self._count else target

    def entries(self, sources: list[int], targets: list[int]) -> Array:
        """As in ``Matrix``."""
        return self._matrix.entries(sources, [self.vertex(target) for target in targets])

    def row(self, source: int) -> Array:
        """As in ``Matrix``, one entry for each vertex of the opened graph."""
        row = self._matrix.row(source)
        if not self._count:
            return row
        found = np.concatenate([row, row[: self._count]])
        found[: self._count] = self._matrix.unreachable
        found[source] = 0
        return found
