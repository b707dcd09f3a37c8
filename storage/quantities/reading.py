"""Reads one array of tiles of a sealed store: the distances, or the sums of a quantity along the shortest paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from storage.errors import InvalidRequest
from storage.matrix.format import ALSO, Array, IntArray
from storage.matrix.grid import TileGrid
from storage.matrix.tiles import StoreFolder, TileReader
from storage.threads import in_threads

if TYPE_CHECKING:
    from storage.matrix.reader import Matrix

_VERIFY_THREADS: Final = 4
#: Sums of two bytes are read as int32, with this value for *no path*, like sums that are stored as int32.
_WIDE: Final = np.dtype(np.int32)
_WIDE_UNREACHABLE: Final = 2**30 - 1


def rows_of(tiles: TileReader, grid: TileGrid, stored: np.dtype[Any], positions: IntArray) -> Array:
    """Return rows of the matrix, in the order of ``positions``.

    Args:
        tiles: reads the tiles.
        grid: the grid of the tiles.
        stored: type of the entries, little-endian.
        positions: numbers of the rows, shape (k,).

    Returns:
        The rows, shape (k, columns), in the machine's order of bytes.

    Raises:
        StorageFailed: a tile is missing or damaged.
    """
    out = np.empty((len(positions), grid.shape[1]), stored)
    bands = positions // grid.tile[0]
    for i in np.unique(bands).tolist():
        wanted = np.flatnonzero(bands == i)
        if tiles.far:
            tiles.prepare([(i, j) for j in range(grid.counts[1])])
        for j in range(grid.counts[1]):
            tiles.copy_rows(i, j, positions[wanted] - i * grid.tile[0], wanted, out)
    return out.astype(stored.newbyteorder("="), copy=False)


def entries_of(
    tiles: TileReader, grid: TileGrid, stored: np.dtype[Any], positions: IntArray, columns: IntArray
) -> Array:
    """Return entries by their rows and columns, shape (k,); entries of the same tile are read together.

    Args:
        tiles, grid, stored: reader, grid and entry type of the tiles, as for :func:`rows_of`.
        positions, columns: row and column of each entry, shape (k,).

    Raises:
        InvalidRequest: ``positions`` and ``columns`` have different lengths.
        StorageFailed: a tile is missing or damaged.
    """
    if positions.shape != columns.shape:
        raise InvalidRequest(f"{len(positions)} sources do not pair with {len(columns)} targets", field="targets")
    out = np.empty(len(columns), stored)
    height, width = grid.tile
    numbers = (positions // height) * grid.counts[1] + columns // width
    order = np.argsort(numbers, kind="stable")
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    if tiles.far:
        tiles.prepare([divmod(tile, grid.counts[1]) for tile in numbers[order][first].tolist()])
    for group in np.split(order, first[1:]) if len(order) else []:
        i, j = divmod(int(numbers[group[0]]), grid.counts[1])
        out[group] = tiles.pick(i, j, positions[group] - i * height, columns[group] - j * width)
    return out.astype(stored.newbyteorder("="), copy=False)


def check_all(tiles: TileReader, grid: TileGrid) -> None:
    """Compare every tile with the manifest.  Raises StorageFailed."""
    down, across = grid.counts

    def check(tile: int) -> None:
        tiles.whole(*divmod(tile, across))

    in_threads(_VERIFY_THREADS, check, range(down * across))


class QuantityMatrix:
    """The sums of one quantity along the shortest paths of a store; safe to use from many threads.

    Rows and columns are those of the distances.  An entry is ``unreachable`` exactly where the distance is.

    Attributes:
        name: name of the quantity.
        stored_dtype: the type of the array: uint16, int32 or float64.
        dtype: the type of the entries that are returned: int32 or float64.
        unreachable: the value for *no path*: +inf for floats, the sentinel for integers.
        shape: rows (sources) and columns (targets).
    """

    def __init__(self, matrix: Matrix, name: str, folder: StoreFolder, tiles: TileReader) -> None:
        """Open the sums; callers use ``Matrix.also`` instead."""
        about = matrix.attributes[ALSO][name]
        self.name, self._matrix, self._tiles = name, matrix, tiles
        self._folder = folder
        self.stored_dtype: np.dtype[Any] = np.dtype(str(about["type"]))
        self._stored = self.stored_dtype.newbyteorder("<")
        self._none: Any = self.stored_dtype.type(float(about["unreachable"]))
        short = self.stored_dtype == np.uint16
        self.dtype: np.dtype[Any] = _WIDE if short else self.stored_dtype
        self.unreachable: Any = self.dtype.type(_WIDE_UNREACHABLE) if short else self._none
        self.shape = matrix.shape

    @property
    def bytes(self) -> int:
        """Bytes of all tiles."""
        return self._tiles.total_bytes

    def size(self, i: int, j: int) -> int:
        """Return the bytes of the file of tile (i, j)."""
        return self._tiles.size(i, j)

    def rows(self, sources: Sequence[int] | IntArray) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns).

        Raises NotFound if a vertex is not one of the sources of the store.
        """
        positions = self._matrix.source_positions(sources)
        return self._widened(rows_of(self._tiles, self._matrix.grid, self._stored, positions))

    def row(self, source: int) -> Array:
        """Return the sums from a source (vertex index), shape (columns,).  Raises NotFound if the vertex is not a
        source of the store.
        """
        row: Array = self.rows([source])[0]
        return row

    def entries(self, sources: Sequence[int] | IntArray, targets: Sequence[int] | IntArray) -> Array:
        """Return the sums of pairs (vertex indices), shape (k,).  Raises NotFound for a vertex that is no source or
        target.
        """
        matrix = self._matrix
        places = matrix.source_positions(sources), matrix.target_positions(targets)
        return self._widened(entries_of(self._tiles, matrix.grid, self._stored, *places))

    def _widened(self, entries: Array) -> Array:
        """Return stored entries in the type in which they are read."""
        if self.dtype == self.stored_dtype:
            return entries
        wide = entries.astype(self.dtype)
        wide[entries == self._none] = self.unreachable
        return wide

    def block(self, sources: Sequence[int] | IntArray, targets: Sequence[int] | IntArray) -> Array:
        """Return the sums from each source to each target (vertex indices), shape (sources, targets)."""
        return np.ascontiguousarray(self.rows(sources)[:, self._matrix.target_positions(targets)])

    def check(self) -> None:
        """Read every tile again and compare it with the manifest.  Raises StorageFailed."""
        check_all(self._tiles, self._matrix.grid)
