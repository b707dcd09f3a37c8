"""The kernels of ``engine.graph.hubs`` and ``engine.graph.ordering``: walks from a vertex, components, chains.

Here a *label* of a vertex is the length of a walk, a whole number; -1 means that the vertex has no label yet.  A search
ends at the first label above its limit, which is at most 2^53, so that no sum overflows int64.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def count_levels(indptr, heads, start):  # type: ignore[no-untyped-def]
    """Count the arcs from a vertex to the vertices farthest from it; the search ends once it has found all vertices.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.
        start: the vertex.

    Returns:
        The number of arcs of a shortest path (by arcs) to the farthest vertices, and one of these vertices.
    """
    n = len(indptr) - 1
    seen = np.zeros(n, np.bool_)
    seen[start] = True
    queue = np.empty(n, np.int32)
    queue[0] = start
    count, looked, end, levels = 1, 0, 1, 0
    while looked < count < n:
        if looked == end:
            end, levels = count, levels + 1
        u = queue[looked]
        looked += 1
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            if not seen[v]:
                seen[v] = True
                queue[count] = v
                count += 1
    return levels + (count > end), queue[count - 1]


@njit(nogil=True, cache=True)
def grow_tree(indptr, heads, weights, hub, limit, labels):  # type: ignore[no-untyped-def]
    """Label vertices along a breadth-first tree from ``hub``; the search ends as soon as all vertices are in the tree.

    Args:
        indptr: int64, shape (n + 1,): the index at which the arcs of each vertex begin (CSR).
        heads: int32, shape (arcs,): the head of each arc.
        weights: whole numbers, none negative, shape (arcs,).
        hub: the first vertex.
        limit: the largest label.
        labels: int64, shape (n,), receives the labels.

    Returns:
        Whether all vertices have a label.
    """
    n = len(labels)
    labels[:] = -1
    labels[hub] = 0
    queue = np.empty(n, np.int32)
    queue[0] = hub
    count, looked = 1, 0
    while looked < count < n:
        u = queue[looked]
        looked += 1
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            if labels[v] < 0:
                labels[v] = labels[u] + np.int64(weights[e])
                if labels[v] > limit:
                    return False
                queue[count] = v
                count += 1
    return count == n


@njit(nogil=True, cache=True)
def grow_back(indptr, heads, weights, hub, limit, labels, passes):  # type: ignore[no-untyped-def]
    """Label vertices with lengths of walks to ``hub``; each walk takes the first arc that leads to a labelled vertex.

    No reversed arcs are needed, and in a dense graph only a few of the arcs are read.

    Args:
        indptr, heads, weights: CSR of the arcs, as in :func:`grow_tree`.
        hub: the last vertex of the walks.
        limit: the largest label.
        labels: int64, shape (n,), receives the labels.
        passes: the largest number of passes over the vertices.

    Returns:
        Whether all vertices have a label.
    """
    labels[:] = -1
    labels[hub] = 0
    left = len(labels) - 1
    for _ in range(passes):
        for u in range(len(labels)):
            if labels[u] >= 0:
                continue
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                if labels[v] >= 0:
                    labels[u] = labels[v] + np.int64(weights[e])
                    if labels[u] > limit:
                        return False
                    left -= 1
                    break
        if left == 0:
            return True
    return False


@njit(nogil=True, cache=True, from_start=True)
def strong_components(indptr, heads):  # type: ignore[no-untyped-def]
    """Find the strongly connected components (Tarjan 1972); an arc never leads to a component of a higher number.

    Args:
        indptr, heads: CSR of the arcs, as in :func:`grow_tree`.

    Returns:
        The component of each vertex, int32, shape (n,); the vertices by ascending component, int32, shape (n,).
    """
    n = len(indptr) - 1
    component = np.full(n, -1, np.int32)
    found = np.zeros(n, np.int32)
    low = np.zeros(n, np.int32)
    following = indptr[:-1].copy()
    stack = np.empty(n, np.int32)
    path = np.empty(n, np.int32)
    order = np.empty(n, np.int32)
    time = top = done = count = 0
    for root in range(n):
        if found[root]:
            continue
        depth = 0
        path[0] = root
        while depth >= 0:
            u = path[depth]
            if not found[u]:
                time += 1
                found[u] = low[u] = time
                stack[top] = u
                top += 1
            if following[u] < indptr[u + 1]:
                v = heads[following[u]]
                following[u] += 1
                if not found[v]:
                    depth += 1
                    path[depth] = v
                elif component[v] < 0:
                    low[u] = min(low[u], found[v])
                continue
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[u])
            if low[u] == found[u]:
                while component[u] < 0:
                    top -= 1
                    component[stack[top]] = count
                    order[done] = stack[top]
                    done += 1
                count += 1
    return component, order


@njit(nogil=True, cache=True, from_start=True)
def both_ways(indptr, heads):  # type: ignore[no-untyped-def]
    """Add the reverse of each arc, in O(n + m) time; if both arcs of a pair exist, each is twice in the result.

    Args:
        indptr, heads: CSR of the arcs, as in :func:`grow_tree`.

    Returns:
        ``indptr`` and ``heads`` of the arcs and their reverses.
    """
    n = len(indptr) - 1
    starts = np.zeros(n + 1, np.int64)
    for u in range(n):
        starts[u + 1] += indptr[u + 1] - indptr[u]
        for e in range(indptr[u], indptr[u + 1]):
            starts[heads[e] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    at = starts[:-1].copy()
    ends = np.empty(2 * len(heads), np.int32)
    for u in range(n):
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            ends[at[u]], ends[at[v]] = v, u
            at[u] += 1
            at[v] += 1
    return starts, ends


@njit(nogil=True, cache=True)
def walk_from_hubs(indptr, heads, weights, component, hubs, limit, labels):  # type: ignore[no-untyped-def]
    """Label vertices with the length of a walk of fewest arcs from one of the hubs, along arcs inside components.

    Args:
        indptr, heads, weights: CSR of the arcs, as in :func:`grow_tree`.
        component: shape (n,); arcs between different components are ignored.
        hubs: vertices.
        limit: the largest label.
        labels: int64, shape (n,), receives the labels; -1 for vertices that no hub reaches.

    Returns:
        Whether all labels are within the limit.
    """
    labels[:] = -1
    queue = np.empty(len(labels), np.int32)
    count = 0
    for hub in hubs:
        labels[hub] = 0
        queue[count] = hub
        count += 1
    looked = 0
    while looked < count:
        u = queue[looked]
        looked += 1
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            if labels[v] < 0 and component[v] == component[u]:
                labels[v] = labels[u] + np.int64(weights[e])
                if labels[v] > limit:
                    return False
                queue[count] = v
                count += 1
    return True


@njit(nogil=True, cache=True)
def search_from_hubs(indptr, heads, weights, component, hubs, limit, labels):  # type: ignore[no-untyped-def]
    """Label vertices with the distance from the nearest hub, along arcs inside components (Dijkstra 1959).

    Args:
        indptr, heads, weights, component, hubs, limit, labels: as in :func:`walk_from_hubs`.

    Returns:
        Whether all labels are within the limit.
    """
    labels[:] = -1
    keys = np.empty(len(hubs) + len(heads), np.int64)
    heap = np.empty(len(keys), np.int32)
    size = 0
    for hub in hubs:
        labels[hub] = keys[size] = 0
        heap[size] = hub
        size += 1
    while size > 0:
        key, u = keys[0], heap[0]
        size -= 1
        _sift_down(keys, heap, size)
        if key > labels[u]:
            continue
        if key > limit:
            return False
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            label = key + np.int64(weights[e])
            if component[v] == component[u] and (labels[v] < 0 or label < labels[v]):
                labels[v] = label
                _sift_up(keys, heap, size, label, v)
                size += 1
    return True


@njit(nogil=True, cache=True)
def _sift_up(keys, heap, at, key, vertex):  # type: ignore[no-untyped-def]
    """Put an entry into a heap of ``at`` entries."""
    while at > 0 and keys[(at - 1) // 2] > key:
        keys[at], heap[at] = keys[(at - 1) // 2], heap[(at - 1) // 2]
        at = (at - 1) // 2
    keys[at], heap[at] = key, vertex


@njit(nogil=True, cache=True)
def _sift_down(keys, heap, size):  # type: ignore[no-untyped-def]
    """Remove the first entry of a heap, so that ``size`` entries remain."""
    key, vertex = keys[size], heap[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], heap[at] = keys[child], heap[child]
        at = child
    keys[at], heap[at] = key, vertex


@njit(nogil=True, cache=True)
def longest_chain(indptr, heads, weights, component, order, through, limit):  # type: ignore[no-untyped-def]
    """Return the length of the longest chain of components.

    Args:
        indptr, heads, weights: CSR of the arcs, as in :func:`grow_tree`.
        component: shape (n,): the component of each vertex, from :func:`strong_components`.
        order: shape (n,): the vertices by ascending component, from :func:`strong_components`.
        through: int64, shape (components,): the length that each component adds; negative for a component that no chain
            may pass through.
        limit: the largest length.

    Returns:
        The length: the sum of the lengths that the components of a chain add, and of the longest arc from each
        component to the next; -1 if it is above the limit.
    """
    after = np.zeros(len(through), np.int64)
    longest = 0
    for u in order:
        own = component[u]
        if through[own] < 0:
            continue
        for e in range(indptr[u], indptr[u + 1]):
            other = component[heads[e]]
            if other != own and through[other] >= 0:
                after[own] = max(after[own], np.int64(weights[e]) + through[other] + after[other])
        longest = max(longest, through[own] + after[own])
        if longest > limit:
            return -1
    return longest
