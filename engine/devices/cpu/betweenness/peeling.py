"""Removes the trees that hang on the core of an undirected graph, and counts the vertices of each of their branches."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def peel_trees(indptr, heads):  # type: ignore[no-untyped-def]
    """Remove vertices with one neighbour again and again; a component that is a tree keeps one vertex.

    A removed vertex and all that was removed behind it are a *branch*.  It hangs on the only neighbour that this vertex
    still had, its *parent*.

    Args:
        indptr: int64, shape (n + 1,): where the arcs of each vertex begin (CSR); each arc has a reverse arc.
        heads: int32, shape (arcs,).

    Returns:
        The removed vertices, int32, in the order in which they were removed.  Then three arrays of shape (n,): the
        parents of removed vertices, int32, -1 for others; the number of vertices of the branches on each vertex, itself
        included, int64; and the sum of the squared sizes of these branches, int64.
    """
    n = len(indptr) - 1
    parent, sizes, squares = np.full(n, -1, np.int32), np.ones(n, np.int64), np.zeros(n, np.int64)
    left = np.empty(n, np.int32)
    queue = np.empty(n, np.int32)
    count = 0
    for v in range(n):
        left[v] = indptr[v + 1] - indptr[v]
        if left[v] == 1:
            queue[count] = v
            count += 1
    done, kept = 0, 0
    while done < count:
        v = queue[done]
        done += 1
        if left[v] == 0:  # the last vertex of a component that is a tree
            continue
        queue[kept] = v
        kept += 1
        for e in range(indptr[v], indptr[v + 1]):
            u = heads[e]
            if parent[u] < 0:
                parent[v] = u
                sizes[u] += sizes[v]
                squares[u] += sizes[v] * sizes[v]
                left[u] -= 1
                if left[u] == 1:
                    queue[count] = u
                    count += 1
                break
    return queue[:kept], parent, sizes, squares


@njit(nogil=True, cache=True)
def sum_components(indptr, heads, removed, parent, sizes):  # type: ignore[no-untyped-def]
    """Return how many vertices the component of each vertex has, int64, shape (n,).

    Args:
        indptr, heads: the arcs, as :func:`peel_trees` takes them.
        removed, parent, sizes: the vertices that :func:`peel_trees` has removed, and the arrays that it has filled.
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
    for i in range(len(removed) - 1, -1, -1):
        totals[removed[i]] = totals[parent[removed[i]]]
    return totals
