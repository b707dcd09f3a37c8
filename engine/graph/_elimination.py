"""Kernels of symbolic elimination: which vertices become neighbours when vertices between them are eliminated.

Eliminating a vertex adds arcs between all its remaining neighbours (with the lengths through the vertex).  So the
neighbours that a vertex has when it is eliminated, its *border*, depend only on which arcs there are, not on their
lengths (George and Liu, "Computer Solution of Large Sparse Positive Definite Systems", 1981).
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def eliminate(indptr, heads, order, rank, most):  # type: ignore[no-untyped-def]
    """Find the border of each vertex for elimination in ``order``; stop if the borders exceed ``most`` entries.

    Args:
        indptr: shape (n + 1,): the index at which the neighbours of each vertex begin (CSR).
        heads: shape (entries,): the neighbours, symmetric; a vertex may be its own neighbour.
        order: shape (n,), the vertex eliminated at each step.
        rank: shape (n,), the step of each vertex.
        most: the largest number of entries of all borders together.

    Returns:
        Four values.  The index at which the border of each step begins, shape (n + 1,).  All borders, unordered; a
        vertex in a border is stored as its step.  The lowest step in each border, shape (n,), which is the parent in
        the elimination tree; -1 for none.  Whether all borders were found.
    """
    n = len(order)
    parent = np.full(n, -1, np.int32)
    child = np.full(n, -1, np.int32)
    sibling = np.full(n, -1, np.int32)
    seen = np.full(n, -1, np.int32)
    begin = np.zeros(n + 1, np.int64)
    border = np.empty(min(most, 8 * n) + n, np.int32)
    top = 0
    for v in range(n):
        seen[v] = v
        begin[v] = top
        if top > most:
            return begin, border[:top], parent, False
        if top + n > len(border):
            longer = np.empty(2 * len(border) + n, np.int32)
            for e in range(top):
                longer[e] = border[e]
            border = longer
        for e in range(indptr[order[v]], indptr[order[v] + 1]):
            u = rank[heads[e]]
            if u > v and seen[u] != v:
                seen[u] = v
                border[top] = u
                top += 1
        c = child[v]
        while c >= 0:
            for e in range(begin[c], begin[c + 1]):
                u = border[e]
                if seen[u] != v:
                    seen[u] = v
                    border[top] = u
                    top += 1
            c = sibling[c]
        begin[v + 1] = top
        if top > begin[v]:
            p = border[begin[v] : top].min()
            parent[v] = p
            sibling[v] = child[p]
            child[p] = v
    return begin, border[:top], parent, True


@njit(nogil=True, cache=True)
def _linked(indptr, heads):  # type: ignore[no-untyped-def]
    """Return the neighbours of each vertex as linked lists.

    There are three arrays: the neighbours as entries of the lists, the index of the next entry of the same list, and
    the index of the first entry of each vertex's list.
    """
    n = len(indptr) - 1
    ends, after, first = heads.copy(), np.empty(len(heads), np.int32), np.full(n, -1, np.int32)
    for v in range(n):
        for e in range(indptr[v + 1] - 1, indptr[v] - 1, -1):
            after[e] = first[v]
            first[v] = e
    return ends, after, first


@njit(nogil=True, cache=True)
def _join_neighbours(i, near, lists, gone, free):  # type: ignore[no-untyped-def]
    """Remove eliminated vertices from the list of ``near[i]``, and add all other vertices of ``near`` to it.

    Args:
        i: the index in ``near`` of the vertex whose list is changed.
        near: the neighbours of a vertex that was eliminated, at most 3.
        lists: the lists from ``_linked``.
        gone: which vertices are eliminated, shape (n,).
        free: the first entry of the list of unused entries.

    Returns:
        The number of vertices added, and the new first entry of the list of unused entries.
    """
    ends, after, first = lists
    u, known, kept, added = near[i], 1 << i, -1, 0
    e = first[u]
    while e >= 0:
        following = after[e]
        if gone[ends[e]]:
            if kept < 0:
                first[u] = following
            else:
                after[kept] = following
            after[e], free = free, e
        else:
            kept = e
            for j in range(len(near)):
                if near[j] == ends[e]:
                    known |= 1 << j
        e = following
    for j in range(len(near)):
        if not (known >> j) & 1:
            e = free
            free = after[e]
            ends[e], after[e], first[u] = near[j], first[u], e
            added += 1
    return added, free


@njit(nogil=True, cache=True)
def _pattern_left(count, lists, gone):  # type: ignore[no-untyped-def]
    """Return the vertices that remain after eliminating ``count`` vertices, and their neighbours, in the form in which
    ``eliminate_low`` returns them.
    """
    ends, after, first = lists
    n = len(first)
    place, left = np.full(n, -1, np.int32), np.empty(n - count, np.int32)
    begin, entries, k = np.zeros(n - count + 1, np.int32), np.empty(len(ends), np.int32), 0
    for v in range(n):
        if not gone[v]:
            left[k], place[v] = v, k
            k += 1
    top = 0
    for i in range(k):
        e = first[left[i]]
        while e >= 0:
            if not gone[ends[e]] and ends[e] != left[i]:
                entries[top] = place[ends[e]]
                top += 1
            e = after[e]
        begin[i + 1] = top
    return left, begin, entries[:top]


@njit(nogil=True, cache=True)
def eliminate_low(indptr, heads, most, wide, rounds):  # type: ignore[no-untyped-def]
    """Eliminate vertices of at most ``most`` neighbours, in rounds.

    No two neighbours are eliminated in the same round, so the elimination tree has at most ``rounds`` levels below the
    remaining vertices.  For example, each round removes every other vertex of a chain; eliminated from end to end, the
    chain would make a tree as deep as it is long.

    A vertex of several neighbours remains if one of them has more than ``wide`` neighbours, so that no long list is
    searched repeatedly: the work is O(n * wide + entries).  Eliminating a vertex of up to three neighbours adds no more
    arcs than it removes.

    Args:
        indptr: int32, shape (n + 1,): the index at which the neighbours of each vertex begin (CSR).
        heads: int32, shape (entries,): the neighbours, symmetric; a vertex may be its own neighbour.
        most: the largest number of neighbours of an eliminated vertex, at most 3, so that added arcs reuse the removed
            entries.
        wide: a vertex of several neighbours is eliminated only if none of them has more than this number of neighbours.
        rounds: the largest number of rounds.

    Returns:
        Four arrays of int32: the vertices in the order of elimination; the k remaining vertices, ascending; and their
        neighbours, including added arcs (CSR, without loops): the index at which the neighbours of each vertex begin,
        shape (k + 1,), and the neighbours, as indices of remaining vertices.
    """
    n = len(indptr) - 1
    lists = _linked(indptr, heads)
    ends, after, first = lists
    degree = indptr[1:] - indptr[:-1]
    gone, waits = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    queue, order, near = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(most, np.int32)
    since = np.zeros(n, np.int32)  # the first round in which the vertex may be eliminated
    at, waiting, count, free = 0, 0, 0, -1
    for v in range(n):
        if degree[v] <= most:
            queue[waiting], waits[v] = v, True
            waiting += 1
    now, pending = 0, waiting
    while waiting > 0:
        if pending == 0:
            now, pending = now + 1, waiting
            if now == rounds:
                break
        v = queue[at]
        at, waiting, pending = (at + 1) % n, waiting - 1, pending - 1
        if since[v] > now:
            queue[(at + waiting) % n] = v
            waiting += 1
            continue
        waits[v] = False
        if degree[v] > most:
            continue
        found, widest = 0, 0
        e = first[v]
        while e >= 0:
            if not gone[ends[e]] and ends[e] != v:
                near[found] = ends[e]
                widest = max(widest, degree[ends[e]])
                found += 1
            e = after[e]
        if found > 1 and widest > wide:
            continue
        gone[v], order[count] = True, v
        count += 1
        e = first[v]
        while e >= 0:
            following = after[e]
            after[e], free = free, e
            e = following
        for i in range(found):
            u = near[i]
            since[u] = now + 1
            degree[u] -= 1
            if found > 1:  # a single neighbour keeps v in its list, because readers of lists skip eliminated vertices
                added, free = _join_neighbours(i, near[:found], lists, gone, free)
                degree[u] += added
            if degree[u] <= most and not waits[u]:
                queue[(at + waiting) % n], waits[u] = u, True
                waiting += 1
    left, begin, entries = _pattern_left(count, lists, gone)
    return order[:count], left, begin, entries


@njit(nogil=True, cache=True)
def _cost(size, border, width, entry, part, inside):  # type: ignore[no-untyped-def]
    """Return the time, in updates, that a part of ``size`` vertices takes for each row; arguments as of ``merge``."""
    once = inside * size * (size + border) ** 2
    if border == 0:
        return once
    return once + (size + width - 1) // width * width * border + entry * border + part


@njit(nogil=True, cache=True)
def merge(parent, borders, width, entry, part, inside):  # type: ignore[no-untyped-def]
    """Merge vertices into parts, children into their parents, if that reduces the sum of the costs.

    Args:
        parent: shape (n,), the parent of each vertex in the elimination tree.
        borders: shape (n,), the number of vertices of each border.
        width: columns that a product computes at once.
        entry: time to gather an entry of a border for a row, expressed in updates.
        part: time to begin a product, expressed in updates.
        inside: time of an update while parts are eliminated (once, before rows are computed), in updates of a row.

    Returns:
        For each vertex the last vertex of its part, shape (n,).
    """
    fixed = (width, entry, part, inside)
    n = len(parent)
    size = np.ones(n, np.int64)
    into = np.arange(n)
    child = np.full(n, -1, np.int32)
    sibling = np.full(n, -1, np.int32)
    for v in range(n):
        c = child[v]
        while c >= 0:
            apart = _cost(size[c], borders[c], *fixed) + _cost(size[v], borders[v], *fixed)
            if _cost(size[c] + size[v], borders[v], *fixed) <= apart:
                into[c] = v
                size[v] += size[c]
            c = sibling[c]
        p = parent[v]
        if p >= 0:
            sibling[v] = child[p]
            child[p] = v
    for v in range(n - 1, -1, -1):
        into[v] = into[into[v]]
    return into


@njit(nogil=True, cache=True)
def arrange(parent, last, begin, border):  # type: ignore[no-untyped-def]
    """Number the vertices so that each part has consecutive numbers, and so that each part together with all parts
    below it has consecutive numbers, too.

    Args:
        parent: shape (n,), the parent of each vertex in the elimination tree.
        last: shape (n,), the last vertex of each vertex's part, from ``merge``.
        begin: the index at which the border of each vertex begins, from ``eliminate``.
        border: the borders of the vertices, from ``eliminate``.

    Returns:
        The position of each vertex, shape (n,); the first position of each part, shape (parts + 1,); the parent of each
        part, -1 for none; the index at which the border of each part begins, shape (parts + 1,); and the borders as
        positions, ascending in each border.
    """
    n = len(parent)
    size = np.zeros(n, np.int64)
    below = np.zeros(n, np.int64)
    for v in range(n):
        size[last[v]] += 1
    count = 0
    for v in range(n):
        if last[v] == v:
            count += 1
            below[v] += size[v]
            if parent[v] >= 0:
                below[last[parent[v]]] += below[v]
    free = np.zeros(n, np.int64)  # for each part, the position where the next subtree below it ends
    start = np.zeros(n, np.int64)
    end = n
    for v in range(n - 1, -1, -1):
        if last[v] != v:
            continue
        if parent[v] < 0:
            stop = end
            end -= below[v]
        else:
            p = last[parent[v]]
            stop = free[p]
            free[p] -= below[v]
        start[v] = free[v] = stop - size[v]
    at = start.copy()
    position = np.empty(n, np.int64)
    for v in range(n):
        position[v] = at[last[v]]
        at[last[v]] += 1
    tops = np.empty(n, np.int64)
    for v in range(n):
        tops[position[v]] = last[v]
    starts = np.empty(count + 1, np.int64)
    number = np.empty(n, np.int64)
    ends = np.zeros(count + 1, np.int64)
    filled = 0
    for i in range(count):
        starts[i] = filled
        v = tops[filled]
        number[v] = i
        filled += size[v]
        ends[i + 1] = ends[i] + begin[v + 1] - begin[v]
    starts[count] = n
    parents = np.full(count, -1, np.int32)
    borders = np.empty(ends[count], np.int32)
    for i in range(count):
        v = tops[starts[i]]
        if parent[v] >= 0:
            parents[i] = number[last[parent[v]]]
        some = borders[ends[i] : ends[i + 1]]
        for k in range(len(some)):
            some[k] = position[border[begin[v] + k]]
        some.sort()
    return position, starts, parents, ends, borders


@njit(nogil=True, cache=True)
def join(front, at, lengths, by_bits):  # type: ignore[no-untyped-def]
    """Set front[at[i], at[j]] to the minimum of itself and lengths[i, j], in place; for products to the maximum.

    Args:
        front: square array of lengths.
        at: shape (k,): indices of rows and columns of ``front``.
        lengths: shape (k, k): lengths between the vertices of ``at``.
        by_bits: None for products; any other value makes no difference.
    """
    for i in range(len(at)):
        row = front[at[i]]
        for j in range(len(at)):
            if by_bits is None:
                row[at[j]] = max(row[at[j]], lengths[i, j])
            else:
                row[at[j]] = min(row[at[j]], lengths[i, j])


@njit(nogil=True, cache=True)
def block_cubes(indptr, heads):  # type: ignore[no-untyped-def]
    """Return the sum of the cubes of the sizes of all biconnected components.

    A biconnected component is a maximal set of vertices that stays connected if any one of them is removed; two
    components share at most one vertex.  One depth-first search finds them (Hopcroft and Tarjan, "Efficient algorithms
    for graph manipulation", 1973).

    Args:
        indptr: shape (n + 1,): the index at which the neighbours of each vertex begin (CSR).
        heads: shape (entries,): the neighbours, symmetric; a vertex may be its own neighbour.
    """
    n = len(indptr) - 1
    number = np.full(n, -1, np.int32)  # in the order of discovery
    low = np.empty(n, np.int32)  # the least number that an arc from the vertex's subtree reaches
    at = indptr[:-1].copy()
    path, waiting = np.empty(n, np.int32), np.empty(n, np.int32)
    found, cubes = 0, 0.0
    for root in range(n):
        if number[root] >= 0:
            continue
        number[root] = low[root] = found
        found += 1
        path[0], deep, kept = root, 1, 0
        while deep > 0:
            u = path[deep - 1]
            if at[u] < indptr[u + 1]:
                v = heads[at[u]]
                at[u] += 1
                if number[v] < 0:
                    number[v] = low[v] = found
                    found += 1
                    waiting[kept], path[deep] = v, v
                    kept, deep = kept + 1, deep + 1
                else:
                    low[u] = min(low[u], number[v])
                continue
            deep -= 1
            if deep == 0:
                break
            above = path[deep - 1]
            low[above] = min(low[above], low[u])
            if low[u] >= number[above]:  # the vertices found from u on reach all others only through ``above``
                size = 1.0
                while True:
                    kept, size = kept - 1, size + 1
                    if waiting[kept] == u:
                        break
                cubes += size**3
    return cubes
