"""Computes rows of bottlenecks, for minimax and widest paths of undirected graphs, along a line of vertices.

Weights are *ranks*: 0 for the path without arcs, 1 for the best weight of the graph, 2 for the next, and the last for
*no path*.  So the bottleneck of a path is the greatest rank of its arcs, for widest paths as well.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def root(parent, v):  # type: ignore[no-untyped-def]
    """Return the representative of the set of ``v`` (union-find), and halve the path to this representative."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(nogil=True, cache=True)
def line_of(edges, arcs, none, space, gaps, line):  # type: ignore[no-untyped-def]
    """Put the vertices of an undirected graph in a line so that the bottleneck of two vertices is the greatest gap
    between them.

    Kruskal's algorithm (1956) joins sets of vertices by ascending ranks.  Each set is a piece of the line.  Joining two
    sets puts one piece behind the other, and the gap between the pieces is the rank of the edge.  All gaps inside the
    pieces are ranks of earlier edges, so the greatest gap between two vertices is the rank at which they became
    connected.

    Args:
        edges: int64, the edges in ascending order of rank.
        arcs: tails, heads and ranks, int32, shape (arcs,) each.
        none: the rank that stands for no path.
        space: four arrays of int32, shape (n,), work space.
        gaps: int32, shape (n,); receives the gap behind each place of the line, ``none`` behind the last.
        line: int32, shape (n,); receives the vertices in their order.
    """
    tails, heads, ranks = arcs
    parent, first, last, following = space
    n = len(parent)
    for v in range(n):
        parent[v] = first[v] = last[v] = v
        following[v] = -1
        gaps[v] = none
    behind = np.full(n, none, np.int32)
    for e in edges:
        a, b = root(parent, tails[e]), root(parent, heads[e])
        if a != b:
            following[last[a]] = first[b]
            behind[last[a]] = ranks[e]
            last[a] = last[b]
            parent[b] = a
    place = 0
    for v in range(n):
        if parent[v] == v:
            u = first[v]
            while u >= 0:
                line[place] = u
                gaps[place] = behind[u]
                place += 1
                u = following[u]


@njit(nogil=True, cache=True)
def rows_of_line(gaps, values, columns, starts, rows, out):  # type: ignore[no-untyped-def]
    """Write rows of values, each by one walk along the line in both directions.

    Args:
        gaps: int32, shape (n,): the gap behind each place of the line, from :func:`line_of`.
        values: shape (ranks,): the value of each rank, the last for no path.
        columns: int32, shape (n,): the column of the vertex at each place, -1 for none.
        starts: int64, shape (k,): the place of each source.
        rows: int64, shape (k,): the row of ``out`` for each source.
        out: shape (rows, columns), of the type of ``values``.
    """
    n, none = len(gaps), len(values) - 1
    for k in range(len(starts)):
        row, start = out[rows[k]], starts[k]
        row[:] = values[none]
        if columns[start] >= 0:
            row[columns[start]] = values[0]
        worst = 0
        for p in range(start, n - 1):
            if gaps[p] > worst:
                worst = gaps[p]
                if worst == none:
                    break
            if columns[p + 1] >= 0:
                row[columns[p + 1]] = values[worst]
        worst = 0
        for p in range(start - 1, -1, -1):
            if gaps[p] > worst:
                worst = gaps[p]
                if worst == none:
                    break
            if columns[p] >= 0:
                row[columns[p]] = values[worst]
