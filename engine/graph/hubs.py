"""A bound on the distances of a graph from one hub of each strongly connected component (decision 108).

All weights are whole numbers, none negative.  Let G be a strongly connected component, h its hub (any one of its
vertices), and u a vertex that reaches v.

- If u reaches h and h reaches v, then d(u, v) <= d(u, h) + d(h, v), which is at most the largest distance to h plus the
  largest from h.
- Otherwise no path from u to v has a vertex of G, because all vertices of G reach each other.  A path that has left a
  component never returns to it, so the path passes through a chain of components.  It enters each of them at some
  vertex x and leaves it at some y, and the walk from x over the component's own hub to y is no longer than the largest
  distance to that hub plus the largest distance from it.  So d(u, v) is at most the length of the longest chain without
  G: the sum of these two distances for each component, plus the longest arc from each component to the next.

The bound is the larger of these two values.  It holds for any choice of hubs and of G.  It also holds if each distance
to or from a hub is replaced by the length of any walk with the same ends, because no walk is shorter than the distance.
These choices affect only how tight the bound is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.graph.ordering import fixed
from engine.model.backend import Arcs
from engine.model.dtypes import WORK_TYPES
from storage.graph.graph import Graph

Lengths = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

#: The largest number of passes over the vertices of a directed graph that :func:`_by_few_arcs` makes.  In a dense graph
#: they suffice to label all vertices; in other graphs :func:`_by_chains` finds the bound.
PASSES: Final = 3
#: A bound up to this number leads to the narrowest type, so no tighter bound is needed.
NARROWEST: Final = int(WORK_TYPES["uint16"].largest)


def hub_bound(graph: Graph, limit: int, arcs: Arcs | None = None) -> int | None:
    """Bound d(u, v) over all pairs in which u reaches v, in O((n + m) log n).

    The first attempt, which is meant for dense graphs, uses walks that are found without reading all arcs.

    Args:
        graph: the graph; its weights are whole numbers, none negative.
        limit: the largest useful bound, at most 2^53.
        arcs: the arcs of ``graph`` as an object that caches facts about them; None to make a new one.

    Returns:
        The bound; None if it would be above ``limit``.
    """
    arcs = arcs or Arcs(graph.indptr, graph.heads, graph.weights)
    found = _by_few_arcs(arcs, limit, directed=graph.directed)
    return _by_chains(arcs, limit, directed=graph.directed) if found is None else found


def _by_few_arcs(arcs: Arcs, limit: int, *, directed: bool) -> int | None:
    """Return the bound from walks of all vertices from and to one hub, found in a few passes over the vertices.

    Return None if some vertex has no such walk after these passes, or if the bound is above ``limit``.
    """
    from engine.graph._walks import grow_back, grow_tree
    from engine.graph.kernels.plain import call

    form = _form(arcs)
    hub = int(np.argmax(np.diff(arcs.indptr)))
    out = np.empty(len(arcs.indptr) - 1, np.int64)
    if not call(grow_tree, *form, hub, limit if directed else limit // 2, out, work=_size(arcs)):
        return None
    far = int(out.max())
    if directed and not call(grow_back, *form, hub, limit - far, out, PASSES, work=_size(arcs)):
        return None
    bound = far + int(out.max())
    return bound if bound <= limit else None


def _by_chains(arcs: Arcs, limit: int, *, directed: bool) -> int | None:
    """Return the bound over chains of components; None if it is above ``limit``.

    Walks of fewest arcs are found in a fraction of the time of shortest paths, so they are tried first; if their bound
    leads to the narrowest type, it is returned.
    """
    from engine.graph._walks import search_from_hubs, walk_from_hubs
    from engine.graph.transpose import components

    component, order = components(arcs)
    sides = (arcs, _reversed(arcs)) if directed else (arcs,)
    if limit <= NARROWEST:
        found = _through_hubs(sides, component, order, limit, walk_from_hubs)
        if found is not None:
            return found
    return _through_hubs(sides, component, order, limit, search_from_hubs)


def _through_hubs(
    sides: tuple[Arcs, ...], component: Ints, order: Ints, limit: int, search: Callable[..., bool]
) -> int | None:
    """Return the bound from walks between each vertex and a hub, in both directions; None if it is above ``limit``.

    Args:
        sides: the arcs, and the reversed arcs if the graph is directed.
        component: shape (n,), the strongly connected component of each vertex.
        order: shape (n,), the vertices by ascending component.
        limit: the largest useful bound.
        search: labels vertices with lengths of walks, as ``search_from_hubs``.
    """
    from engine.graph._walks import longest_chain
    from engine.graph.kernels.plain import call

    arcs = sides[0]
    starts = np.flatnonzero(np.diff(component[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    largest = int(np.argmax(sizes))
    hubs = _hubs(arcs, component, len(sizes))
    # by component: the length that it adds to a chain, 0 until that is known; -1 if no chain may pass through it
    through = np.zeros(len(sizes), np.int64)

    def longest() -> int:
        """Return the length of the longest chain without the largest component; -1 if it is above the limit."""
        through[largest] = -1
        return int(call(longest_chain, *_form(arcs), component, order, through, limit, work=_size(arcs)))

    # if each component is a single vertex, all lengths in ``through`` stay 0, so the longest chain is known before any
    # search; no search is made if this chain alone is above the limit
    avoiding = longest() if len(sizes) == len(order) else None
    if avoiding == -1:
        return None
    both = _there_and_back(sides, np.zeros(len(order), np.int32), hubs[largest : largest + 1], limit, search)
    if both is None:
        return None
    passing = int(both[0].max() + both[1].max())
    if len(order) - sizes[largest] > len(sizes) - 1:  # some other component also has more than one vertex
        both = _there_and_back(sides, component, np.delete(hubs, largest), limit, search)
        if both is None:
            return None
        through = np.maximum.reduceat(both[0][order], starts) + np.maximum.reduceat(both[1][order], starts)
    avoiding = longest() if avoiding is None else avoiding
    return max(passing, avoiding) if avoiding >= 0 and passing <= limit else None


def _size(arcs: Arcs) -> int:
    return len(arcs.indptr) + len(arcs.heads)


def _form(arcs: Arcs) -> tuple[npt.NDArray[Any], ...]:
    """Return the arcs as the arguments of kernels."""
    return fixed(arcs.indptr), fixed(arcs.heads), fixed(arcs.weights)


def _reversed(arcs: Arcs) -> Arcs:
    from engine.graph.transpose import incoming

    into, tails, places = incoming(arcs)
    return Arcs(into, tails, arcs.weights[places])


def _hubs(arcs: Arcs, component: Ints, count: int) -> npt.NDArray[np.int64]:
    """Return the vertex of highest degree of each of ``count`` components."""
    by_degree = np.argsort(np.diff(arcs.indptr), kind="stable")
    hubs = np.empty(count, np.int64)
    hubs[component[by_degree]] = by_degree  # NumPy writes in this order, so the vertex of highest degree remains
    return hubs


def _there_and_back(
    sides: tuple[Arcs, ...], component: Ints, hubs: npt.NDArray[np.int64], limit: int, search: Callable[..., bool]
) -> tuple[Lengths, Lengths] | None:
    """Return, for each vertex, the length of a walk to it from the hub of its component, and of a walk back.

    Args:
        sides: the arcs, and the reversed arcs if the graph is directed.
        component: shape (n,); arcs between different components are ignored.
        hubs: vertices.
        limit: the largest length of a walk.
        search: labels vertices with lengths of walks, as ``search_from_hubs``.

    Returns:
        Two arrays of shape (n,), -1 where there is no path.  None if a length is above ``limit``, or if there is a
        single hub and the sum of the largest lengths of the two directions is above ``limit``.
    """
    from engine.graph.kernels.plain import call

    found: list[Lengths] = []
    for side in sides:
        # the largest distances from a single hub and to it must sum to at most the limit, so the limit of the second
        # search is the remainder; in an undirected graph both are equal, so the limit of the only search is half
        least = int(found[0].max()) if found and len(hubs) == 1 else 0
        most = limit // 2 if len(sides) == 1 else limit - least
        labels = np.empty(len(component), np.int64)
        if not call(search, *_form(side), component, hubs, most, labels, work=_size(side)):
            return None
        found.append(labels)
    return found[0], found[-1]
