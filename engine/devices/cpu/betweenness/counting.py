"""Searches from one source that count shortest paths, and list vertices in the order in which these become final.

A vertex is final once all shortest paths to it are counted.  Arcs of weight zero must lead from smaller to larger
vertex numbers: vertices at one distance become final in the order of their numbers, so paths over such arcs are
counted, too.

Counts are float64, because a grid has more shortest paths than int64 holds.  A search from ``source`` ends early once
``left`` of the vertices with ``wanted`` other than 0 are final; if ``left`` is 0, it does not end early.  All work
arrays belong to one thread.  Before a search ``dist`` is all ``far`` and ``place`` all -1.  Afterwards ``place`` is all
-1 again, ``order`` begins with the final vertices, and ``dist`` of all other vertices is ``far``.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.heap import rise, sink
from engine.graph.kernels import njit

#: In place of the number of paths: float64 has lost a summand of the length of one of them.  It stays as it is if
#: further paths are added.
LOST = -np.inf


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def count_hops(arcs, source, wanted, left, state):  # type: ignore[no-untyped-def]
    """Search breadth first, where every arc has the length 1.

    Args:
        arcs: CSR of the arcs: ``indptr`` and ``heads``.
        source: the vertex to start from.
        wanted: float64, shape (n,): other than 0 for the vertices that ``left`` counts.
        left: the search ends once this number of wanted vertices are final; 0 to find all.
        state: ``dist``, int32, shape (n,), all -1, which is ``far`` here; ``sigma``, float64, shape (n,), which
            receives the number of shortest paths to each final vertex; ``order``, int32, shape (n,), which receives the
            final vertices.

    Returns:
        The number of final vertices.
    """
    indptr, heads = arcs
    dist, sigma, order = state
    dist[source] = 0
    sigma[source] = 1.0
    order[0] = source
    first, last = 0, 1
    while first < last:
        u = order[first]
        first += 1
        if left > 0 and wanted[u] != 0.0:
            left -= 1
            if left == 0:
                for i in range(first, last):
                    dist[order[i]] = -1
                break
        new = dist[u] + 1
        paths = sigma[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            if dist[v] < 0:
                dist[v] = new
                sigma[v] = paths
                order[last] = v
                last += 1
            elif dist[v] == new:
                sigma[v] += paths
    return first


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def count_packed(arcs, source, wanted, left, state, heap_space):  # type: ignore[no-untyped-def]
    """Search by Dijkstra's algorithm with keys ``distance << bits | vertex``.

    Args:
        arcs: CSR of the arcs, weights int32 and at least 0, and ``far``, int64.
        source, wanted, left: where the search begins, and when it ends, as in :func:`count_hops`.
        state: ``dist``, int64, ``sigma`` and ``order`` as in :func:`count_hops`.
        heap_space: ``heap``, int64, shape (n,); ``place``, int32, shape (n,), all -1; ``bits`` of a key that hold the
            vertex.

    Returns:
        The number of final vertices; -1 if a shortest path to a vertex was found after this vertex had become final.
    """
    indptr, heads, weights, far = arcs
    dist, sigma, order = state
    heap, place, bits = heap_space
    mask = (1 << bits) - 1
    dist[source] = 0
    sigma[source] = 1.0
    heap[0] = source
    size = 1
    count = 0
    while size > 0:
        top = heap[0]
        u = top & mask
        place[u] = -1
        order[count] = u
        count += 1
        size -= 1
        if size > 0:
            sink(heap, place, size, heap[size], mask)
        if left > 0 and wanted[u] != 0.0:
            left -= 1
            if left == 0:
                break
        length = top >> bits
        paths = sigma[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            new = length + weights[e]
            old = dist[v]
            if new < old:
                dist[v] = new
                sigma[v] = paths
                i = place[v]
                if i < 0:
                    i = size
                    size += 1
                rise(heap, place, i, (new << bits) | v, mask)
            elif new == old:
                if place[v] < 0:
                    return -1
                sigma[v] += paths
    for i in range(size):
        v = heap[i] & mask
        place[v] = -1
        dist[v] = far
    return count


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _less(keys, heap, i, key, vertex):  # type: ignore[no-untyped-def]
    return keys[i] < key or (keys[i] == key and heap[i] < vertex)


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _rise_ordered(keys, heap, place, i, key, vertex):  # type: ignore[no-untyped-def]
    """Move the hole at ``i`` up until (``key``, ``vertex``) fits, and put it there."""
    while i > 0:
        parent = (i - 1) >> 2
        if _less(keys, heap, parent, key, vertex):
            break
        keys[i] = keys[parent]
        heap[i] = heap[parent]
        place[heap[parent]] = i
        i = parent
    keys[i] = key
    heap[i] = vertex
    place[vertex] = i


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _sink_ordered(keys, heap, place, size, key, vertex):  # type: ignore[no-untyped-def]
    """Move the hole at the root down until (``key``, ``vertex``) fits, and put it there."""
    i = 0
    while True:
        child = 4 * i + 1
        if child >= size:
            break
        at = child
        for k in range(child + 1, min(child + 4, size)):
            if _less(keys, heap, k, keys[at], heap[at]):
                at = k
        if not _less(keys, heap, at, key, vertex):
            break
        keys[i] = keys[at]
        heap[i] = heap[at]
        place[heap[at]] = i
        i = at
    keys[i] = key
    heap[i] = vertex
    place[vertex] = i


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def count_wide(arcs, source, wanted, left, state, heap_space):  # type: ignore[no-untyped-def]
    """Search by Dijkstra's algorithm with distances and vertices in two arrays.

    Args:
        arcs: CSR of the arcs, weights, int64 or float64 and at least 0, and ``far`` of that type.
        source, wanted, left: where the search begins, and when it ends, as in :func:`count_hops`.
        state: ``dist`` of the type of the weights, ``sigma`` and ``order`` as in :func:`count_hops`.
        heap_space: ``heap``, int32; ``place`` as in :func:`count_packed`; ``keys`` of the type of the weights.

    Returns:
        The number of final vertices; -1 if a shortest path to a vertex was found after this vertex had become final, or
        if float64 lost the weight of an arc of a shortest path, or the length of the path up to there.  Paths may then
        seem to be equally long that are not, also at vertices far behind this arc.
    """
    indptr, heads, weights, far = arcs
    dist, sigma, order = state
    heap, place, keys = heap_space
    dist[source] = 0
    sigma[source] = 1.0
    keys[0] = 0
    heap[0] = source
    size = 1
    count = 0
    while size > 0:
        length = keys[0]
        u = heap[0]
        if sigma[u] == LOST:
            return -1
        place[u] = -1
        order[count] = u
        count += 1
        size -= 1
        if size > 0:
            _sink_ordered(keys, heap, place, size, keys[size], heap[size])
        if left > 0 and wanted[u] != 0.0:
            left -= 1
            if left == 0:
                break
        paths = sigma[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            new = length + weights[e]
            old = dist[v]
            if new < old:
                dist[v] = new
                sigma[v] = paths
                i = place[v]
                if i < 0:
                    i = size
                    size += 1
                _rise_ordered(keys, heap, place, i, new, v)
            elif new == old:
                if place[v] < 0:
                    return -1
                sigma[v] += paths
            else:
                continue
            if (new == length or new == weights[e]) and length > 0 and weights[e] > 0:
                sigma[v] = LOST
    for i in range(size):
        v = heap[i]
        place[v] = -1
        dist[v] = far
    return count


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def forget(dist, far, order):  # type: ignore[no-untyped-def]
    """Set ``dist`` of the vertices in ``order`` back to ``far``."""
    if 4 * len(order) > len(dist):
        dist[:] = far
    else:
        for v in order:
            dist[v] = far
