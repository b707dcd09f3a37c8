"""Computes what passes through each vertex and over each arc from one source, given counts of shortest paths (Brandes
2001).

Vertices are taken from the farthest to the nearest.  There are ``sigma[u]`` shortest paths to vertex u, and
``coeff[v]`` is what v keeps and sends on, divided by ``sigma[v]``.  Over an arc from u to v passes
``sigma[u] * coeff[v]`` if the arc is *tight*, which means that it lies on a shortest path, and otherwise nothing.  Each
vertex sums over its own arcs out, and writes only its own entries.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.counting import count_hops, count_packed, count_wide, forget
from engine.graph.kernels import njit

#: The reasons for which a pass over sources ends: all are done, there are too many paths for float64, lengths that
#: float64 cannot tell apart, or sums that do not agree.
DONE, MANY_PATHS, ABSORBED, UNEQUAL = 0, 1, 2, 3
#: Counts of paths up to this are used; beyond it, the inverse of a count would lose digits.
MOST_PATHS = 1e300
#: The largest relative difference between what leaves a source and what arrives; rounding alone causes a far smaller
#: one.
TOLERANCE = 1e-6


@njit(nogil=True, cache=True)
def _collect_hops(arcs, order, state, wanted, vertices, over):  # type: ignore[no-untyped-def]
    """Add the flow that passes through vertices and over arcs, where every arc has the length 1.

    The source sends a flow to each vertex, split evenly over the shortest paths: the second half of Brandes' algorithm.

    Args:
        arcs: ``indptr`` and ``heads`` of the arcs (CSR).
        order: the final vertices, the source first.
        state: ``dist``, ``sigma`` and ``coeff``, each of shape (n,).
        wanted: float64, shape (n,): what each vertex keeps.
        vertices: float64, shape (n,); what passes through each vertex but the source is added.
        over: float64, shape (arcs,); what passes over each arc is added; empty if that is not wanted.

    Returns:
        What leaves the source, and the largest count of paths.
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
        coeff[u] = (wanted[u] + passed) / paths
        most = max(most, paths)
        if i > 0:
            vertices[u] += passed
    return passed, most


@njit(nogil=True, cache=True)
def _collect_weighted(arcs, order, state, wanted, vertices, over):  # type: ignore[no-untyped-def]
    """Add what passes, as :func:`_collect_hops` does; ``arcs`` has weights, too."""
    indptr, heads, weights = arcs
    dist, sigma, coeff = state
    passed, most = 0.0, 0.0
    for i in range(len(order) - 1, -1, -1):
        u = order[i]
        length, paths, total = dist[u], sigma[u], 0.0
        if len(over):
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                if dist[v] == length + weights[e]:
                    total += coeff[v]
                    over[e] += paths * coeff[v]
        else:
            for e in range(indptr[u], indptr[u + 1]):
                v = heads[e]
                share = coeff[v]
                total += share if dist[v] == length + weights[e] else 0.0
        passed = paths * total
        coeff[u] = (wanted[u] + passed) / paths
        most = max(most, paths)
        if i > 0:
            vertices[u] += passed
    return passed, most


@njit(nogil=True, cache=True)
def _begin(task, i, wanted):  # type: ignore[no-untyped-def]
    """Set what each vertex keeps for the source at ``i``; return how many vertices keep something, 0 for all."""
    _, own, first, targets, flows = task
    if len(first) == 0:
        if own[i] >= 0:
            wanted[own[i]] = 0.0
        return 0
    left = 0
    for k in range(first[i], first[i + 1]):
        left += wanted[targets[k]] == 0.0
        wanted[targets[k]] += flows[k]
    return left


@njit(nogil=True, cache=True)
def _arrived(order, wanted, ends):  # type: ignore[no-untyped-def]
    """Return the sum of what the vertices in ``order`` keep; add what each keeps to ``ends`` unless that is empty."""
    total = 0.0
    for v in order:
        total += wanted[v]
        if len(ends):
            ends[v] += wanted[v]
    return total


@njit(nogil=True, cache=True)
def _finish(task, i, kept, wanted, dist, far, lengths):  # type: ignore[no-untyped-def]
    """Undo :func:`_begin`, and write the distances of listed targets to ``lengths``, +inf where there is no path."""
    _, own, first, targets, _ = task
    if len(first) == 0:
        if own[i] >= 0:
            wanted[own[i]] = kept[own[i]]
        return
    for k in range(first[i], first[i + 1]):
        v = targets[k]
        lengths[k] = np.inf if dist[v] == far else np.float64(dist[v])
        wanted[v] = 0.0


@njit(nogil=True, cache=True)
def verdict(passed, arrived, most):  # type: ignore[no-untyped-def]
    """Return ``DONE``, or the reason for which sums cannot be trusted.

    Args:
        passed: what left the source.
        arrived: what arrived.
        most: the largest count of paths.
    """
    if not most <= MOST_PATHS:
        return MANY_PATHS
    return DONE if abs(passed - arrived) <= TOLERANCE * arrived else UNEQUAL


@njit(nogil=True, cache=True)
def pass_hops(arcs, task, rows, kept, space, out):  # type: ignore[no-untyped-def]
    """Search from some sources, where every arc has the length 1, and add what passes.

    Args:
        arcs: ``indptr``, ``heads``.
        task: the sources, int64, shape (sources,); for each source the vertex that keeps nothing of its flow, -1 for
            none; where the targets of each source begin, int64, shape (sources + 1,), empty if ``kept`` holds for all
            sources; these targets, int32, and their flows, float64, which are not 0.
        rows: int64: which sources.
        kept: float64, shape (n,): what each vertex keeps of every source; 0 where targets are listed.
        space: ``dist``, ``sigma``, ``coeff``, ``order`` and ``wanted``, which equals ``kept``, of this thread.
        out: arrays of this thread, to which is added: what passes through ``vertices``, shape (n,); what ``begins`` and
            ``ends`` at them, each of shape (n,) or empty; what passes ``over`` arcs, shape (arcs,) or empty.  The last
            array receives the distance of each listed target.

    Returns:
        ``DONE``, or the reason for which the search has ended early.
    """
    dist, sigma, coeff, order, wanted = space
    vertices, begins, ends, over, lengths = out
    for i in rows:
        source = task[0][i]
        left = _begin(task, i, wanted)
        count = count_hops(arcs, source, wanted, left, (dist, sigma, order))
        found = order[:count]
        passed, most = _collect_hops(arcs, found, (dist, sigma, coeff), wanted, vertices, over)
        arrived = _arrived(found, wanted, ends) - wanted[source]
        if len(begins):
            begins[source] += arrived
        _finish(task, i, kept, wanted, dist, -1, lengths)
        forget(dist, -1, found)
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE


@njit(nogil=True, cache=True)
def pass_packed(arcs, task, rows, kept, space, out, heap_space):  # type: ignore[no-untyped-def]
    """Do the same as :func:`pass_hops` for int32 weights, if a distance and a vertex fit one key.

    Args:
        arcs: ``indptr``, ``heads``, ``weights`` and ``far``.
        task, rows, kept, space, out: as in :func:`pass_hops`.
        heap_space: ``heap`` and ``place`` of this thread, and ``bits``.
    """
    dist, sigma, coeff, order, wanted = space
    vertices, begins, ends, over, lengths = out
    for i in rows:
        source = task[0][i]
        left = _begin(task, i, wanted)
        count = count_packed(arcs, source, wanted, left, (dist, sigma, order), heap_space)
        if count < 0:
            return ABSORBED
        found = order[:count]
        passed, most = _collect_weighted(arcs[:3], found, (dist, sigma, coeff), wanted, vertices, over)
        arrived = _arrived(found, wanted, ends) - wanted[source]
        if len(begins):
            begins[source] += arrived
        _finish(task, i, kept, wanted, dist, arcs[3], lengths)
        forget(dist, arcs[3], found)
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE


@njit(nogil=True, cache=True)
def pass_wide(arcs, task, rows, kept, space, out, heap_space):  # type: ignore[no-untyped-def]
    """Do the same as :func:`pass_packed` for all other weights; ``heap_space`` is ``heap``, ``place`` and ``keys``."""
    dist, sigma, coeff, order, wanted = space
    vertices, begins, ends, over, lengths = out
    for i in rows:
        source = task[0][i]
        left = _begin(task, i, wanted)
        count = count_wide(arcs, source, wanted, left, (dist, sigma, order), heap_space)
        if count < 0:
            return ABSORBED
        found = order[:count]
        passed, most = _collect_weighted(arcs[:3], found, (dist, sigma, coeff), wanted, vertices, over)
        arrived = _arrived(found, wanted, ends) - wanted[source]
        if len(begins):
            begins[source] += arrived
        _finish(task, i, kept, wanted, dist, arcs[3], lengths)
        forget(dist, arcs[3], found)
        said = verdict(passed, arrived, most)
        if said != DONE:
            return said
    return DONE
