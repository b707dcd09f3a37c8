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

from storage.graph.graph import Graph

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

#: A graph is dense if it has more than ``_MANY`` times as many arcs as :func:`most_needed` returns.
_MANY: Final = 8


def strong_components(n: int, tails: Array, heads: Array) -> Numbers:
    """Return the strongly connected component of each vertex, shape (n,), counted from 0."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    arcs = csr_array((np.ones(len(tails), np.bool_), (tails, heads)), shape=(n, n))
    return np.asarray(connected_components(arcs, connection="strong")[1], np.int32)


def most_needed(n: int) -> int:
    """Estimate, from above, how many of the best arcs suffice for all bottlenecks.

    The estimate is for a dense graph with random weights.
    """
    return int(2 * n * math.log(max(2, n)))


def needed_arcs(graph: Graph, *, greatest: bool) -> tuple[Numbers, Numbers, Array]:
    """Return tails, heads and weights of arcs that suffice for all bottlenecks.

    In a sparse graph, these are all arcs.  In a dense graph, these are the best arcs, and every arc whose ends lie in
    different strongly connected components of the graph that has only the best arcs.

    Args:
        graph: the graph.
        greatest: whether the greatest weight is the best.
    """
    tails = np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(graph.indptr))
    heads, weights = graph.heads, graph.weights
    best = most_needed(graph.n)
    if graph.arcs <= _MANY * best:
        return tails, heads, weights
    place = graph.arcs - best if greatest else best - 1
    bound = np.partition(weights, place)[place]
    first = weights >= bound if greatest else weights <= bound
    component = strong_components(graph.n, tails[first], heads[first])
    kept = first | (component[tails] != component[heads])
    return tails[kept], heads[kept], weights[kept]


def joining_ranks(n: int, arcs: tuple[Array, Array, Numbers], none: int) -> tuple[Indices, Numbers, Indices]:
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
        The arcs that have a joining rank, without those that no path needs; their joining ranks; and the arcs that at
        their own rank lead from one component to another.
    """
    tails, heads, ranks = arcs
    component = strong_components(n, tails, heads)
    inside = component[tails] == component[heads]
    never, left = np.flatnonzero(~inside), np.flatnonzero(inside)
    a, b, own = tails[left], heads[left], ranks[left]
    below, count = np.zeros(len(left), np.int32), n
    step = 1 << max(0, (none - 2).bit_length())
    while step > 1 and len(left):
        step //= 2
        met = np.zeros(count, np.bool_)
        met[a] = met[b] = True
        number = np.cumsum(met, dtype=np.int32) - np.int32(1)
        a, b, count = number[a], number[b], int(number[-1]) + 1
        part = own <= below + step
        component = strong_components(count, a[part], b[part])
        joined = component[a] == component[b]
        kept = part | ~joined
        left, own, below, joined, a, b = (x[kept] for x in (left, own, below, joined, a, b))
        below = np.where(joined, below, below + np.int32(step))
        a, b = (np.where(joined, end, component[end] + np.int32(count)) for end in (a, b))
        count *= 2
    joined_at = below + np.int32(1)
    return left, joined_at, np.concatenate([left[own < joined_at], never])
