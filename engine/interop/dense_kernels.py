"""The kernels of ``engine.interop.dense``."""

from __future__ import annotations

import numpy as np

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def count_arcs(dense, first, last, counts, facts):  # type: ignore[no-untyped-def]
    """Count the arcs of some rows; zeros, NaN, infinities and loops do not count as arcs.

    Args:
        dense: float64, shape (n, n).
        first: the first row.
        last: the row after the last one.
        counts: int64, shape (n,), receives the number of arcs of each row.
        facts: float64, shape (n, 4), receives for each row the least and the largest weight (0 without arcs), whether
            some weight is not a whole number, and whether the loop is negative.
    """
    for u in range(first, last):
        count, low, high, broken = 0, 0.0, 0.0, 0
        for v in range(len(dense)):
            weight = dense[u, v]
            if weight != 0 and abs(weight) < np.inf and v != u:
                count += 1
                low, high = min(low, weight), max(high, weight)
                broken |= weight != np.floor(weight)
        counts[u] = count
        facts[u, 0], facts[u, 1], facts[u, 2] = low, high, broken
        facts[u, 3] = -np.inf < dense[u, u] < 0


@njit(nogil=True, cache=True)
def fill_arcs(dense, first, last, indptr, heads, weights):  # type: ignore[no-untyped-def]
    """Write the arcs of some rows as compressed sparse rows.

    Args:
        dense: float64, shape (n, n).
        first: the first row.
        last: the row after the last one.
        indptr: int64, shape (n + 1,): the index at which the arcs of each row begin.
        heads: int32, shape (arcs,), receives the heads.
        weights: shape (arcs,), receives the weights.
    """
    for u in range(first, last):
        at = indptr[u]
        for v in range(len(dense)):
            weight = dense[u, v]
            if weight != 0 and abs(weight) < np.inf and v != u:
                heads[at] = v
                weights[at] = weight
                at += 1
