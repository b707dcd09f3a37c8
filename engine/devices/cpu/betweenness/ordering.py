"""Puts the vertices that sixteen sources reach in one order, in which every shortest path from any of them ascends, and
counts the shortest paths in this order.

An arc is *tight* for a source if it lies on a shortest path from that source.  The tight arcs of one source have no
cycle, and sources that are near each other share nearly all of them.  So one order serves all sixteen sources, except
for the few vertices on cycles of arcs that are tight for different sources.

Each source has a lane.  To *take* a vertex in some lanes is to append it to the order for the sources of these lanes.
The vertices are visited by ascending sum of their distances, and nearly all are taken at once, in all lanes.  A vertex
*waits* for another one in the lanes in which a tight arc leads from there, and in which the other is not taken yet.  If
it waits for a vertex that was not visited yet, that one is visited first.  Tarjan's algorithm (1972) tells which of the
others wait for each other, around cycles.  They are taken several times, each time in the lanes in which they do not
wait.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.vectors import (
    LANES,
    Mask,
    add,
    choose,
    count_lanes,
    equal,
    keep,
    larger,
    lengths_of,
    load,
    same_length,
    shorter,
    spread,
    store,
    store_lengths,
)
from engine.graph.kernels import njit

# ``forceinline`` below: most cycles have two or three vertices, for which the call of a function that takes many arrays
# would take about as long as what it does.

#: The bit in ``rest`` of a vertex that has not been visited yet; the bits below it are lanes.
UNSEEN = 1 << LANES
#: Vertices put aside are taken by distance for this number of distances at most, from the least of them upwards.
LEVELS = 24


@njit(nogil=True, cache=True, forceinline=True, borrows=True, from_start=True)
def _look(v, tight, rest):  # type: ignore[no-untyped-def]
    """Return the lanes in which ``v`` waits for other vertices."""
    ends, tails, masks = tight
    waits = np.uint32(0)
    for i in range(ends[v], ends[v + 1]):
        waits |= np.uint32(masks[i]) & rest[tails[i]]
    return waits


@njit(nogil=True, cache=True, from_start=True)
def _by_length(members, columns, rest, taken, count):  # type: ignore[no-untyped-def]
    """Take vertices in ascending order of their distances, and return the new number of entries in ``taken``.

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
            rest[v] &= ~np.uint32(mine)
    return count


@njit(nogil=True, cache=True, from_start=True)
def _by_level(members, columns, far, rest, taken, count):  # type: ignore[no-untyped-def]
    """Take vertices one distance after the other, where each arc has the length 1.

    Lanes in which a vertex is ``LEVELS`` or more steps beyond the nearest vertex are left.  The arguments are as in
    :func:`_settle`; ``far`` is the distance that stands for *unreachable*.

    Returns:
        The number of entries in ``taken``, and the number of entries of ``rest`` that are left, counted by lanes.
    """
    listed, lanes = taken
    least, left = np.empty((1, LANES), np.int32), np.int64(0)
    nearest = same_length(far)
    for v in members:
        nearest = shorter(columns, nearest, np.int64(v), np.int32(0))
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
            rest[v] &= ~np.uint32(mine)
            left -= count_lanes(mine)
    return count, left


@njit(nogil=True, cache=True, forceinline=True, borrows=True, from_start=True)
def _take_apart(members, known, rest, taken, count, limits):  # type: ignore[no-untyped-def]
    """Take vertices on cycles through each other, each in the lanes in which it does not wait.

    They are visited alternately forwards and backwards, because paths from different sources lead around a cycle in
    opposite directions.

    Args:
        members: the vertices, in the order in which they were put aside; they are reordered.  They wait for no others.
        known, rest, taken, limits: as in :func:`count_in_order`.
        count: the number of entries in ``taken`` before the call.

    Returns:
        The number of entries in ``taken`` after the call.
    """
    tight, _, columns, far = known
    listed, lanes = taken
    passes, many = limits
    size = len(members)
    if size >= many:
        count, left = _by_level(members, columns, far, rest, taken, count)
        if left == 0:
            return count
    while size and passes > 0:
        passes, left = passes - 1, 0
        for at in range(size):
            v = members[at]
            waits = _look(v, tight, rest)
            listed[count], lanes[count] = v, Mask(rest[v] & ~waits)
            count += waits != rest[v]
            rest[v] = waits
            members[left] = v
            left += waits != 0
        size = left
        for at in range(size // 2):
            members[at], members[size - 1 - at] = members[size - 1 - at], members[at]
    return _by_length(members[:size], columns, rest, taken, count) if size else count


@njit(nogil=True, cache=True, borrows=True, from_start=True)
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


@njit(nogil=True, cache=True, forceinline=True, borrows=True, from_start=True)
def _count(before, flags, taken, first, last, lines):  # type: ignore[no-untyped-def]
    """Count the shortest paths to the entries ``first`` ... ``last`` - 1 of ``taken``; return how many were counted.

    The other arguments are as in :func:`count_in_order`; the largest counts in ``lines`` are updated.
    """
    ends, tails, masks = before
    listed, lanes = taken
    paths, coeff, told = lines
    reached, most = 0, load(told, 0)
    for i in range(first, last):
        v, mine = np.int64(listed[i]), np.int64(lanes[i])
        sums = spread(0.0)
        for e in range(ends[v], ends[v + 1]):
            sums = add(sums, keep(np.int64(masks[e]), load(paths, np.int64(tails[e]))))
        if flags[v]:
            sums = choose(np.int64(flags[v]), spread(1.0), sums)
        most = larger(most, keep(mine, sums))
        store(paths, v, choose(mine, sums, load(paths, v)))  # counts in other lanes stay
        store(coeff, v, spread(0.0))
        reached += count_lanes(mine)
    store(told, 0, most)
    return reached


@njit(nogil=True, cache=True, forceinline=True, borrows=True, from_start=True)
def _lowest(v, tight, rest, low):  # type: ignore[no-untyped-def]
    """Return the least entry of ``low`` of ``v`` and the vertices for which it waits."""
    ends, tails, masks = tight
    found = low[v]
    for e in range(ends[v], ends[v + 1]):
        if rest[tails[e]] & masks[e]:
            found = min(found, low[tails[e]])
    return found


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def count_in_order(known, order, space, taken, limits, lines):  # type: ignore[no-untyped-def]
    """Put the vertices that sixteen sources reach in an order in which all shortest paths from these sources ascend,
    and count the shortest paths from all sixteen sources to each vertex.

    Args:
        known: four entries:
            the arcs that are tight for some source, as three arrays: where the arcs into each vertex begin, as in CSR,
            int64, shape (n + 1,); the tail of each arc, int32; and a mask of the sources for which the arc is tight;
            flags of the vertices, uint32, shape (n,): the low LANES bits are the lanes of which a vertex is the source;
            the distances from the sources, shape (n, LANES); and the distance that stands for *unreachable*, int32.
        order: int32, shape (n,): the vertices in the order in which they are visited.  The nearer this order is to that
            of the paths, the fewer must be visited again.
        space: work space, six arrays of shape (n,).  ``rest``, uint32: the lanes in which each vertex has yet to be
            taken, and ``UNSEEN`` before its visit.  Those of Tarjan's algorithm: ``nexts``, int64, and ``low``,
            ``path``, ``heights`` and ``aside``, int32.
        taken: two arrays of shape (LANES * n + 1,).  The first, int32, receives the vertices in the new order; the
            second receives for each entry the mask of the lanes in which the vertex is taken at this place.
        limits: two numbers: how often vertices that are put aside are visited, before those that remain are sorted by
            distance; and the number of such vertices from which on they are first taken one distance after the other
            (:func:`_by_level`), which needs arcs of the length 1.
        lines: ``paths`` and ``coeff``, float64, shape (n, LANES), and ``told``.  The rows of ``paths`` receive the
            counts; entries in lanes in which a vertex is not reached are undefined.  The rows of ``coeff`` of all
            vertices that are reached are set to 0.  The first row of ``told`` receives the largest counts.

    Returns:
        The number of entries in ``taken``, and the number of counts.
    """
    tight, flags, _, _ = known
    ends, tails, masks = tight
    rest, nexts, low, path, heights, aside = space
    listed, lanes = taken
    paths, coeff, told = lines
    count, reached, size, seen, most = 0, 0, 0, 0, spread(0.0)
    store(told, 0, most)
    rest[:] = 2 * UNSEEN - 1
    for root in order:
        if rest[root] == 0:
            continue
        v, depth = np.int64(root), 0
        while True:
            waits, mine, sums, fresh = np.uint32(0), np.uint32(flags[v] & (UNSEEN - 1)), spread(0.0), np.uint32(0)
            for e in range(ends[v], ends[v + 1]):
                u, mask = np.int64(tails[e]), np.uint32(masks[e])
                fresh |= rest[u]
                waits |= mask & rest[u]
                mine |= mask
                sums = add(sums, keep(np.int64(mask), load(paths, u)))
            if waits == 0:
                rest[v] = 0
                if mine:
                    if flags[v]:
                        sums = choose(np.int64(flags[v]), spread(1.0), sums)
                    most = larger(most, sums)
                    store(paths, v, sums)
                    store(coeff, v, spread(0.0))
                    listed[count], lanes[count] = v, Mask(mine)
                    count += 1
                    reached += count_lanes(np.int64(mine))
            else:
                if rest[v] & UNSEEN:
                    rest[v], low[v], nexts[depth], path[depth], heights[depth] = mine, seen, ends[v], v, size
                    seen += 1
                if fresh & UNSEEN:
                    depth += 1
                else:
                    aside[size] = v
                    size += 1
                    number, low[v] = low[v], _lowest(v, tight, rest, low)
                    if low[v] == number:
                        first, height = count, heights[depth]
                        count = _take_apart(aside[height:size], known, rest, taken, count, limits)
                        reached += _count(tight, flags, taken, first, count, lines)
                        size = height
            if depth == 0:
                break
            depth -= 1
            v = np.int64(path[depth])  # go on with ``v``, or first with the next vertex for which it waits
            at = nexts[depth]
            while at < ends[v + 1] and not rest[tails[at]] & UNSEEN:
                at += 1
            if at < ends[v + 1]:
                nexts[depth] = at + 1
                depth += 1
                v = np.int64(tails[at])
    store(told, 0, larger(most, load(told, 0)))
    return count, reached
