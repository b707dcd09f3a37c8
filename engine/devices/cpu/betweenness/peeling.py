"""Removes the trees that hang on the core of a graph, and counts the vertices of each of their branches."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


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
