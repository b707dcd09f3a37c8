"""Computes the flow from eight sources side by side through each vertex and over each arc, given the hops from these
sources to all vertices.

The counts of paths from eight sources to a vertex fill one vector.  All vertices that are L hops from some of the
sources are taken together: their counts are the sums of the vectors of their neighbours, in which only lanes at L - 1
hops are not 0.  So no arc needs a comparison, and every step is an addition of vectors.  The flow is then summed in the
same way, backwards from the farthest level to the nearest (Brandes 2001).

A vertex is taken once for each level between its least and its largest number of hops.  Where that is often, because
the sources are far from each other, their rows are traced one by one (``engine.devices.cpu.betweenness.tracing``).
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.accumulating import DONE, verdict
from engine.devices.cpu.betweenness.tracing import pass_rows
from engine.devices.cpu.betweenness.vectors import LANES, count_vertex, hand_back_vertex
from engine.graph.kernels import njit

#: Rows are traced one by one if a vertex would be taken more often than this on average.
TAKEN = 7


@njit(nogil=True, cache=True)
def _put_side_by_side(block, first, far, hops, least, most):  # type: ignore[no-untyped-def]
    """Copy eight rows of hops into columns, and find the least and the most hops to each vertex.

    Args:
        block: shape (rows, n), integers.
        first: the first row.
        far: the integer that stands for *unreachable* in ``block``.
        hops: int32, shape (n, LANES); receives the hops, -1 where there is no path.
        least, most: int32, shape (n,); ``most`` receives -1 for a vertex that is not reached.

    Returns:
        The number of times that vertices have to be taken, and the largest number of hops.
    """
    total, farthest = 0, np.int32(0)
    for v in range(len(hops)):
        low, high = np.int32(2**31 - 1), np.int32(-1)
        for k in range(LANES):
            x = np.int32(block[first + k, v])
            x = np.int32(-1) if x == far else x
            hops[v, k] = x
            high = max(high, x)
            low = min(low, np.int32(2**31 - 1) if x < 0 else x)
        least[v], most[v] = low, high
        if high >= 0:
            total += high - low + 1
            farthest = max(farthest, high)
    return total, farthest


@njit(nogil=True, cache=True)
def _list_levels(least, most, ends, listed):  # type: ignore[no-untyped-def]
    """List the vertices that are taken at each level: those of level L end at ``ends[L + 1]`` of ``listed``."""
    ends[:] = 0
    for v in range(len(least)):
        for level in range(least[v], most[v] + 1):
            ends[level + 2] += 1
    for level in range(2, len(ends)):
        ends[level] += ends[level - 1]
    for v in range(len(least)):
        for level in range(least[v], most[v] + 1):
            listed[ends[level + 1]] = v
            ends[level + 1] += 1


@njit(nogil=True, cache=True)
def _clear(vectors, some):  # type: ignore[no-untyped-def]
    for v in some:
        for k in range(LANES):
            vectors[v, k] = 0.0


@njit(nogil=True, cache=True)
def _count(into, hops, levels, paths, here, there):  # type: ignore[no-untyped-def]
    """Count the shortest paths from all eight sources.

    Args:
        into: where the arcs into each vertex begin, and their tails.
        hops: int32, shape (n, LANES).
        levels: what :func:`_list_levels` has found: ``ends`` and ``listed``.
        paths: float64, shape (n, LANES); receives the counts; entries without a path are undefined.
        here, there: two buffers, float64, shape (n, LANES); they are all 0 before and after the call.

    Returns:
        The largest count.
    """
    indptr, tails = into
    ends, listed = levels
    most = 1.0
    for v in listed[: ends[1]]:
        for k in range(LANES):
            if hops[v, k] == 0:
                paths[v, k] = here[v, k] = 1.0
    for level in range(1, len(ends) - 1):
        for v in listed[ends[level] : ends[level + 1]]:
            place = (np.int64(v), np.int64(level), indptr[v], indptr[v + 1])
            found = count_vertex(place, tails, (here, there, paths), hops)
            most = max(most, found)
        _clear(here, listed[ends[level - 1] : ends[level]])
        here, there = there, here
    _clear(here, listed[ends[len(ends) - 2] : ends[len(ends) - 1]])
    return most


@njit(nogil=True, cache=True)
def _hand_back(arcs, hops, levels, paths, given, spaces, out):  # type: ignore[no-untyped-def]
    """Follow the paths from eight sources backwards, and add the flow through vertices and over arcs.

    Args:
        arcs: where the arcs out of each vertex begin, and their heads.
        hops, levels, paths: the hops, the vertices at each level, and the counts of paths, as in :func:`_count`.
        given: float64, shape (n,): the flow from each source that ends at each vertex; and, shape (LANES,), by which
            number all flow of each source is multiplied.
        spaces: two buffers, float64, shape (n, LANES); they are all 0 before and after the call.
        out: three arrays, float64.  The flow through each vertex is added to the first one, shape (n,); the flow over
            each arc is added to the second one, shape (arcs,), unless it is empty; the third one, shape (LANES,),
            receives the flow that leaves each source.
    """
    indptr, heads = arcs
    ends, listed = levels
    here, there = spaces
    wanted, times = given
    vertices, over, passed = out
    for level in range(len(ends) - 2, -1, -1):
        for v in listed[ends[level] : ends[level + 1]]:
            place = (np.int64(v), np.int64(level), indptr[v], indptr[v + 1])
            if len(over):
                total = hand_back_vertex(place, heads, (here, there, paths), hops, (wanted[v], times), over)
            else:
                total = hand_back_vertex(place, heads, (here, there, paths), hops, (wanted[v], times), None)
            if level > 0:
                vertices[v] += total
        if level == 0:
            for v in listed[: ends[1]]:
                for k in range(LANES):
                    if (
                        hops[v, k] == 0
                    ):  # the source: ``there`` is the flow that ends at it plus the flow that leaves it
                        passed[k] = there[v, k] - times[k] * wanted[v]
        _clear(here, listed[ends[level + 1] : ends[min(level + 2, len(ends) - 1)]])
        here, there = there, here
    _clear(here, listed[: ends[1]])


@njit(nogil=True, cache=True)
def _check(hops, most, passed, sources, given, begins, ends):  # type: ignore[no-untyped-def]
    """Compare the flow that left each source with the flow that arrived, and return the verdict.

    Add the flow that arrived to ``begins`` and ``ends`` unless these are empty.
    """
    wanted, times = given
    arrived = np.zeros(LANES)
    for v in range(len(hops)):
        here = 0.0
        for k in range(LANES):
            part = times[k] if hops[v, k] > 0 else 0.0
            arrived[k] += part * wanted[v]
            here += part
        if len(ends):
            ends[v] += here * wanted[v]
    for k in range(LANES):
        if len(begins):
            begins[sources[k]] += arrived[k]
        said = verdict(passed[k], arrived[k], most)
        if said != DONE:
            return said
    return DONE


@njit(nogil=True, cache=True)
def pass_levels(both, task, rows, found, kept, space, out):  # type: ignore[no-untyped-def]
    """Add the flow from some sources, whose rows of hops are known, eight sources at a time where that is faster.

    Args:
        both: the arcs in both directions.  Arcs in: ``into`` of
            :func:`engine.devices.cpu.betweenness.tracing.pass_rows`, where all arcs count 1.  Arcs out: where the arcs
            out of each vertex begin, and their heads.
        task, rows, found, kept, out: sources, distances, flows and sums, as in
            :func:`engine.devices.cpu.betweenness.tracing.pass_rows`.
        space: buffers of this thread: those of ``pass_rows``; ``hops``, int32, shape (n, LANES); ``paths`` and two
            buffers that are all 0, float64, of the same shape; ``least`` and ``most``, int32, shape (n,); and
            ``listed``, int32, shape (TAKEN * n,).

    Returns:
        ``DONE``; or the code of what is wrong, after which the sums are incomplete.
    """
    into, arcs = both
    block, far = found
    alone, hops, paths, here, there, least, most, listed = space
    vertices, begins, ends, over = out
    passed, times = np.zeros(LANES), np.zeros(LANES)
    at = 0
    while at < len(rows):
        count = min(LANES, len(rows) - at)
        taken, farthest = TAKEN * len(hops) + 1, np.int32(0)
        if count == LANES:
            taken, farthest = _put_side_by_side(block, at, far, hops, least, most)
        if taken > TAKEN * len(hops):
            said = pass_rows(into, task, rows[at : at + count], (block[at : at + count], far), kept, alone, out)
        else:
            level_ends = np.empty(farthest + 3, np.int64)
            _list_levels(least, most, level_ends, listed)
            levels = (level_ends[:-1], listed)
            most_paths = _count((into[0], into[1]), hops, levels, paths, here, there)
            times[:] = task[2][rows[at : at + count]]
            _hand_back(arcs, hops, levels, paths, (kept, times), (here, there), (vertices, over, passed))
            said = _check(hops, most_paths, passed, task[0][rows[at : at + count]], (kept, times), begins, ends)
        if said != DONE:
            return said
        at += count
    return DONE
