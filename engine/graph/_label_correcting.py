"""The kernel of ``engine.graph.potentials``: label correcting with subtree disassembly.

This is Bellman-Ford-Moore with a first-in first-out queue.  When the label (the tentative distance) of a vertex falls,
its whole subtree is removed from the tree of shortest walks (Tarjan 1981; *BFCT* in Cherkassky and Goldberg,
"Negative-cycle detection algorithms", Mathematical Programming 85, 1999).  This takes O(n m) time at worst, and finds a
negative cycle as soon as the cycle closes.

The tree is stored as a doubly linked list of its vertices in preorder, with their depths: the subtree of v is v and the
deeper vertices that follow it without a gap.  The root is an additional vertex, number n.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def mark_tails(indptr, heads, weights, h, slack, begin):  # type: ignore[no-untyped-def]
    """Mark the tails of arcs that can lower a label.

    Args:
        indptr: shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: shape (arcs,): the head of each arc.
        weights: shape (arcs,).
        h: shape (n,), the labels.
        slack: relative amount by which a label must fall; 0 for integers.
        begin: bool, shape (n,), receives the marks.

    Returns:
        The number of marks.
    """
    count = 0
    for u in range(len(indptr) - 1):
        begin[u] = False
        for e in range(indptr[u], indptr[u + 1]):
            if _lowers(h[u], weights[e], h[heads[e]], slack):
                begin[u] = True
                count += 1
                break
    return count


@njit(nogil=True, cache=True, inline="always")
def _lowers(tail, w, head, slack):  # type: ignore[no-untyped-def]
    """Return whether an arc of weight ``w`` lowers the label of its head by more than the slack.

    The slack is relative to the sum of the absolute values that are added.
    """
    new = tail + w
    return new < head and (slack == 0 or new < head - slack * (abs(head) + abs(w)))


@njit(nogil=True, cache=True)
def _is_negative(weights, arc_into, parent, start, stop, closing, tolerance):  # type: ignore[no-untyped-def]
    """Return whether the cycle of tree path ``stop`` … ``start`` and arc ``closing`` weighs < -tolerance * sum |w|.

    The sum compensates rounding errors (Neumaier 1974).
    """
    total = weights[closing]
    size = abs(total)
    lost = total * 0
    v = start
    while v != stop:
        w = weights[arc_into[v]]
        new = total + w
        lost += (total - new) + w if abs(total) >= abs(w) else (w - new) + total
        total = new
        size += abs(w)
        v = parent[v]
    return total + lost < -tolerance * size


@njit(nogil=True, cache=True)
def _star(n):  # type: ignore[no-untyped-def]
    """Return the tree in which all vertices are children of the root, as three arrays: the next vertex and the previous
    vertex in preorder, and the depth of each vertex.
    """
    after = np.arange(1, n + 2).astype(np.int32)
    before = np.arange(-1, n).astype(np.int32)
    after[n], before[0] = 0, n
    after[n - 1] = n
    before[n] = n - 1
    depth = np.ones(n + 1, np.int32)
    depth[n] = 0
    return after, before, depth


@njit(nogil=True, cache=True)
def _detach(v, u, after, before, depth):  # type: ignore[no-untyped-def]
    """Remove the subtree of ``v`` from the preorder unless it holds ``u``; return whether it holds ``u``."""
    x = after[v]
    while depth[x] > depth[v]:
        if x == u:
            return True
        x = after[x]
    last = x
    first = before[v]
    x = v
    while x != last:
        depth[x] = -1
        x = after[x]
    after[first] = last
    before[last] = first
    return False


@njit(nogil=True, cache=True)
def begin_labels(n, begin):  # type: ignore[no-untyped-def]
    """Return the state in which :func:`correct_labels` begins: the tree, and the queue with the vertices ``begin``.

    Args:
        n: number of vertices.
        begin: bool, shape (n,): the vertices from which to start.

    Returns:
        The tree as five arrays: parents and the arcs from them, shape (n,) each, and the three that :func:`_star`
        returns.  The queue as three arrays: its vertices, shape (n,); whether each vertex is in it, shape (n,); and the
        index of its first vertex and its length, shape (2,).
    """
    tree = (np.empty(n, np.int32), np.empty(n, np.int64), *_star(n))
    order = np.empty(n, np.int32)
    ring = np.zeros(2, np.int64)
    for v in np.flatnonzero(begin):
        order[ring[1]] = v
        ring[1] += 1
    return tree, (order, begin.copy(), ring)


@njit(nogil=True, cache=True)
def correct_labels(arcs, h, tree, queue, limits, most):  # type: ignore[no-untyped-def]
    """Lower the labels until no arc can lower a label, or until about ``most`` arcs have been scanned.

    Args:
        arcs: the arcs (CSR): indptr, shape (n + 1,), heads and weights, shape (arcs,) each.
        h: shape (n,), the labels, lowered in place.
        tree: the tree that :func:`begin_labels` returned, changed in place.
        queue: the queue that :func:`begin_labels` returned, changed in place; it is empty when no arc can lower a
            label.
        limits: two numbers, both 0 for integers.  The first is the relative amount by which a label must fall, so that
            rounding does not lower labels endlessly.  The second is the fraction of sum |w| by which the weight of a
            cycle must lie below zero; an arc that closes a cycle of greater weight is ignored.
        most: number of arcs to scan.

    Returns:
        -1, or the arc that closes a negative cycle; the tree path from the arc's head to its tail is the remainder of
        the cycle.
    """
    (indptr, heads, weights), (slack, tolerance) = arcs, limits
    (parent, arc_into, after, before, depth), (order, waiting, ring) = tree, queue
    n = len(indptr) - 1
    first, count = ring
    scanned = 0
    while count > 0 and scanned < most:
        u = order[first]
        first = first + 1 if first + 1 < n else 0
        count -= 1
        waiting[u] = False
        if depth[u] < 0:
            continue
        hu = h[u]
        scanned += indptr[u + 1] - indptr[u] + 1
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            w = weights[e]
            if not _lowers(hu, w, h[v], slack):
                continue
            if depth[v] >= 0 and _detach(v, u, after, before, depth):
                if _is_negative(weights, arc_into, parent, u, v, e, tolerance):
                    return e
                continue
            h[v] = hu + w
            parent[v] = u
            arc_into[v] = e
            depth[v] = depth[u] + 1
            behind = after[u]
            after[u], before[v], after[v], before[behind] = v, u, behind, v
            if not waiting[v]:
                waiting[v] = True
                order[first + count if first + count < n else first + count - n] = v
                count += 1
    ring[0], ring[1] = first, count
    return -1
