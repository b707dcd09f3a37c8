"""A vertex order in clusters: runs of so many vertices, each grown breadth first, so that they lie close together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int32]


def cluster_places(indptr: npt.NDArray[np.int64], heads: Ints, seeds: Ints, size: int) -> Ints:
    """The new number of each vertex: clusters of ``size`` vertices one after the other.

    Args:
        indptr, heads: the arcs out of each vertex.
        seeds: every vertex once; clusters begin at the first that is in none yet.
        size: vertices of a cluster.
    """
    place = np.full(len(seeds), -1, np.int32)
    _grow(indptr, heads, seeds, size, place)
    return place


@njit(nogil=True, cache=True)
def _grow(indptr, heads, seeds, size, place):  # type: ignore[no-untyped-def]
    order = np.empty(len(seeds), np.int32)  # vertices by place; those of a cluster not yet looked at are its queue
    placed, looked, full = 0, 0, size
    for seed in seeds:
        if place[seed] >= 0:
            continue
        place[seed] = placed
        order[placed] = seed
        placed += 1
        while True:
            if placed >= full:  # the next cluster begins afresh
                looked = placed
                full = placed + size
                break
            if looked == placed:
                break
            u = order[looked]
            looked += 1
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                if place[v] < 0 and placed < full:
                    place[v] = placed
                    order[placed] = v
                    placed += 1
