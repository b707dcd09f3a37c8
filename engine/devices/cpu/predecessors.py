"""Finds trees of shortest paths from distances alone, by a breadth-first walk over *tight* arcs.

An arc (u, v) is tight from a source s when d(s, u) + weight = d(s, v).  A walk from the source along tight arcs meets
every reachable vertex.  Each vertex is visited only once, so arcs of length zero cannot close a cycle.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.team import Team, fetch_add
from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def _trees(worker, indptr, heads, weights, distances, sources, before, counter):  # type: ignore[no-untyped-def]
    queue = np.empty(len(indptr) - 1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(sources):
            break
        row = distances[i]
        out = before[i]
        queue[0] = sources[i]
        first, last = 0, 1
        while first < last:
            u = queue[first]
            first += 1
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                if out[v] < 0 and v != sources[i] and row[u] + weights[e] == row[v]:
                    out[v] = u
                    queue[last] = v
                    last += 1


def tight_trees(
    team: Team,
    indptr: npt.NDArray[np.int64],
    heads: npt.NDArray[np.int32],
    weights: npt.NDArray[np.generic],
    distances: npt.NDArray[np.float64],
    sources: npt.NDArray[np.int64],
    none: int,
) -> npt.NDArray[np.int32]:
    """Return the predecessor of each vertex on a shortest path from each source, in O(arcs) per source.

    Args:
        team: the threads.
        indptr: int64, shape (n + 1,): where the arcs out of each vertex begin.
        heads: int32, shape (arcs,): the head of each arc.
        weights: shape (arcs,): the weight of each arc.
        distances: float64, shape (sources, n): row i holds the distances from ``sources[i]``, each of them an exact
            whole number, or the float sum of some path's weights in the order of the path, as searches add them.
        sources: vertex indices, shape (sources,).
        none: the value for *no predecessor*, below 0.

    Returns:
        int32, shape (sources, n).
    """
    before = np.full(distances.shape, none, np.int32)
    team.run(_trees, indptr, heads, weights, distances, sources, before, np.zeros(1, np.int64))
    return before
