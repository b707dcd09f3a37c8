"""Writes the tiles of a quantity into a store in the making, as an array beside the distances.  Tiles are made durable
before a commit counts them.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest, StorageFailed
from storage.files import atomic, direct
from storage.files.checksum import crc32c
from storage.files.memory import PutTile, in_memory, put_tile
from storage.matrix.format import ALSO, Array, compress, decompress, fill_value
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid
from storage.matrix.side_arrays import side_array

#: At most this number of new tiles is not yet durable; the thread that writes one more makes all of them durable.
_PENDING: Final = 128


class QuantityTiles:
    """The tiles of one quantity.  Many threads may write different tiles.

    Args:
        store: the folder of the store in the making.
        name: name of the quantity.
        grid: the grid of the tiles, which is that of the distances.
        about: ``type`` and ``unreachable`` of the entries.
        compressed: whether tiles are compressed.

    Attributes:
        put: writes the file of a tile in memory in one call without the GIL; None to write it in several.
    """

    def __init__(self, store: Path, name: str, grid: TileGrid, about: dict[str, Any], *, compressed: bool) -> None:
        self.name, self._grid, self._compressed = name, grid, compressed
        self.dtype: np.dtype[np.generic] = np.dtype(str(about["type"])).newbyteorder("<")
        self.unreachable = self.dtype.type(float(about["unreachable"]))
        self._fill = self.dtype.type(fill_value(np.dtype(str(about["type"])), 0))
        self._store, self._folder = store, store / ALSO / name / "c"
        self._checksums = np.zeros(grid.counts, np.uint32)
        self._sizes = np.zeros(grid.counts, np.int64)
        self._lock = threading.Lock()
        self._unsynced: list[Path] = []
        self._in_memory = in_memory(store)
        self.put: PutTile | None = None
        self.failed: StorageFailed | None = None
        for draft in self._folder.glob("*/*~"):  # drafts left by a process that ended while it wrote
            draft.unlink(missing_ok=True)

    def write(self, row: int, block: Array) -> None:
        """Write whole rows; a tile may be written again, and then holds the last block.

        Args:
            row: index of the first row, which is also the first row of a tile.
            block: shape (rows, columns of the matrix), of the type of the quantity.

        Raises:
            InvalidRequest: the block is of another type or shape, or covers only a part of a tile.
            StorageFailed: the file system refused.
        """
        if block.ndim != 2 or block.dtype != self.dtype or block.shape[1] != self._grid.shape[1]:
            asked = f"{block.dtype.name} of shape {block.shape}"
            raise InvalidRequest(
                f"quantity {self.name!r} takes whole rows of {self.dtype.name}, not {asked}", field="block"
            )
        for i, j in self._grid.covered(row, 0, *block.shape):
            rows, columns = self._grid.slices(i, j)
            self._write_tile(i, j, block[rows.start - row : rows.stop - row, columns])

    def _write_tile(self, i: int, j: int, part: Array) -> None:
        path = self._folder / str(i) / str(j)
        draft = path.with_name(f"{j}~")
        try:
            checksum, size = self._write_draft(draft, part)
            draft.replace(path)
        except OSError as error:
            raise atomic.failure("write tile", path, error, self._grid.tile_bytes(part.itemsize)) from error
        self._checksums[i, j], self._sizes[i, j] = checksum, size
        if self._in_memory:
            return
        with self._lock:
            self._unsynced.append(path)
            full = len(self._unsynced) > _PENDING
        if full:
            self.settle()

    def _write_draft(self, draft: Path, part: Array) -> tuple[int, int]:
        """Write the file of a tile; return the checksum of its content, and its bytes.  Raises OSError."""
        shape = self._grid.tile
        if self.put is not None and self._in_memory and not self._compressed:
            return put_tile(self.put, str(draft), part, shape, self._fill, CHECKSUM_BYTES)
        tile = direct.padded(part, shape, self._fill, CHECKSUM_BYTES)
        data = compress(tile) if self._compressed else tile
        checksum, size = crc32c(data), len(data) if isinstance(data, bytes) else data.nbytes
        atomic.write_file(draft, [data, checksum.to_bytes(CHECKSUM_BYTES, "little")], flush=not self._in_memory)
        return checksum, size + CHECKSUM_BYTES

    def settle(self) -> None:
        """Make all written tiles durable, and the folders that contain them.

        Raises:
            StorageFailed: the file system refused, now or in an earlier call: once an fsync has failed, later fsyncs
                prove nothing.
        """
        with self._lock:
            if self.failed is not None:
                raise self.failed
            files, self._unsynced = self._unsynced, []
            try:
                for path in files:
                    direct.settle_file(path)
                folders = {path.parent for path in files}
                for folder in [*folders, self._folder, self._folder.parent, self._folder.parent.parent]:
                    atomic.sync_path(folder)
            except OSError as error:
                self.failed = atomic.failure("make tiles durable in", self._folder, error)
                raise self.failed from error

    def finish(self) -> None:
        """Check that every tile exists, and write the manifest, which has their sizes and checksums.

        Tiles that an earlier process wrote are read and compared with their own checksums.

        Raises:
            StorageFailed: a tile is missing or damaged, or the file system refused.
        """
        for i, j in np.argwhere(self._sizes == 0).tolist():
            self._take_up(i, j)
        manifest = self._store / "manifest"
        side_array(manifest / f"{ALSO}.{self.name}.crc32c", self._checksums, ("tile_row", "tile_column"))
        side_array(manifest / f"{ALSO}.{self.name}.bytes", self._sizes, ("tile_row", "tile_column"))

    def _take_up(self, i: int, j: int) -> None:
        path = self._folder / str(i) / str(j)
        try:
            data: npt.NDArray[np.uint8] = direct.load_file(path, in_memory=self._in_memory)
        except FileNotFoundError:
            raise StorageFailed(f"tile ({i}, {j}) of quantity {self.name!r}, file {path}, was never written") from None
        except OSError as error:
            raise atomic.failure("read tile", path, error) from error
        body = data[:-CHECKSUM_BYTES]
        whole = self._compressed or len(data) == self._grid.tile_bytes(self.dtype.itemsize)
        checksum = crc32c(body) if len(data) > CHECKSUM_BYTES else -1
        if not whole or checksum != int.from_bytes(data[-CHECKSUM_BYTES:].tobytes(), "little"):
            raise StorageFailed(f"tile ({i}, {j}) of quantity {self.name!r}, file {path}, is damaged")
        if self._compressed:
            decompress(body, self.dtype)
        self._checksums[i, j], self._sizes[i, j] = checksum, len(data)
