"""Reduces a matrix of any size to a small image, one band of tiles at a time; ``apsp plot`` draws it.

Imports NumPy, so import it only when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from engine.model.progress import Monitor
from storage.matrix.sealed import SealedResult

Order = Literal["near", "label"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Observer = Callable[[int, npt.NDArray[np.generic]], None]

#: Number of entries that are converted to float64 at a time; these take 8 MiB.
_PIECE: Final = 2**20


@dataclass(frozen=True)
class Picture:
    """A matrix, or the parts of it that were read, reduced to an image.

    Attributes:
        image: mean of the entries with a path in each cell, shape (height, width); NaN for a cell without paths.
        eccentricities: the largest distance to another vertex, for each row read that reaches another vertex.
        rows_read, rows: the number of rows that were read, and of all rows of the matrix.
    """

    image: Floats
    eccentricities: Floats
    rows_read: int
    rows: int


def take_picture(
    matrix: SealedResult, *, side: int, budget: int, order: Order, monitor: Monitor, observe: Observer | None = None
) -> Picture:
    """Read the matrix and reduce it to at most ``side`` by ``side`` cells.

    Args:
        matrix: an open result.
        side: the most rows and columns of the picture.
        budget: the most bytes of tiles to read, but at least one band (row of tiles) is read; of a larger matrix,
            evenly spaced bands are read.
        order: how rows and columns are ordered: ``near`` keeps regions of the graph together, ``label`` is as stored.
        monitor: receives the progress in bytes.
        observe: called for each block of whole rows that is read, with the number of rows read before it and the block.
    """
    rows, columns = matrix.shape
    height, width = min(side, rows), min(side, columns)
    row_rank, column_rank = _ranks(matrix, order)
    columns_in_order = np.argsort(column_rank, kind="stable")
    starts = np.arange(width) * columns // width
    sums, counts = np.zeros((height, width)), np.zeros((height, width), np.int64)
    largest: list[Floats] = []
    bands = picture_rows(matrix, budget)
    monitor.begin("read", matrix.shape[1] * sum(map(len, bands)) * matrix.dtype.itemsize, "bytes")
    seen_rows = 0
    for positions, piece in _pieces(matrix, bands, monitor):
        if observe is not None:
            observe(seen_rows, piece)
        seen_rows += len(piece)
        reached = np.not_equal(piece, matrix.unreachable)
        entries = np.where(reached, piece, 0).astype(np.float64)
        cell = row_rank[positions] * height // rows
        np.add.at(sums, cell, np.add.reduceat(entries[:, columns_in_order], starts, axis=1))
        np.add.at(counts, cell, np.add.reduceat(reached[:, columns_in_order], starts, axis=1, dtype=np.int64))
        largest.append(_largest(matrix, positions, entries, reached))
    image = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    seen = np.zeros(height, bool)
    seen[row_rank[np.concatenate(bands)] * height // rows] = True
    return Picture(_filled(image, seen), np.concatenate(largest), sum(map(len, bands)), rows)


def _ranks(matrix: SealedResult, order: Order) -> tuple[Ints, Ints]:
    """Return the position of each row and of each column in the order of the picture."""
    if order == "label":
        return np.arange(matrix.shape[0]), np.arange(matrix.shape[1])
    from engine.graph.ordering import halved_places

    graph = matrix.graph()
    places = halved_places(graph.indptr, graph.heads)
    return _rank(places[matrix.sources]), _rank(places[matrix.targets])


def _rank(places: npt.NDArray[np.int32]) -> Ints:
    rank = np.empty(len(places), np.int64)
    rank[np.argsort(places, kind="stable")] = np.arange(len(places))
    return rank


def picture_rows(matrix: SealedResult, budget: int) -> list[Ints]:
    """Return the rows to read, an array for each band of tiles: all bands, or as many evenly spaced bands as the budget
    in bytes allows.
    """
    height, there = matrix.grid.tile[0], matrix.grid.counts[0]
    band_bytes = matrix.grid.tile_bytes(matrix.dtype.itemsize) * matrix.grid.counts[1]
    wanted = max(1, min(there, budget // band_bytes))
    selected = (2 * np.arange(wanted) + 1) * there // (2 * wanted)
    return [np.arange(k * height, min((k + 1) * height, matrix.shape[0])) for k in selected.tolist()]


def _pieces(
    matrix: SealedResult, bands: list[Ints], monitor: Monitor
) -> Iterator[tuple[Ints, npt.NDArray[np.generic]]]:
    """Yield the rows of ``bands``, some at a time: their positions, and their entries."""
    step = max(1, _PIECE // matrix.shape[1])
    for positions in bands:
        band = matrix.rows(matrix.sources[positions])
        for first in range(0, len(positions), step):
            yield positions[first : first + step], band[first : first + step]
        monitor.step(band.nbytes)


def _largest(matrix: SealedResult, positions: Ints, entries: Floats, reached: npt.NDArray[np.bool_]) -> Floats:
    """Return the eccentricity of each row that reaches a vertex other than its own."""
    others = reached & (matrix.targets != matrix.sources[positions][:, None])
    found: Floats = np.max(entries, axis=1, where=others, initial=-np.inf)
    kept: Floats = found[others.any(axis=1)]
    return kept


def _filled(image: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """Fill each row of the picture without data with the nearest row with data above it, or with the first such row."""
    last = np.maximum.accumulate(np.where(seen, np.arange(len(seen)), int(np.argmax(seen))))
    return image[last]
