"""Orders sources so that neighbours in the order are near each other in the graph, and visit much the same vertices,
or are equally far from most vertices; and chooses sources from which no search is needed.

Where every arc has the length 1, the distance from a vertex to any other one is 1 more than the least of the distances
from the heads of its arcs.  So from a third of the sources of a road network no search is needed: their rows of
distances are *derived* from the rows of the heads.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit

#: Rows are derived only for sources with at most this number of arcs, because a search from one source more, together
#: with hundreds of others, takes little time.
FEW_ARCS = 8
#: Sources are sorted by their distances to PIVOTS vertices (:func:`order_by_pivots`), one for each bit of a byte.
#: With 4 there are 4 % more entries by distance on celegans_metabolic and email-Eu-core, with 16 at most 1 % fewer.
PIVOTS = 8
#: A vertex that is at least this number of hops from a pivot counts as one that does not reach it.
FAR_HOPS = 15
#: Bits of what is known of a vertex while a piece is chosen: it is a source of the piece, its row is derived, and
#: another source's row is derived from its row.
CHOSEN, DERIVED, NEEDED = 1, 2, 4


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _see(side, u, seen, now, queue, last, limit):  # type: ignore[no-untyped-def]
    """Append the neighbours of ``u`` that search ``now`` has not seen to the queue; return the end of the queue.

    A queue of ``limit`` vertices is full: the search ends before it visits a further one.  Without this limit, most of
    the time would be spent on the neighbours of a few vertices that have many.
    """
    indptr, ends = side
    if last >= limit:
        return last
    for e in range(indptr[u], indptr[u + 1]):
        v = ends[e]
        if seen[v] != now:
            seen[v] = now
            queue[last] = v
            last += 1
            if last == limit:
                break
    return last


@njit(nogil=True, cache=True, from_start=True)
def gather_near(out, into, sources, together, looks):  # type: ignore[no-untyped-def]
    """Order sources so that the sources of each group, which are successive in the order, are near each other in the
    graph.

    From each source without a group, a search over arcs in both directions finds the nearest sources without a group.

    Args:
        out: where the arcs out of each vertex begin, int64, and their heads, int32.
        into: the same for arcs into each vertex, and their tails.
        sources: int64, different vertices.
        together: the size of a group.
        looks: int64, ascending: a search gives up after it has visited this number of vertices.  If a search gave up,
            another search from its source has the next limit.  Sources that have no group in the end come last, in
            their given order.

    Returns:
        The positions in ``sources`` in the new order, int64.
    """
    n = len(out[0]) - 1
    place, seen = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for i in range(len(sources)):
        place[sources[i]] = i
    order, queue = np.empty(len(sources), np.int64), np.empty(n, np.int64)
    count, searches = 0, 0
    for limit in looks:
        for start in sources:
            if place[start] < 0:
                continue
            done, last, found = 0, 1, 0
            queue[0], seen[start] = start, searches
            while done < last and done < limit and found < together:
                u = queue[done]
                done += 1
                if place[u] >= 0:
                    order[count + found] = place[u]
                    found += 1
                last = _see(out, u, seen, searches, queue, last, limit)
                last = _see(into, u, seen, searches, queue, last, limit)
            searches += 1
            if found == together:
                for i in range(count, count + found):
                    place[sources[order[i]]] = -1
                count += found
    for start in sources:
        if place[start] >= 0:
            order[count] = place[start]
            count += 1
    return order


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _search_tree(out, into, start, now, seen, parent, queue):  # type: ignore[no-untyped-def]
    """Search breadth first over arcs in both directions; return the number of vertices that are found.

    Args:
        out: where the arcs out of each vertex begin, int64, and their heads, int32.
        into: the same for arcs into each vertex, and their tails.
        start: the vertex at which the search begins.
        now: a number that is not in ``seen``.
        seen: int64, shape (n,): set to ``now`` for each vertex that is found.
        parent: int32, shape (n,): receives the vertex from which each vertex but ``start`` was found.
        queue: int32: receives the vertices in the order in which they are found.
    """
    queue[0], seen[start], parent[start] = start, now, start
    done, last = 0, 1
    while done < last:
        u = queue[done]
        done += 1
        for indptr, ends in (out, into):
            for e in range(indptr[u], indptr[u + 1]):
                v = ends[e]
                if seen[v] != now:
                    seen[v], parent[v], queue[last] = now, u, v
                    last += 1
    return last


@njit(nogil=True, cache=True, from_start=True)
def order_along_tree(out, into, sources):  # type: ignore[no-untyped-def]
    """Order sources so that those next to each other in the order are near each other in the graph, in linear time.

    Each component of the graph has a tree of shortest paths over arcs in both directions, from a vertex that is far
    from others.  The tree is visited depth first, small branches before large ones, so that the visit seldom has to go
    back far.

    Args:
        out: where the arcs out of each vertex begin, int64, and their heads, int32.
        into: the same for arcs into each vertex, and their tails.
        sources: int64, different vertices.

    Returns:
        The positions in ``sources`` in the new order, int64.
    """
    n = len(out[0]) - 1
    seen, parent, queue = np.zeros(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
    size, place, used = np.ones(n, np.int64), np.empty(n, np.int64), np.ones(n, np.int64)
    sorted_, counts = np.empty(n, np.int32), np.zeros(n + 2, np.int64)
    count = 0
    for start in range(n):
        if seen[start] > 0:
            continue
        found = queue[count:]
        last = _search_tree(out, into, start, 1, seen, parent, found)
        last = _search_tree(out, into, found[last - 1], 2, seen, parent, found)
        for i in range(last - 1, 0, -1):
            size[parent[found[i]]] += size[found[i]]
        place[found[0]] = count
        count += last
    for v in range(n):
        counts[size[v] + 1] += 1
    for k in range(n):
        counts[k + 1] += counts[k]
    for v in range(n):
        sorted_[counts[size[v]]] = v
        counts[size[v]] += 1
    for v in sorted_:  # small branches get the first places after their parent
        u = parent[v]
        if u != v:
            place[v], used[u] = used[u], used[u] + size[v]
    for v in queue:
        if parent[v] != v:
            place[v] += place[parent[v]]
    position = np.full(n, -1, np.int64)
    for i in range(len(sources)):
        position[place[sources[i]]] = i
    return position[position >= 0]


@njit(nogil=True, cache=True, from_start=True)
def _choose_pivots(entering):  # type: ignore[no-untyped-def]
    """Return the vertices with most arcs in, at most ``PIVOTS``, from the most to the least; equal ones by number."""
    pivots, size = np.empty(PIVOTS, np.int64), 0
    for v in range(len(entering) - 1):
        arcs, at = entering[v + 1] - entering[v], size
        while at > 0 and arcs > entering[pivots[at - 1] + 1] - entering[pivots[at - 1]]:
            if at < PIVOTS:
                pivots[at] = pivots[at - 1]
            at -= 1
        if at < PIVOTS:
            pivots[at], size = v, min(size + 1, PIVOTS)
    return pivots[:size]


@njit(nogil=True, cache=True, from_start=True)
def _count_hops_to(out, pivots):  # type: ignore[no-untyped-def]
    """Return the number of arcs from each vertex to each pivot, uint8, shape (n, pivots), at most ``FAR_HOPS``, which
    also stands for vertices that do not reach it.

    All pivots are searched for at once: a vertex has a bit for each of them.
    """
    indptr, heads = out
    n, every = len(indptr) - 1, np.uint8((1 << len(pivots)) - 1)
    hops = np.full((n, len(pivots)), FAR_HOPS, np.uint8)
    seen, last, fresh = np.zeros(n, np.uint8), np.zeros(n, np.uint8), np.zeros(n, np.uint8)
    for k in range(len(pivots)):
        hops[pivots[k], k] = 0
        seen[pivots[k]] = last[pivots[k]] = 1 << k
    for step in range(1, FAR_HOPS):
        further = False
        for u in range(n):
            found = np.uint8(0)
            if seen[u] != every:
                for e in range(indptr[u], indptr[u + 1]):
                    found |= last[heads[e]]
                found &= ~seen[u]
            fresh[u] = found
            if found:
                further = True
                seen[u] |= found
                for k in range(len(pivots)):
                    if found >> k & 1:
                        hops[u, k] = step
        if not further:
            break
        last, fresh = fresh, last
    return hops


@njit(nogil=True, cache=True, from_start=True)
def order_by_pivots(out, entering, sources):  # type: ignore[no-untyped-def]
    """Order sources so that those next to each other in the order are equally far from most vertices, in linear time.

    The *pivots* are the vertices with most arcs in.  Most shortest paths of a small world lead through some of them, so
    sources that are equally far from the pivots are so from most vertices.  Sources are sorted by the distance to the
    first pivot, then to the second, and so on.

    Args:
        out: where the arcs out of each vertex begin, int64, and their heads, int32.
        entering: where the arcs into each vertex begin, int64, shape (n + 1,).
        sources: int64, different vertices.

    Returns:
        The positions in ``sources`` in the new order, int64.  The share of all pairs of a source and a pivot that are
        less than ``FAR_HOPS`` apart: the smaller it is, the less the order says.
    """
    pivots = _choose_pivots(entering)
    hops, found = _count_hops_to(out, pivots), 0
    order, other = np.arange(len(sources)), np.empty(len(sources), np.int64)
    for k in range(len(pivots) - 1, -1, -1):
        counts = np.zeros(FAR_HOPS + 2, np.int64)
        for v in sources:
            counts[hops[v, k] + 1] += 1
        for length in range(FAR_HOPS):
            counts[length + 1] += counts[length]
        found += counts[FAR_HOPS]
        for i in order:
            length = hops[sources[i], k]
            other[counts[length]] = i
            counts[length] += 1
        order, other = other, order
    return order, found / max(1, len(pivots) * len(sources))


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _lacks(v, out, state):  # type: ignore[no-untyped-def]
    """Return whether the head of some arc of ``v`` is no source of the piece."""
    indptr, heads = out
    lacks = False
    for e in range(indptr[v], indptr[v + 1]):
        lacks |= not state[heads[e]] & CHOSEN
    return lacks


@njit(nogil=True, cache=True, from_start=True)
def choose_searched(out, sources, limits, space):  # type: ignore[no-untyped-def]
    """Take the first of ``sources`` as a piece, and choose those of them from which a search is needed.

    The heads of all arcs of a source whose row is derived are sources of the piece from which a search is made.

    Args:
        out: where the arcs of each vertex begin, int64, and their heads, int32.
        sources: int64, different vertices.
        limits: three numbers: most sources of a piece, most of them from which a search may be made, and the number of
            sources that are taken at once, which is not larger.
        space: two arrays of shape (n,): ``state``, uint8, all 0 before and after the call; and work space, int32.

    Returns:
        For each source of the piece, whether a search from it is needed.
    """
    indptr, heads = out
    size, most, together = limits
    state, lacking = space
    count, lacks, searched = 0, 0, 0  # of ``searched``, the last ``lacks`` lack the row of a head so far
    while count < min(size, len(sources)):
        if searched + together > most:
            left = 0
            for i in range(lacks):
                lacking[left] = lacking[i]
                left += _lacks(lacking[i], out, state)
            searched, lacks = searched - lacks + left, left
            if searched + together > most:
                break
        for v in sources[count : count + together]:
            state[v] |= CHOSEN
            free = indptr[v + 1] - indptr[v] <= FEW_ARCS and not state[v] & NEEDED
            if free:
                for e in range(indptr[v], indptr[v + 1]):
                    free &= not state[heads[e]] & DERIVED
            if free:
                state[v] |= DERIVED
                for e in range(indptr[v], indptr[v + 1]):
                    state[heads[e]] |= NEEDED
                lacking[lacks] = v
                free = not _lacks(v, out, state)
                lacks += not free
            searched += not free
            count += 1
    found = np.empty(count, np.bool_)
    for i in range(count):
        found[i] = not state[sources[i]] & DERIVED or _lacks(sources[i], out, state)
    for v in sources[:count]:
        if state[v] & DERIVED:
            for e in range(indptr[v], indptr[v + 1]):
                state[heads[e]] &= CHOSEN | DERIVED
        state[v] &= NEEDED
    return found


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def derive_row(block, row, v, out, places, far):  # type: ignore[no-untyped-def]
    """Derive the distances from a vertex, where every arc has the length 1.

    Args:
        block: rows of distances.
        row: the row of ``block`` that receives the distances.
        v: the vertex.
        out: where the arcs of each vertex begin, and their heads.
        places: int32, shape (n,): the row of the distances from each of these heads.
        far: the distance that stands for *unreachable*, of the type of ``block``, larger than all distances.
    """
    indptr, heads = out
    mine = block[row]
    mine[:] = far
    for e in range(indptr[v], indptr[v + 1]):
        other = block[places[heads[e]]]
        for u in range(len(mine)):
            mine[u] = min(mine[u], other[u])
    for u in range(len(mine)):
        mine[u] += mine[u] != far
    mine[v] = 0
