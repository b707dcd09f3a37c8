"""Removes the trees that hang on the core of a graph, and counts the vertices of each of their branches."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit

#: Twins are looked for among vertices with at most this number of neighbours.
MOST_NEIGHBOURS = 64
#: Ways between a removed vertex and its parent: an arc to the parent, and an arc from it.
UP, DOWN = 1, 2
#: A word of 64 bits holds a number of arcs, which is counted in units of ONE, and in the bits of LOW a vertex.
ONE, LOW = 1 << 32, (1 << 31) - 1


@njit(nogil=True, cache=True, from_start=True)
def peel_trees(indptr, heads):  # type: ignore[no-untyped-def]
    """Remove vertices that have arcs to or from a single other vertex, again and again.

    A removed vertex and all that was removed behind it are a *branch*.  It hangs on the only neighbour that this vertex
    had left, its parent.  Arcs may lead to the parent, from it, or both.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,), different for each vertex, and never the vertex itself.

    Returns:
        The removed vertices, int32, in the order in which they were removed.  Then four arrays.  The parents of removed
        vertices, int32, shape (n,), -1 for others.  The ways between them, uint8, shape (n,): ``UP`` if an arc leads to
        the parent, plus ``DOWN`` if one leads from it.  The *sizes* of the branches on each vertex, itself included,
        int64, shape (3, n): the number of their vertices that it reaches, the number of those that reach it, and the
        sum over these branches of the product of both numbers, each branch alone.  Last, bool, shape (n,): whether a
        vertex is in the core, which all others that have arcs left are.
    """
    n = len(indptr) - 1
    parent, ways, queue = np.full(n, -1, np.int32), np.zeros(n, np.uint8), np.empty(n + 1, np.int32)
    sizes, (ahead, behind), count = np.ones((3, n), np.int64), _count_neighbours(indptr, heads), 0
    out, into, products = sizes[0], sizes[1], sizes[2]
    products[:] = 0
    for v in range(n):  # the processor cannot predict which vertices hang, so each is written to the end of the queue
        queue[count] = v
        count += _hangs(ahead[v], behind[v])
    done, kept = 0, 0
    while done < count:
        v = queue[done] & LOW  # so the compiler knows that no index is below 0
        done += 1
        heads_left, tails_left = ahead[v], behind[v]
        if heads_left + tails_left < ONE:  # the last vertex of a component that is a tree
            continue
        up, down = heads_left >> 32, tails_left >> 32
        u = (heads_left | tails_left) & LOW  # the same number, or one of them is 0 because there are no such arcs
        queue[kept] = v
        kept += 1
        parent[v], ways[v] = u, UP * up + DOWN * down
        up, down = -up, -down  # all bits are set if there is an arc
        reaches, reached = out[v] & down, into[v] & up
        out[u] += reaches
        into[u] += reached
        products[u] += reaches * reached
        heads_left, tails_left = (ahead[u] + down * ONE) ^ (v & down), (behind[u] + up * ONE) ^ (v & up)
        ahead[u], behind[u] = heads_left, tails_left
        queue[count] = u
        count += _hangs(heads_left, tails_left)
    left = np.empty(n, np.bool_)
    for v in range(n):
        left[v] = (parent[v] < 0) & (ahead[v] + behind[v] >= ONE)
    return queue[:kept], parent, ways, sizes, left


@njit(nogil=True, cache=True, from_start=True)
def _count_neighbours(indptr, heads):  # type: ignore[no-untyped-def]
    """Return a word for the heads, and one for the tails, of each vertex, both int64, shape (n,).

    A word is the number of these neighbours, times ``ONE``, and the exclusive or of their numbers.  If a single one is
    left, the exclusive or is its number.
    """
    n = len(indptr) - 1
    ahead, behind = np.empty(n, np.int64), np.zeros(n, np.int64)
    for u in range(n):
        mixed = (indptr[u + 1] - indptr[u]) * ONE
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e] & LOW
            mixed ^= v
            behind[v] = (behind[v] + ONE) ^ u
        ahead[u] = mixed
    return ahead, behind


@njit(nogil=True, cache=True)
def _hangs(ahead, behind):  # type: ignore[no-untyped-def]
    """Return whether all arcs of a vertex that are left lead to or from one other; see :func:`_count_neighbours`."""
    up, down = ahead >> 32, behind >> 32
    return (up <= 1) & (down <= 1) & ((up + down == 1) | ((up + down == 2) & (ahead == behind)))


@njit(nogil=True, cache=True, from_start=True)
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


@njit(nogil=True, cache=True, from_start=True)
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


@njit(nogil=True, cache=True, from_start=True)
def hand_down(tree, sizes, around):  # type: ignore[no-untyped-def]
    """Count what removed vertices reach, and what reaches them, given the same of the vertices that were not removed.

    Args:
        tree: ``removed``, ``parent`` and ``ways``, as :func:`peel_trees` returns them.
        sizes: the first two rows of the sizes of :func:`peel_trees`.
        around: int64, shape (n,) each: the number of vertices of the whole graph that each vertex reaches, and the
            number of those that reach it, itself included; entries of removed vertices are set.  In an undirected graph
            both may be the same array.
    """
    (removed, parent, ways), (out, into), (reached, reaching) = tree, sizes, around
    for i in range(len(removed) - 1, -1, -1):
        v = removed[i]
        u, up, down = parent[v], -np.int64(ways[v] & UP), -np.int64(ways[v] >> 1)  # all bits are set if there is an arc
        beyond, before = reached[u] - (out[v] & down), reaching[u] - (into[v] & up)
        reached[v] = out[v] + (beyond & up)
        reaching[v] = into[v] + (before & down)


@njit(nogil=True, cache=True, from_start=True)
def flow_around(sizes, around):  # type: ignore[no-untyped-def]
    """Return the flow through each vertex on paths between different branches on it, or between a branch and the rest.

    Of the core, which is not in branches, only paths to and from branches count.

    Args:
        sizes: the rows of the sizes of :func:`peel_trees`.
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
