"""Prepares arcs for searches that count shortest paths: renumbers vertices, and makes weights whole where possible.

Neighbours get numbers near each other, as for all searches.  Vertices are numbered so that arcs of weight zero lead to
larger numbers, because paths over such arcs can only be counted in this order (``engine.devices.cpu.
betweenness.counting``).  The order exists unless arcs of weight zero form a cycle.  With such a cycle the number of
shortest walks is infinite, and the graph is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import DENSE, FAR, search_order
from engine.devices.cpu.betweenness.preparing import bound_visits, number_vertices
from engine.graph._walks import strong_components
from engine.graph.bound import distance_bound
from engine.graph.ordering import fixed
from engine.graph.transpose import components
from engine.model.backend import Arcs, Array, heaviest_out
from engine.model.decimals import units_of
from storage.errors import InvalidRequest
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: A search is made alone if it visits at most this share of the vertices and arcs.
ALONE: Final = 1 / 16


@dataclass(frozen=True)
class PathArcs:
    """Arcs of a graph whose vertices are renumbered.

    Attributes:
        indptr: int64, shape (n + 1,).  Vertices without outgoing arcs have the largest numbers.  If the graph has no
            cycle, all arcs lead to larger numbers.
        heads: int32, shape (arcs,).
        weights: shape (arcs,), int32 if a key of the heap holds the distance and the vertex, else int64 or float64;
            empty where all arcs weigh the same.
        moved: int64, shape (arcs,): the index of each arc in the graph before renumbering.
        rank: int32, shape (n,): the new number of each vertex.
        bits: number of bits of a heap key that hold the vertex; 0 where a key is too short for distance and vertex.
        unit, power: a sum of ``weights``, times ``unit`` and divided by ``power``, is a length in the graph's own
            weights.
        longest: a bound on the sum of ``weights`` along any shortest path; infinite if weights are not whole numbers.
        forward: whether all arcs lead to larger numbers, so that there is no cycle.
        mirrored: whether each arc has a reverse of the same weight.
        visits: int64, shape (n,): a bound on the number of vertices and arcs that a search from each vertex visits.
        inside: bool, shape (n,): whether the vertex can be visited by a search from a vertex that is not among ``few``.
        direct: bool, shape (n,): whether the vertex is known to reach no vertices but those to which it has an arc.
    """

    indptr: Indices
    heads: npt.NDArray[np.int32]
    weights: Array
    moved: Indices
    rank: npt.NDArray[np.int32]
    bits: int
    unit: float
    power: float
    longest: float
    forward: bool
    mirrored: bool
    visits: Indices
    inside: Flags
    direct: Flags

    @property
    def few(self) -> Flags:
        """Whether a search from each vertex visits so little that it is fastest alone, bool, shape (n,)."""
        found: Flags = self.visits <= _little(len(self.visits) + len(self.heads))
        return found

    def lengths(self, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Convert sums of ``weights`` to lengths in the graph's own weights, with at most one rounding of each."""
        return steps * self.unit / self.power


def number_arcs(graph: Graph, *, decimal: bool) -> PathArcs:
    """Renumber the vertices of a graph, and choose the type of the weights.

    Args:
        graph: the graph; no weight is negative.
        decimal: whether floats of few decimals are taken as whole multiples of a decimal unit, so that equally long
            paths have equal sums.

    Raises:
        InvalidRequest: a weight is negative, arcs of weight zero form a cycle, or a sum may be too large for its type.
    """
    least, largest = (graph.weights.min().item(), graph.weights.max().item()) if graph.arcs else (1, 1)
    if least < 0:
        tail, head = _ends(graph, int(graph.weights.argmin()))
        raise InvalidRequest(
            f"shortest paths are counted where no weight is negative, and the arc from {tail} to {head} weighs "
            f"{least:g}",
            field="weight",
        )
    if graph.n * largest >= (FAR if graph.integral else math.inf):
        raise InvalidRequest(
            f"the weights are up to {largest:g}, so sums along a path may be too large for their type; divide them all "
            "by one number",
            field="weight",
        )
    arcs = Arcs(fixed(graph.indptr), fixed(graph.heads), graph.weights)
    found = _reach(arcs)
    order, forward = _order(graph, arcs, zeros=least == 0, alone=not found[1].any())
    rank, (indptr, heads, moved), found = number_vertices(arcs.indptr, arcs.heads, np.ascontiguousarray(order), *found)
    known = forward, not graph.directed, *found
    if least == largest and least > 0:
        return PathArcs(indptr, heads, np.zeros(0, np.int32), moved, rank, 0, float(least), 1.0, graph.n - 1, *known)
    units = units_of(arcs) if decimal and not graph.integral else None
    weights, power = (graph.weights, 1.0) if units is None else (units[0], float(round(1 / units[1])))
    weights = weights[moved]
    longest = math.inf
    if units is not None:
        longest = float(arcs.form(heaviest_out).sum()) * power
    elif graph.integral:
        longest = distance_bound(graph, None, arcs)[0]
    bits = _key_bits(graph.n, weights)
    if bits == 0 and weights.dtype == np.int32:
        weights = weights.astype(np.int64)
    return PathArcs(indptr, heads, weights, moved, rank, bits, 1.0, power, longest, *known)


def _key_bits(n: int, weights: Array) -> int:
    """Return how many bits of an int64 key hold the vertex; 0 if the remaining bits cannot hold every distance."""
    if weights.dtype != np.int32:
        return 0
    bits = max(1, n - 1).bit_length()
    return 0 if (n * int(weights.max(initial=0))) >> (62 - bits) else bits


def _little(size: int) -> int:
    """Return the number of vertices and arcs up to which a search is made alone in a graph with ``size`` of them."""
    return int(ALONE * size)


def _reach(arcs: Arcs) -> tuple[Indices, Flags, Flags]:
    """Return ``visits``, ``inside`` and ``direct`` of :class:`PathArcs`, by the old numbers."""
    size = len(arcs.indptr) - 1 + len(arcs.heads)
    found: tuple[Indices, Flags, Flags] = bound_visits(arcs.indptr, arcs.heads, *components(arcs), _little(size))
    return found


def _order(graph: Graph, arcs: Arcs, *, zeros: bool, alone: bool) -> tuple[npt.NDArray[np.int32], bool]:
    """Return the vertices in an order, and whether all arcs lead forward in it.

    If ``zeros``, the tail of each arc of weight zero is before its head.

    Args:
        graph: the graph.
        arcs: its arcs, as an object that caches facts about them.
        zeros: whether there are arcs of weight zero.
        alone: whether all searches are made alone; they visit so little that the order of all other vertices does not
            matter.
    """
    indptr, heads = arcs.indptr, arcs.heads
    order: npt.NDArray[np.int32] = np.arange(graph.n, dtype=np.int32)
    if (forward := _forward(graph, arcs)) is not None:
        return forward, True
    if graph.arcs <= DENSE * graph.n and not alone:
        order = search_order(arcs, *(() if graph.directed else (indptr, heads)))
    if not zeros:
        return order, graph.arcs == 0
    tails = np.repeat(np.arange(graph.n), np.diff(indptr))
    free = graph.weights == 0
    ends = np.zeros(graph.n + 1, np.int64)
    np.cumsum(np.bincount(tails[free], minlength=graph.n), out=ends[1:])
    component, found = strong_components(fixed(ends), fixed(heads[free]))
    if int(component.max(initial=-1)) + 1 < graph.n:
        _refuse_cycle(graph, component, tails, free)
    # an arc of weight zero never leads to a component that is found later.  So in the reverse of ``found`` such arcs
    # lead forward.  Only the vertices at the ends of such arcs are put in this order; all other vertices come before
    # them
    touched = np.zeros(graph.n, np.bool_)
    touched[tails[free]] = touched[heads[free]] = True
    ahead = found[::-1]
    return np.concatenate([order[~touched[order]], ahead[touched[ahead]]]), False


def _forward(graph: Graph, arcs: Arcs) -> npt.NDArray[np.int32] | None:
    """Return the vertices in an order in which all arcs lead forward; None if there is no such order."""
    component, found = components(arcs)
    if not graph.directed or graph.arcs == 0 or int(component[found[-1]]) + 1 < graph.n:
        return None
    return found[::-1]


def _refuse_cycle(graph: Graph, component: npt.NDArray[np.int32], tails: Indices, free: npt.NDArray[np.bool_]) -> None:
    inside = free & (component[tails] == component[graph.heads])
    tail, head = _ends(graph, int(np.flatnonzero(inside)[0]))
    between = f"the arc from {tail} to {head}" if graph.directed else f"the edge between {tail} and {head}"
    raise InvalidRequest(
        f"{between} weighs 0 and lies on a cycle of arcs that weigh 0, so the number of shortest paths is not defined; "
        "give such arcs a small weight, or merge their ends",
        field="weight",
    )


def _ends(graph: Graph, arc: int) -> tuple[object, object]:
    """Return the labels of the tail and the head of an arc."""
    tail = int(np.searchsorted(graph.indptr, arc, side="right")) - 1
    return graph.labels[tail], graph.labels[graph.heads[arc]]
