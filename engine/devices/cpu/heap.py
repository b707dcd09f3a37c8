"""Dijkstra's search (Dijkstra 1959) with a 4-ary heap and decrease-key; unlike label correcting it has a good worst
case.

There are two forms.  In the *packed* one, distance and vertex share one int64 key, so that a step of the heap moves one
word; it is for integers whose sums leave enough bits of the key for the vertex number.  In the *wide* one, distance and
vertex are stored apart; it is for float64 and for large integers.

All work arrays belong to one thread.  Before a search ``dist`` is all ``far`` and ``place`` (the index of each vertex
in the heap) is all -1; after it ``place`` is all -1 again and ``dist`` holds the distances.  A search returns the
number of vertices whose ``dist`` it has set; they are the first entries of ``seen``.  It finds no distance of ``far``
or more, so ``far`` serves as a cutoff.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def rise(heap, place, i, key, mask):  # type: ignore[no-untyped-def]
    """Move the hole at ``i`` up until ``key`` fits, and put ``key`` there."""
    while i > 0:
        parent = (i - 1) >> 2
        other = heap[parent]
        if other <= key:
            break
        heap[i] = other
        place[other & mask] = i
        i = parent
    heap[i] = key
    place[key & mask] = i


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def sink(heap, place, size, key, mask):  # type: ignore[no-untyped-def]
    """Move the hole at the root down until ``key`` fits, and put ``key`` there."""
    i = 0
    while True:
        child = 4 * i + 1
        if child + 3 < size:
            at = child
            least = heap[child]
            other = child + 2
            if heap[child + 1] < least:
                at = child + 1
                least = heap[at]
            if heap[child + 3] < heap[other]:
                other = child + 3
            if heap[other] < least:
                at = other
                least = heap[at]
        elif child < size:
            at = child
            for k in range(child + 1, size):
                if heap[k] < heap[at]:
                    at = k
            least = heap[at]
        else:
            break
        if least >= key:
            break
        heap[i] = least
        place[least & mask] = i
        i = at
    heap[i] = key
    place[key & mask] = i


@njit(nogil=True, cache=True, from_start=True)
def search_packed(indptr, heads, weights, source, dist, seen, wanted, left, heap, place, bits):  # type: ignore[no-untyped-def]
    """Search from ``source`` with keys ``distance << bits | vertex``.

    Args:
        indptr, heads: CSR of the arcs.
        weights: int32, shape (arcs,), not negative.
        source: the vertex to start from.
        dist: int64, shape (n,), all ``far``; receives the distances.
        seen: int32, shape (n,); receives the vertices whose ``dist`` was set.
        wanted: uint8, shape (n,); marks the vertices whose distances are wanted.
        left: the search ends once this number of the marked vertices have their distances.  All vertices up to the
            distance of the last of them then have their distances, too; other distances may be too large.  0 to find
            all distances.
        heap: int64, shape (n,), work space.
        place: int32, shape (n,), all -1.
        bits: bits of a key that hold the vertex.

    Returns:
        The number of vertices whose ``dist`` was set.
    """
    mask = (1 << bits) - 1
    last = np.int64(2**63 - 1)
    dist[source] = 0
    heap[0] = source
    seen[0] = source
    size = count = 1
    while size > 0:
        top = heap[0]
        u = top & mask
        if top > last:
            for i in range(size):
                place[heap[i] & mask] = -1
            break
        if left > 0 and wanted[u]:
            left -= 1
            if left == 0:
                last = top | mask
        place[u] = -1
        size -= 1
        if size > 0:
            sink(heap, place, size, heap[size], mask)
        length = top >> bits
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            new = length + weights[e]
            if new < dist[v]:
                dist[v] = new
                i = place[v]
                if i < 0:
                    i = size
                    size += 1
                    seen[count] = v
                    count += 1
                rise(heap, place, i, (new << bits) | v, mask)
    return count


@njit(nogil=True, cache=True, from_start=True)
def _rise_wide(keys, heap, place, i, key, vertex):  # type: ignore[no-untyped-def]
    """Move the hole at ``i`` up until ``key`` fits, and put (``key``, ``vertex``) there."""
    while i > 0:
        parent = (i - 1) >> 2
        if keys[parent] <= key:
            break
        keys[i] = keys[parent]
        heap[i] = heap[parent]
        place[heap[parent]] = i
        i = parent
    keys[i] = key
    heap[i] = vertex
    place[vertex] = i


@njit(nogil=True, cache=True, from_start=True)
def _sink_wide(keys, heap, place, size, key, vertex):  # type: ignore[no-untyped-def]
    """Move the hole at the root down until ``key`` fits, and put (``key``, ``vertex``) there."""
    i = 0
    while True:
        child = 4 * i + 1
        if child >= size:
            break
        at = child
        for k in range(child + 1, min(child + 4, size)):
            if keys[k] < keys[at]:
                at = k
        if keys[at] >= key:
            break
        keys[i] = keys[at]
        heap[i] = heap[at]
        place[heap[at]] = i
        i = at
    keys[i] = key
    heap[i] = vertex
    place[vertex] = i


@njit(nogil=True, cache=True, from_start=True)
def search_wide(indptr, heads, weights, source, dist, seen, wanted, left, keys, heap, place):  # type: ignore[no-untyped-def]
    """Search from ``source`` with distances and vertices in two arrays.

    Args:
        indptr, heads: CSR of the arcs.
        weights: int64 or float64, shape (arcs,), not negative.
        source, seen, wanted, left, place: start, end and arrays of the search, as in :func:`search_packed`.
        dist: of the type of ``weights``, shape (n,), all ``far``; receives the distances.
        keys: of the type of ``weights``, shape (n,), work space: distances of the heap's entries.
        heap: int32, shape (n,), work space: vertices of the heap's entries.

    Returns:
        The number of vertices whose ``dist`` was set.
    """
    dist[source] = 0
    keys[0] = 0
    heap[0] = source
    seen[0] = source
    size = count = 1
    ending, last = False, keys[0]
    while size > 0:
        length = keys[0]
        u = heap[0]
        if ending and length > last:
            for i in range(size):
                place[heap[i]] = -1
            break
        if left > 0 and wanted[u]:
            left -= 1
            if left == 0:
                ending, last = True, length
        place[u] = -1
        size -= 1
        if size > 0:
            _sink_wide(keys, heap, place, size, keys[size], heap[size])
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            new = length + weights[e]
            if new < dist[v]:
                dist[v] = new
                i = place[v]
                if i < 0:
                    i = size
                    size += 1
                    seen[count] = v
                    count += 1
                _rise_wide(keys, heap, place, i, new, v)
    return count


@njit(nogil=True, cache=True, from_start=True)
def search_hops(indptr, heads, source, dist, queue, wanted, left):  # type: ignore[no-untyped-def]
    """Search breadth first from ``source``, where every arc has the length 1.

    Args:
        indptr, heads: CSR of the arcs.
        source, wanted, left: where the search begins, and when it ends, as in :func:`search_packed`.
        dist: int64, shape (n,), all ``far``; receives the hops.
        queue: int32, shape (n,); receives the vertices whose ``dist`` was set.

    Returns:
        The number of vertices whose ``dist`` was set.
    """
    far = dist[source]
    dist[source] = 0
    queue[0] = source
    first, last = 0, 1
    while first < last:
        u = queue[first]
        first += 1
        new = dist[u] + 1
        if new >= far:
            break
        if left > 0 and wanted[u]:
            left -= 1
            if left == 0:
                break
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            if dist[v] == far:
                dist[v] = new
                queue[last] = v
                last += 1
    return last
