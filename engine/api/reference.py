"""Finds distances by searching the graph, in float64, by code that no solve uses.

Routes and ``apsp verify`` check the stored matrix against these searches, so the searches share no code with the
algorithms that make matrices.  They use SciPy's Dijkstra, or, if arcs are negative or hops are limited, rounds of
Bellman-Ford in NumPy.  Whole numbers are exact below 2^53.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from storage.graph.graph import Graph

Floats = npt.NDArray[np.float64]

#: Another round follows only if a tentative distance falls by more than this relative amount.  So rounding cannot cause
#: endless rounds.
_SLACK: Final = 2.0**-48


class Reference:
    """Independent searches of one graph; the reversed arcs are kept between calls."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.negative = bool(graph.arcs and graph.weights.min() < 0)

    @cached_property
    def into(self) -> csr_array:
        """The reversed arcs: row v holds the arcs into v, tails as indices, and weights in the type of the graph."""
        graph = self._graph
        # SciPy transposes the indices of arcs; weights are then selected by these indices, so that they keep their type
        arcs = csr_array((np.arange(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
        into = arcs.T.tocsr()
        into.data = graph.weights[into.data]
        return into

    def start(self, source: int) -> Floats:
        """Return the lengths of walks without arcs: 0 for ``source``, else infinite; shape (n,)."""
        layer = np.full(self._graph.n, np.inf)
        layer[source] = 0
        return layer

    def step(self, layer: Floats) -> Floats:
        """Return the shortest lengths of walks of at most k + 1 arcs, shape (n,); ``layer`` holds those of at most k
        arcs.
        """
        heads, starts, tails, weights = self._rounds
        following = layer.copy()
        if len(heads):
            with np.errstate(over="ignore"):  # a sum beyond float64 is no distance
                best = np.minimum.reduceat(layer[tails] + weights, starts)
            following[heads] = np.minimum(following[heads], best)
        return following

    def settled(self, layer: Floats, most: int | None = None) -> tuple[Floats, int]:
        """Repeat :meth:`step` until the layer does not change, at most ``most`` times.

        At most n steps are needed, because a graph with a negative cycle is never stored.

        Returns:
            The last layer, shape (n,), and the number of steps.
        """
        slack = 0.0 if self._graph.integral else _SLACK
        most = self._graph.n if most is None else min(most, self._graph.n)
        for steps in range(most):
            following = self.step(layer)
            fell = following < layer
            if slack and fell.any():
                fell &= following + slack * np.abs(following) < layer
            layer = following
            if not fell.any():
                return layer, steps
        return layer, most

    def distances(self, source: int, limit: float = np.inf) -> Floats:
        """Return the distances from ``source``, shape (n,); distances beyond ``limit`` may be infinite."""
        if self.negative:
            return self.settled(self.start(source))[0]
        return np.asarray(dijkstra(self._forward, indices=source, limit=limit))

    def trees(self, sources: npt.NDArray[np.int64]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the distances from k sources, shape (k, n), and the most arcs of a path in each tree, shape (k,).

        No arc may be negative.
        """
        lengths, before = dijkstra(self._forward, indices=sources, return_predecessors=True)
        return lengths, np.array([_depth(row) for row in before], np.int64)

    @cached_property
    def _forward(self) -> csr_array:
        graph = self._graph
        return csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))

    @cached_property
    def _rounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
        """Return the heads of arcs, the index at which the arcs into each head begin, and tails and weights of arcs."""
        into = self.into
        heads = np.flatnonzero(np.diff(into.indptr))
        return heads, into.indptr[heads], into.indices, into.data.astype(np.float64)


def sums_again(graph: Graph, source: int, lengths: Floats, per: int) -> dict[str, Floats]:
    """Sum the quantities of a graph along the shortest paths from a source.

    The search is breadth first over tight arcs, so each sum is along a shortest path of the fewest arcs.

    Args:
        graph: the graph, with the quantities.
        source: vertex index.
        lengths: the distances from the source, shape (n,), each added up along its path from the source on; infinite
            where there is no path.
        per: k, if all weights are multiples of 1/k, to which lengths are then rounded; 0 to compare without rounding.

    Returns:
        The sums of each quantity, by its name, shape (n,), NaN where there is no path.
    """
    tails, heads = np.repeat(np.arange(graph.n), np.diff(graph.indptr)), graph.heads.astype(np.int64)
    weights = graph.weights.astype(np.float64)
    if per:
        lengths, weights = np.rint(lengths * per), np.rint(weights * per)
    passed = (tails >= graph.terminals) | (tails == source)
    tight = np.isfinite(lengths[tails]) & np.isfinite(lengths[heads]) & passed & (heads != source)
    with np.errstate(over="ignore"):  # an arc whose sum is beyond float64 is longer than a shortest path
        tight &= np.equal(lengths[tails] + weights, lengths[heads])
    arcs = np.flatnonzero(tight)
    seen, sums = np.zeros(graph.n, np.bool_), {name: np.full(graph.n, np.nan) for name in graph.quantities}
    seen[source], layer = True, np.zeros(graph.n, np.bool_)
    layer[source] = True
    for found in sums.values():
        found[source] = 0
    while layer.any():
        some = arcs[layer[tails[arcs]]]
        some = some[~seen[heads[some]]]
        # arcs are sorted by tail, so the first arc into a vertex is the one with the smallest tail
        first = some[np.unique(heads[some], return_index=True)[1]]
        for name, found in sums.items():
            found[heads[first]] = found[tails[first]] + graph.quantities[name][first]
        layer = np.zeros(graph.n, np.bool_)
        layer[heads[first]] = True
        seen |= layer
    return sums


def _depth(before: npt.NDArray[np.int32]) -> int:
    """Return the depth of a tree in arcs; ``before`` holds the parent of each vertex (negative: none)."""
    ahead = np.where(before < 0, np.arange(len(before)), before)
    arcs = (before >= 0).astype(np.int64)
    while True:  # each iteration doubles the number of arcs from a vertex to its entry in ``ahead``
        further = arcs + arcs[ahead]
        if np.array_equal(further, arcs):
            return int(arcs.max(initial=0))
        arcs, ahead = further, ahead[ahead]
