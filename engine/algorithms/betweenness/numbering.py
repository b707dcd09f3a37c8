"""Prepares arcs for searches that count shortest paths: renumbers vertices, and makes weights whole where possible.

Neighbours get numbers near each other, as for all searches.  Vertices are numbered so that arcs of weight zero lead to
larger numbers, because paths over such arcs can only be counted in this order (``engine.devices.cpu.
betweenness.counting``).  The order exists unless arcs of weight zero form a cycle.  With such a cycle the number of
shortest walks is infinite, and the graph is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import DENSE, FAR, renumber, search_order
from engine.graph._walks import strong_components
from engine.graph.bound import distance_bound
from engine.graph.ordering import fixed
from engine.graph.transpose import transposed
from engine.model.backend import Arcs, Array
from engine.model.decimals import in_units
from storage.errors import InvalidRequest
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]


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

    @property
    def forward(self) -> bool:
        """Whether all arcs lead to larger numbers, so that there is no cycle."""
        tails = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return bool(np.all(tails < self.heads))

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
    order = _order(graph, zeros=least == 0)
    rank = np.empty(graph.n, np.int32)
    rank[order] = np.arange(graph.n, dtype=np.int32)
    indptr, heads, moved = renumber(fixed(graph.indptr), fixed(graph.heads), order, rank)
    if least == largest and least > 0:
        return PathArcs(indptr, heads, np.zeros(0, np.int32), moved, rank, 0, float(least), 1.0, graph.n - 1)
    weights, power = graph.weights[moved], 1.0
    units = in_units(indptr, weights) if decimal and not graph.integral else None
    if units is not None:
        weights, power = units[0], float(round(1 / units[1]))
    longest = math.inf
    if weights.dtype.kind == "i":
        longest = distance_bound(graph, None)[0] * power
    bits = _key_bits(graph.n, weights)
    if bits == 0 and weights.dtype == np.int32:
        weights = weights.astype(np.int64)
    return PathArcs(indptr, heads, weights, moved, rank, bits, 1.0, power, longest)


def _key_bits(n: int, weights: Array) -> int:
    """Return how many bits of an int64 key hold the vertex; 0 if the remaining bits cannot hold every distance."""
    if weights.dtype != np.int32:
        return 0
    bits = max(1, n - 1).bit_length()
    return 0 if (n * int(weights.max(initial=0))) >> (62 - bits) else bits


def _order(graph: Graph, *, zeros: bool) -> npt.NDArray[np.int32]:
    """Return the vertices in their new order: vertices without outgoing arcs last; if ``zeros``, the tail of each arc
    of weight zero before its head.
    """
    indptr, heads = fixed(graph.indptr), fixed(graph.heads)
    order: npt.NDArray[np.int32] = np.arange(graph.n, dtype=np.int32)
    if (forward := _forward(graph, indptr, heads)) is not None:
        return _sinks_last(forward, indptr)
    if graph.arcs <= DENSE * graph.n:
        into, sides = transposed(indptr, heads)[:2] if graph.directed else (indptr, heads)
        order = search_order(Arcs(indptr, heads, graph.weights), into, sides)
    if not zeros:
        return _sinks_last(order, indptr)
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
    forward = found[::-1]
    return _sinks_last(np.concatenate([order[~touched[order]], forward[touched[forward]]]).astype(np.int32), indptr)


def _forward(graph: Graph, indptr: Indices, heads: npt.NDArray[np.int32]) -> npt.NDArray[np.int32] | None:
    """Return the vertices in an order in which all arcs lead forward; None if there is no such order."""
    if not graph.directed or graph.arcs == 0:
        return None
    reached = np.zeros(graph.n, np.bool_)
    reached[heads] = True
    if reached.all() or np.all(np.diff(indptr)):
        return None  # every vertex has an incoming arc, or every vertex an outgoing one, so there is a cycle
    component, found = strong_components(indptr, heads)
    if int(component.max(initial=-1)) + 1 < graph.n or np.any(heads == np.repeat(np.arange(graph.n), np.diff(indptr))):
        return None
    forward: npt.NDArray[np.int32] = found[::-1].astype(np.int32)
    return forward


def _sinks_last(order: npt.NDArray[np.int32], indptr: Indices) -> npt.NDArray[np.int32]:
    """Return ``order`` with all vertices without outgoing arcs moved to its end."""
    inner = np.diff(indptr)[order] > 0
    return order if inner.all() else np.concatenate([order[inner], order[~inner]])


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
