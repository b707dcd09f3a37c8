"""The kernels that sum quantities along the shortest paths of 16 sources side by side (``engine.rows._lane_vectors``).

A *lane* belongs to one source, and a vertex is treated in all lanes at once.  First its distances say, for each vertex
and in any order, which arc ends the path in each lane, and whether all entries are shortest distances.  Then vertices
are visited: the sums of a vertex are the sums of the arc's tail plus the quantities of the arc.  So tails have to be
summed before heads.  Vertices are visited by their mean distances or, in larger graphs, whose lines would then come
from memory out of order, in the order in which they were finished for the previous 16 sources.  Where a tail is not
summed yet in some lanes, it is visited first, for these lanes.  A chain of such visits ends, because
weights are positive: a path in one lane never returns to a vertex.  Where several arcs may end the path, the numbers of
arcs of their paths decide, which are known when all their tails are summed.

Arcs of length zero are the exception.  The vertices that they join form a *cluster* and may wait for each other, so
vertices of a cluster at the same distance are summed together.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit
from engine.rows._lane_vectors import (
    FAR,
    SKIPPED,
    add_arcs,
    choose_arcs,
    fetch_lines,
    find_arcs,
    give_square,
    mean_distance,
    take_square,
)
from engine.rows._squares import LANES

#: Number of vertices whose sums are written together, so that each row gets several whole cache lines at a time.
WIDE = 4 * LANES
#: The lines of a vertex are fetched this many vertices before it is visited.
AHEAD = 16


@njit(nogil=True, cache=True, from_start=True)
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


@njit(nogil=True, cache=True, from_start=True)
def number_vertices(indptr, heads, terminals, numbers):  # type: ignore[no-untyped-def]
    """Number vertices in the order of depth-first searches, so that the lines of neighbours are mostly near each other.

    Args:
        indptr: where the arcs out of each vertex begin, shape (n + 1,).
        heads: shape (arcs,).
        terminals: the number of terminals, which are the first vertices and keep their numbers.
        numbers: int64, shape (n,): receives the number of each vertex.
    """
    n, count = len(numbers), terminals
    following, stack = indptr[:-1].copy(), np.empty(n, np.int64)
    numbers[:] = -1
    for v in range(terminals):
        numbers[v] = v
    for root in range(n):
        if numbers[root] >= 0:
            continue
        numbers[root], stack[0], top = count, root, 0
        count += 1
        while top >= 0:
            v = stack[top]
            if following[v] == indptr[v + 1]:
                top -= 1
                continue
            u = heads[following[v]]
            following[v] += 1
            if numbers[u] < 0:
                top += 1
                numbers[u], stack[top] = count, u
                count += 1


@njit(nogil=True, cache=True, from_start=True)
def _begin(block, ties, space):  # type: ignore[no-untyped-def]
    """Fill the lines of distances of 16 rows, and set the bits of the sources in ``ties``.  Return the lane of a source
    that is not at distance 0; -1 if there is none.
    """
    rows, which, sources, numbers = block[:4]
    distances, lines, sums = space
    n = rows.shape[1]
    for first in range(0, n - LANES + 1, LANES):
        take_square(rows, which, first, numbers, distances)
    for v in range(n - n % LANES, n):
        for j in range(LANES):
            distances[numbers[v], j] = rows[which[j], v]
    ties[:] = 0
    for j in range(LANES):
        s = sources[j]
        if distances[s, j] != 0:
            return j
        ties[s] |= np.uint16(1 << j)
        lines[s, 1:, j], sums[s, :, j] = 0, 0
        if n + s < len(lines):  # paths from a terminal begin at row n + s
            distances[n + s, j], lines[n + s, :, j], sums[n + s, :, j] = 0, 0, 0
    return -1


@njit(nogil=True, cache=True, from_start=True)
def _find(limited, graph, ties, space):  # type: ignore[no-untyped-def]
    """Find the last arc of each path, and where several arcs may be the last one, which ``ties`` says then; return -1,
    -1, or the lane and vertex of an entry that is no shortest distance.
    """
    into, tails, weights = graph[0]
    for v in range(len(ties)):
        place, begun = (into[v], into[v + 1], np.int64(v)), np.int64(ties[v])
        wrong, several = find_arcs(place, tails, weights, (space[0], space[1]), limited, begun)
        if wrong:
            return _first(wrong), np.int64(v)
        ties[v] = several
    return np.int64(-1), np.int64(-1)


@njit(nogil=True, cache=True, from_start=True)
def _sort(distances, orders):  # type: ignore[no-untyped-def]
    """Order the vertices by their mean distances, about: those in the same class of distances are in any order."""
    order, near, _, starts = orders  # the last three are work space here
    n, most, shift, starts = len(order), np.int32(0), np.int32(0), starts.reshape(-1)
    for v in range(n):
        near[v] = mean_distance(distances, np.int64(v))
        most = max(most, near[v])
    while most >> shift >= n:
        shift += 1
    starts[: n + 1] = 0
    for v in range(n):
        near[v] >>= shift
        starts[near[v] + 1] += 1
    for k in range(n):
        starts[k + 1] += starts[k]
    for v in range(n):
        k = near[v]
        order[starts[k]] = v
        starts[k] += 1


@njit(nogil=True, cache=True, from_start=True)
def _best(x, lane, graph, space):  # type: ignore[no-untyped-def]
    """Return the tight arc into vertex ``x`` in one lane; -1 if there is none.

    Of several tight arcs with summed tails, it is the one whose tail has the fewest hops, and of ties the first.
    """
    (into, tails, weights), (distances, lines, _) = graph[0], space
    best, found = np.int32(FAR), np.int64(-1)
    for e in range(into[x], into[x + 1]):
        u = tails[e]
        if distances[u, lane] + weights[e] == distances[x, lane] and 0 <= lines[u, 0, lane] < best:
            best, found = lines[u, 0, lane], np.int64(e)
    return found


@njit(nogil=True, cache=True, from_start=True)
def _join(v, lane, graph, space, clusters):  # type: ignore[no-untyped-def]
    """Sum the vertices of a cluster that are as far as ``v``, in one lane.

    Returns:
        -1 if the vertices are summed now; a vertex that has to be summed before them; -2 - x if no path leads to x.
    """
    (into, tails, weights), (wholes, fractions) = graph
    which, begins, members = clusters
    distances, lines, sums = space
    here = distances[v, lane]
    some = members[begins[which[v]] : begins[which[v] + 1]]
    for x in some:
        for e in range(into[x], into[x + 1]):
            u, weight = tails[e], weights[e]
            tight = weight > 0 and distances[x, lane] == here and distances[u, lane] + weight == here
            if tight and lines[u, 0, lane] < 0:
                return np.int64(u)
    # the first len(some) rounds make all hops the fewest; as many further rounds make all sums right
    for _ in range(2 * len(some)):
        for x in some:
            e = _best(x, lane, graph, space)
            if distances[x, lane] == here and lines[x, 0, lane] != 0 and e >= 0:
                u = tails[e]
                lines[x, 0, lane] = lines[u, 0, lane] + 1
                for k in range(wholes.shape[1]):
                    lines[x, SKIPPED + k, lane] = lines[u, SKIPPED + k, lane] + wholes[e, k]
                for k in range(fractions.shape[1]):
                    sums[x, k, lane] = sums[u, k, lane] + fractions[e, k]
    for x in some:
        if distances[x, lane] == here and lines[x, 0, lane] < 0:
            return np.int64(-2 - x)
    return np.int64(-1)


@njit(nogil=True, cache=True, from_start=True)
def _first(bits):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is 1."""
    lane = 0
    while not (bits >> lane) & 1:
        lane += 1
    return lane


@njit(nogil=True, cache=True, from_start=True)
def _visit(orders, graph, ties, space, clusters):  # type: ignore[no-untyped-def]
    """Sum all vertices in all lanes; return -1, -1, or the lane and vertex of an entry that is no shortest distance."""
    order, finished, done, stack = orders
    (into, tails, weights), quantities = graph
    lines, count = space[1], 0
    done[:] = 0
    for i in range(len(order)):
        if i + AHEAD < len(order):
            fetch_lines(lines, np.int64(order[i + AHEAD]))
        if done[order[i]]:
            continue
        stack[0, 0], stack[0, 1] = order[i], 2**LANES - 1
        top = 0
        while top >= 0:
            v, lanes = np.int64(stack[top, 0]), np.int64(stack[top, 1])
            if ties[v]:
                choose_arcs((into[v], into[v + 1], v), tails, weights, (space[0], lines), np.int64(ties[v]))
            waiting, wanted, tail = add_arcs((v, lanes), tails, quantities, space)
            if waiting == 0 and not done[v]:
                done[v], ties[v], finished[count] = 1, 0, v
                count += 1
            if wanted == 0:
                top -= 1
                continue
            if len(clusters[0]) > 0 and clusters[0][v] >= 0:
                lane = _first(wanted)
                tail, wanted = _join(v, lane, graph, space, clusters), np.int64(1) << lane
                if tail < -1:
                    return lane, -2 - tail
            if tail >= 0:
                top += 1
                stack[top, 0], stack[top, 1] = tail, wanted
    return -1, -1


@njit(nogil=True, cache=True, from_start=True)
def _give(space, wanted):  # type: ignore[no-untyped-def]
    """Write the sums of each quantity for 16 sources, from the lines of ``space`` to ``out`` and ``others``."""
    _, lines, sums = space
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
            far = lines[v, 0, j] == -1
            for k in range(out.shape[1]):
                out[row, k, i] = none if far else lines[v, SKIPPED + k, j]
            for k in range(others.shape[1]):
                others[row, k, i] = nothing if far else sums[v, k, j]


@njit(nogil=True, cache=True, from_start=True)
def sum_lanes(block, graph, clusters, space, wanted):  # type: ignore[no-untyped-def]
    """Sum quantities along the shortest paths of 16 rows.  Vertices are those of ``number_vertices``, but for the
    columns of the rows.

    Args:
        block: six entries: rows of distances, int32, shape (rows, n), ``FAR`` where there is no path; the numbers of
            the rows to sum, int64, shape (16,); the sources of these rows, int64, shape (16,); the vertex of each
            column, int64, shape (n,); 1 if distances beyond a cutoff are unreachable, else 0; and 1 if vertices are
            visited by their mean distances, 0 if in the order of the last call.
        graph: arcs and quantities: where the arcs into each vertex begin, int64, shape (n + 1,), tails, int32, and
            weights, int32; the quantities, int32, shape (arcs, k), and float64, shape (arcs, l).  Of tight arcs whose
            tails have equally few hops, the first one counts.  The tail of an arc out of terminal t, of which there are
            T, is n + t.
        clusters: the cluster of each vertex or -1, int32, shape (n,), empty if no arc has length zero; where the
            members of each cluster begin, int64; and the members, int32.
        space: three entries.  Aligned to 64 bytes: distances, int32, shape (n + T, 16), lines, int32, shape (n + T, 1 +
            k, 16), and sums, float64, shape (n + T, l, 16).  The lines from n on belong to terminals; their distances
            are ``FAR`` and their hops -1, before and after the call.
            Four arrays for orders: order, which is any permutation before the call and the order in which vertices were
            finished after it, finished, int32, done, uint8, shape (n,), and stack, int32, shape (n + 1, 2).  Lanes in
            which several arcs are tight, uint16, shape (n,).
        wanted: six entries: the numbers of the rows of the results to write, int64, shape (16,); the vertices of the
            columns, int64; the values for *no path*, int32 and float64; and the arrays that receive the sums, int32,
            shape (results, k, columns), and float64, shape (results, l, columns).

    Returns:
        Lane and vertex of an entry that is not a shortest distance; -1 and -1 if all are.
    """
    lanes, orders, ties = space
    n, sources = block[0].shape[1], block[2]
    lane, v = np.int64(_begin(block, ties, lanes)), np.int64(-1)
    if lane >= 0:
        v = sources[lane]
    else:
        lane, v = _find(block[4], graph, ties, lanes)
    if lane < 0:
        if block[5]:
            _sort(lanes[0], orders)
        lane, v = _visit(orders, graph, ties, lanes, clusters)
    if lane < 0:
        orders[0][:] = orders[1]
        _give(lanes, wanted)
    for s in sources:
        if n + s < len(lanes[0]):
            lanes[0][n + s], lanes[1][n + s, 0] = FAR, -1
    return np.int64(lane), np.int64(v)


@njit(nogil=True, cache=True, from_start=True)
def sum_groups(searched, block, graph, clusters, space, wanted):  # type: ignore[no-untyped-def]
    """Sum along the paths of rows of int32, 16 at a time.

    Args:
        searched: three entries: rows of distances, int32, shape (rows, n), ``FAR`` where there is no path; the rows of
            each group, int64, shape (groups, 16); and their sources, of the same shape.
        block, graph, clusters, space: as in :func:`sum_lanes`; of ``block`` the last three entries.
        wanted: as in :func:`sum_lanes`, without the numbers of the rows.

    Returns:
        Group, lane and vertex of an entry that is not a shortest distance; -1, -1 and -1 if all are.
    """
    rows, groups, sources = searched
    columns, none, nothing, out, others = wanted
    for g in range(len(groups)):
        own = rows, groups[g], sources[g], *block
        lane, v = sum_lanes(own, graph, clusters, space, (groups[g], columns, none, nothing, out, others))
        if lane >= 0:
            return np.int64(g), lane, v
    return np.int64(-1), np.int64(-1), np.int64(-1)


@njit(nogil=True, cache=True, from_start=True)
def sum_groups_of(searched, kind, block, graph, clusters, space, wanted):  # type: ignore[no-untyped-def]
    """Sum along the paths of rows of another type, 16 at a time.

    Args:
        searched, block, graph, clusters, space, wanted: as in :func:`sum_groups`.
        kind: three entries: the number by which distances are multiplied before they are rounded, or None; the value
            for *no path*; and int32, shape (16, n), work space.

    Returns:
        As :func:`sum_groups`; group, -2 and -2 if a distance is too large for int32.
    """
    rows, groups, sources = searched
    unit, unreachable, buffer = kind
    columns, none, nothing, out, others = wanted
    lanes = np.arange(LANES)
    for g in range(len(groups)):
        if not whole_rows(rows, groups[g], unit, unreachable, buffer):
            return np.int64(g), np.int64(-2), np.int64(-2)
        own = buffer, lanes, sources[g], *block
        lane, v = sum_lanes(own, graph, clusters, space, (groups[g], columns, none, nothing, out, others))
        if lane >= 0:
            return np.int64(g), lane, v
    return np.int64(-1), np.int64(-1), np.int64(-1)
