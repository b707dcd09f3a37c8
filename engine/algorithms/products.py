"""Computes min-plus products in pieces, for Floyd-Warshall and repeated squaring, which consist of such products."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.model.backend import Array, Backend
from engine.model.blocks import GRAIN, cut, triangle
from engine.model.dtypes import settle
from engine.model.progress import Monitor

#: Most updates times bytes of an entry, per thread, between two calls of the monitor: 0.04 s with the widest vectors,
#: half a second with the narrowest.
PIECE: Final = 2**34
#: Most columns of a piece, and most depth (columns of A); PIECE then determines its rows.
SIDE: Final = 2048


def multiply(
    backend: Backend, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False, monitor: Monitor
) -> None:
    """Set C to min(C, A (x) B) in pieces, as :meth:`Backend.relax` does at once.

    Args:
        backend: relaxes blocks.
        c: shape (m, n), changed in place.
        a: shape (m, k).
        b: shape (k, n).
        nonnegative: as in :meth:`Backend.relax`.
        upper: as in :meth:`Backend.relax`.
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
    """Set a diagonal that rounding has carried below zero back to zero, in place.

    Without negative cycles the true value is zero.  If an entry stayed below zero, every later product would add it
    again.
    """
    diagonal = np.lib.stride_tricks.as_strided(block, (min(block.shape),), (sum(block.strides),))
    np.maximum(diagonal, diagonal.dtype.type(0), out=diagonal)


def settle_all(d: Array) -> None:
    """Apply :func:`engine.model.dtypes.settle` band by band, so that no mask as large as the matrix is needed."""
    for i, j in cut((0, len(d)), GRAIN):
        settle(d[i:j])
