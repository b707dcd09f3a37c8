"""Orders vertices in clusters of equal size, each grown breadth first, so that its vertices lie close together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.graph.kernels import njit

Ints = npt.NDArray[np.int32]


def cluster_places(indptr: npt.NDArray[np.int64], heads: Ints, seeds: Ints, size: int) -> Ints:
    """Number the vertices cluster by cluster: each cluster of ``size`` vertices has consecutive numbers.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.
        seeds: every vertex once, shape (n,); each new cluster begins at the first of these that is in no cluster yet.
        size: number of vertices of a cluster.

    Returns:
        The new number of each vertex, shape (n,).
    """
    place = np.full(len(seeds), -1, np.int32)
    _grow(indptr, heads, seeds, size, place)
    return place


@njit(nogil=True, cache=True)
def _grow(indptr, heads, seeds, size, place):  # type: ignore[no-untyped-def]
    # ``order`` holds the vertices in their new order; from index ``looked`` on it is the queue of the current cluster
    order = np.empty(len(seeds), np.int32)
    placed, looked, full = 0, 0, size
    for seed in seeds:
        if place[seed] >= 0:
            continue
        place[seed] = placed
        order[placed] = seed
        placed += 1
        while True:
            if placed >= full:  # the cluster is full, so its queue is dropped
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
