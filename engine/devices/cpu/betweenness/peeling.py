"""Removes the trees that hang on the core of a graph, and counts the vertices of each of their branches."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit

#: Twins are looked for among vertices with at most this number of neighbours.
MOST_NEIGHBOURS = 64
#: Ways between a removed vertex and its parent: an arc to the parent, and an arc from it.
UP, DOWN = 1, 2


@njit(nogil=True, cache=True)
def peel_trees(indptr, heads):  # type: ignore[no-untyped-def]
    """Remove vertices that have arcs to or from a single other vertex, again and again.

    A removed vertex and all that was removed behind it are a *branch*.  It hangs on the only neighbour that this vertex
    had left, its parent.  Arcs may lead to the parent, from it, or both.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,), different for each vertex, and never the vertex itself.

    Returns:
        The removed vertices, int32, in the order in which they were removed.  Then six arrays of shape (n,).  The
        parents of removed vertices, int32, -1 for others.  The ways between them, uint8: ``UP`` if an arc leads to the
        parent, plus ``DOWN`` if one leads from it.  Of the vertices of the branches on each vertex, itself included,
        the number of those that it reaches, and the number of those that reach it, int64.  The sum over these branches
        of the product of both numbers, each branch alone, int64.  Last, bool, shape (n,): whether a vertex is in the
        core, which all others that have arcs left are.
    """
    n = len(indptr) - 1
    parent, ways, queue = np.full(n, -1, np.int32), np.zeros(n, np.uint8), np.empty(n + 1, np.int32)
    out, into, products = np.ones(n, np.int64), np.ones(n, np.int64), np.zeros(n, np.int64)
    ends, count = _count_neighbours(indptr, heads), 0
    for v in range(n):  # the processor cannot predict which vertices hang, so each is written to the end of the queue
        queue[count] = v
        count += _hangs(ends, v)
    done, kept = 0, 0
    while done < count:
        v = queue[done]
        done += 1
        up, down = ends[v, 0], ends[v, 2]
        if up + down == 0:  # the last vertex of a component that is a tree
            continue
        u = ends[v, 1] | ends[v, 3]  # the same number, or one of them is 0 because there are no such arcs
        queue[kept] = v
        kept += 1
        parent[v], ways[v] = u, UP * up + DOWN * down
        out[u] += out[v] * down
        into[u] += into[v] * up
        products[u] += out[v] * down * into[v] * up
        ends[u, 0] -= down
        ends[u, 1] ^= v * down
        ends[u, 2] -= up
        ends[u, 3] ^= v * up
        queue[count] = u
        count += _hangs(ends, u)
    left = np.empty(n, np.bool_)
    for v in range(n):
        left[v] = (parent[v] < 0) & (ends[v, 0] + ends[v, 2] > 0)
    return queue[:kept], parent, ways, out, into, products, left


@njit(nogil=True, cache=True)
def _count_neighbours(indptr, heads):  # type: ignore[no-untyped-def]
    """Return the number of heads and of tails of each vertex, each followed by the exclusive or of their numbers.

    The result is int32, of shape (n, 4).  If a single head, or tail, is left, the exclusive or is its number.
    """
    n = len(indptr) - 1
    ends = np.zeros((n, 4), np.int32)
    for u in range(n):
        mixed = np.int32(0)
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            mixed ^= v
            ends[v, 2] += 1
            ends[v, 3] ^= u
        ends[u, 0], ends[u, 1] = indptr[u + 1] - indptr[u], mixed
    return ends


@njit(nogil=True, cache=True)
def _hangs(ends, v):  # type: ignore[no-untyped-def]
    """Return whether all arcs of ``v`` that are left lead to or from one vertex; see :func:`_count_neighbours`."""
    up, down = ends[v, 0], ends[v, 2]
    return (up <= 1) & (down <= 1) & ((up + down == 1) | ((up + down == 2) & (ends[v, 1] == ends[v, 3])))


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
def sum_components(indptr, heads, parent, sizes):  # type: ignore[no-untyped-def]
    """Return how many vertices the component of each vertex of an undirected graph has, int64, shape (n,).

    Args:
        indptr, heads: the arcs.
        parent: as :func:`peel_trees` returns it; entries of removed vertices are 0 in the result.
        sizes: the number of vertices of the branches on each vertex, itself included.
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
def hand_down(tree, sizes, values, forth):  # type: ignore[no-untyped-def]
    """Count what removed vertices reach, or what reaches them, given the same of the vertices that were not removed.

    Args:
        tree: ``removed``, ``parent`` and ``ways``, as :func:`peel_trees` returns them.
        sizes: int64, shape (n,): ``out`` or ``into`` of :func:`peel_trees`.
        values: int64, shape (n,): the number of vertices of the whole graph that each vertex reaches, or that reach it,
            itself included; entries of removed vertices are set.
        forth: ``UP`` to count what vertices reach, ``DOWN`` to count what reaches them.
    """
    removed, parent, ways = tree
    for i in range(len(removed) - 1, -1, -1):
        v = removed[i]
        values[v] = sizes[v]
        if ways[v] & forth:
            values[v] += values[parent[v]] - (sizes[v] if ways[v] & ~forth else 0)


@njit(nogil=True, cache=True)
def flow_around(sizes, around):  # type: ignore[no-untyped-def]
    """Return the flow through each vertex on paths between different branches on it, or between a branch and the rest.

    Of the core, which is not in branches, only paths to and from branches count.

    Args:
        sizes: ``out``, ``into`` and ``products`` of :func:`peel_trees`.
        around: int64, shape (n,) each: the number of vertices that each vertex reaches, and that reach it.

    Returns:
        The number of ordered pairs of vertices whose paths pass through each vertex, float64, shape (n,).
    """
    (out, into, products), (reached, reaching) = sizes, around
    found = np.empty(len(out))
    for v in range(len(out)):
        pairs = (reaching[v] - 1) * (reached[v] - 1) - products[v]
        found[v] = pairs - (reaching[v] - into[v]) * (reached[v] - out[v])
    return found
