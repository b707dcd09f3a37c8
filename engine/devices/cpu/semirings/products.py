"""Rows of greatest products, for most reliable paths: Dijkstra's algorithm with products in place of sums."""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.heap import _rise_wide, _sink_wide
from engine.graph.kernels import njit

#: The least normal float64: below it products lose digits, and end at 0, which means no path.
LEAST = 2.2250738585072014e-308


@njit(nogil=True, cache=True)
def search_products(arcs, source, found, keys, heap, place):  # type: ignore[no-untyped-def]
    """Search the greatest products from one source; weights are multiplied from the source on, arc by arc, in float64.

    Weights lie in (0, 1], so no arc makes a product greater, rounded or not, and rounding keeps the order of products.
    So the greatest product in the heap is final, as the least length is in a search for distances.

    Args:
        arcs: CSR of the arcs: indptr, heads, and their weights, float64, shape (arcs,), above 0 and at most 1.
        source: the vertex to start from.
        found: float64, shape (n,); receives the products with their sign changed, 0 where there is no path.
        keys: float64, shape (n,), work space.
        heap: int32, shape (n,), work space.
        place: int32, shape (n,), all -1; it is so again afterwards.

    Returns:
        A vertex whose product is too small for float64; -1 if there is none.
    """
    indptr, heads, weights = arcs
    found[:] = 0.0
    found[source] = -1.0
    keys[0] = -1.0
    heap[0] = source
    place[source] = 0
    size = 1
    small = False
    while size > 0:
        product = keys[0]
        u = heap[0]
        place[u] = -1
        size -= 1
        if size > 0:
            _sink_wide(keys, heap, place, size, keys[size], heap[size])
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            new = product * weights[e]
            if new > -LEAST and found[v] == 0.0:
                small = True
            elif new < found[v]:
                found[v] = new
                i = place[v]
                if i < 0:
                    i = size
                    size += 1
                _rise_wide(keys, heap, place, i, new, v)
    if small:
        for u in range(len(found)):
            if found[u] != 0.0:
                for e in range(indptr[u], indptr[u + 1]):
                    if found[heads[e]] == 0.0:
                        return np.int64(heads[e])
    return np.int64(-1)


@njit(nogil=True, cache=True)
def take_products(found, targets, row):  # type: ignore[no-untyped-def]
    """Write the products at ``targets`` into ``row``; ``found``, shape (n,), holds products with their sign changed."""
    for j in range(len(targets)):
        row[j] = 0.0 if found[targets[j]] == 0.0 else -found[targets[j]]
