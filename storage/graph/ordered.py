"""Builds a clean directed graph from rows that are already sorted, without the sorting of ``build_graph``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storage.graph.cleaning import AnyArray, ArcList, canonical_weights, drop_loops, smallest_type
from storage.graph.graph import Graph, IntArray


def build_from_rows(indptr: IntArray, heads: npt.NDArray[np.int32], weights: AnyArray | None) -> Graph:
    """Clean compressed sparse rows into a directed graph on the vertices 0 .. n - 1, with the rules of ``build_graph``.

    The graph may share the memory of ``indptr`` and ``heads``.

    Args:
        indptr: shape (n + 1,): the offset of the first entry of each row; the last element is the number of entries.
        heads: vertex indices, shape (entries,), from 0 to n - 1, strictly ascending within each row.
        weights: float64, shape (entries,); None if every arc weighs 1.

    Raises:
        InvalidGraph: a weight is NaN, -inf, or whole and beyond 2**53.
        NegativeCycle: a self loop has a negative weight.
    """
    n = len(indptr) - 1
    labels = np.arange(n, dtype=np.int64)
    tails = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
    numbers = None if weights is None else canonical_weights(weights)
    if numbers is not None and numbers is weights:
        numbers = numbers.copy()  # because ``smallest_type`` changes it in place
    arcs = ArcList(tails, heads.astype(np.int32, copy=False), numbers)
    if drop_loops(arcs, labels) != (0, 0):
        indptr = np.concatenate([[0], np.cumsum(np.bincount(arcs.tails, minlength=n))])
    values = np.ones(len(arcs.tails), np.int32) if arcs.weights is None else smallest_type(arcs.weights)
    return Graph(indptr.astype(np.int64, copy=False), arcs.heads, values, labels, True, weights is not None)  # type: ignore[arg-type]
