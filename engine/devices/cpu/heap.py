"""Dijkstra's search (Dijkstra 1959) with a 4-ary heap and decrease-key: the search that is never bad.

Two forms.  *Packed*: distance and vertex share one int64 key, so that a step of the heap moves one word; for integers
whose sums leave room for the vertex number.  *Wide*: distance and vertex apart; for float64 and for large integers.

All work arrays belong to one thread and come in clean: ``dist`` all ``far``, ``place`` (where in the heap a vertex is)
all -1.  Afterwards ``place`` is clean again and ``dist`` is the answer; the vertices whose ``dist`` was set stand first
in ``seen`` (int32, shape (n,)), and their number is what a search returns.  Nothing is found at ``far`` or beyond, so a
search ends where a cutoff lies.  It also ends once ``left`` vertices marked in ``wanted`` (uint8, shape (n,)) have
their distances, unless ``left`` is 0; other distances may then be too large.
"""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
def _rise(heap, place, i, key, mask):  # type: ignore[no-untyped-def]
    """Put ``key`` into the hole ``i``, or above."""
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


@njit(nogil=True, cache=True)
def _sink(heap, place, size, key, mask):  # type: ignore[no-untyped-def]
    """Put ``key`` into the hole at the root, or below."""
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


@njit(nogil=True, cache=True)
def search_packed(indptr, heads, weights, source, dist, seen, wanted, left, heap, place, bits):  # type: ignore[no-untyped-def]
    """Distances from ``source`` into ``dist`` (int64) over ``weights`` (int32, >= 0); keys: distance << bits | vertex.

    ``heap`` is int64, shape (n,); ``place`` int32, shape (n,).
    """
    mask = (1 << bits) - 1
    dist[source] = 0
    heap[0] = source
    seen[0] = source
    size = count = 1
    while size > 0:
        top = heap[0]
        u = top & mask
        if left > 0 and wanted[u]:
            left -= 1
            if left == 0:
                for i in range(size):
                    place[heap[i] & mask] = -1
                break
        place[u] = -1
        size -= 1
        if size > 0:
            _sink(heap, place, size, heap[size], mask)
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
                _rise(heap, place, i, (new << bits) | v, mask)
    return count


@njit(nogil=True, cache=True)
def _rise_wide(keys, heap, place, i, key, vertex):  # type: ignore[no-untyped-def]
    """Put (``key``, ``vertex``) into the hole ``i``, or above."""
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


@njit(nogil=True, cache=True)
def _sink_wide(keys, heap, place, size, key, vertex):  # type: ignore[no-untyped-def]
    """Put (``key``, ``vertex``) into the hole at the root, or below."""
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


@njit(nogil=True, cache=True)
def search_wide(indptr, heads, weights, source, dist, seen, wanted, left, keys, heap, place):  # type: ignore[no-untyped-def]
    """Distances from ``source`` into ``dist``; ``weights`` (>= 0), ``dist`` and ``keys`` are all int64 or all float64.

    ``keys`` and ``heap`` (int32) have shape (n,): distance and vertex of the heap's entries.
    """
    dist[source] = 0
    keys[0] = 0
    heap[0] = source
    seen[0] = source
    size = count = 1
    while size > 0:
        length = keys[0]
        u = heap[0]
        if left > 0 and wanted[u]:
            left -= 1
            if left == 0:
                for i in range(size):
                    place[heap[i]] = -1
                break
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


@njit(nogil=True, cache=True)
def search_hops(indptr, heads, source, dist, queue, wanted, left):  # type: ignore[no-untyped-def]
    """Breadth-first search: hops from ``source`` into ``dist`` (int64); ``queue`` is what ``seen`` is elsewhere."""
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
