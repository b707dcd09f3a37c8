"""Computes rows of reachability for 64 sources side by side: each strongly connected component has one word, with a bit
for each source.
"""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def order_components(indptr, heads, waiting, order):  # type: ignore[no-untyped-def]
    """Put components in an order in which every arc between two of them leads forward (Kahn 1962).

    Args:
        indptr, heads: CSR of the arcs between components, without loops.
        waiting: int32, shape (components,): the number of arcs into each component; it is counted down to 0.
        order: int32, shape (components,); receives the components.

    Returns:
        The number of components that were put in order: all of them, if no arcs form a cycle.
    """
    last = 0
    for c in range(len(waiting)):
        if waiting[c] == 0:
            order[last] = c
            last += 1
    i = 0
    while i < last:
        c = order[i]
        i += 1
        for e in range(indptr[c], indptr[c + 1]):
            waiting[heads[e]] -= 1
            if waiting[heads[e]] == 0:
                order[last] = heads[e]
                last += 1
    return last


@njit(nogil=True, cache=True)
def rows_reached(arcs, sources, targets, values, space, rows, out):  # type: ignore[no-untyped-def]
    """Write the rows of at most 64 sources.

    Args:
        arcs: CSR of the arcs between components, indptr and heads, and the order of the components, int32, as
            :func:`order_components` fills it.
        sources: int64, shape (k,): the component of each source; k is at most 64.
        targets: int32, shape (columns,): the component of each column.
        values: shape (2,): the value where there is no path, and the value where there is a path.
        space: words, uint64, shape (components,), and taken, uint64, shape (columns,), work space.
        rows: int64, shape (k,): the row of ``out`` of each source.
        out: of the type of ``values``, shape (rows, columns).
    """
    indptr, heads, order = arcs
    words, taken = space
    lost, found = values[0], values[1]
    words[:] = 0
    for k in range(len(sources)):
        words[sources[k]] |= np.uint64(1) << np.uint64(k)
    for c in order:
        word = words[c]
        if word != 0:
            for e in range(indptr[c], indptr[c + 1]):
                words[heads[e]] |= word
    for j in range(len(targets)):
        taken[j] = words[targets[j]]
    for k in range(len(sources)):
        row, bit = out[rows[k]], np.uint64(k)
        for j in range(len(targets)):
            row[j] = found if (taken[j] >> bit) & np.uint64(1) else lost
