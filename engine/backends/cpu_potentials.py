"""The kernel under ``engine.potentials``: label correcting with subtree disassembly.

Bellman-Ford-Moore with a first-in first-out queue, where a vertex whose label falls has its whole subtree taken out
of the tree of shortest walks (Tarjan 1981; *BFCT* in Cherkassky and Goldberg, "Negative-cycle detection algorithms",
Mathematical Programming 85, 1999).  O(n m) at worst, and a negative cycle is met the moment it closes.

The tree is kept as its preorder in a doubly linked list, with depths: the subtree of v is the run of deeper vertices
after it.  The root is number n, an imagined vertex before all others.
"""

from __future__ import annotations

from numba import njit

#: Floats: a label falls only by more than this times the sizes involved (4 units of rounding), so that walks equal
#: but for rounding do not chase each other.
SLACK = 2.0**-50


@njit(nogil=True, cache=True)
def _exact_sign(weights, arc_into, parent, start, stop, closing, tolerance):  # type: ignore[no-untyped-def]
    """Whether the tree path ``stop`` … ``start``, closed by arc ``closing``, weighs less than -tolerance * sum |w|.

    Sums with the rounding errors caught (Neumaier 1974).
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
def _detach(v, u, after, before, depth):  # type: ignore[no-untyped-def]
    """Take the subtree of ``v`` out of the preorder, unless it holds ``u``; returns whether it does."""
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
def correct_labels(indptr, heads, weights, h, begin, parent, arc_into, slack, tolerance):  # type: ignore[no-untyped-def]
    """Lower ``h``, shape (n,), until no arc can lower it further; returns -1, or the arc that closes a negative cycle.

    ``begin``: bool, shape (n,), the vertices to start from.  ``parent`` (int32) and ``arc_into`` (int64), shape
    (n,), receive the tree; the path from the closing arc's tail back to its head is then the rest of the cycle.
    ``slack`` is ``SLACK`` for floats, and 0 (of the type of ``weights``) for integers; so is ``tolerance``, the
    fraction of sum |w| by which a cycle must be below zero to count.
    """
    n = len(indptr) - 1
    after, before, depth, queue, waiting = _fresh(n, parent, begin)
    first, count = 0, 0
    for v in range(n):
        if begin[v]:
            queue[count] = v
            count += 1
    while count > 0:
        u = queue[first]
        first = first + 1 if first + 1 < n else 0
        count -= 1
        waiting[u] = False
        if depth[u] < 0:
            continue
        hu = h[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            w = weights[e]
            new = hu + w
            if new >= h[v] or (slack > 0 and new >= h[v] - slack * (abs(h[v]) + abs(w))):
                continue
            if depth[v] >= 0 and _detach(v, u, after, before, depth):
                if _exact_sign(weights, arc_into, parent, u, v, e, tolerance):
                    return e
                continue
            h[v] = new
            parent[v] = u
            arc_into[v] = e
            depth[v] = depth[u] + 1
            behind = after[u]
            after[u], before[v], after[v], before[behind] = v, u, behind, v
            if not waiting[v]:
                waiting[v] = True
                queue[first + count if first + count < n else first + count - n] = v
                count += 1
    return -1
