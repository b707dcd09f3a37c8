"""Computes the flow from one source through each vertex and over each arc, given counts of shortest paths (Brandes
2001).

Vertices are taken from the farthest to the nearest.  There are ``sigma[u]`` shortest paths to vertex u, and
``coeff[v]`` is the flow that ends at v or passes through it, divided by ``sigma[v]``.  An arc from u to v carries the
flow ``sigma[u] * coeff[v]`` if it is *tight*, which means that it lies on a shortest path, and otherwise none.  Each
vertex sums over its outgoing arcs, and writes only its own entries.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.counting import count_hops, count_packed, count_wide, forget
from engine.graph.kernels import njit

#: The reasons for which a pass over sources ends: all are done (DONE), there are too many paths for float64
#: (MANY_PATHS), float64 cannot tell lengths apart (ABSORBED), or the flows that left and arrived differ (UNEQUAL).
DONE, MANY_PATHS, ABSORBED, UNEQUAL = 0, 1, 2, 3
#: The largest count of paths that is used; the inverse of a larger count would lose digits.
MOST_PATHS = 1e300
#: The largest relative difference between the flow that leaves a source and the flow that arrives; rounding alone
#: causes a far smaller difference.
TOLERANCE = 1e-6


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _collect_hops(arcs, order, state, wanted, times, vertices, over):  # type: ignore[no-untyped-def]
    """Add the flow that passes through vertices and over arcs, where every arc has the length 1.

    The source sends a flow to each vertex, split evenly over the shortest paths: the second half of Brandes' algorithm.

    Args:
        arcs: ``indptr`` and ``heads`` of the arcs (CSR).
        order: the final vertices, the source first.
        state: ``dist``, ``sigma`` and ``coeff``, each of shape (n,).
        wanted: float64, shape (n,): the flow that ends at each vertex.
        times: the number by which all of this flow is multiplied.
        vertices: float64, shape (n,); the flow through each vertex but the source is added.
        over: float64, shape (arcs,); the flow over each arc is added; empty if that is not wanted.

    Returns:
        The flow that leaves the source, and the largest count of paths.
    """
    indptr, heads = arcs
    dist, sigma, coeff = state
    passed, most = 0.0, 0.0
    for i in range(len(order) - 1, -1, -1):
        u = order[i]
        following, paths, total = dist[u] + 1, sigma[u], 0.0
        if len(over):
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                if dist[v] == following:
                    total += coeff[v]
                    over[e] += paths * coeff[v]
        else:
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                share = coeff[v]
                total += share if dist[v] == following else 0.0
        passed = paths * total
        coeff[u] = (times * wanted[u] + passed) / paths
        most = max(most, paths)
        if i > 0:
            vertices[u] += passed
    return passed, most


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _collect_weighted(arcs, order, state, wanted, times, vertices, over):  # type: ignore[no-untyped-def]
    """Add the flow as :func:`_collect_hops` does, for arcs with weights: ``arcs`` holds ``indptr, heads, weights``.

    No arc out of the last vertex is looked at: no shortest path goes on from there.  If the search has ended with this
    vertex, float64 may have lost the weight of such an arc, whose head then seems to be as far as its tail.
    """
    indptr, heads, weights = arcs
    dist, sigma, coeff = state
    passed, most = 0.0, 0.0
    for i in range(len(order) - 1, -1, -1):
        u = order[i]
        length, paths, total = dist[u], sigma[u], 0.0
        end = indptr[u + 1] if i + 1 < len(order) else indptr[u]
        if len(over):
            for e in range(indptr[u], end):
                v = heads[e]
                if dist[v] == length + weights[e]:
                    total += coeff[v]
                    over[e] += paths * coeff[v]
        else:
            for e in range(indptr[u], end):
                v = heads[e]
                share = coeff[v]
                total += share if dist[v] == length + weights[e] else 0.0
        passed = paths * total
        coeff[u] = (times * wanted[u] + passed) / paths
        most = max(most, paths)
        if i > 0:
            vertices[u] += passed
    return passed, most


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _begin(task, i, wanted):  # type: ignore[no-untyped-def]
    """Set ``wanted``, the flow from source ``i`` that ends at each vertex.

    Return the number of vertices with such a flow; 0 if the source has no list of targets.
    """
    own, first, targets, flows = task[1], task[2], task[3], task[4]
    if len(first) == 0:
        if own[i] >= 0:
            wanted[own[i]] = 0.0
        return 0
    left = 0
    for k in range(first[i], first[i + 1]):
        left += wanted[targets[k]] == 0.0
        wanted[targets[k]] += flows[k]
    return left


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _arrived(order, wanted, times, ends):  # type: ignore[no-untyped-def]
    """Return the sum of ``times * wanted[v]`` over the vertices v in ``order``; add each term to ``ends[v]``, too,
    unless ``ends`` is empty.
    """
    total = 0.0
    for v in order:
        total += times * wanted[v]
        if len(ends):
            ends[v] += times * wanted[v]
    return total


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _finish(task, i, kept, wanted, dist, far, lengths):  # type: ignore[no-untyped-def]
    """Undo :func:`_begin`, and write the distances of listed targets to ``lengths``, +inf where there is no path."""
    own, first, targets = task[1], task[2], task[3]
    if len(first) == 0:
        if own[i] >= 0:
            wanted[own[i]] = kept[own[i]]
        return
    for k in range(first[i], first[i + 1]):
        v = targets[k]
        lengths[k] = np.inf if dist[v] == far else np.float64(dist[v])
        wanted[v] = 0.0


@njit(nogil=True, cache=True, borrows=True)
def verdict(passed, arrived, most):  # type: ignore[no-untyped-def]
    """Return ``DONE``, or the code that says why sums cannot be trusted.

    Args:
        passed: the flow that left the source.
        arrived: the flow that arrived.
        most: the largest count of paths.
    """
    if not most <= MOST_PATHS:
        return MANY_PATHS
    return DONE if abs(passed - arrived) <= TOLERANCE * arrived else UNEQUAL


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def pass_hops(arcs, task, rows, kept, space, out):  # type: ignore[no-untyped-def]
    """Search from some sources, where every arc has the length 1, and add their flows.

    Args:
        arcs: ``indptr``, ``heads``.
        task: six arrays: [0] the sources, int64, shape (sources,); [1] for each source a vertex at which none of its
            flow ends, -1 for none; [2] where the targets of each source begin in the next two arrays, int64, shape
            (sources + 1,), but empty if all sources send the flow ``kept``; [3] the targets, int32; [4] their flows,
            float64, not 0; [5] the factor by which all flow of each source is multiplied, float64, shape (sources,).
        rows: int64: the indices of these sources in ``task``.
        kept: float64, shape (n,): the flow from every source that ends at each vertex; 0 where targets are listed.
        space: arrays of this thread: ``dist``, ``sigma``, ``coeff``, ``order``, and ``wanted``, which equals ``kept``
            between searches.
        out: arrays of this thread, to which flows are added: ``vertices``, shape (n,), the flow through each vertex;
            ``begins`` and ``ends``, the flow that begins and ends there, each of shape (n,) or empty; ``over``, the
            flow over each arc, shape (arcs,) or empty.  The last array receives the distance of each listed target.

    Returns:
        ``DONE``, or the code that says why the search has ended early.
    """
    dist, sigma, coeff, order, wanted = space
    vertices, begins, ends, over, lengths = out
    for i in rows:
        source, times = task[0][i], task[5][i]
        left = _begin(task, i, wanted)
        count = count_hops(arcs, source, wanted, left, (dist, sigma, order))
        found = order[:count]
        passed, most = _collect_hops(arcs, found, (dist, sigma, coeff), wanted, times, vertices, over)
        arrived = _arrived(found, wanted, times, ends) - times * wanted[source]
        if len(begins):
            begins[source] += arrived
        _finish(task, i, kept, wanted, dist, -1, lengths)
        forget(dist, -1, found)
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def pass_packed(arcs, task, rows, kept, space, out, heap_space):  # type: ignore[no-untyped-def]
    """Search from some sources and add their flows, for int32 weights, if a distance and a vertex fit one key.

    Args:
        arcs: ``indptr``, ``heads``, ``weights``, and ``far``, the distance of vertices that are not reached.
        task, rows, kept, space, out: sources, flows and arrays of this thread, as in :func:`pass_hops`.
        heap_space: ``heap`` and ``place`` of this thread, and ``bits``.
    """
    dist, sigma, coeff, order, wanted = space
    vertices, begins, ends, over, lengths = out
    for i in rows:
        source, times = task[0][i], task[5][i]
        left = _begin(task, i, wanted)
        count = count_packed(arcs, source, wanted, left, (dist, sigma, order), heap_space)
        if count < 0:
            return ABSORBED
        found = order[:count]
        passed, most = _collect_weighted(arcs[:3], found, (dist, sigma, coeff), wanted, times, vertices, over)
        arrived = _arrived(found, wanted, times, ends) - times * wanted[source]
        if len(begins):
            begins[source] += arrived
        _finish(task, i, kept, wanted, dist, arcs[3], lengths)
        forget(dist, arcs[3], found)
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def pass_wide(arcs, task, rows, kept, space, out, heap_space):  # type: ignore[no-untyped-def]
    """Search from some sources and add their flows, for weights that :func:`pass_packed` cannot take.

    The arguments are those of :func:`pass_packed`, except that ``heap_space`` holds ``heap``, ``place`` and ``keys`` of
    this thread.
    """
    dist, sigma, coeff, order, wanted = space
    vertices, begins, ends, over, lengths = out
    for i in rows:
        source, times = task[0][i], task[5][i]
        left = _begin(task, i, wanted)
        count = count_wide(arcs, source, wanted, left, (dist, sigma, order), heap_space)
        if count < 0:
            return ABSORBED
        found = order[:count]
        passed, most = _collect_weighted(arcs[:3], found, (dist, sigma, coeff), wanted, times, vertices, over)
        arrived = _arrived(found, wanted, times, ends) - times * wanted[source]
        if len(begins):
            begins[source] += arrived
        _finish(task, i, kept, wanted, dist, arcs[3], lengths)
        forget(dist, arcs[3], found)
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE
