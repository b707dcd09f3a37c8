"""Puts the vertices that sixteen sources reach in one order, in which every shortest path from any of them ascends.

An arc is *tight* for a source if it lies on a shortest path from that source.  The tight arcs of one source have no
cycle, and sources that are near each other share nearly all of them.  So one order serves all sixteen sources, except
for the few vertices on cycles of arcs that are tight for different sources.  Tarjan's algorithm (1972) finds the order
and these cycles: a search against the direction of the arcs finishes the strongly connected components in the order of
the paths.

Each source has a lane.  To *take* a vertex in some lanes is to append it to the order for the sources of these lanes.
A vertex that is a component of its own is taken once, in all lanes.  A vertex on a cycle is taken several times, each
time in the lanes in which all vertices that come before it on shortest paths have been taken.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.vectors import (
    LANES,
    Mask,
    count_lanes,
    equal,
    lengths_of,
    same_length,
    shorter,
    store_lengths,
)
from engine.graph.kernels import njit

#: The mark of a vertex that has its place in the order; all other marks are smaller.
PLACED = 2**31 - 1
#: The vertices of a component are visited for this number of distances at most, from the least of them upwards.
LEVELS = 24


@njit(nogil=True, cache=True)
def _look(v, tight, rest):  # type: ignore[no-untyped-def]
    """Return the lanes in which a tight arc into ``v`` comes from a vertex that has yet to be taken in that lane."""
    ends, tails, masks = tight
    waits = Mask(0)
    for i in range(ends[v], ends[v + 1]):
        waits |= masks[i] & rest[tails[i]]
    return waits


@njit(nogil=True, cache=True)
def _by_length(members, tight, columns, rest, taken, count):  # type: ignore[no-untyped-def]
    """Take the vertices of a component in ascending order of their distances, and return the new number of entries in
    ``taken``.

    Vertices at equal distances are taken in the order of their numbers, because arcs of weight 0 lead to larger
    numbers.
    """
    listed, lanes = taken
    keys, size = np.empty(LANES * len(members), np.int64), 0
    for v in members:
        for k in range(LANES):
            keys[size] = np.int64(columns[v, k]) << 32 | v
            size += (rest[v] >> k) & 1
    keys[:size].sort()
    for i in range(size):
        v, length = keys[i] & (2**32 - 1), keys[i] >> 32
        mine = Mask(0)
        for k in range(LANES):
            mine |= Mask((columns[v, k] == length) & (rest[v] >> k)) << k
        if mine:
            listed[count], lanes[count] = v, mine
            count += 1
            rest[v] &= ~mine
    return count


@njit(nogil=True, cache=True)
def _by_level(members, columns, far, rest, taken, count):  # type: ignore[no-untyped-def]
    """Take the vertices of a component one distance after the other, where each arc has the length 1.

    Lanes in which a vertex is ``LEVELS`` or more steps beyond the nearest vertex are left.  The arguments are as in
    :func:`_take_apart`; ``far`` is the distance that stands for *unreachable*.

    Returns:
        The number of entries in ``taken``, and the number of entries of ``rest`` that are left, counted by lanes.
    """
    listed, lanes = taken
    least, left = np.empty((1, LANES), np.int32), np.int64(0)
    nearest = same_length(far)
    for v in members:
        nearest = shorter(columns, nearest, np.int64(v), np.int32(0), far)
        left += count_lanes(np.int64(rest[v]))
    store_lengths(least, 0, nearest)
    low = least.min()
    for length in range(low, low + LEVELS):
        if left == 0:
            break
        for v in members:
            mine = np.int64(rest[v]) & equal(lengths_of(columns, np.int64(v)), np.int32(length))
            listed[count], lanes[count] = v, Mask(mine)
            count += mine != 0
            rest[v] &= ~Mask(mine)
            left -= count_lanes(mine)
    return count, left


@njit(nogil=True, cache=True)
def _take_apart(members, tight, columns, rest, taken, count, passes):  # type: ignore[no-untyped-def]
    """Take the vertices of a component, each in the lanes in which no other vertex must be taken before it.

    The vertices are visited alternately forwards and backwards, because paths from different sources lead around a
    cycle in opposite directions.

    Args:
        members: the vertices, in the order in which the search has left them; they are reordered.
        tight: the tight arcs into each vertex, the first entry of ``known`` in :func:`order_vertices`.
        columns: the distances, shape (n, LANES).
        rest: masks, shape (n,): the lanes in which each vertex has yet to be taken; 0 for all vertices of other
            components from which tight arcs lead into this one.
        taken: the order, to which entries are appended, as in :func:`order_vertices`.
        count: the number of entries in ``taken`` before the call.
        passes: the largest number of times that the vertices are visited forwards and backwards; those that remain are
            then taken by :func:`_by_length`.

    Returns:
        The number of entries in ``taken`` after the call.
    """
    listed, lanes = taken
    first, last = 0, len(members)
    while first < last and passes > 0:
        passes -= 1
        left = first
        for at in range(first, last):
            v = members[at]
            waits = rest[v] & _look(v, tight, rest)
            listed[count], lanes[count] = v, rest[v] & ~waits
            count += waits != rest[v]
            rest[v] = waits
            members[left] = v
            left += waits != 0
        at, last = left, left
        while at > first:
            at -= 1
            v = members[at]
            waits = rest[v] & _look(v, tight, rest)
            listed[count], lanes[count] = v, rest[v] & ~waits
            count += waits != rest[v]
            rest[v] = waits
            members[left - 1] = v
            left -= waits != 0
        first = left
    if first < last:
        count = _by_length(members[first:last], tight, columns, rest, taken, count)
    return count


@njit(nogil=True, cache=True)
def _finish(members, known, space, taken, count, limits):  # type: ignore[no-untyped-def]
    """Take all vertices of a component, and return the new number of entries in ``taken``.

    ``members`` and ``count`` are as in :func:`_take_apart`, the other arguments as in :func:`order_vertices`.
    """
    tight, _, columns, far = known
    mark, rest = space
    listed, lanes = taken
    for v in members:
        mark[v] = PLACED
    if len(members) == 1:
        v = members[0]
        listed[count], lanes[count] = v, rest[v]
        rest[v] = 0
        return count + 1
    passes, many = limits
    if len(members) >= many:
        count, left = _by_level(members, columns, far, rest, taken, count)
        if left == 0:
            return count
    return _take_apart(members, tight, columns, rest, taken, count, passes)


@njit(nogil=True, cache=True)
def _descend(root, known, walk, space, taken, counts, limits):  # type: ignore[no-untyped-def]
    """Search from ``root`` against the direction of the tight arcs, and take every component that is found.

    The arguments are as in :func:`order_vertices`.  ``counts`` holds the next free mark and the number of entries in
    ``taken``; their new values are returned.
    """
    (ends, tails, masks), flags, _, _ = known
    left, path, nexts, lows, heights = walk
    mark, rest = space
    seen, count = counts
    depth, height = 0, 0
    v, at, low, mine = root, ends[root], seen, Mask(flags[root] & (2**LANES - 1))
    path[0], heights[0] = root, 0
    mark[root] = seen
    seen += 1
    while True:
        fresh = -1
        while at < ends[v + 1]:
            u = tails[at]
            mine |= masks[at]
            at += 1
            if mark[u] == 0:
                fresh = u
                break
            low = min(low, mark[u])  # PLACED is the largest mark, so it changes nothing
        rest[v] = mine
        if fresh >= 0:
            nexts[depth], lows[depth] = at, low
            depth += 1
            path[depth], heights[depth] = fresh, height
            v, at, low, mine = fresh, ends[fresh], seen, Mask(flags[fresh] & (2**LANES - 1))
            mark[v] = seen
            seen += 1
            continue
        left[height] = v
        height += 1
        if low == mark[v]:
            # the component of ``v``: all vertices without a place that the search has finished since it found ``v``
            members = left[heights[depth] : height]
            count = _finish(members, known, space, taken, count, limits)
            height = heights[depth]
        if depth == 0:
            return seen, count
        depth -= 1
        v, at, low, mine = path[depth], nexts[depth], min(low, lows[depth]), rest[path[depth]]


@njit(nogil=True, cache=True)
def sort_roughly(keys, order, counts):  # type: ignore[no-untyped-def]
    """Sort all vertices by their keys, or only by the leading bits of their keys if the keys are large.

    Args:
        keys: int32, shape (n,), none below 0.
        order: int32, shape (n,); receives the vertices.
        counts: int32, work space; the vertices are sorted into at most ``len(counts)`` - 1 groups.
    """
    most, shift = np.int32(0), 0
    for key in keys:
        most = max(most, key)
    while most >> shift >= len(counts) - 1:
        shift += 1
    counts[:] = 0
    for key in keys:
        counts[(key >> shift) + 1] += 1
    for k in range(1, (most >> shift) + 1):
        counts[k + 1] += counts[k]
    for v in range(len(keys)):
        order[counts[keys[v] >> shift]] = v
        counts[keys[v] >> shift] += 1


@njit(nogil=True, cache=True)
def order_vertices(known, walk, space, order, taken, limits):  # type: ignore[no-untyped-def]
    """Put the vertices that sixteen sources reach in an order in which all shortest paths from these sources ascend.

    Args:
        known: four entries:
            the arcs that are tight for some source, as three arrays: where the arcs into each vertex begin, as in CSR,
            int64, shape (n + 1,); the tail of each arc, int32; and a mask of the sources for which the arc is tight;
            flags of the vertices, uint32, shape (n,): the low LANES bits are the lanes of which a vertex is the source;
            the distances from the sources, shape (n, LANES); and the distance that stands for *unreachable*, int32.
        walk: work space of the search: five arrays of shape (n,), of types int32, int32, int64, int32 and int32.
        space: ``mark``, int32, and ``rest``, masks, which is all 0 before and after the call; both have the shape (n,).
        order: int32, shape (n,): the vertices in the order in which searches begin from them.  The nearer this order is
            to that of the paths, the less is searched.
        taken: two arrays of shape (LANES * n + 1,).  The first, int32, receives the vertices in the new order; the
            second receives for each entry the mask of the lanes in which the vertex is taken at this place.
        limits: two numbers: ``passes`` of :func:`_take_apart`; and the size from which on a component is first taken
            one distance after the other (:func:`_by_level`), which needs arcs of the length 1.

    Returns:
        The number of entries in ``taken``.
    """
    (ends, tails, masks), flags, _, _ = known
    mark, _ = space
    listed, lanes = taken
    seen, count = 1, 0
    mark[:] = 0
    for v in order:
        if mark[v] == PLACED:
            continue
        mine = Mask(flags[v] & (2**LANES - 1))
        if ends[v] == ends[v + 1] and mine == 0:
            continue  # no source reaches ``v``
        ready = True
        for i in range(ends[v], ends[v + 1]):
            ready &= mark[tails[i]] == PLACED
            mine |= masks[i]
        if ready:
            mark[v] = PLACED
            listed[count], lanes[count] = v, mine
            count += 1
        else:
            seen, count = _descend(v, known, walk, space, taken, (seen, count), limits)
    return count
