"""Prepares the arcs of a graph for searches on the CPU: vertices renumbered, arcs in both directions, weights
converted.

The result depends on the graph alone, so it is computed once per ``Arcs`` object and kept as long as that object
exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.heap import search_packed, search_wide
from engine.graph.kernels import njit
from engine.graph.ordering import fixed
from engine.graph.transpose import components, incoming
from engine.model.backend import Arcs, Array
from engine.model.decimals import Units, units_of
from engine.model.dtypes import WORK_TYPES

Indices = npt.NDArray[np.int64]

#: Distance, as int64, of a vertex that no path has reached yet; the sums of a search stay far below it.
FAR: Final = 2**62
#: With more arcs per vertex than this, no order of the vertices keeps neighbours near each other, so the vertices are
#: not renumbered.  Meshes have up to 27 arcs per vertex.
DENSE: Final = 32
#: A graph of at most SMALL vertices with more than DENSE_SMALL arcs per vertex, all of weight 1, is not renumbered
#: either: its breadth-first searches take equally long in any order, because their rows of bits fit in a cache.
SMALL: Final = 4096
DENSE_SMALL: Final = 8
#: Up to this many neighbours of a vertex are sorted by insertion sort, more of them by merge sort.
FEW_SORTED: Final = 24


@dataclass(frozen=True)
class PreparedArcs:
    """The arcs of a graph with renumbered vertices, as the arrays that the kernels take.

    Searches with a heap (``engine.devices.cpu.heap``) use packed or wide keys.  A *packed* key is one int64 that holds
    a distance and a vertex; with *wide* keys, the distance and the vertex are stored apart.

    Attributes:
        indptr: int64, shape (n + 1,): where the arcs out of each vertex begin.
        heads: int32, shape (arcs,): the heads of the arcs out of the vertices.
        weights: shape (arcs,): the weights of these arcs; int32 for packed keys, int64 or float64 for wide keys.
        into: int64, shape (n + 1,): where the arcs into each vertex begin; ``indptr`` itself if the arcs mirror each
            other, which means that each has a reverse of the same weight.
        tails: int32, shape (arcs,): the tails of the arcs into the vertices; ``heads`` itself if the arcs mirror each
            other.
        back: int64, shape (arcs,): for each entry of ``tails``, the index of the same arc in ``weights``; None if the
            arcs mirror each other, or all weigh the same.
        rank: int32, shape (n,): the new number of each vertex.
        bits: number of bits that hold the vertex in a packed key; 0 for wide keys.
        largest: the largest weight.
        tally: for each type of tentative distances, how many blocks of lanes were searched to the end, and how many
            were given up.
        lane_weights: for each type of tentative distances, the weights of the arcs into each vertex; filled on first
            use.
        decimal: float weights as whole multiples of a decimal unit, and that unit; None if there is no such unit.
        short: the answer of :meth:`looks_short`, as a list of one entry; the list is empty before the first call.
    """

    indptr: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    weights: Array
    into: npt.NDArray[np.int64]
    tails: npt.NDArray[np.int32]
    back: npt.NDArray[np.int64] | None
    rank: npt.NDArray[np.int32]
    bits: int
    largest: float
    tally: dict[str, list[int]]
    lane_weights: dict[str, Array]
    decimal: Units | None = None
    short: list[bool] = field(default_factory=list)

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return len(self.heads)

    def weights_into(self, kind: str) -> Array:
        """Return the weights of the arcs into each vertex, converted to the type ``kind``.

        Larger weights than *unreachable* of that type are replaced by *unreachable*.
        """
        if kind not in self.lane_weights:
            weights = self.weights if self.decimal is None or kind == "float64" else self.decimal[0]
            weights = weights if self.back is None else weights[self.back]
            self.lane_weights[kind] = np.minimum(weights, WORK_TYPES[kind].unreachable).astype(kind)
        return self.lane_weights[kind]

    def heaviest(self) -> float:
        """Return the largest weight in the unit in which tentative distances are whole numbers."""
        return self.largest if self.decimal is None else round(self.largest / self.decimal[1])

    def looks_short(self, source: np.int64) -> bool:
        """Return whether 16 bits hold the distances from ``source``.

        Only the first call searches; later calls return the same answer for every source.
        """
        if not self.short:
            n, real = len(self.rank), self.weights.dtype.kind == "f"
            dist = np.full(n, np.inf if real else FAR, self.weights.dtype if real else np.int64)
            seen, place, none = np.empty(n, np.int32), np.full(n, -1, np.int32), np.zeros(0, np.uint8)
            common = (self.indptr, self.heads, self.weights, self.rank[source], dist, seen, none, 0)
            if self.bits:
                count = search_packed(*common, np.empty(n, np.int64), place, self.bits)
            else:
                count = search_wide(*common, np.empty(n, dist.dtype), np.empty(n, np.int32), place)
            longest = dist[seen[:count]].max() / (1 if self.decimal is None else self.decimal[1])
            self.short.append(bool(longest + self.heaviest() < WORK_TYPES["uint16"].unreachable))
        return self.short[0]


def prepare(arcs: Arcs) -> PreparedArcs:
    """Return the prepared form of ``arcs``, which is made at the first call and kept as long as ``arcs``."""
    return arcs.form(_prepare)


def _prepare(arcs: Arcs) -> PreparedArcs:
    n, indptr, heads, weights = len(arcs.indptr) - 1, arcs.indptr, arcs.heads, arcs.weights
    into, tails, places = (indptr, heads, None) if arcs.mirrored else incoming(arcs)
    if places is not None and _mirrored(arcs, into, tails, places):
        into, tails, places = indptr, heads, None
    rank = np.arange(n, dtype=np.int32)
    order = None if arcs.ordered or _is_dense(n, weights) else search_order(arcs, into, tails)
    if order is not None:
        rank[order] = np.arange(n, dtype=np.int32)
        indptr, heads, moved = renumber(indptr, heads, order, rank)
        weights = weights[moved]
        if places is None:
            into, tails = indptr, heads
        else:
            into, tails, moved_in = renumber(into, tails, order, rank)
    back = None
    if places is not None and weights.min(initial=0) != weights.max(initial=0):
        back = places
        if order is not None:
            place = np.empty(len(moved), np.int64)
            place[moved] = np.arange(len(moved))
            back = place[places[moved_in]]
    largest = weights.max(initial=0).item()
    bits = 0
    decimal = None
    if weights.dtype.kind == "f":
        weights = weights.astype(np.float64)
        decimal = units_of(arcs)
        if decimal is not None and order is not None:
            decimal = decimal[0][moved], decimal[1]
    else:
        bits = max(1, n - 1).bit_length()
        # keys are packed only if the largest possible distance, n * largest, gives a key below 2^62, and the weights
        # fit int32
        bits = 0 if (n * largest) >> (62 - bits) or largest >> 31 else bits
        weights = weights.astype(np.int32 if bits else np.int64)
    return PreparedArcs(indptr, heads, weights, into, tails, back, rank, bits, largest, {}, {}, decimal)


def _is_dense(n: int, weights: Array) -> bool:
    """Return whether renumbering ``n`` vertices would take more time than it saves in searches."""
    if len(weights) > DENSE * n:
        return True
    small = n <= SMALL and len(weights) > DENSE_SMALL * n
    return small and weights.dtype.kind == "i" and bool((weights == 1).all())


def _mirrored(arcs: Arcs, into: Indices, tails: npt.NDArray[np.int32], places: Indices) -> bool:
    """Return whether each arc has a reverse of the same weight.

    ``into``, ``tails`` and ``places`` are the transposed arcs.  The answer is also False if the heads of some vertex
    are not ascending.
    """
    same = np.array_equal(into, arcs.indptr) and np.array_equal(tails, arcs.heads)
    return same and np.array_equal(arcs.weights[places], arcs.weights)


@njit(nogil=True, cache=True)
def renumber(indptr, heads, order, rank):  # type: ignore[no-untyped-def]
    """Return the CSR in which vertex ``order[i]`` has number i, and the old index of each arc.

    Args:
        indptr, heads: the CSR.
        order: int32, shape (n,): the vertices in their new order.
        rank: int32, shape (n,): the new number of each vertex.
    """
    moved = np.empty(len(heads), np.int64)
    ends = np.zeros(len(indptr), np.int64)
    filled = 0
    for i in range(len(order)):
        for e in range(indptr[order[i]], indptr[order[i] + 1]):
            moved[filled] = e
            filled += 1
        ends[i + 1] = filled
    return ends, rank[heads[moved]], moved


def search_order(
    arcs: Arcs, into: Indices | None = None, tails: npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.int32]:
    """Return the vertices in an order that suits searches of many sources side by side.

    If strongly connected components are mostly small, as in acyclic graphs, the order is topological, except inside
    components: one pass over the vertices in this order then finds nearly all distances, and sources with neighbouring
    numbers reach much the same vertices.  Otherwise neighbours, over arcs of either direction, get numbers near each
    other, by reverse Cuthill-McKee (George and Liu 1981) from a vertex of least degree in each component.

    Args:
        arcs: the arcs.
        into: int64, shape (n + 1,): where the arcs into each vertex begin in ``tails``; ``arcs.indptr`` itself if each
            arc has a reverse.  None to find them here if they are needed.
        tails: int32, shape (arcs,): the tails of the arcs into each vertex; None together with ``into``.
    """
    indptr, heads = arcs.indptr, arcs.heads
    if into is not indptr:
        component, found = components(arcs)
        if 2 * component.max(initial=-1) > len(component):
            last: npt.NDArray[np.int32] = found[::-1].copy()
            return last
    if into is None or tails is None:
        into, tails, _ = incoming(arcs)
    order: npt.NDArray[np.int32] = _cuthill_mckee(fixed(indptr), fixed(heads), fixed(into), fixed(tails))
    return order


@njit(nogil=True, cache=True)
def _by_degree(indptr, into):  # type: ignore[no-untyped-def]
    """Return the number of arcs at each vertex, and the vertices in ascending order of it, ties by number."""
    n = len(indptr) - 1
    degree, seeds = np.empty(n, np.int64), np.empty(n, np.int32)
    most = 0
    for v in range(n):
        degree[v] = indptr[v + 1] - indptr[v] + into[v + 1] - into[v]
        most = max(most, degree[v])
    ends = np.zeros(most + 2, np.int64)
    for v in range(n):
        ends[degree[v] + 1] += 1
    for k in range(most):
        ends[k + 1] += ends[k]
    for v in range(n):
        seeds[ends[degree[v]]] = v
        ends[degree[v]] += 1
    return degree, seeds


@njit(nogil=True, cache=True)
def _cuthill_mckee(indptr, heads, into, tails):  # type: ignore[no-untyped-def]
    degree, seeds = _by_degree(indptr, into)
    order = np.empty(len(seeds), np.int32)
    placed = np.zeros(len(seeds), np.uint8)
    last = looked = 0
    for seed in seeds:
        if placed[seed]:
            continue
        placed[seed] = 1
        order[last] = seed
        last += 1
        while looked < last:
            u = order[looked]
            looked += 1
            first = last
            for side in range(2):
                ends, others = (indptr, heads) if side == 0 else (into, tails)
                for e in range(ends[u], ends[u + 1]):
                    v = others[e]
                    if not placed[v]:
                        placed[v] = 1
                        order[last] = v
                        last += 1
            if last - first > FEW_SORTED:
                some = order[first:last].copy()
                order[first:last] = some[np.argsort(degree[some], kind="mergesort")]
                continue
            for i in range(first + 1, last):
                v = order[i]
                k = i
                while k > first and degree[order[k - 1]] > degree[v]:
                    order[k] = order[k - 1]
                    k -= 1
                order[k] = v
    return order[::-1].copy()
