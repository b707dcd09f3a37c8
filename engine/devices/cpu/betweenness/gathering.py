"""Orders sources so that neighbours in the order are near each other in the graph, and visit much the same vertices."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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
