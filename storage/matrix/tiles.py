"""Reads only the needed bytes of the tiles of a sealed store; raises an error if a tile is missing or damaged."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import NotFound, StorageFailed
from storage.files.atomic import set_aside
from storage.files.checksum import crc32c
from storage.matrix.format import DISTANCES, Array, IntArray, decompress
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid

#: If at least this many entries of a tile are wanted, one read of the whole tile is faster than one read per entry.
_WHOLE_TILE_ENTRIES: Final = 128
#: On Linux, this flag makes a read fail unless it is served from memory; elsewhere it is 0, and reads always wait.
NO_WAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class StoreFolder:
    """The folder of a store, held open, so that files of another store that replaces it at the same path are never
    read.

    Attributes:
        path: the path that the caller gave, for messages.
        root: the path at which the folder was found: ``path``, or a path next to it while a writer swaps two stores by
            renaming.
        handle: descriptor of the folder; released by ``close`` or with the last reference to this object.
    """

    def __init__(self, path: Path) -> None:
        """Open the folder.  Raises NotFound if there is none, StorageFailed if it cannot be opened."""
        self.path = path
        # A writer may swap two stores by renaming.  If it finishes between the first two attempts, the third one
        # succeeds.
        for self.root in (path, set_aside(path), path):
            try:
                self.handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._release = weakref.finalize(self, os.close, self.handle)
                status = os.fstat(self.handle)
                self._identity, self._name = (status.st_dev, status.st_ino), str(self.root)
                return
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageFailed(f"{path} is no matrix store: {error.strerror}") from error
        raise NotFound(f"there is no store at {path}")

    def close(self) -> None:
        """Release the descriptor; reading raises StorageFailed afterwards."""
        self.handle = -1
        self._release()

    def current(self) -> bool:
        """Return whether ``root`` still leads to the folder that was opened."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - called before every answer
        except OSError:
            return False
        return self.handle >= 0 and (found.st_dev, found.st_ino) == self._identity

    def open(self, name: str) -> int:
        """Open a file in the folder for reading.  Raises OSError, and StorageFailed if the store is gone."""
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.handle)
        except OSError as error:
            if self.handle < 0:
                raise StorageFailed(f"{self.path} has been closed") from error
            if not self.current():
                raise StorageFailed(f"{self.path} was replaced or removed while open; open it again") from error
            raise

    def open_inside(self, name: str) -> int:
        """Open a file in the folder, to send it to a client.  A symbolic link in the name is refused, so no name leads
        outside the folder.
        """
        *folders, last = name.split("/")
        here = self.handle
        try:
            for folder in folders:
                above, here = here, os.open(folder, _FOLDER_FLAGS, dir_fd=here)
                if above != self.handle:
                    os.close(above)
            return os.open(last, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=here)
        except OSError as error:
            if self.handle < 0 or not self.current():
                raise StorageFailed(f"{self.path} was replaced, removed or closed while open") from error
            raise
        finally:
            if here != self.handle:
                os.close(here)

    def arrays(self, names: Iterable[str]) -> Path:  # noqa: ARG002 - all lie in the folder
        """Return the path that Zarr must open to read the files ``names``: the folder itself, which has all files."""
        return self.root

    def size(self, name: str) -> int:
        """Return the size in bytes of a regular file in the folder; -1 for anything else.  Raises OSError."""
        status = os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        return status.st_size if stat.S_ISREG(status.st_mode) else -1

    def read(self, name: str) -> bytes:
        """Return a whole file of the folder.  Raises StorageFailed."""
        try:
            with os.fdopen(self.open(name), "rb") as file:
                return file.read()
        except OSError as error:
            raise StorageFailed(f"{self.path} is unsealed or damaged: {name}: {error.strerror}") from error


class TileReader:
    """The tiles of a sealed store.  Safe to use from many threads.

    The first access to a tile reads all of it and compares its checksum with the manifest; later accesses read only the
    bytes that they need.

    Attributes:
        far: whether reading a tile takes so long that callers should request several at a time, with ``prepare``.
    """

    far = False

    def __init__(
        self,
        folder: StoreFolder,
        grid: TileGrid,
        dtype: np.dtype[np.generic],
        checksums: npt.NDArray[np.uint32],
        sizes: npt.NDArray[np.int64],
        *,
        compressed: bool,
        name: str = DISTANCES,
    ) -> None:
        """Read tiles of the array ``name``; ``dtype`` is little-endian, and ``checksums`` and ``sizes`` (bytes) have an
        entry for each tile.
        """
        self._name = name
        if not checksums.shape == sizes.shape == grid.counts:
            raise StorageFailed(f"{folder.path} is damaged: its manifest does not fit a matrix of {grid.shape}")
        self._folder, self._grid, self._dtype, self._compressed = folder, grid, dtype, compressed
        self._checksums, self._sizes = checksums, sizes
        self._verified = np.zeros(grid.counts, np.bool_)
        self._local = threading.local()

    @property
    def total_bytes(self) -> int:
        """Bytes of all tile files."""
        return int(self._sizes.sum())

    def prepare(self, tiles: list[tuple[int, int]]) -> None:
        """Begin to read tiles that will be needed soon; does nothing for tiles on a disk."""

    def copy_rows(self, i: int, j: int, offsets: IntArray, wanted: IntArray, out: Array) -> None:
        """Copy rows of tile (i, j) into ``out``.

        Args:
            i, j: row and column of the tile in the grid.
            offsets: the rows, counted from the top of the tile, shape (k,).
            wanted: the rows of ``out`` that receive them, shape (k,).
            out: shape (rows, columns of the matrix); only the columns of the tile are written.

        Raises:
            StorageFailed: the tile is missing or damaged.
        """
        columns = self._grid.slices(i, j)[1]
        if self._compressed or not self._verified[i, j]:
            out[wanted, columns] = self.whole(i, j)[offsets, : columns.stop - columns.start]
            return
        handle = self._open_tile(i, j)
        try:
            for k, offset in zip(wanted.tolist(), offsets.tolist(), strict=True):
                segment = out[k, columns]
                if (
                    os.preadv(handle, [segment.data], offset * self._grid.tile[1] * self._dtype.itemsize)
                    != segment.nbytes
                ):
                    raise self._damaged(i, j, "it is too short")
        except OSError as error:
            raise self._damaged(i, j, str(error)) from error
        finally:
            os.close(handle)

    def pick(self, i: int, j: int, offsets: IntArray, columns: IntArray) -> Array:
        """Return some entries of tile (i, j), shape (k,).

        Args:
            i, j: row and column of the tile in the grid.
            offsets, columns: row and column of each entry, counted from the tile's upper left corner, shape (k,).

        Raises:
            StorageFailed: the tile is missing or damaged.
        """
        if self._compressed or not self._verified[i, j] or len(offsets) >= _WHOLE_TILE_ENTRIES:
            picked: Array = self.whole(i, j)[offsets, columns]
            return picked
        size = self._dtype.itemsize
        handle = self._open_tile(i, j)
        try:
            places = ((offsets * self._grid.tile[1] + columns) * size).tolist()
            data = b"".join(os.pread(handle, size, place) for place in places)
        except OSError as error:
            raise self._damaged(i, j, str(error)) from error
        finally:
            os.close(handle)
        if len(data) != size * len(places):
            raise self._damaged(i, j, "it is too short")
        return np.frombuffer(data, self._dtype)

    def peek(self, i: int, j: int, offset: int, column: int) -> bytes | None:
        """Return one entry of tile (i, j) as stored, without waiting for the disk.

        Args:
            i, j: row and column of the tile in the grid.
            offset, column: row and column of the entry, counted from the tile's upper left corner.

        Returns:
            The bytes of the entry; None if the tile was never verified or is compressed.

        Raises:
            BlockingIOError: the entry is not in memory; the kernel was asked to read it.
        """
        if self._compressed or not self._verified[i, j]:
            return None
        size = self._dtype.itemsize
        entry = bytearray(size)
        place = (offset * self._grid.tile[1] + column) * size
        handle = self._open_tile(i, j)
        try:
            return bytes(entry) if os.preadv(handle, [entry], place, NO_WAIT) == size else None
        except BlockingIOError:
            os.posix_fadvise(handle, place, size, os.POSIX_FADV_WILLNEED)
            raise
        except OSError:  # the file system lacks NO_WAIT, or the disk is damaged: the caller reads in the usual way
            return None
        finally:
            os.close(handle)

    def size(self, i: int, j: int) -> int:
        """Return the bytes of the file of tile (i, j)."""
        return int(self._sizes[i, j])

    def whole(self, i: int, j: int) -> Array:
        """Return tile (i, j) with its padding, verified; the array is valid until the thread's next call."""
        data = self._read_tile(i, j)
        body = data[:-CHECKSUM_BYTES]
        checksum = crc32c(body)
        stored = int.from_bytes(data[-CHECKSUM_BYTES:].tobytes(), "little")
        if not checksum == stored == int(self._checksums[i, j]):
            raise self._damaged(i, j, "its checksum is not that of the manifest")
        self._verified[i, j] = True
        if not self._compressed:
            return body.view(self._dtype).reshape(self._grid.tile)
        return decompress(body, self._dtype).reshape(self._grid.tile)

    def _read_tile(self, i: int, j: int) -> npt.NDArray[np.uint8]:
        size = int(self._sizes[i, j])
        buffer: npt.NDArray[np.uint8] | None = getattr(self._local, "buffer", None)
        if buffer is None or len(buffer) < size:
            buffer = self._local.buffer = np.empty(size, np.uint8)
        handle = self._open_tile(i, j)
        try:
            found = os.fstat(handle).st_size
            if found != size:
                raise self._damaged(i, j, f"it has {found:,} bytes instead of {size:,}")
            done = 0
            while done < size:
                part = os.preadv(handle, [buffer[done:size].data], done)
                if part == 0:
                    raise self._damaged(i, j, "it is too short")
                done += part
        except OSError as error:
            raise self._damaged(i, j, str(error)) from error
        finally:
            os.close(handle)
        return buffer[:size]

    def _open_tile(self, i: int, j: int) -> int:
        try:
            return self._folder.open(f"{self._name}/c/{i}/{j}")
        except FileNotFoundError as error:
            raise self._damaged(i, j, "it is missing") from error
        except OSError as error:
            raise self._damaged(i, j, str(error)) from error

    def _damaged(self, i: int, j: int, why: str) -> StorageFailed:
        rows, columns = self._grid.slices(i, j)
        where = f"rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}"
        name = f"{self._name}/c/{i}/{j}"
        return StorageFailed(f"{self._folder.path} is damaged: tile ({i}, {j}), {where}, file {name}: {why}")
