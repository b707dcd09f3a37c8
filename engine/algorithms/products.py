"""Computes min-plus products in pieces, for Floyd-Warshall and repeated squaring, which consist of such products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from engine.model.backend import Array, Signs
from engine.model.blocks import GRAIN, cut, triangle
from engine.model.dtypes import settle
from engine.model.progress import Monitor

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend

#: Most work of a thread between two calls of the monitor: updates times the bytes of an entry.  This work takes 0.04 s
#: with the widest vectors, and half a second with the narrowest vectors.
PIECE: Final = 2**34
#: Most columns of C, and most columns of A, in a piece of a product; the number of rows follows from PIECE.
SIDE: Final = 2048


def multiply(
    backend: CpuBackend, c: Array, a: Array, b: Array, *, nonnegative: Signs, upper: bool = False, monitor: Monitor
) -> None:
    """Set C to min(C, A (x) B), the min-plus product, piece by piece.

    Args:
        backend: relaxes blocks.
        c: shape (m, n), changed in place.
        a: shape (m, k).
        b: shape (k, n).
        nonnegative: promises that A, B and C hold no entry below zero and no -0.0.
        upper: promises that the product is symmetric; only entries on and above the diagonal need be right afterwards.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    (rows, columns), depth = c.shape, a.shape[1]
    slab = min(SIDE, max(1, columns)) * min(SIDE, max(1, depth)) * c.itemsize
    high = PIECE * backend.threads // slab
    for i in cut((0, rows), max(GRAIN, high // GRAIN * GRAIN)):
        across = [i, *cut((i[1], columns), SIDE)] if upper else list(cut((0, columns), SIDE))
        for j in across:
            diagonal = upper and i == j
            entries = triangle(i[1] - i[0]) if diagonal else (i[1] - i[0]) * (j[1] - j[0])
            for k in cut((0, depth), SIDE):
                piece, left, right = c[slice(*i), slice(*j)], a[slice(*i), slice(*k)], b[slice(*k), slice(*j)]
                backend.relax(piece, left, right, nonnegative=nonnegative, upper=diagonal)
                monitor.step(entries * (k[1] - k[0]))


def clamp_diagonal(block: Array) -> None:
    """Set the entries of the diagonal that rounding has made negative back to zero, in place.

    Without negative cycles their true value is zero.  If such an entry stayed negative, every later product would add
    it again.
    """
    diagonal = np.lib.stride_tricks.as_strided(block, (min(block.shape),), (sum(block.strides),))
    np.maximum(diagonal, diagonal.dtype.type(0), out=diagonal)


def settle_all(d: Array) -> None:
    """Set every integer entry that is no distance to exactly *unreachable* (``engine.model.dtypes.settle``).

    This is done band by band, so that no mask as large as the matrix is needed.
    """
    for i, j in cut((0, len(d)), GRAIN):
        settle(d[i:j])
