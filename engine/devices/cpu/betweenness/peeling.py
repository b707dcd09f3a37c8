"""Removes the trees that hang on the core of a graph, and counts the vertices of each of their branches."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit

#: Twins are looked for among vertices with at most this number of neighbours.
MOST_NEIGHBOURS = 64


@njit(nogil=True, cache=True)
def peel_trees(indptr, heads):  # type: ignore[no-untyped-def]
    """Remove vertices with one neighbour, to and from which an arc leads, again and again.

    A removed vertex and all that was removed behind it are a *branch*.  It hangs on the only neighbour that this vertex
    still had, its *parent*.  If nothing but a tree is left of a component, one vertex of it stays.

    Args:
        indptr: int64, shape (n + 1,): where the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,), ascending for each vertex.

    Returns:
        The removed vertices, int32, in the order in which they were removed.  Then three arrays of shape (n,): the
        parents of removed vertices, int32, -1 for others; the number of vertices of the branches on each vertex, itself
        included, int64; and the sum of the squared sizes of these branches, int64.
    """
    n = len(indptr) - 1
    parent, sizes, squares = np.full(n, -1, np.int32), np.ones(n, np.int64), np.zeros(n, np.int64)
    left, entering = np.empty(n, np.int32), np.zeros(n, np.int32)
    queue = np.empty(n, np.int32)
    count = 0
    for v in heads:
        entering[v] += 1
    for v in range(n):
        left[v] = indptr[v + 1] - indptr[v]
        if left[v] == 1 and entering[v] == 1:
            queue[count] = v
            count += 1
    done, kept = 0, 0
    while done < count:
        v = queue[done]
        done += 1
        if left[v] == 0:  # the last vertex of a component that is a tree
            continue
        u = np.int32(-1)
        for e in range(indptr[v], indptr[v + 1]):
            if parent[heads[e]] < 0:
                u = heads[e]
        first, last = indptr[u], indptr[u + 1]
        at = first + np.searchsorted(heads[first:last], v)
        if at == last or heads[at] != v:
            continue  # the arc into ``v`` comes from another vertex
        queue[kept] = v
        kept += 1
        parent[v] = u
        sizes[u] += sizes[v]
        squares[u] += sizes[v] * sizes[v]
        left[u] -= 1
        entering[u] -= 1
        if left[u] == 1 and entering[u] == 1:
            queue[count] = u
            count += 1
    return queue[:kept], parent, sizes, squares


@njit(nogil=True, cache=True)
def fold_twins(indptr, heads, left, stands):  # type: ignore[no-untyped-def]
    """Fold twins all of whose neighbours are neighbours, in an undirected graph whose arcs have the length 1.

    No shortest path passes through such a vertex, and none between two twins, which are neighbours of each other with
    the same other neighbours, passes through any vertex.  So one twin stands for all.

    Args:
        indptr, heads: the arcs (CSR).
        left: bool, shape (n,): the vertices that are left of the graph; set to False for twins that are folded.
        stands: float64, shape (n,): the number of vertices for which each vertex stands; updated.

    Returns:
        The number of vertices that are folded.
    """
    n = len(left)
    near, degree, count = np.full(n, -1, np.int64), np.zeros(n, np.int64), 0
    for v in range(n):
        for e in range(indptr[v], indptr[v + 1]):
            degree[v] += left[heads[e]]
    for v in range(n):
        if not left[v] or not 1 < degree[v] <= MOST_NEIGHBOURS:
            continue
        twins = False
        near[v] = v
        for e in range(indptr[v], indptr[v + 1]):
            u = heads[e]
            if left[u]:
                near[u] = v
                twins |= degree[u] == degree[v]
                if degree[u] < degree[v]:  # then ``u`` is no neighbour of all neighbours
                    twins = False
                    break
        for e in range(indptr[v], indptr[v + 1] if twins else indptr[v]):
            u = heads[e]
            if not left[u]:
                continue
            common = 0
            for i in range(indptr[u], indptr[u + 1]):
                common += left[heads[i]] and near[heads[i]] == v
            if common < degree[v]:
                twins = False
                break
        for e in range(indptr[v], indptr[v + 1] if twins else indptr[v]):
            u = heads[e]
            if left[u] and degree[u] == degree[v]:
                left[u] = False
                stands[v] += stands[u]
                count += 1
    return count


@njit(nogil=True, cache=True)
def fold_ends(indptr, heads, left, stands, share):  # type: ignore[no-untyped-def]
    """Fold the vertices of a directed graph that have one arc in and no arc out into the tails of these arcs.

    All paths to such a vertex lead through the tail, which stands for it as a target.  No path begins there.

    Args:
        indptr, heads: the arcs (CSR).
        left: bool, shape (n,), all True: set to False for the vertices that are folded, and for those without arcs.
        stands: float64, shape (n,), all 1: receives the number of vertices for which each vertex stands as a target.
        share: the vertices are folded only if they are at least this share of all.

    Returns:
        The number of vertices that are folded, those without arcs included.
    """
    n = len(left)
    entering, count = np.zeros(n, np.int32), 0
    for v in heads:
        entering[v] += 1
    for v in range(n):
        count += indptr[v] == indptr[v + 1] and entering[v] <= 1
    if count < max(1.0, share * n):
        return 0
    for u in range(n):
        left[u] = indptr[u] < indptr[u + 1] or entering[u] > 1
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            stands[u] += indptr[v] == indptr[v + 1] and entering[v] == 1
    return count


@njit(nogil=True, cache=True)
def sum_components(indptr, heads, parent, sizes):  # type: ignore[no-untyped-def]
    """Return how many vertices the component of each vertex of an undirected graph has, int64, shape (n,).

    Args:
        indptr, heads: the arcs.
        parent, sizes: as :func:`peel_trees` has filled them; entries of removed vertices are 0 in the result.
    """
    n = len(indptr) - 1
    totals = np.zeros(n, np.int64)
    queue = np.empty(n, np.int32)
    for start in range(n):
        if parent[start] >= 0 or totals[start] > 0:
            continue
        queue[0] = start
        totals[start] = 1
        done, count, total = 0, 1, np.int64(0)
        while done < count:
            u = queue[done]
            done += 1
            total += sizes[u]
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                if parent[v] < 0 and totals[v] == 0:
                    totals[v] = 1
                    queue[count] = v
                    count += 1
        for i in range(count):
            totals[queue[i]] = total
    return totals


@njit(nogil=True, cache=True)
def hand_down(removed, parent, values):  # type: ignore[no-untyped-def]
    """Set the entry of each removed vertex in ``values``, int64, to that of the vertex on which its tree hangs.

    ``removed`` and ``parent`` are as :func:`peel_trees` has left them.
    """
    for i in range(len(removed) - 1, -1, -1):
        values[removed[i]] = values[parent[removed[i]]]
