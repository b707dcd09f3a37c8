"""The kernel that writes rows of the weight matrix."""

from __future__ import annotations

from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def scatter(arcs, first, ends, out):  # type: ignore[no-untyped-def]
    """Fill rows of the weight matrix: 0 on the diagonal, the weights of arcs, *unreachable* elsewhere.

    Args:
        arcs: where the arcs of each vertex begin, shape (n + 1,); their heads and their weights, shape (arcs,).
        first: number of the first row.
        ends: *unreachable*, and the value to which larger weights are reduced, both in the type of the weights.
        out: shape (rows, n), receives rows ``first``, ``first`` + 1, ...
    """
    indptr, heads, weights = arcs
    far, most = ends
    for i in range(len(out)):
        row, tail = out[i], first + i
        row[:] = far
        for e in range(indptr[tail], indptr[tail + 1]):
            # adding 0 turns -0.0 into 0.0, because code that compares bits would take -0.0 for the least number
            row[heads[e]] = min(weights[e] + 0, most)
        row[tail] = 0
