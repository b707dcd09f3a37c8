"""Counts paths from sixteen sources by ascending distance, where every arc has a length of at least 1, and distances
are few.

In a directed graph with short distances, those from neighbours differ much, and most vertices lie on cycles of arcs
that are tight for different sources.  An order of the vertices for all sixteen sources then takes most vertices several
times (``engine.devices.cpu.betweenness.ordering``), and the search for it is in vain.  Here a vertex has an *entry* for
each distance at which it lies from some of the sources, with the mask of these sources.  Sorted by distance, the
entries are an order of all shortest paths.

What needs no order is computed once for each vertex, not for each entry: divisions and sums over lanes.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.vectors import (
    LANES,
    add,
    count_lanes,
    divide,
    equal,
    keep,
    larger,
    least_length,
    lengths_of,
    load,
    multiply,
    spread,
    store,
    total,
)
from engine.graph.kernels import njit

#: Entries at the same distance are sorted by the number of arcs into their vertices, up to this number less 1.  The
#: processor predicts the end of a loop well if the loop before was equally long: on p2p-Gnutella08 this saves a quarter
#: of the time of counting.
KINDS = 8
#: :func:`list_levels` has space for this number of entries a vertex, on average; a vertex has an entry for each of its
#: distances.
DISTANCES = 8
#: The distances from the sixteen sources to a vertex must differ by less than this number.
SPREAD = 64


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def list_levels(columns, far, ends, space):  # type: ignore[no-untyped-def]
    """List an entry for each vertex and each of its distances from the sixteen sources, in ascending order of distance.

    Args:
        columns: the distances, shape (n, LANES).
        far: the distance that stands for *unreachable*, int32.
        ends: where the tight arcs into each vertex begin, as in CSR.
        space: four entries: ``members``, int32, shape (n,), which receives the vertices that are reached; ``taken``,
            two arrays that receive the vertex and the mask of each entry, as in
            :func:`engine.devices.cpu.betweenness.ordering.order_vertices`; work space for entries, int32, shape (3,
            most); and ``counts``, int32, work space whose length limits the distances.

    Returns:
        The number of entries, and the number of vertices that are reached; 0 entries if there is too little space.
    """
    members, (listed, lanes), spare, counts = space
    found, marks, keys = spare
    most = (len(counts) - 1) // KINDS
    size, reached, last = 0, 0, np.int64(0)
    counts[:] = 0
    for v in range(len(columns)):
        mine = lengths_of(columns, np.int64(v))
        rest = ~equal(mine, far) & (2**LANES - 1)
        if rest == 0:
            continue
        members[reached] = v
        reached += 1
        length, kind = np.int64(least_length(mine)), min(ends[v + 1] - ends[v], KINDS - 1)
        limit = min(length + SPREAD, most)
        if size + LANES > len(found):
            return 0, 0
        while rest:
            if length >= limit:
                return 0, 0
            mask, key = equal(mine, np.int32(length)), length * KINDS + kind
            found[size], marks[size], keys[size] = v, mask, key
            counts[key + 1] += mask != 0
            size += mask != 0
            rest &= ~mask
            length += 1
        last = max(last, length)
    for key in range(last * KINDS):
        counts[key + 1] += counts[key]
    for i in range(size):
        at = counts[keys[i]]
        counts[keys[i]] = at + 1
        listed[at], lanes[at] = found[i], marks[i]
    return size, reached


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def count_levels(before, flags, members, taken, lines):  # type: ignore[no-untyped-def]
    """Count the shortest paths from all sixteen sources to each vertex.

    Args:
        before: the tight arcs into each vertex, as in :func:`engine.devices.cpu.betweenness.together.pass_together`.
        flags: uint32: the low LANES bits are the lanes of which a vertex is the source.
        members: the vertices that are reached.
        taken: the vertices and masks of the entries.
        lines: ``paths`` and ``coeff``, float64, shape (n, LANES), and ``told``.  The rows of members in ``paths``
            receive the counts, 0 in lanes in which the vertex is not reached; those in ``coeff`` are set to 0; the
            first row of ``told`` receives the largest counts.

    Returns:
        The number of counts that are not 0.
    """
    ends, tails, masks = before
    listed, lanes = taken
    paths, coeff, told = lines
    for i in range(len(members)):
        v = np.int64(members[i])
        store(paths, v, keep(np.int64(flags[v]), spread(1.0)))
        store(coeff, v, spread(0.0))
    reached, most = 0, spread(0.0)
    for i in range(len(listed)):
        v, mine = np.int64(listed[i]), np.int64(lanes[i])
        sums, some = spread(0.0), np.int64(flags[v])
        for e in range(ends[v], ends[v + 1]):
            mask = np.int64(masks[e])
            some |= mask
            sums = add(sums, keep(mask, load(paths, np.int64(tails[e]))))
        store(paths, v, add(load(paths, v), keep(mine, sums)))
        reached += count_lanes(mine & some)
    for i in range(len(members)):
        most = larger(most, load(paths, np.int64(members[i])))
    store(told, 0, most)
    return reached


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def end_in_tree(v, flags, times, given):  # type: ignore[no-untyped-def]
    """Return the flow that ends at a vertex from sources that stand for it, a line; 0 if sources stand for themselves.

    Args:
        v: the vertex.
        flags: as in :func:`engine.devices.cpu.betweenness.together.hand_back`.
        times: the factors by which the flow of the sources is multiplied, a line.
        given: two arrays, float64, shape (n,): ``kept``, the flow that ends at each vertex before it is multiplied; and
            ``lacking``, which is empty if sources stand for themselves.  Some of the vertices for which a source stands
            send their flow to such a vertex in another way: ``lacking`` is subtracted from the factor.
    """
    kept, lacking = given
    if len(lacking) == 0:
        return spread(0.0)
    return keep(np.int64(flags[v]) >> LANES, multiply(add(times, spread(-lacking[v])), spread(kept[v])))


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _end_paths(known, flags, members, lines, given, arrivals):  # type: ignore[no-untyped-def]
    """Set ``shares`` to the flow that ends at each vertex, divided by the number of shortest paths to it.

    The arguments are as in :func:`hand_back_levels`.  The flow is added to ``arrivals``, unless that is empty.
    """
    columns, far = known
    paths, _, shares, told = lines
    kept = given[0]
    arrived, times = load(told, 1), load(told, 2)
    for i in range(len(members)):
        v = np.int64(members[i])
        here = ~equal(lengths_of(columns, v), far) & ~np.int64(flags[v])
        ending = keep(here & ~(np.int64(flags[v]) >> LANES), multiply(times, spread(kept[v])))
        if flags[v]:
            ending = add(ending, keep(here, end_in_tree(v, flags, times, given)))
        arrived = add(arrived, ending)
        if len(arrivals):
            arrivals[v] += total(ending)
        store(shares, v, divide(ending, load(paths, v)))
    store(told, 1, arrived)


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def hand_back_levels(listed, flags, entries, known, lines, given, out):  # type: ignore[no-untyped-def]
    """Follow the paths from sixteen sources backwards, and add the flow through vertices and over arcs.

    Args:
        listed, flags, given, out: as in :func:`engine.devices.cpu.betweenness.together.hand_back`.
        entries: ``members`` and ``taken``, as in :func:`count_levels`.
        known: ``columns`` and ``far``, as in :func:`list_levels`.
        lines: ``paths`` and ``coeff``, as :func:`count_levels` leaves them; ``shares``, work space of their shape; and
            ``told``, as in :func:`engine.devices.cpu.betweenness.together.hand_back`.
    """
    (ends, tails, masks), moved = listed
    members, (order, lanes) = entries
    paths, coeff, shares, told = lines
    vertices, arrivals, over = out
    _end_paths(known, flags, members, lines, given, arrivals)
    for i in range(len(order) - 1, -1, -1):
        v = np.int64(order[i])
        share = keep(np.int64(lanes[i]), add(load(shares, v), load(coeff, v)))
        for e in range(ends[v], ends[v + 1]):
            u, part = np.int64(tails[e]), keep(np.int64(masks[e]), share)
            store(coeff, u, add(load(coeff, u), part))
            if len(over):
                over[moved[e]] += total(multiply(load(paths, u), part))
    left = spread(0.0)
    for i in range(len(members)):
        v = np.int64(members[i])
        back = load(coeff, v)
        through = multiply(load(paths, v), back)
        if flags[v]:
            left = add(left, keep(np.int64(flags[v]), back))
            through = keep(~np.int64(flags[v]), through)
        vertices[v] += total(through)
    store(told, 3, left)
