"""The tile grid of a matrix: which tile holds an entry, which entries a tile holds, and how the tile size is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from storage.errors import InvalidRequest

#: Rows of a tile.  Sources are solved and written in bands of this height, and reading a row reads at most one band.
TILE_ROWS: Final = 64
#: The largest number of bytes of a row of a tile; 64 rows of this size make a file of 2 MiB.
SEGMENT_BYTES: Final = 32_768
#: The width of tiles is a multiple of this many entries, so that each row of float32 begins at a multiple of 256 bytes.
ALIGNMENT: Final = 64
#: Every tile file ends with its checksum (CRC-32C, four bytes).
CHECKSUM_BYTES: Final = 4


@dataclass(frozen=True)
class TileGrid:
    """A matrix of ``shape`` cut into tiles of ``tile`` (rows, columns); tiles at the edge are padded to full size."""

    shape: tuple[int, int]
    tile: tuple[int, int]

    @property
    def counts(self) -> tuple[int, int]:
        """Number of tiles down, and number of tiles across."""
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        down, across = self.counts
        return down * across

    def slices(self, i: int, j: int) -> tuple[slice, slice]:
        """Return the rows and columns of the matrix that tile (i, j) holds, without its padding."""
        (rows, columns), (height, width) = self.shape, self.tile
        return slice(i * height, min((i + 1) * height, rows)), slice(j * width, min((j + 1) * width, columns))

    def covered(self, row: int, column: int, height: int, width: int) -> Iterator[tuple[int, int]]:
        """Return the tiles (i, j) that make up a rectangle, row by row.

        Args:
            row, column: the upper left entry of the rectangle.
            height, width: number of rows and of columns of the rectangle.

        Raises:
            InvalidRequest: the rectangle leaves the matrix or cuts a tile.
        """
        downwards = _covered(row, height, self.tile[0], self.shape[0], "row")
        across = _covered(column, width, self.tile[1], self.shape[1], "column")
        return ((i, j) for i in downwards for j in across)

    def tile_bytes(self, itemsize: int) -> int:
        """Return the bytes of one uncompressed tile file, padding and checksum included."""
        return self.tile[0] * self.tile[1] * itemsize + CHECKSUM_BYTES

    def total_bytes(self, itemsize: int) -> int:
        """Return the bytes of all uncompressed tile files together."""
        return self.tiles * self.tile_bytes(itemsize)


def layout(shape: tuple[int, int], itemsize: int) -> TileGrid:
    """Return the grid of a store for a matrix of this shape, with entries of ``itemsize`` bytes.

    Tiles are flat: they have 64 rows of at most 32 KiB, and there are as few tiles across as possible.  All tiles have
    the same width, so that padding at the edge takes less than ``ALIGNMENT`` entries per row and tile.
    ``docs/decisions/003-matrix-layout.md`` has the measurements.
    """
    rows, columns = shape
    across = max(1, -(-columns * itemsize // SEGMENT_BYTES))
    width = max(1, -(-columns // across))
    if across > 1:
        width = -(-width // ALIGNMENT) * ALIGNMENT
    return TileGrid(shape=(rows, columns), tile=(max(1, min(TILE_ROWS, rows)), width))


def _covered(begin: int, size: int, tile: int, limit: int, axis: str) -> range:
    end = begin + size
    if begin < 0 or size < 0 or end > limit:
        raise InvalidRequest(
            f"{axis}s {begin} to {end} lie outside of the matrix, which has {limit} {axis}s", field=axis
        )
    if begin % tile or (end % tile and end != limit):
        raise InvalidRequest(
            f"{axis}s {begin} to {end} cut a tile: begin and end at a multiple of {tile}, or end at {limit}", field=axis
        )
    return range(begin // tile, -(-end // tile))
