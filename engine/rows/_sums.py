"""The kernels that find the tree of shortest paths of a row of distances, and sum quantities of arcs along it.

An arc (u, v) is *tight* in the row of a source if d(u) + weight = d(v).  A walk from the source along tight arcs is as
long as a shortest path to each of its vertices, so a breadth-first walk finds the fewest arcs of a shortest path, also
where arcs of length zero make cycles.  The predecessor of v is the tail of a tight arc into v whose path has one arc
less than that of v; if there are several such tails, it is the one with the lowest number.

Where every arc counts 1, the distances themselves are numbers of arcs, and no walk is needed: the predecessor of v is
the first tail of an arc into v whose distance is smaller by one.  So predecessors are found in the order of the
vertices, and only adding up follows the order of the distances (decision 247).
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def _tree(row, source, unreachable, limits, arcs, tree):  # type: ignore[no-untyped-def]
    """Fill the tree of one row; return the number of its vertices, or -1 - v where the row is wrong at vertex v."""
    limited, terminals = limits
    indptr, heads, weights = arcs
    hops, before, via, queue = tree
    hops[:] = -1
    hops[source] = 0
    queue[0] = source
    first, last = 0, 1
    while first < last:
        u = queue[first]
        first += 1
        if u < terminals and u != source:
            continue
        base, step = row[u], hops[u] + np.int32(1)
        for e in range(indptr[u], indptr[u + 1]):
            v = heads[e]
            length, found = base + weights[e], row[v]
            if found == unreachable:
                if not limited:
                    return -1 - v
            elif length < found:
                return -1 - v
            elif length == found and v != source:
                if hops[v] < 0:
                    hops[v], before[v], via[v] = step, u, e
                    queue[last] = v
                    last += 1
                elif hops[v] == step and u < before[v]:
                    before[v], via[v] = u, e
    reached = 0
    for v in range(len(row)):
        reached += row[v] != unreachable
    if reached != last:
        for v in range(len(row)):
            if row[v] != unreachable and hops[v] < 0:
                return -1 - v
    return last


@njit(nogil=True, cache=True)
def _add_up(last, queue, before, via, quantities, sums):  # type: ignore[no-untyped-def]
    """Sum quantities, shape (arcs, k), along the tree, into ``sums``, shape (n, k)."""
    source = queue[0]
    for k in range(quantities.shape[1]):
        sums[source, k] = 0
    for i in range(1, last):
        v = queue[i]
        u, e = before[v], via[v]
        for k in range(quantities.shape[1]):
            sums[v, k] = sums[u, k] + quantities[e, k]


@njit(nogil=True, cache=True)
def _put(sums, hops, columns, unreachable, out):  # type: ignore[no-untyped-def]
    """Write the sums of the vertices ``columns``, or of all if that is empty, to ``out``, shape (k, columns)."""
    for k in range(sums.shape[1]):
        if len(columns) == 0:
            for v in range(len(hops)):
                out[k, v] = sums[v, k] if hops[v] >= 0 else unreachable
        else:
            for j in range(len(columns)):
                v = columns[j]
                out[k, j] = sums[v, k] if hops[v] >= 0 else unreachable


@njit(nogil=True, cache=True)
def sum_along(rows, sources, unreachable, limits, arcs, quantities, wanted):  # type: ignore[no-untyped-def]
    """Sum quantities along the shortest paths of some rows.

    Args:
        rows: shape (rows, n): distances.  Either sums of distances and weights are exact, or the rows come from
            searches that add one arc after the other, beginning at the source.
        sources: int64, shape (rows,): the source of each row.
        unreachable: the value for *no path*, of the type of ``rows``.
        limits: whether distances beyond a cutoff are unreachable; and the number of terminals, which are the first
            vertices, and which no path passes through.
        arcs: indptr, heads and weights.
        quantities: int32, shape (arcs, k), with the quantities of which int32 holds all sums; and float64, shape (arcs,
            l), with all other quantities.
        wanted: int64, the vertices of the columns, empty for all; the values for *no path*, int32 and float64; and the
            arrays that receive the sums: int32, shape (rows, k, columns), and float64, shape (rows, l, columns).

    Returns:
        Row and vertex of the first entry that is not a shortest distance; -1 and -1 if all are.
    """
    wholes, fractions = quantities
    columns, none, nothing, out, others = wanted
    n = rows.shape[1]
    hops, before = np.empty(n, np.int32), np.empty(n, np.int32)
    via, queue = np.empty(n, np.int32), np.empty(n, np.int32)
    tree = hops, before, via, queue
    own, other = np.empty((n, wholes.shape[1]), np.int32), np.empty((n, fractions.shape[1]), np.float64)
    for i in range(len(rows)):
        last = _tree(rows[i], sources[i], unreachable, limits, arcs, tree)
        if last < 0:
            return i, -1 - last
        _add_up(last, queue, before, via, wholes, own)
        _add_up(last, queue, before, via, fractions, other)
        _put(own, hops, columns, none, out[i])
        _put(other, hops, columns, nothing, others[i])
    return -1, -1


@njit(nogil=True, cache=True)
def _levels(row, source, unreachable, limited, arcs, tree):  # type: ignore[no-untyped-def]
    """Find the predecessors of one row of hops, and its vertices in the order of their distances.

    Returns:
        The number of vertices with a distance, or -1 - v where the row is wrong at vertex v.
    """
    indptr, tails, degrees = arcs
    via, order, starts = tree
    n, far, leaving = len(row), 0, 0
    starts[:] = 0
    for v in range(n):
        if row[v] == unreachable:
            continue
        hops = np.int64(row[v])
        if hops < 0 or hops >= n or (hops == 0) != (v == source):
            return -1 - v
        far = max(far, hops)
        starts[hops + 1] += 1
        leaving += degrees[v]
    if row[source] != 0:
        return -1 - source
    for v in range(n):
        if row[v] == unreachable:
            continue
        arc, shorter, hops = -1, False, np.int64(row[v])
        for e in range(indptr[v + 1] - 1, indptr[v] - 1, -1):  # backwards: the tight arc from the lowest tail is last
            found = row[tails[e]]
            length = np.int64(found) + 1
            shorter |= length < hops
            arc = e if length == hops else arc
            leaving -= found != unreachable
        if shorter or (arc < 0 and v != source):
            return -1 - v
        via[v] = arc
    if leaving and not limited:  # an arc leads from a vertex that has a distance to one that has none
        for v in range(n):
            for e in range(indptr[v], indptr[v + 1]):
                if row[v] == unreachable and row[tails[e]] != unreachable:
                    return -1 - v
    for hops in range(far + 1):
        starts[hops + 1] += starts[hops]
    for v in range(n):
        if row[v] != unreachable:
            order[starts[row[v]]] = v
            starts[row[v]] += 1
    return starts[far]


@njit(nogil=True, cache=True)
def _add_levels(last, order, via, tails, quantities, sums):  # type: ignore[no-untyped-def]
    """Sum quantities, shape (arcs, k), along the tree, into ``sums``, shape (n, k)."""
    for k in range(quantities.shape[1]):
        sums[order[0], k] = 0
    for i in range(1, last):
        v = order[i]
        e = via[v]
        u = tails[e]
        for k in range(quantities.shape[1]):
            sums[v, k] = sums[u, k] + quantities[e, k]


@njit(nogil=True, cache=True)
def _put_levels(sums, row, columns, unreachable, none, out):  # type: ignore[no-untyped-def]
    """Write the sums of the vertices ``columns`` as :func:`_put` does."""
    for k in range(sums.shape[1]):
        if len(columns) == 0:
            for v in range(len(row)):
                out[k, v] = sums[v, k] if row[v] != unreachable else none
        else:
            for j in range(len(columns)):
                v = columns[j]
                out[k, j] = sums[v, k] if row[v] != unreachable else none


@njit(nogil=True, cache=True)
def sum_by_hops(rows, sources, unreachable, limits, arcs, quantities, wanted):  # type: ignore[no-untyped-def]
    """Sum quantities along the shortest paths of some rows of a graph without terminals in which every arc counts 1.

    Args:
        rows: of whole numbers, shape (rows, n): the distances; *unreachable* is larger than all.
        sources, unreachable, limits, wanted: as for :func:`sum_along`.
        arcs: arrays of the reversed graph: where the arcs into each vertex begin, and their tails, ascending; and the
            number of arcs out of each vertex.
        quantities: as for :func:`sum_along`, of these arcs.

    Returns:
        As :func:`sum_along`.
    """
    wholes, fractions = quantities
    columns, none, nothing, out, others = wanted
    n, tails = rows.shape[1], arcs[1]
    via, order, starts = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n + 1, np.int64)
    own, other = np.empty((n, wholes.shape[1]), np.int32), np.empty((n, fractions.shape[1]), np.float64)
    for i in range(len(rows)):
        last = _levels(rows[i], sources[i], unreachable, limits[0], arcs, (via, order, starts))
        if last < 0:
            return i, -1 - last
        _add_levels(last, order, via, tails, wholes, own)
        _add_levels(last, order, via, tails, fractions, other)
        _put_levels(own, rows[i], columns, unreachable, none, out[i])
        _put_levels(other, rows[i], columns, unreachable, nothing, others[i])
    return -1, -1


@njit(nogil=True, cache=True)
def in_units(rows, per, out):  # type: ignore[no-untyped-def]
    """Write distances as whole multiples of 1 / ``per``; *unreachable*, +inf, becomes -1.

    Args:
        rows: float64, shape (rows, n).
        per: a whole number.
        out: int64, of the same shape.
    """
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            out[i, j] = np.int64(np.rint(rows[i, j] * per)) if rows[i, j] < np.inf else np.int64(-1)
