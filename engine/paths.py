"""Routes from distances alone: no predecessor matrix is kept.

From row D[u, .] the walk goes back from v over *tight* arcs, those with D[u, w] + weight(w, v) = D[u, v].  Arcs of
length zero and rounding can make tight arcs form cycles, so the walk is a depth-first search with a visited set.
A store of chosen targets has no whole row, and with a cutoff vertices on the way may be missing where arcs are
negative: one search on the stored graph stands in for the row then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from storage.errors import StorageFailed
from storage.graph import Graph
from storage.matrix import Matrix

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Route:
    """A shortest path: vertex indices from source to target, the arcs' weights between them, and their sum."""

    vertices: list[int]
    weights: list[int] | list[float]
    length: int | float


class Router:
    """Answers routes over one solved matrix; keeps the arcs turned round between calls."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    @cached_property
    def _graph(self) -> Graph:
        return self._matrix.graph()

    @cached_property
    def _into(self) -> csr_array:
        """Row v holds the arcs into v: tails as indices, weights as data."""
        graph = self._graph
        # positions, not weights, are turned round: SciPy would drop nothing, but int64 weights must stay exact
        arcs = csr_array((np.arange(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
        turned = arcs.T.tocsr()
        turned.data = graph.weights[turned.data]
        return turned

    def route(self, source: int, target: int) -> Route | None:
        """A shortest path from ``source`` to ``target`` (vertex indices); None where there is none.

        Reads one row of the matrix, or one entry where that does not do.  With a hop limit, the path has at most that
        many arcs.

        Raises:
            NotFound: ``source`` or ``target`` is not among the solved ones.
            StorageFailed: the row does not belong to the graph stored beside it.
        """
        length = self._matrix.entries([source], [target])[0]
        if length == self._matrix.unreachable:
            return None
        hops = self._matrix.attributes.get("max_hops")
        row = self._row(source, length, hops)
        if isinstance(hops, int):
            back = self._layered(length, self._tolerances(row)[-1], source, target, hops)
        else:
            back = self._walk(row, source, target)
        vertices = back[::-1]
        weights = [self._weight(u, v) for u, v in pairwise(vertices)]
        length = sum(weights) if self._graph.integral else math.fsum(weights)
        return Route(vertices, weights, length)

    def _row(self, source: int, length: Array, hops: object) -> Array:
        """Distances from ``source`` that a path of that ``length`` is told by: read, or searched for.

        With a hop limit they only say how far sums may be off, and ``length`` does.
        """
        matrix = self._matrix
        if matrix.attributes["targets"] == "subset" and isinstance(hops, int):
            return np.array([length])
        graph = self._graph
        if matrix.attributes["targets"] == "all":
            cut = matrix.attributes["cutoff"] is not None
            if not cut or isinstance(hops, int) or not graph.arcs or graph.weights.min() >= 0:
                return matrix.row(source)
        return self._searched(source, float(length))

    def _searched(self, source: int, length: float) -> Array:
        """The distances from ``source``, float64, at least those up to ``length``; the rest infinite."""
        graph, weights = self._graph, self._graph.weights.astype(np.float64)
        if not graph.arcs or weights.min() >= 0:
            arcs = csr_array((weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
            farthest = length + 1e-6 * abs(length)  # the stored length may be rounded
            return np.asarray(dijkstra(arcs, indices=source, limit=farthest))
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        row = np.full(graph.n, np.inf)
        row[source] = 0
        for _ in range(graph.n):  # Bellman and Ford; there is no negative cycle, or nothing would have been stored
            before = row.copy()
            np.minimum.at(row, graph.heads, before[tails] + weights)
            if np.array_equal(row, before):
                break
        return row

    def _weight(self, tail: int, head: int) -> int | float:
        graph = self._graph
        begin, end = graph.indptr[tail], graph.indptr[tail + 1]
        at = begin + np.searchsorted(graph.heads[begin:end], head)
        return graph.weights[at].item()  # type: ignore[no-any-return]

    def _tolerances(self, row: npt.NDArray[np.generic]) -> list[float]:
        """How far from tight an arc may be: 0 for whole numbers, else a few units of rounding, growing."""
        if self._graph.integral and row.dtype != np.float32:
            return [0.0]
        unit = float(np.finfo(row.dtype.name).eps) * float(np.abs(row[np.isfinite(row)]).max())
        return [unit * 4.0**k for k in range(6)]

    def _walk(self, row: npt.NDArray[np.generic], source: int, target: int) -> list[int]:
        """Vertices from target back to source over tight arcs; looser and looser for floats until one is found."""
        wide = row.astype(np.int64 if row.dtype.kind in "iu" else np.float64)
        for tolerance in self._tolerances(row):
            found = self._search(wide, source, target, tolerance)
            if found is not None:
                return found
        raise StorageFailed(f"no path of the stored graph has the stored distance from {source} to {target}")

    def _tight(self, row: npt.NDArray[np.generic], head: int, tolerance: float) -> Iterator[int]:
        """Tails of the tight arcs into ``head``, the tightest first."""
        begin, end = self._into.indptr[head], self._into.indptr[head + 1]
        tails = self._into.indices[begin:end]
        slack = np.abs(row[tails] + self._into.data[begin:end] - row[head])
        order = np.argsort(slack, kind="stable")
        return iter(tails[order][slack[order] <= tolerance].tolist())

    def _search(self, row: npt.NDArray[np.generic], source: int, target: int, tolerance: float) -> list[int] | None:
        path, seen, choices = [target], {target}, [self._tight(row, target, tolerance)]
        while path:
            if path[-1] == source:
                return path
            following = next((w for w in choices[-1] if w not in seen), None)
            if following is None:
                path.pop()
                choices.pop()
            else:
                seen.add(following)
                path.append(following)
                choices.append(self._tight(row, following, tolerance))
        return None

    def _layered(self, length: Array, tolerance: float, source: int, target: int, hops: int) -> list[int]:
        """Back from target through Bellman-Ford layers: layer k holds lengths of walks of at most k arcs."""
        graph = self._graph
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        layer = np.full(graph.n, np.inf)
        layer[source] = 0
        layers = [layer]
        goal = float(length) + tolerance
        while layers[-1][target] > goal and len(layers) <= hops:
            following = layers[-1].copy()
            np.minimum.at(following, graph.heads, layers[-1][tails] + graph.weights)
            layers.append(following)
        path = [target]
        for k in range(len(layers) - 1, 0, -1):
            v = path[-1]
            if layers[k - 1][v] == layers[k][v]:
                continue
            begin, end = self._into.indptr[v], self._into.indptr[v + 1]
            into = self._into.indices[begin:end]
            path.append(int(into[np.argmin(layers[k - 1][into] + self._into.data[begin:end])]))
        return path


def route(matrix: Matrix, source: int, target: int) -> Route | None:
    """A shortest path between two vertex indices of ``matrix``; see :meth:`Router.route`."""
    return Router(matrix).route(source, target)
