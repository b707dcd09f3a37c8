"""Computes the flow from sixteen sources together through each vertex and over each arc, given the distances from these
sources to all vertices.

Many searches side by side find rows of distances far faster than single searches that also count paths.  So the
counting begins with finished rows, and takes sixteen at a time: the counts of paths from these sixteen sources to a
vertex are a line (``engine.devices.cpu.betweenness.vectors``).  First all arcs that are tight for some of the sources
are listed, each with a mask of the sources for which it is tight.  Then the vertices are put in an order in which all
shortest paths ascend (``engine.devices.cpu.betweenness.ordering``).  In that order paths are counted, and in its
reverse the flow is summed (Brandes 2001).  Sources near each other share most of their tight arcs, so the lists for
sixteen sources are hardly longer than those for one source.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.accumulating import DONE, UNEQUAL, verdict
from engine.devices.cpu.betweenness.gathering import derive_row
from engine.devices.cpu.betweenness.levels import count_levels, end_in_tree, hand_back_levels, list_levels
from engine.devices.cpu.betweenness.ordering import count_in_order, sort_roughly
from engine.devices.cpu.betweenness.sinks import add_sinks
from engine.devices.cpu.betweenness.vectors import (
    LANES,
    add,
    divide,
    keep,
    lengths_of,
    load,
    multiply,
    put_square,
    spread,
    store,
    tight,
    total,
)
from engine.graph.kernels import njit

#: Rows of ``told``, float64, shape (4, LANES), which has a column for each of sixteen sources: the largest count of
#: paths (MOST), the flow that arrived (ARRIVED), the factor by which all flow of the source is multiplied (TIMES), and
#: the flow that left (LEFT).
MOST, ARRIVED, TIMES, LEFT = 0, 1, 2, 3
#: The vertices of a group of sources are taken by ascending distance if that gives less than DEAR times as many entries
#: as one order, counted for the group before: an entry by distance takes about half the time (decision 264), and a
#: third where many vertices of one order lie on cycles (decision 270).
DEAR = 3


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def begin(task, rows, flags, told):  # type: ignore[no-untyped-def]
    """Set the flags of up to sixteen sources; in ``told``, set their factors, and set the flow that arrived to 0.

    The arguments are as in :func:`pass_together`, except that ``rows`` holds only these sources.
    """
    told[TIMES] = told[ARRIVED] = 0.0
    for k in range(len(rows)):
        source, own = task[0][rows[k]], task[1][rows[k]]
        flags[source] |= 1 << k
        if own >= 0:
            flags[own] |= 1 << (LANES + k)
        if len(task[3]):
            for i in range(task[3][rows[k]], task[3][rows[k] + 1]):
                flags[task[4][i]] |= 1 << (LANES + k)
        told[TIMES, k] = task[2][rows[k]]


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def finish(task, rows, flags, told, begins):  # type: ignore[no-untyped-def]
    """Clear the flags that :func:`begin` has set, and return ``DONE`` or the code of an error (``verdict``).

    The flow that begins at each source is added to ``begins``, unless that is empty.
    """
    most, said = told[MOST, 0], DONE
    for k in range(1, LANES):
        if told[MOST, k] > most or told[MOST, k] != told[MOST, k]:  # what is not a number counts as the largest
            most = told[MOST, k]
    for k in range(len(rows)):
        source, own = task[0][rows[k]], task[1][rows[k]]
        flags[source] = 0
        if own >= 0:
            flags[own] = 0
        if len(task[3]):
            for i in range(task[3][rows[k]], task[3][rows[k] + 1]):
                flags[task[4][i]] = 0
        if len(begins):
            begins[source] += told[ARRIVED, k]
        said = max(said, verdict(told[LEFT, k], told[ARRIVED, k], most))
    return said


@njit(nogil=True, cache=True, from_start=True)
def _put_side_by_side(found, sources, some, columns, keys):  # type: ignore[no-untyped-def]
    """Copy the rows of distances of up to sixteen sources into the columns of ``columns``.

    Rows without a place are derived first, in the last rows of the block.  Further columns are set to *unreachable*.
    ``keys`` receives a key for each vertex: sorted by key, the vertices are in an order in which most of the paths
    ascend.

    Args:
        found, columns, keys: as in :func:`pass_together`.
        sources: the vertices of all sources.
        some: the positions in ``sources`` of those whose rows are copied.

    Returns:
        The number of entries of ``columns`` that are not *unreachable*.
    """
    block, far, out, places = found
    n, done, count, rows = len(columns), 0, len(some), np.empty(LANES, np.int64)
    for k in range(count):
        v = sources[some[k]]
        rows[k] = places[v]
        if rows[k] < 0:
            rows[k] = len(block) - LANES + k
            derive_row(block, rows[k], v, out, places, far)
    while count == LANES and done + LANES <= n:
        put_square(block, rows, done, columns, keys, np.int32(far))
        done += LANES
    for v in range(done, n):
        for k in range(LANES):
            columns[v, k] = block[rows[k], v] if k < count else far
        keys[v] = 0 if columns[v, 0] == far else columns[v, 0]
    reached, entries = 0, columns.reshape(-1)
    for i in range(len(entries)):
        reached += entries[i] != far
    return reached


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _list_tight(into, columns, far, before, moved):  # type: ignore[no-untyped-def]
    """List the arcs that are tight for some of the sixteen sources, sorted by head.

    Args:
        into: the arcs between vertices that are no sinks, as in :func:`pass_together`.
        columns: the distances, shape (n, LANES).
        far: the distance that stands for *unreachable*, int32.
        before: three arrays, which receive where the listed arcs into each vertex begin, as in CSR; the tail of each
            arc; and the mask of the sources for which it is tight.
        moved: receives the index of each listed arc among the arcs out; empty if that is not needed.
    """
    heads, tails, weights, places, lone = into
    ends, listed, masks = before
    size = 0
    for e in range(len(heads)):
        v, u = np.int64(heads[e]), np.int64(tails[e])
        mask = tight(columns, lengths_of(columns, v), u, weights[e], far)
        listed[size] = u
        masks[size] = mask
        if len(moved):
            moved[size] = places[e]
        size += mask != 0
        ends[v + 1] = size
    for v in lone:
        ends[v + 1] = ends[v]


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def hand_back(listed, flags, taken, lines, given, out):  # type: ignore[no-untyped-def]
    """Follow the paths from sixteen sources backwards, and add the flow through vertices and over arcs.

    ``coeff`` is the flow that passes through a vertex, divided by the number of shortest paths to it.

    Args:
        listed: the tight arcs, ``before`` of :func:`_list_tight`, and ``moved``, the index of each in the flow over
            arcs.
        flags: uint32, shape (n,): the low LANES bits are the lanes of which a vertex is the source, and the high bits
            are the lanes of the sources that send nothing to it.
        taken: the vertices in the order of the paths, and for each entry the mask of the lanes in which the vertex is
            taken at this place (``engine.devices.cpu.betweenness.ordering``).
        lines: ``paths`` and ``coeff`` as the counting leaves them, and ``told``, float64, shape (4, LANES).  The row
            TIMES is read, the flow that arrives is added to the row ARRIVED, and the row LEFT is set.
        given: the flow from each source that ends at each vertex, before it is multiplied, and ``lacking``, as in
            :func:`engine.devices.cpu.betweenness.levels.end_in_tree`.
        out: the sums of this thread, to which this adds: the flow through each vertex, the flow that ends at each
            vertex, and the flow over each arc; the last two may be empty.
    """
    (ends, tails, masks), moved = listed
    order, lanes = taken
    paths, coeff, told = lines
    vertices, arrivals, over = out
    kept = given[0]
    times, arrived, left = load(told, TIMES), load(told, ARRIVED), spread(0.0)
    for i in range(len(order) - 1, -1, -1):
        v, mine = np.int64(order[i]), np.int64(lanes[i])
        own, back = load(paths, v), load(coeff, v)
        ending, here = multiply(times, spread(kept[v])), mine
        if flags[v]:
            left = add(left, keep(mine & flags[v], back))
            here = mine & ~np.int64(flags[v])
            ending = keep(here & ~(np.int64(flags[v]) >> LANES), ending)
            ending = add(ending, keep(here, end_in_tree(v, flags, times, given)))
        vertices[v] += total(keep(here, multiply(own, back)))
        arrived = add(arrived, keep(here, ending))
        if len(arrivals):
            arrivals[v] += total(keep(here, ending))
        share = keep(mine, add(divide(ending, own), back))
        for e in range(ends[v], ends[v + 1]):
            u, part = np.int64(tails[e]), keep(np.int64(masks[e]), share)
            store(coeff, u, add(load(coeff, u), part))
            if len(over):
                over[moved[e]] += total(multiply(load(paths, u), part))
    store(told, ARRIVED, arrived)
    store(told, LEFT, left)


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def pass_together(arcs, task, rows, found, kept, space, out):  # type: ignore[no-untyped-def]
    """Send the flow of some sources along their shortest paths, sixteen sources at a time, and add it to ``out``.

    The rows of distances of these sources are known.  A *sink* is a vertex without outgoing arcs that is no source;
    sinks have the largest numbers.

    Args:
        arcs: two entries.  The first has the arcs between vertices that are no sinks, sorted by head, as five arrays:
            the head of each arc, int32; its tail, int32; its weight, int32, whose sum with any distance fits int32; its
            index among the arcs out, int64; and the vertices without incoming arcs, int64.  The second has the arcs
            into sinks, as in :func:`engine.devices.cpu.betweenness.sinks.add_sinks`.
        task: six arrays.  Over all sources: the vertex of each, int64; one vertex to which the source sends nothing,
            -1 for none; and the factor by which all flow of the source is multiplied, float64.  Then, all empty if each
            source stands only for itself: where the vertices for which each source stands begin in the next array,
            int64, shape (sources + 1,); these vertices, int64; and ``lacking``, float64, shape (n,), as in
            :func:`engine.devices.cpu.betweenness.levels.end_in_tree`.
        rows: int64: the positions in ``task`` of the sources of this call.  Sources next to each other in ``rows``
            should be near each other in the graph.
        found: four entries.  The distances from some of these sources to all vertices but the sinks, uint16 or int32,
            shape (rows, others), the last LANES rows of which are work space; the distance that stands for
            *unreachable*; where the arcs of each vertex between these vertices begin, and their heads; and the row of
            each source, int32, shape (others,), which is -1 if it is derived from those of the heads
            (:func:`engine.devices.cpu.betweenness.gathering.derive_row`).
        kept: float64, shape (n,): the flow that each source sends to each vertex, the same for all sources.
        space: buffers of this thread, in this order:
            ``columns``, of the type of the distances, shape (n, LANES);
            ``keys`` and ``counts`` of :func:`engine.devices.cpu.betweenness.ordering.sort_roughly`;
            ``before`` of :func:`_list_tight`; and ``moved``, int64, shape (arcs + 1,), or empty if no flow over arcs is
            wanted;
            ``order``, ``space``, ``taken`` and ``limits`` of
            :func:`engine.devices.cpu.betweenness.ordering.count_in_order`;
            ``flags``, uint32, shape (n,), all 0;
            ``spare``, work space of :func:`engine.devices.cpu.betweenness.levels.list_levels`, empty if some arc has
            the length 0 or vertices are not to be taken by distance;
            ``lines``: ``paths``, ``coeff`` and ``shares``, float64, shape (n, LANES), and ``told``, float64, shape (4,
            LANES).  ``shares`` may use the memory of ``spare``, and may be empty if ``spare`` is.
        out: sums of this thread, to which this adds: ``vertices``, ``begins``, ``ends`` and ``over`` of
            :func:`engine.devices.cpu.betweenness.accumulating.pass_hops`.

    Returns:
        ``DONE``, or the code of an error (``verdict``); after an error the sums are incomplete.
    """
    columns, keys, counts, before, moved, order, places, taken, limits, flags, spare, lines = space
    vertices, begins, arrivals, over = out
    far, (paths, coeff, _, told) = np.int32(found[1]), lines
    known, levels, better = (columns, far), (order, taken, spare, counts), False
    for at in range(0, len(rows), LANES):
        some, levelled = rows[at : at + LANES], 0
        reached = _put_side_by_side(found, task[0], some, columns, keys)
        _list_tight(arcs[0], columns, far, before, moved)
        begin(task, some, flags, told)
        if better or at == 0:
            levelled, met = list_levels(columns, far, before[0], levels)
        if better and levelled:
            size, members = levelled, order[:met]
            counted = count_levels(before, flags, members, (taken[0][:size], taken[1][:size]), (paths, coeff, told))
        else:
            sort_roughly(keys, order, counts)
            size, counted = count_in_order(
                (before, flags, columns, far), order, places, taken, limits, (paths, coeff, told)
            )
        if counted != reached:
            return UNEQUAL
        done, sums = (taken[0][:size], taken[1][:size]), (vertices, arrivals, over)
        add_sinks(arcs[1], known, flags, (paths, coeff, told), kept, (arrivals, over))
        given = kept, task[5]
        if better and levelled:
            hand_back_levels((before, moved), flags, (members, done), known, lines, given, sums)
        else:
            hand_back((before, moved), flags, done, (paths, coeff, told), given, sums)
            better = 0 < levelled < DEAR * size
        said = finish(task, some, flags, told, begins)
        if said != DONE:
            return said
    return DONE
