"""Slow, obvious references.  Matrices are float64 with +inf for *no path*; exact while lengths stay below 2^53."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.dtypes import work_type

Matrix = npt.NDArray[np.float64]
Array = npt.NDArray[np.generic]


def product(a: Matrix, b: Matrix) -> Matrix:
    """The min-plus product."""
    return np.array([(row[:, None] + b).min(axis=0, initial=np.inf) for row in a]).reshape(len(a), b.shape[1])


def closure(weights: Matrix) -> Matrix:
    """Floyd-Warshall as in the textbook (Floyd 1962)."""
    d = weights.copy()
    through = np.empty_like(d)
    for k in range(len(d)):
        np.add(d[:, k, None], d[k], out=through)
        np.minimum(d, through, out=d)
    return d


def hops(weights: Matrix, limit: int) -> Matrix:
    """Shortest lengths over at most ``limit`` arcs; the diagonal of ``weights`` is zero."""
    d = weights
    for _ in range(limit - 1):
        d = product(d, weights)
    return d


def random_weights(
    n: int, *, seed: int, density: float = 0.2, largest: int = 1000, symmetric: bool = False, negative: bool = False
) -> Matrix:
    """Whole weights of a random graph, zero on the diagonal; ``negative`` arcs make no negative cycle."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, largest, (n, n)).astype(np.float64)
    weights[rng.random((n, n)) > density] = np.inf
    if symmetric:
        weights = np.minimum(weights, weights.T)
    if negative:
        height = rng.integers(0, largest // 2, n)
        weights += height[:, None] - height[None, :]
    np.fill_diagonal(weights, 0)
    return weights


def encode(matrix: Matrix, dtype: npt.DTypeLike) -> Array:
    """``matrix`` in a working type, with its sentinel."""
    kind = work_type(dtype)
    return np.where(np.isinf(matrix), kind.unreachable, matrix).astype(kind.dtype)


def decode(matrix: Array) -> Matrix:
    """A matrix in a working type as float64, the sentinel as +inf."""
    values = matrix.astype(np.float64)
    values[matrix == work_type(matrix.dtype).sentinel()] = np.inf
    return values
