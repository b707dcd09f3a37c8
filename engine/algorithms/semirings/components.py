"""Finds the rank at which both ends of each arc first lie in the same component, and the arcs that bottlenecks need.

A *component* at a rank is a strongly connected component of the graph that has only the arcs up to that rank.  As ranks
grow, components merge and never split.  If both ends of an arc are in the same component at a rank below the arc's own,
no path needs the arc, because there is a better path from its tail to its head.  So only few arcs of a dense graph are
needed.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.semirings import joining
from storage.graph.graph import Graph

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

#: A graph is dense if it has more than ``_MANY`` times as many arcs as :func:`most_needed` returns.
_MANY: Final = 8
#: About the number of arcs of a dense graph whose weights tell which are the best.
_SAMPLE: Final = 2**16


def most_needed(n: int) -> int:
    """Estimate, from above, how many of the best arcs suffice for all bottlenecks.

    The estimate is for a dense graph with random weights.
    """
    return int(2 * n * math.log(max(2, n)))


def needed_arcs(graph: Graph, *, greatest: bool) -> tuple[Numbers, Numbers, Array]:
    """Return tails, heads and weights of arcs that suffice for all bottlenecks.

    In a sparse graph, these are all arcs.  In a dense graph, these are the best arcs, as a sample of the weights tells
    which they are, and every arc whose ends lie in different strongly connected components of the graph that has only
    these.

    Args:
        graph: the graph.
        greatest: whether the greatest weight is the best.
    """
    heads, weights, best = graph.heads, graph.weights, most_needed(graph.n)
    if graph.arcs <= _MANY * best:
        return np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(graph.indptr)), heads, weights
    some = weights[:: max(1, graph.arcs // _SAMPLE)]
    place = -(-len(some) * best // graph.arcs)
    bound = np.partition(some, -place if greatest else place - 1)[-place if greatest else place - 1]
    kept = weights >= bound if greatest else weights <= bound
    arcs = np.flatnonzero(kept)
    tails = _tails(graph, arcs)
    component = joining.components_of(graph.n, tails, heads[arcs])
    if component.max() > 0:
        kept |= np.repeat(component, np.diff(graph.indptr)) != component[heads]
        arcs = np.flatnonzero(kept)
        tails = _tails(graph, arcs)
    return tails, heads[arcs], weights[arcs]


def _tails(graph: Graph, arcs: Indices) -> Numbers:
    return (np.searchsorted(graph.indptr, arcs, side="right") - 1).astype(np.int32)


def joining_ranks(n: int, arcs: tuple[Array, Array, Numbers], none: int) -> tuple[Indices, Numbers, Indices, Numbers]:
    """Find, for each arc, the *joining rank*: the lowest rank at which both its ends lie in the same component.

    This is one binary search for all arcs together: each iteration halves the interval in which the joining rank of
    each arc may lie.  An iteration finds the components of one graph, which has those arcs whose own rank is at most
    the middle of their interval.  If both ends of an arc lie in the same component, the lower half of its interval
    remains; the arc is dropped if its own rank is above that half, because no path needs it.  For all other arcs the
    upper half remains, and components are contracted to vertices.  Arcs with different intervals have separate
    vertices.

    Args:
        n: number of vertices.
        arcs: tails, heads and ranks (1 to ``none`` - 1), shape (arcs,) each.
        none: the rank that stands for no path.

    Returns:
        The arcs that have a joining rank, without those that no path needs; their joining ranks; the arcs that at
        their own rank lead from one component to another; and the component of each vertex once all arcs are there.
    """
    tails, heads, ranks = arcs
    joined, whole = joining.find_joining(n, tails, heads, ranks, none)
    inside = np.flatnonzero((joined > 0) & (joined < none))
    return inside, joined[inside], np.flatnonzero(ranks < joined), whole
