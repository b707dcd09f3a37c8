"""The kernels that find the tree of shortest paths of a row of distances, and sum quantities of arcs along it.

An arc (u, v) is *tight* in the row of a source if d(u) + weight = d(v).  Every path of tight arcs from the source is a
shortest path.  So a breadth-first walk over tight arcs finds for each vertex a shortest path with the fewest arcs, also
where arcs of length zero make cycles.  The predecessor of v is the tail of a tight arc into v, with a path that has one
arc less than the path of v.  If there are several such tails, it is the tail with the lowest number.

Most rows are summed side by side by ``engine.rows._lane_sums``; the walk is for all other rows.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True, from_start=True)
def _tree(row, source, unreachable, limits, arcs, tree):  # type: ignore[no-untyped-def]
    """Fill the tree of one row; return the number of its vertices, or -1 - v where the row is wrong at vertex v."""
    limited, terminals = limits
    indptr, heads, weights = arcs
    hops, before, via, queue = tree
    if row[source] != 0:
        return -1 - source
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


@njit(nogil=True, cache=True, from_start=True)
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


@njit(nogil=True, cache=True, from_start=True)
def _put(sums, hops, columns, unreachable, out):  # type: ignore[no-untyped-def]
    """Write the sums of the vertices ``columns`` (of all vertices if there are none) to ``out``, shape (k, columns)."""
    for k in range(sums.shape[1]):
        if len(columns) == 0:
            for v in range(len(hops)):
                out[k, v] = sums[v, k] if hops[v] >= 0 else unreachable
        else:
            for j in range(len(columns)):
                v = columns[j]
                out[k, j] = sums[v, k] if hops[v] >= 0 else unreachable


@njit(nogil=True, cache=True, from_start=True)
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


@njit(nogil=True, cache=True, from_start=True)
def in_units(rows, per, unreachable, out):  # type: ignore[no-untyped-def]
    """Write distances as whole multiples of the unit 1 / ``per``.

    Args:
        rows: float64, shape (rows, n), +inf where there is no path.
        per: the number of units that make 1, a whole number.
        unreachable: int64, written for +inf.
        out: int64, shape (rows, n), receives the multiples.
    """
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            out[i, j] = np.int64(np.rint(rows[i, j] * per)) if rows[i, j] < np.inf else unreachable


@njit(nogil=True, cache=True, from_start=True)
def from_units(rows, per, unreachable, out):  # type: ignore[no-untyped-def]
    """Write distances that are counted in whole units as floats; each is rounded once or, as float32, twice.

    Args:
        rows: integers, shape (rows, n).
        per: float64: the number of units that make 1.
        unreachable: of the type of ``rows``: the value for *no path*.
        out: floats, shape (rows, n), receives the distances, +inf where there is no path.
    """
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            out[i, j] = rows[i, j] / per if rows[i, j] != unreachable else np.inf


@njit(nogil=True, cache=True, from_start=True)
def _write_lone(out, none, source, columns):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        out[k, :] = none
        if len(columns) == 0:
            out[k, source] = 0
        for j in range(len(columns)):
            if columns[j] == source:
                out[k, j] = 0


@njit(nogil=True, cache=True, from_start=True)
def sum_lone(rows, sources, some, unreachable, columns, wanted, left):  # type: ignore[no-untyped-def]
    """Write the sums of rows whose sources no arc leaves: 0 to the source itself, and *no path* to all others.

    Args:
        rows: of a working type, shape (rows, n).
        sources: int64, shape (rows,): vertex indices.
        some: int64: the numbers of such rows.
        unreachable: the value for *no path* in ``rows``.
        columns: int64: the vertices of the columns; empty for all vertices.
        wanted: the values for *no path* of the sums, and the arrays that receive the sums, shape (rows, k, columns).
        left: of bool, shape (rows,); False is written for each row whose sums are written, which are not those with a
            wrong entry.
    """
    nones, out = wanted
    for i in some:
        row, source = rows[i], sources[i]
        reached = 0
        for v in range(len(row)):
            reached += row[v] != unreachable
        if row[source] != 0 or reached != 1:
            continue
        left[i] = False
        _write_lone(out[0][i], nones[0], source, columns)
        _write_lone(out[1][i], nones[1], source, columns)
        _write_lone(out[2][i], nones[2], source, columns)
