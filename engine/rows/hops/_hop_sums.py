"""The kernels that sum quantities along the paths of fewest arcs of up to 64 sources side by side.

This is the method of ``engine.rows._lane_sums``, and simpler, because every arc counts 1.  First all distances are
proven: in each lane the nearest tail of a vertex is nearer by 1.  Then a vertex is visited in all lanes at once, in the
order of the mean distances.  At a tail that is not summed yet in some lanes the visit is suspended, the tail is visited
first, for these lanes, and the visit goes on at the same arc.  All tails at the right distance have paths of equally
many arcs, so the first one ends the path, and a visit ends where all lanes have found one.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit
from engine.rows._squares import LANES
from engine.rows.hops._hop_vectors import give_part, mean_distance, prove_vertex, sum_vertex, take_piece

#: Number of vertices whose sums are written together, so that each row gets several whole cache lines at a time.
WIDE = 4 * LANES


@njit(nogil=True, cache=True, from_start=True)
def _outside(row, unit, unreachable, far):  # type: ignore[no-untyped-def]
    """Return the first vertex of a row whose distance is negative, or ``far`` or more."""
    v = np.int64(0)
    while v < len(row):
        value = row[v] if unit is None else np.rint(row[v] * unit)
        if row[v] != unreachable and not ((value >= 0) & (value < far)):
            break
        v += 1
    return v


@njit(nogil=True, cache=True, from_start=True)
def narrow_rows(rows, places, unit, unreachable, far, out):  # type: ignore[no-untyped-def]
    """Copy rows in a narrower type.

    Args:
        rows: shape (rows, n): distances.
        places: int64: the numbers of the rows to copy.
        unit: the number by which distances are multiplied before they are rounded; None to leave them as they are.
        unreachable: the value for *no path* in ``rows``.
        far: the value for *no path* in ``out``, int32.
        out: unsigned, shape (places, n).

    Returns:
        Place and vertex of a distance that is negative, or ``far`` or more, in which case ``out`` is of no use; -1 and
        -1 if there is none.
    """
    outside = np.int32(0)
    for j in range(len(places)):
        row, found = rows[places[j]], out[j]
        for v in range(len(row)):
            value = row[v] if unit is None else np.rint(row[v] * unit)  # numba decides this at compile time
            there, inside = row[v] != unreachable, (value >= 0) & (value < far)
            outside |= np.int32(there) & np.int32(not inside)
            found[v] = np.int32(value) if there else far
        if outside:
            return np.int64(j), _outside(row, unit, unreachable, far)
    return np.int64(-1), np.int64(-1)


@njit(nogil=True, cache=True, from_start=True)
def _begin(block, lines):  # type: ignore[no-untyped-def]
    """Fill the lines of distances.  Return the lane of a source that is not at distance 0; -1 if there is none."""
    rows, sources, far, _ = block
    distances, summed, (shorts, wholes, fractions) = lines
    n, every = rows.shape[1], len(summed)
    for first in range(0, n, 16 // distances.itemsize):
        take_piece(rows, np.int64(first), distances)
    distances[n:] = far
    summed[:] = 0
    for j in range(len(sources)):
        s = sources[j]
        if distances[s, j] != 0:
            return j
        shorts[s, :, j], wholes[s, :, j], fractions[s, :, j] = 0, 0, 0
        summed[s] |= np.int64(1) << j
        if n + s < every:  # paths from a terminal begin at row n + s
            distances[n + s, j] = 0
            shorts[n + s, :, j], wholes[n + s, :, j], fractions[n + s, :, j] = 0, 0, 0
            summed[n + s] |= np.int64(1) << j
    return -1


@njit(nogil=True, cache=True, from_start=True)
def _sort(distances, order, starts, near):  # type: ignore[no-untyped-def]
    """Sort the vertices by their mean distance from the sources that reach them, vertices without a path last.
    ``starts``, int32, shape (n + 4,), and ``near``, int32, shape (n,), are work space.
    """
    n, most = len(order), np.int32(-1)
    for v in range(n):
        near[v] = min(mean_distance(distances, np.int64(v)), n)
        most = max(most, near[v])
    starts[: most + 3] = 0
    for v in range(n):
        near[v] = near[v] if near[v] >= 0 else most + 1
        starts[near[v] + 1] += 1
    for k in range(most + 2):
        starts[k + 1] += starts[k]
    for v in range(n):
        k = near[v]
        order[starts[k]] = v
        starts[k] += 1


@njit(nogil=True, cache=True, from_start=True)
def _first(lanes):  # type: ignore[no-untyped-def]
    """Return the lowest lane of a set of lanes."""
    lane = 0
    while not (lanes >> lane) & 1:
        lane += 1
    return lane


@njit(nogil=True, cache=True, from_start=True)
def _least_wrong(j, unproven, graph, lines):  # type: ignore[no-untyped-def]
    """Return a vertex whose entry in lane ``j`` is no shortest distance, where an entry does not follow from those of
    the tails.

    That may be so because the entry of a tail is wrong.  But of all such vertices, the one with the least distance,
    either its own or that over the nearest tail, is wrong itself: all shorter distances are right.
    """
    (far, limited), (into, tails), (distances, summed, _) = unproven, graph, lines
    found, least = np.int64(-1), np.int64(far) + 1  # distances over a tail without a path are far + 1
    for v in range(len(into) - 1):
        here, over = np.int64(distances[v, j]), np.int64(far) + 1
        for e in range(into[v], into[v + 1]):
            over = min(over, np.int64(distances[tails[e], j]) + 1)
        untight = (summed[v] >> j) & 1 == 0 and (here == 0 or over != here)
        wrong = untight if here < far else not limited and over <= far
        if wrong and min(here, over) < least:
            found, least = np.int64(v), min(here, over)
    return found


@njit(nogil=True, cache=True, from_start=True)
def _prove(unproven, graph, lines):  # type: ignore[no-untyped-def]
    """Return lane and vertex of an entry that is no shortest distance; -1 and -1 if all are.  Nothing but the sources
    may be summed yet.  ``unproven`` is (far, limited), the last entries of ``block`` of :func:`sum_hops`.
    """
    into, tails = graph
    for v in range(len(into) - 1):
        wrong = prove_vertex((into[v], into[v + 1], np.int64(v)), unproven[1], tails, lines)
        if wrong:
            lane = np.int64(_first(wrong))
            return lane, _least_wrong(lane, unproven, graph, lines)
    return np.int64(-1), np.int64(-1)


@njit(nogil=True, cache=True, from_start=True)
def _visit(orders, graph, lines):  # type: ignore[no-untyped-def]
    """Sum all vertices in all lanes; the distances are proven."""
    order, _, done, stack = orders
    (into, tails), quantities = graph
    done[:] = 0
    for i in range(len(order)):
        v = np.int64(order[i])
        if done[v]:
            continue
        top, e, lanes, left = 0, into[v], np.int64(-1), np.int64(-1)
        while top >= 0:
            e, left, wanted, tail = sum_vertex((e, v, lanes, left), tails, quantities, lines)
            if wanted:
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = v, e, lanes, left
                top += 1
                v, e, lanes, left = tail, into[tail], wanted, np.int64(-1)
            else:
                done[v] = left == 0
                top -= 1
                if top >= 0:
                    v, e, lanes, left = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]


@njit(nogil=True, cache=True, from_start=True)
def _give(summed, sums, rows, none, out):  # type: ignore[no-untyped-def]
    """Write the sums of one type for all sources to ``out``.

    Args:
        summed, sums: as in :func:`sum_hops`.
        rows: the numbers of the rows of ``out``, and the vertices of its columns.
        none: the value for *no path*.
        out: shape (results, k, columns).
    """
    places, columns = rows
    count, lanes = len(columns), sums.shape[2]
    for start in range(0, count if count >= LANES else 0, WIDE):
        for k in range(out.shape[1]):
            for c in range(lanes // LANES):
                for first in range(start, min(start + WIDE, count), LANES):
                    part = columns, np.int64(min(first, count - LANES))
                    give_part(summed, (sums, np.int64(k), np.int64(c)), part, none, places, out)
    for j in range(lanes if count < LANES else 0):
        for i in range(count):
            v = columns[i]
            for k in range(out.shape[1]):
                out[places[j], k, i] = sums[v, k, j] if (summed[v] >> j) & 1 else none


@njit(nogil=True, cache=True, from_start=True)
def sum_hops(block, graph, space, wanted):  # type: ignore[no-untyped-def]
    """Sum quantities along the paths of fewest arcs of as many rows as there are lanes.

    Args:
        block: four entries: rows of distances, unsigned, shape (lanes, n), with 16 bytes after them that may be read;
            their sources, int64, shape (lanes,); the distance that means *no path*, int32, the largest number of 8 or
            16 bits, or ``FAR``; and 1 if distances beyond a cutoff are unreachable, else 0.
        graph: arcs and quantities, the arcs into each vertex by ascending tails: where they begin, int64, shape
            (n + 1,), and tails, int32; three arrays of quantities, uint16, int32 and float64, by the types of their
            sums, shape (arcs, k), each with a number k of its own.  The tail of an arc out of terminal t, of which
            there are T, is n + t.
        space: three entries.  Distances, of the type of the rows, shape (n + T + 16, lanes), aligned to 64 bytes; a bit
            for each lane in which a vertex is summed, int64, shape (n + T,); and the sums, uint16, int32 and float64,
            shape (n + T, k, lanes), aligned to 64 bytes.  Four arrays for orders: order, near, int32, done, uint8,
            shape (n,), and stack, int64, shape (n + 1, 4).  Where the classes of :func:`_sort` start.
        wanted: four entries: the numbers of the rows of the results to write, int64, shape (lanes,); the vertices of
            the columns, int64; the values for *no path* of the three types of sums; and the arrays that receive the
            sums, uint16, int32 and float64, shape (results, k, columns).

    Returns:
        Lane and vertex of an entry that is not a shortest distance; -1 and -1 if all are.
    """
    lines, orders, starts = space
    lane = np.int64(_begin(block, lines))
    if lane >= 0:
        return lane, block[1][lane]
    _sort(lines[0], orders[0], starts, orders[1])
    lane, v = _prove(block[2:], graph[0], lines)
    if lane < 0:
        _visit(orders, graph, lines)
        places, columns, nones, out = wanted
        rows, (_, summed, sums) = (places, columns), lines
        _give(summed, sums[0], rows, nones[0], out[0])
        _give(summed, sums[1], rows, nones[1], out[1])
        _give(summed, sums[2], rows, nones[2], out[2])
    return np.int64(lane), np.int64(v)
