"""Computes the rows of a prepared graph one band (some rows) at a time, and reduces each band with several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.api.prepared_matrix import PreparedMatrix
from engine.graph.selection import Rectangle, first_beyond
from engine.model.progress import Monitor
from storage.threads import ThreadPool

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


def band_rows(matrix: PreparedMatrix) -> int:
    """Return the number of rows of a band."""
    return max(matrix.threads, matrix.band_bytes // max(1, matrix.row_bytes))


def bands(matrix: PreparedMatrix, rectangle: Rectangle, *, inward: bool) -> Iterator[tuple[int, Array]]:
    """Yield the rows of a rectangle in order, one band at a time.

    Args:
        matrix: the prepared graph.
        rectangle: the rows and columns wanted, and a cutoff.
        inward: whether an entry is the distance from its column's vertex to its row's vertex; else in the opposite
            direction.

    Yields:
        The number of the first row, and a block of shape (rows, columns), contiguous.
    """
    beyond = None if rectangle.cutoff is None else first_beyond(rectangle.cutoff, matrix.dtype)
    step = band_rows(matrix)
    for first in range(0, len(rectangle.rows), step):
        block = _block(matrix, rectangle.rows[first : first + step], rectangle.targets, inward=inward)
        if beyond is not None:
            np.putmask(block, block >= beyond, matrix.unreachable)
        yield first, block
        del block  # frees this block before the next one is made


def _block(matrix: PreparedMatrix, rows: Indices, columns: Indices | None, *, inward: bool) -> Array:
    if columns is None:
        return matrix.rows_towards(rows) if inward else matrix.rows(rows)
    found: Array = matrix.block(columns, rows).T if inward else matrix.block(rows, columns)
    return np.ascontiguousarray(found)


def reduce_bands(
    matrix: PreparedMatrix,
    rectangle: Rectangle,
    gather: Callable[[int, Array, Indices], None],
    monitor: Monitor,
    *,
    inward: bool = False,
) -> None:
    """Call ``gather`` for all rows of a rectangle, band by band; several threads share the rows of a band.

    Args:
        matrix: the prepared graph.
        rectangle: the rows and columns wanted, and a cutoff.
        gather: called with the number of a block's first row, the block, and the indices of the rows in it to gather.
        monitor: receives the number of rows, and is asked whether to stop.
        inward: whether distances lead from the columns' vertices to the rows' vertices; else in the opposite direction.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    with ThreadPool(matrix.threads) as pool, pool:
        for first, block in bands(matrix, rectangle, inward=inward):
            cuts = [len(block) * k // matrix.threads for k in range(matrix.threads + 1)]
            pieces = [np.arange(a, b) for a, b in pairwise(cuts) if a < b]
            for _ in pool.map(gather, [first] * len(pieces), [block] * len(pieces), pieces):
                pass
            monitor.step(len(block))
            del block
