"""Computes the flow from one source through each vertex and over each arc, given the distances to all vertices.

Many searches side by side find rows of distances far faster than single searches that also count paths.  So the
counting begins with a finished row: its vertices are sorted by distance, the tight arcs into each of them are listed,
and the paths are counted.  Then the flow is summed along that list, from its end to its beginning (Brandes 2001), so
that memory is read in order.

Vertices at one distance are taken by ascending number, and arcs of weight zero lead to larger numbers, as in
``engine.devices.cpu.betweenness.counting``.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.accumulating import DONE, UNEQUAL, verdict
from engine.graph.kernels import njit

#: Bits of a distance by which one pass of the radix sort orders the vertices.
DIGIT = 11


@njit(nogil=True, cache=True)
def _sort_reached(dist, far, order, other, counts):  # type: ignore[no-untyped-def]
    """Sort the vertices whose distance is not ``far`` by distance, and at equal distances by number (LSD radix sort).

    Args:
        dist: shape (n,), integers.
        far: the distance that means *unreachable*.
        order: int32, shape (n,), work space.
        other: int32, shape (n,), work space.
        counts: int64, shape (2**DIGIT + 1,), work space.

    Returns:
        The sorted vertices, a part of ``order`` or of ``other``.
    """
    size, longest = 0, np.int64(0)
    for v in range(len(dist)):
        order[size] = v
        reached = dist[v] != far
        longest = max(longest, np.int64(dist[v]) if reached else np.int64(0))
        size += reached
    shift = 0
    while longest >> shift > 0:
        counts[:] = 0
        for i in range(size):
            counts[((np.int64(dist[order[i]]) >> shift) & (2**DIGIT - 1)) + 1] += 1
        for k in range(2**DIGIT):
            counts[k + 1] += counts[k]
        for i in range(size):
            v = order[i]
            digit = (np.int64(dist[v]) >> shift) & (2**DIGIT - 1)
            other[counts[digit]] = v
            counts[digit] += 1
        order, other = other, order
        shift += DIGIT
    return order[:size]


@njit(nogil=True, cache=True)
def _trace(into, dist, order, source, paths, before, ends):  # type: ignore[no-untyped-def]
    """List the tight arcs into each reached vertex, and count the shortest paths to it.

    Args:
        into: where the arcs into each vertex begin, their tails, their weights (empty where all are 1), and their
            indices among the arcs out.
        dist: the row of distances.
        order: the reached vertices by distance, the source first.
        source: the source.
        paths: float64, shape (n, 2): receives the number of shortest paths to each reached vertex, and a 0 to which
            :func:`_hand_back` adds.
        before: the tails of tight arcs, int32, shape (arcs + 1,), and their indices among the arcs out, int64, of the
            same shape or empty.
        ends: int64, shape (n,); receives where the tight arcs into each vertex of ``order`` end.

    Returns:
        The largest count of paths; 0 if a vertex has no tight arc into it, which means that the row is wrong.
    """
    indptr, tails, weights, places = into
    listed, moved = before
    size, most = 0, 1.0
    for i in range(len(order)):
        v = order[i]
        length, total = np.int64(dist[v]), 0.0
        for e in range(indptr[v], indptr[v + 1]):
            u = tails[e]
            weight = np.int64(weights[e]) if len(weights) else np.int64(1)
            tight = np.int64(dist[u]) + weight == length
            listed[size] = u
            if len(moved):
                moved[size] = places[e]
            size += tight
            number = paths[u, 0]
            total += number if tight else 0.0
        if v == source:
            total = 1.0
        if total == 0.0:
            return 0.0
        paths[v, 0] = total
        paths[v, 1] = 0.0
        ends[i] = size
        most = max(most, total)
    return most


@njit(nogil=True, cache=True)
def _hand_back(order, given, paths, before, ends, vertices, over):  # type: ignore[no-untyped-def]
    """Follow the paths from one source backwards, and add the flow through vertices and over arcs.

    Args:
        order, paths, before, ends: the reached vertices, the counts of paths, and the tight arcs, from :func:`_trace`.
        given: the flow from the source that ends at each vertex, float64, shape (n,); and the number by which all of
            this flow is multiplied.
        vertices: float64, shape (n,); the flow through each vertex but the source is added to it.
        over: float64, shape (arcs,); the flow over each arc is added to it, unless it is empty.

    Returns:
        The flow that leaves the source.
    """
    listed, moved = before
    wanted, times = given
    for i in range(len(order) - 1, 0, -1):
        v = order[i]
        passed = paths[v, 1]
        vertices[v] += passed
        share = (times * wanted[v] + passed) / paths[v, 0]
        for k in range(ends[i - 1], ends[i]):
            u = listed[k]
            part = paths[u, 0] * share
            paths[u, 1] += part
            if len(over):
                over[moved[k]] += part
    return paths[order[0], 1]


@njit(nogil=True, cache=True)
def pass_rows(into, task, rows, found, kept, space, out):  # type: ignore[no-untyped-def]
    """Send the flow of some sources along their shortest paths, one source after the other, and add it to ``out``.

    The rows of distances of these sources are known.

    Args:
        into: the arcs into each vertex, as in :func:`_trace`.
        task: three arrays over all sources: the vertex of each, int64; one vertex to which the source sends nothing,
            -1 for none; and by which number all flow of the source is multiplied, float64.
        rows: int64: the positions in ``task`` of the sources to be done.
        found: the distances from these sources, integers, shape (rows, n); and the integer for *unreachable*.
        kept: float64, shape (n,): the flow that each source sends to each vertex, the same for all sources.
        space: buffers of this thread: ``order``, ``other`` and ``counts`` of :func:`_sort_reached`; ``paths``, the two
            arrays of ``before``, and ``ends`` of :func:`_trace`; and a copy of ``kept``.
        out: sums of this thread, to which this adds: ``vertices``, ``begins``, ``ends`` and ``over`` of
            :func:`engine.devices.cpu.betweenness.accumulating.pass_hops`.

    Returns:
        ``DONE``; or the code of what is wrong, after which the sums are incomplete.
    """
    block, far = found
    order, other, counts, paths, listed, moved, last, wanted = space
    vertices, begins, ends, over = out
    for k in range(len(rows)):
        source, own, times, dist = task[0][rows[k]], task[1][rows[k]], task[2][rows[k]], block[k]
        if own >= 0:
            wanted[own] = 0.0
        reached = _sort_reached(dist, far, order, other, counts)
        if reached[0] != source:
            return UNEQUAL
        most = _trace(into, dist, reached, source, paths, (listed, moved), last)
        if most == 0.0:
            return UNEQUAL
        passed = _hand_back(reached, (wanted, times), paths, (listed, moved), last, vertices, over)
        arrived = -times * wanted[source]
        for v in reached:
            arrived += times * wanted[v]
        if len(begins):
            begins[source] += arrived
            for v in reached:
                ends[v] += times * wanted[v]
        if own >= 0:
            wanted[own] = kept[own]
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE
