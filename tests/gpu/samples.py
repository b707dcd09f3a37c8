"""Random matrices with everything that can go wrong in them, and slow obvious answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.model.dtypes import WORK_TYPES

#: dtype name, and whether entries may be negative.
KINDS = [
    ("uint16", False),
    ("int32", False),
    ("int32", True),
    ("float32", False),
    ("float32", True),
    ("float64", False),
    ("float64", True),
]


def entries(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, signed: bool) -> np.ndarray[Any, Any]:
    """Small and extreme values, zeros and unreachable, mixed at random."""
    kind = WORK_TYPES[dtype]
    largest = kind.largest_signed if signed else kind.largest
    if not np.isfinite(largest):
        largest = float(np.finfo(dtype).max) / 4
    values = rng.integers(0, 1000, shape).astype(dtype)
    if not kind.integer:
        values += rng.random(shape).astype(dtype)
    dice = rng.random(shape)
    values[dice < 0.02] = 0
    values[(dice >= 0.02) & (dice < 0.04)] = largest
    if signed:
        values = np.where((dice >= 0.1) & (dice < 0.3), -values, values) + np.dtype(dtype).type(0)
    values[dice >= 0.7] = kind.sentinel()
    return values.astype(dtype)


def weights(
    rng: np.random.Generator, n: int, dtype: str, *, share: float = 0.2, symmetric: bool = False
) -> np.ndarray[Any, Any]:
    """Arc weights that are whole numbers, so that floats sum exactly in any order; zero diagonal."""
    d = rng.integers(0, 100, (n, n)).astype(dtype)
    d[rng.random((n, n)) >= share] = WORK_TYPES[dtype].sentinel()
    if symmetric:
        d = np.minimum(d, d.T)
    np.fill_diagonal(d, 0)
    return d


def product(c: np.ndarray[Any, Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """min(C, A (x) B), one k after the other."""
    wide = np.int64 if c.dtype.kind in "iu" else c.dtype
    out = c.astype(wide)
    with np.errstate(over="ignore"):
        for k in range(a.shape[1]):
            out = np.minimum(out, a[:, k, None].astype(wide) + b[k].astype(wide))
    return out.astype(c.dtype)


def closure(d: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floyd-Warshall as in the book."""
    wide = np.int64 if d.dtype.kind in "iu" else d.dtype
    out = d.astype(wide)
    for k in range(len(d)):
        out = np.minimum(out, out[:, k, None] + out[k])
    return out.astype(d.dtype)
