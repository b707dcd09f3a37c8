"""Prepares a graph for counting shortest paths: bounds what searches visit, renumbers vertices, cuts out parts.

Small graphs are counted in a millisecond.  So each kernel does several steps, and takes less time than the same number
of calls of NumPy would take to begin.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True, from_start=True)
def bound_visits(indptr, heads, component, order, limit):  # type: ignore[no-untyped-def]
    """Bound what a search from each vertex visits, and find what searches can visit that are not known to visit little.

    What a search visits is bounded by the vertices of its component and their arcs, and by the bounds of all components
    to which these arcs lead.  What several of these components reach is counted several times.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.
        component: int32, shape (n,): the strongly connected component of each vertex; an arc never leads to a component
            of a higher number.
        order: int32, shape (n,): the vertices by ascending component.
        limit: the largest number of vertices and arcs that counts as little.

    Returns:
        Three arrays of shape (n,).  int64: a bound on the number of vertices and arcs that a search from the vertex
        visits; that of the whole graph if no bound up to ``limit`` is known.  bool: whether the vertex can be visited
        by a search without a bound up to ``limit``.  bool: whether the vertex is known to reach no other vertices than
        those to which it has an arc.
    """
    n = len(component)
    bounds, before, visited = np.zeros(n, np.int64), np.full(n, -1, np.int32), np.zeros(n, np.bool_)
    reached = np.zeros(n, np.int64)
    for u in order:
        own = component[u]
        bound = bounds[own] + 1 + indptr[u + 1] - indptr[u]
        reached[own] += 1
        for e in range(indptr[u], indptr[u + 1]):
            other = component[heads[e]]
            if before[other] != own and other != own:
                before[other] = own
                bound += bounds[other]
                reached[own] += reached[other]
        bounds[own], reached[own] = min(bound, limit + 1), min(reached[own], n)
    visits, inside, direct = np.full(n, n + len(heads), np.int64), np.zeros(n, np.bool_), np.empty(n, np.bool_)
    for i in range(n - 1, -1, -1):
        u = order[i]
        own = component[u]
        direct[u] = reached[own] == 1 + indptr[u + 1] - indptr[u]
        if bounds[own] <= limit:
            visits[u] = bounds[own]
            if not visited[own]:
                continue
        visited[own] = inside[u] = True
        for e in range(indptr[u], indptr[u + 1]):
            visited[component[heads[e]]] = True
    return visits, inside, direct


@njit(nogil=True, cache=True, from_start=True)
def number_vertices(indptr, heads, order, visits, inside, direct):  # type: ignore[no-untyped-def]
    """Renumber the vertices: first those with arcs out, then those without; otherwise they are in the given order.

    Args:
        indptr, heads: CSR of the arcs, as in :func:`bound_visits`.
        order: int32, shape (n,): the vertices in an order.
        visits, inside, direct: facts of the vertices, as :func:`bound_visits` returns them.

    Returns:
        int32, shape (n,): the new number of each vertex.  The CSR of the arcs by the new numbers, and the old index of
        each arc, int64.  The three facts by the new numbers.
    """
    n = len(order)
    rank, old = np.empty(n, np.int32), np.empty(n, np.int32)
    count = 0
    for sinks in range(2):
        for u in order:
            if (indptr[u + 1] == indptr[u]) == (sinks == 1):
                rank[u], old[count] = count, u
                count += 1
    ends, moved = np.zeros(n + 1, np.int64), np.empty(len(heads), np.int64)
    ahead = np.empty(len(heads), np.int32)
    facts = np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n, np.bool_)
    size = 0
    for i in range(n):
        u = old[i]
        facts[0][i], facts[1][i], facts[2][i] = visits[u], inside[u], direct[u]
        for e in range(indptr[u], indptr[u + 1]):
            moved[size], ahead[size] = e, rank[heads[e]]
            size += 1
        ends[i + 1] = size
    return rank, (ends, ahead, moved), facts


@njit(nogil=True, cache=True, from_start=True)
def reverse_arcs(indptr, heads, weights, inner, largest):  # type: ignore[no-untyped-def]
    """Return the arcs into each vertex, and the arcs between vertices that are no sinks.

    Args:
        indptr, heads: CSR of the arcs; vertices with arcs out have smaller numbers than all others, the sinks.
        weights: whole numbers, shape (arcs,); empty if every arc has the length 1.
        inner: the number of vertices that are no sinks.
        largest: lengths are at most this number; an arc with a larger weight is never tight.

    Returns:
        The arcs sorted by head, then tail: the index at which those into each vertex begin, int64, shape (n + 1,);
        their heads and tails, int32; their lengths, int32; and their indices among the arcs out, int64.  Then the
        vertices without arcs in, int64, sinks left out.  Then the CSR of the arcs out without those into sinks, the old
        index of each of these arcs, and for each arc in, sinks left out, its index among them, int64.
    """
    n, arcs = len(indptr) - 1, len(heads)
    into = np.zeros(n + 1, np.int64)
    for v in heads:
        into[v + 1] += 1
    alone = 0
    for v in range(n):
        alone += v < inner and into[v + 1] == 0
        into[v + 1] += into[v]
    free, last = into[:-1].copy(), into[inner]
    ends, tails, lengths = np.empty(arcs, np.int32), np.empty(arcs, np.int32), np.empty(arcs, np.int32)
    places, numbers = np.empty(arcs, np.int64), np.empty(last, np.int64)
    starts, ahead, kept = np.zeros(inner + 1, np.int64), np.empty(last, np.int32), np.empty(last, np.int64)
    count = 0
    for u in range(inner):
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            at = free[v]
            free[v] = at + 1
            ends[at], tails[at], places[at] = v, u, e
            lengths[at] = min(weights[e], largest) if len(weights) else 1
            if v < inner:
                ahead[count], kept[count], numbers[at] = v, e, count
                count += 1
        starts[u + 1] = count
    lone, count = np.empty(alone, np.int64), 0
    for v in range(inner):
        if into[v] == into[v + 1]:
            lone[count] = v
            count += 1
    return (into, ends, tails, lengths, places), lone, (starts, ahead, kept, numbers)


@njit(nogil=True, cache=True, from_start=True)
def cut_out(indptr, heads, kept, lone):  # type: ignore[no-untyped-def]
    """Return the part of a graph that has some of the vertices, and the arcs between them; their order stays.

    Args:
        indptr, heads: CSR of the arcs, as in :func:`bound_visits`.
        kept: bool, shape (n,): whether a vertex is kept.
        lone: whether kept vertices without an arc to a kept one stay in the part; if not, each arc must have a reverse.

    Returns:
        int64: the number of each vertex in the part, shape (n + 1,), -1 for all others and as the last entry; the
        vertices of the part; the index of each of its arcs in ``heads``.  Then the CSR of the part.
    """
    n = len(indptr) - 1
    number = np.full(n + 1, -1, np.int64)
    count, size = 0, 0
    for u in range(n):
        if kept[u]:
            inner = 0
            for e in range(indptr[u], indptr[u + 1]):
                inner += kept[heads[e]]
            if lone or inner > 0:
                number[u] = count
                count += 1
                size += inner
    vertices, places = np.empty(count, np.int64), np.empty(size, np.int64)
    starts, ahead = np.zeros(count + 1, np.int64), np.empty(size, np.int32)
    size = 0
    for u in range(n):
        if number[u] >= 0:
            vertices[number[u]] = u
            for e in range(indptr[u], indptr[u + 1]):
                if kept[heads[e]]:
                    places[size], ahead[size] = e, number[heads[e]]
                    size += 1
            starts[number[u] + 1] = size
    return number, vertices, places, (starts, ahead)
