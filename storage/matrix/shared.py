"""A store in the making that several processes work on: one process owns it, and the others are its guests.

A guest reads tiles, and writes new tiles into files of its own in an *exchange folder*; only the owner renames these
files to tiles of the store (``WorkingMatrix.adopt``).  The owner ignores the files of a guest that it has given up,
even if that guest still writes.  No process waits for a lock, and every tile is replaced atomically.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import StorageFailed
from storage.files import atomic
from storage.graph.graph import Graph
from storage.matrix.exchange import Marks, TileFile
from storage.matrix.format import Array
from storage.matrix.grid import TileGrid
from storage.matrix.working import WorkingMatrix
from storage.matrix.writer import MatrixWriter


class _Guest:
    """Stand-in for ``atomic.Staging`` with only the attributes that a writer reads: a guest never publishes."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.target = folder
        self.pending = False


class GuestMatrix(WorkingMatrix):
    """A store in the making, for a process that does not own it.  Several threads may use different tiles.

    Args:
        folder: the folder of the store in the making.
        exchange_dir: the folder for new files.
        grid, dtype, compression: tiling, type of the entries and compression of the owner's matrix.
    """

    def __init__(self, folder: Path, exchange_dir: Path, grid: TileGrid, dtype: str, compression: str) -> None:
        attributes = {"type": dtype, "compression": compression}
        MatrixWriter.__init__(self, _Guest(folder), grid, attributes, overwrite=False)  # type: ignore[arg-type]
        self._folder, self._exchange_dir = folder, exchange_dir

    def graph(self) -> Graph:
        """Read the graph, with vertex indices as labels.  Raises StorageFailed."""
        import zarr

        try:
            group = zarr.open_group(self._folder / "graph", mode="r")
            arcs: dict[str, Any] = {name: np.asarray(group[name][...]) for name in ("indptr", "heads", "weights")}  # type: ignore[index]
            about = dict(group.attrs)
        except Exception as error:
            raise StorageFailed(f"the graph in {self._folder} cannot be read ({error!r})") from error
        labels = np.arange(len(arcs["indptr"]) - 1)
        return Graph(labels=labels, directed=bool(about["directed"]), weighted=bool(about["weighted"]), **arcs)

    def read_tile(self, i: int, j: int, out: Array) -> None:
        """Read a tile as the base class does, then forget its expected size: the owner may replace the tile later."""
        super().read_tile(i, j, out)
        self._sizes[i, j] = 0

    def believe(self, marks: Marks) -> None:
        """Set the checksums to expect when the tiles of ``marks`` are read next; other content is an error."""
        rows = slice(marks.first, marks.first + len(marks.sizes))
        self._sizes[rows], self._checksums[rows] = marks.sizes, marks.checksums

    def write_tile(self, i: int, j: int, part: Array) -> TileFile:
        """Write a tile durably into a new file in the exchange folder.

        Args:
            i, j: row and column of the tile in the grid.
            part: the entries of the tile without padding; the shape is at most that of a whole tile.

        Raises:
            StorageFailed: the file system refused.
        """
        buffers, checksum, size = self._with_trailer(self._content(part))
        path = self._exchange_dir / f"tile-{i}-{j}-{secrets.token_hex(8)}"
        try:
            atomic.overwrite_file(path, buffers, size, in_memory=self.in_memory)
        except OSError as error:
            raise atomic.failure("write tile", path, error, size) from error
        return TileFile(i, j, path.name, size, checksum)
