"""Samples a matrix: evenly spaced rows and columns, and eccentricities.

Imports NumPy, so import it only when needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.rows.summary import comparable
from service.jobs.results import Array, ResultReader
from storage.errors import InvalidRequest
from storage.matrix.reader import Matrix

#: the most bytes of tiles read for one answer; at least ``_FEWEST`` rows are read even if they need more
BUDGET: Final = 512 << 20
_FEWEST: Final = 4
#: the most bytes of rows in memory at a time; at least one row is read even if it has more
_HELD: Final = 128 << 20
IntArray = npt.NDArray[np.int64]


def spread(first: int, count: int, most: int) -> IntArray:
    """Return at most ``most`` of ``count`` positions from ``first`` on: all of them, or the middles of equal parts.

    Args:
        first: the first position.
        count: number of positions to choose from.
        most: the most positions to return.
    """
    kept = min(count, most)
    return first + (2 * np.arange(kept, dtype=np.int64) + 1) * count // (2 * max(1, kept))


def sample(
    result: ResultReader, *, row: int, rows: int | None, column: int, columns: int | None, size: int
) -> dict[str, Any]:
    """Return the entries of evenly spaced rows and columns of a rectangle: at most ``size`` rows and ``size`` columns.

    Args:
        result: the matrix.
        row, column: where the rectangle begins, as positions in the matrix, from 0.
        rows, columns: the size of the rectangle; None for all up to the end of the matrix.
        size: most rows and columns of the answer.  Rows are further limited by the bytes of tiles to read (``BUDGET``).

    Raises:
        InvalidRequest: the rectangle leaves the matrix, or is empty.
    """
    down, across = result.matrix.shape
    high = _extent("row", row, rows, down)
    wide = _extent("column", column, columns, across)
    i, j = spread(row, high, _rows_within(result, row, high, size)), spread(column, wide, size)
    sources = result.matrix.sources[i]
    picked = [result.numbers(row[j]) for row in _rows(result.matrix, i)]
    return {
        "rows": i.tolist(), "columns": j.tolist(), "distances": picked,
        "sources": [result.label(v) for v in sources.tolist()],
        "targets": [result.label(v) for v in result.matrix.targets[j].tolist()],
        "complete": len(i) == high and len(j) == wide,
    }  # fmt: skip


def eccentricities(result: ResultReader, size: int) -> dict[str, Any]:
    """Return facts about at most ``size`` evenly spaced sources.

    ``eccentricities`` are the largest finite distances from each source to other targets, None if it reaches none.
    ``reached`` is the number of targets that each source reaches, counting the source if it is a target; ``central``
    says which sources reach enough targets to be compared for the radius (``engine.rows.summary.comparable``).
    """
    matrix = result.matrix
    down = matrix.shape[0]
    i = spread(0, down, _rows_within(result, 0, down, size))
    sources = matrix.sources[i]
    found: list[int | float | None] = []
    reach = np.zeros(len(i), np.int64)
    for k, (source, row) in enumerate(zip(sources.tolist(), _rows(matrix, i), strict=True)):
        reached = result.reached(row)
        reach[k] = np.count_nonzero(reached)
        others = row[reached & (matrix.targets != source)]
        found.append(result.numbers(others[[int(np.argmax(others))]])[0] if len(others) else None)
    names = [result.label(v) for v in sources.tolist()]
    least = matrix.summary.get("central_reach")  # sources that reach fewer targets do not count for the radius
    central = reach >= least if isinstance(least, int) else comparable(reach)
    return {
        "sources": names, "eccentricities": found, "reached": reach.tolist(), "central": central.tolist(),
        "of": down, "complete": len(i) == down,
    }  # fmt: skip


def _rows(matrix: Matrix, positions: IntArray) -> Iterator[Array]:
    """Yield the rows at ascending positions.  Rows in the same tiles are read together, because a compressed tile can
    only be read as a whole.
    """
    most = max(1, _HELD // max(1, matrix.shape[1] * matrix.dtype.itemsize))
    bands = positions // matrix.grid.tile[0]
    for group in np.split(positions, np.flatnonzero(np.diff(bands)) + 1):
        for begin in range(0, len(group), most):
            yield from matrix.rows(matrix.sources[group[begin : begin + most]])


def _extent(side: str, first: int, count: int | None, limit: int) -> int:
    size = limit - first if count is None else count
    if first + size > limit or size < 1:
        message = f"{side}s {first} to {first + size} leave the matrix, which has {limit} {side}s"
        raise InvalidRequest(message, field=side if first >= limit else f"{side}s")
    return size


def _rows_within(result: ResultReader, first: int, count: int, most: int) -> int:
    """Return how many rows to read, at most ``most`` and at least ``_FEWEST``, so that their tiles stay within
    ``BUDGET``.
    """
    grid = result.matrix.grid
    band = grid.counts[1] * grid.tile_bytes(result.matrix.dtype.itemsize)
    height = grid.tile[0]
    bands = (first + count - 1) // height - first // height + 1
    return most if bands * band <= BUDGET else max(_FEWEST, min(most, BUDGET // band))
