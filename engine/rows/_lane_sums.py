"""The kernels that sum quantities along the shortest paths of 16 sources side by side (``engine.rows._lane_vectors``).

A *lane* belongs to one source.  A vertex is visited in all lanes at once: its distances say which arc ends the path in
each lane, and its sums are the sums of the arc's tail plus the quantities of the arc.  So tails have to be summed
before heads.  For the first 16 sources, vertices are visited in the order of their distance from some of the sources.
Later they are visited in the order in which they were finished for the previous 16 sources.  Where a tail is not summed
yet in some lanes, it is visited first, for these lanes.  A chain of such visits ends, because weights are positive: a
path in one lane never returns to a vertex.

Arcs of length zero are the exception.  The vertices that they join form a *cluster* and may wait for each other, so
vertices of a cluster at the same distance are summed together.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit
from engine.rows._lane_vectors import FAR, LANES, SKIPPED, add_arcs, find_arcs, give_square, take_square

#: Number of vertices whose sums are written together, so that each row gets several whole cache lines at a time.
WIDE = 4 * LANES


@njit(nogil=True, cache=True)
def whole_rows(rows, places, unit, unreachable, out):  # type: ignore[no-untyped-def]
    """Copy 16 rows as int32, ``FAR`` where they are unreachable.

    Args:
        rows: shape (rows, n): distances.
        places: int64, shape (16,): the numbers of the rows to copy.
        unit: the number by which distances are multiplied before they are rounded; None to leave them as they are.
        unreachable: the value for *no path*.
        out: int32, shape (16, n).

    Returns:
        Whether all distances are below ``FAR``.
    """
    fit = True
    for j in range(LANES):
        row, found = rows[places[j]], out[j]
        for v in range(len(row)):
            value = row[v] if unit is None else np.rint(row[v] * unit)  # numba decides this at compile time
            there = row[v] != unreachable
            fit &= (value < FAR) | (not there)
            found[v] = np.int32(value) if there and value < FAR else np.int32(FAR)
    return fit


@njit(nogil=True, cache=True)
def _near(lines, v):  # type: ignore[no-untyped-def]
    """Return the mean distance of a vertex from some of the sources, leaving out sources that do not reach it; ``FAR``
    if none of them reaches it.
    """
    total, count = np.int64(0), 0
    for j in range(0, LANES, 4):
        length = np.int64(max(lines[v, 0, j], 0))
        total += length if length < FAR else 0
        count += length < FAR
    return total // count if count else np.int64(FAR)


@njit(nogil=True, cache=True)
def _sort(lines, order, starts, near):  # type: ignore[no-untyped-def]
    """Sort the vertices into classes by distance, vertices without a path last.  ``starts``, for the classes, and
    ``near``, int32, shape (n,), are work space.
    """
    n, most, last = len(order), np.int32(0), len(starts) - 2
    for v in range(n):
        near[v] = _near(lines, v)
        most = max(most, near[v] if near[v] < FAR else np.int32(0))
    scale = last / (most + 1.0)
    starts[:] = 0
    for v in range(n):
        near[v] = np.int32(near[v] * scale) if near[v] <= most else last
        starts[near[v] + 1] += 1
    for k in range(last + 1):
        starts[k + 1] += starts[k]
    for v in range(n):
        k = near[v]
        order[starts[k]] = v
        starts[k] += 1


@njit(nogil=True, cache=True)
def _move(order, place, graph, moved):  # type: ignore[no-untyped-def]
    """Copy the in-arcs of all vertices, and the quantities of these arcs, in the order of the vertices."""
    (into, tails, weights), (wholes, fractions) = graph
    (begins, others, lengths), (own, other) = moved
    at = 0
    for i in range(len(order)):
        v = order[i]
        place[v], begins[i] = i, at
        for e in range(into[v], into[v + 1]):
            others[at] = tails[e]
            lengths[at] = weights[e]
            for k in range(wholes.shape[1]):
                own[at, k] = wholes[e, k]
            for k in range(fractions.shape[1]):
                other[at, k] = fractions[e, k]
            at += 1
    begins[len(order)] = at


@njit(nogil=True, cache=True)
def _begin(block, space):  # type: ignore[no-untyped-def]
    """Fill ``lines`` with the distances of 16 rows.  Return the lane of a source that is not at distance 0; -1 if there
    is none.
    """
    rows, which, sources, _ = block
    lines, sums = space
    n = rows.shape[1]
    for first in range(0, n - LANES + 1, LANES):
        take_square(rows, which, first, lines)
    for v in range(n - n % LANES, n):
        for j in range(LANES):
            lines[v, 0, j], lines[v, 1, j] = rows[which[j], v], -1
    for j in range(LANES):
        s = sources[j]
        if lines[s, 0, j] != 0:
            return j
        lines[s, 1:, j], sums[s, :, j] = 0, 0
        if n + s < len(lines):  # paths from a terminal begin at row n + s
            lines[n + s, :, j], sums[n + s, :, j] = 0, 0
    return -1


@njit(nogil=True, cache=True)
def _best(x, lane, graph, place, lines):  # type: ignore[no-untyped-def]
    """Return the tight arc into vertex ``x`` in one lane; -1 if there is none.

    Of several tight arcs with summed tails, it is the one whose tail has the fewest hops, and of ties the first.
    """
    into, tails, weights = graph[0]
    best, found = np.int32(FAR), np.int64(-1)
    for e in range(into[place[x]], into[place[x] + 1]):
        u, weight = tails[e], weights[e]
        if lines[u, 0, lane] + weight == lines[x, 0, lane] and 0 <= lines[u, 1, lane] < best:
            best, found = lines[u, 1, lane], np.int64(e)
    return found


@njit(nogil=True, cache=True)
def _join(v, lane, graph, place, space, clusters):  # type: ignore[no-untyped-def]
    """Sum the vertices of a cluster that are as far as ``v``, in one lane.

    Returns:
        -1 if the vertices are summed now; a vertex that has to be summed before them; -2 - x if no path leads to x.
    """
    (into, tails, weights), (wholes, fractions) = graph
    which, begins, members = clusters
    lines, sums = space
    here = lines[v, 0, lane]
    some = members[begins[which[v]] : begins[which[v] + 1]]
    for x in some:
        for e in range(into[place[x]], into[place[x] + 1]):
            u, weight = tails[e], weights[e]
            tight = weight > 0 and lines[x, 0, lane] == here and lines[u, 0, lane] + weight == here
            if tight and lines[u, 1, lane] < 0:
                return np.int64(u)
    # the first len(some) rounds make all hops the fewest; as many further rounds make all sums right
    for _ in range(2 * len(some)):
        for x in some:
            e = _best(x, lane, graph, place, lines)
            if lines[x, 0, lane] == here and lines[x, 1, lane] != 0 and e >= 0:
                u = tails[e]
                lines[x, 1, lane] = lines[u, 1, lane] + 1
                for k in range(wholes.shape[1]):
                    lines[x, SKIPPED + k, lane] = lines[u, SKIPPED + k, lane] + wholes[e, k]
                for k in range(fractions.shape[1]):
                    sums[x, k, lane] = sums[u, k, lane] + fractions[e, k]
    for x in some:
        if lines[x, 0, lane] == here and lines[x, 1, lane] < 0:
            return np.int64(-2 - x)
    return np.int64(-1)


@njit(nogil=True, cache=True)
def _first(bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is 1."""
    lane = 0
    while not (bits >> lane) & 1:
        lane += 1
    return lane


@njit(nogil=True, cache=True)
def _next(v, waits, graph, taken, place, space, clusters):  # type: ignore[no-untyped-def]
    """Return the vertex to visit before ``v``, and for which lanes, as bits.  Return -1 and 0 to visit ``v`` again, and
    -2 - x if no path leads to x.
    """
    (into, tails, _), _ = graph
    lane = _first(waits)
    if len(clusters[0]) > 0 and clusters[0][v] >= 0:
        u = _join(v, lane, graph, place, space, clusters)
        return u, (np.int64(1) << lane if u >= 0 else np.int64(0))
    lanes, arc = np.int64(0), taken[lane]
    for j in range(lane, LANES):
        if taken[j] == arc:
            lanes |= np.int64(1) << j
    return np.int64(tails[into[place[v]] + arc]), lanes & waits


@njit(nogil=True, cache=True)
def _visit(orders, limited, graph, place, space, clusters):  # type: ignore[no-untyped-def]
    """Sum all vertices in all lanes; return -1, -1, or the lane and vertex of an entry that is no shortest distance."""
    order, finished, done, stack = orders
    (into, tails, weights), quantities = graph
    taken, count = np.empty(LANES, np.int32), 0
    done[:] = 0
    for i in range(len(order)):
        if done[order[i]]:
            continue
        stack[0, 0], stack[0, 1] = order[i], 2**LANES - 1
        top = 0
        while top >= 0:
            v, lanes = np.int64(stack[top, 0]), stack[top, 1]
            at = np.int64(place[v])
            arcs = into[at], into[at + 1], v
            wrong = find_arcs(arcs, tails, weights, space, limited, taken)
            if wrong:
                return _first(wrong), v
            waiting = add_arcs(arcs, tails, quantities, space, taken)
            if waiting == 0 and not done[v]:
                done[v], finished[count] = 1, v
                count += 1
            if waiting & lanes:
                waiting &= lanes
                u, lanes = _next(v, waiting, graph, taken, place, space, clusters)
                if u < -1:
                    return _first(waiting), -2 - u
                if u >= 0:
                    top += 1
                    stack[top, 0], stack[top, 1] = u, lanes
            else:
                top -= 1
    return -1, -1


@njit(nogil=True, cache=True)
def _give(space, wanted):  # type: ignore[no-untyped-def]
    """Write the sums of each quantity for 16 sources, from the lines of ``space`` to ``out`` and ``others``."""
    lines, sums = space
    places, columns, none, nothing, out, others = wanted
    count = len(columns)
    for start in range(0, count if count >= LANES else 0, WIDE):
        for k in range(out.shape[1]):
            for first in range(start, min(start + WIDE, count), LANES):
                part = columns, np.int64(min(first, count - LANES))
                give_square(lines, (lines, np.int64(SKIPPED + k)), part, none, places, (out, np.int64(k)))
        for k in range(others.shape[1]):
            for first in range(start, min(start + WIDE, count), LANES):
                part = columns, np.int64(min(first, count - LANES))
                give_square(lines, (sums, np.int64(k)), part, nothing, places, (others, np.int64(k)))
    for j in range(LANES if count < LANES else 0):
        row = places[j]
        for i in range(count):
            v = columns[i]
            far = lines[v, 0, j] == FAR
            for k in range(out.shape[1]):
                out[row, k, i] = none if far else lines[v, SKIPPED + k, j]
            for k in range(others.shape[1]):
                others[row, k, i] = nothing if far else sums[v, k, j]


@njit(nogil=True, cache=True)
def sum_lanes(block, anew, graph, clusters, space, wanted):  # type: ignore[no-untyped-def]
    """Sum quantities along the shortest paths of 16 rows.

    Args:
        block: four entries: rows of distances, int32, shape (rows, n), ``FAR`` where there is no path; the numbers of
            the rows to sum, int64, shape (16,); the sources of these rows, int64, shape (16,); and 1 if distances
            beyond a cutoff are unreachable, else 0.
        anew: 0 to visit the vertices in the order of the previous call, which has to be for the same arrays; 1 to sort
            the vertices first; 2 to sort them and to move the arcs.
        graph: arcs and quantities, the arcs into each vertex by ascending tails: where they begin, int64, shape
            (n + 1,), tails, int32, and weights, int32; the quantities, int32, shape (arcs, k), and float64, shape
            (arcs, l).  The tail of an arc out of terminal t, of which there are T, is n + t.
        clusters: the cluster of each vertex or -1, int32, shape (n,), empty if no arc has length zero; where the
            members of each cluster begin, int64; and the members, int32.
        space: five entries.  Lines and sums, aligned to 64 bytes: int32, shape (n + T, 2 + k, 16), and float64, shape
            (n + T, l, 16).  The lines from n on belong to terminals; their distances are ``FAR`` and their hops -1,
            before and after the call.
            Four arrays for orders: order, finished, int32, done, uint8, shape (n,), and stack, int32, shape (n + 1, 2).
            Where the classes of :func:`_sort` start, int64.  The place of each vertex among the moved arcs, int32,
            shape (n,).  Arrays for the arcs and quantities of ``graph`` in moved order, or ``graph`` itself if arcs are
            never moved.
        wanted: six entries: the numbers of the rows of the results to write, int64, shape (16,); the vertices of the
            columns, int64; the values for *no path*, int32 and float64; and the arrays that receive the sums, int32,
            shape (results, k, columns), and float64, shape (results, l, columns).

    Returns:
        Lane and vertex of an entry that is not a shortest distance; -1 and -1 if all are.
    """
    lanes, orders, starts, place, moved = space
    n, sources = block[0].shape[1], block[2]
    lane, v = _begin(block, lanes), np.int64(-1)
    if lane >= 0:
        v = sources[lane]
    else:
        if anew:
            _sort(lanes[0], orders[0], starts, orders[1])
        if anew > 1:
            _move(orders[0], place, graph, moved)
        lane, v = _visit(orders, block[3], moved, place, lanes, clusters)
    if lane < 0:
        orders[0][:] = orders[1]
        _give(lanes, wanted)
    for s in sources:
        if n + s < len(lanes[0]):
            lanes[0][n + s, 0], lanes[0][n + s, 1] = FAR, -1
    return np.int64(lane), np.int64(v)
