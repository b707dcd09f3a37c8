"""Reads a sealed store from an object store: tiles are fetched whole, verified once, and cached in memory."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import NotFound, StorageFailed
from storage.matrix.format import DISTANCES, Array, IntArray
from storage.matrix.grid import TileGrid
from storage.matrix.tiles import TileReader
from storage.remote.addresses import SEAL
from storage.remote.objects import Objects, each

if TYPE_CHECKING:
    from zarr.storage import MemoryStore

#: Maximum size in bytes of the cache of tiles that all stores of a process share.
KEPT_BYTES: Final = 256 << 20
#: Time in seconds after which a reader checks again whether the store at the address is still the one that was opened.
_CURRENT_SECONDS: Final = 2.0


class RemoteFolder:
    """The sealed generation of a store in an object store, with the methods of ``storage.matrix.tiles.StoreFolder``.

    Attributes:
        path: the address, for messages.
        modified: when the store was sealed, in seconds since the epoch.
        seal: size, entity tag and time of the object that names the generation.
    """

    def __init__(self, address: str) -> None:
        """Find the sealed generation.  Raises NotFound if no store is sealed at ``address``, StorageFailed if the
        object store refuses.
        """
        self._objects = Objects(address)
        self.path = self._objects.address
        found = self._objects.stat(SEAL)
        if found is None:
            raise NotFound(f"there is no store at {self.path}")
        self.seal, self._tag, self.modified = found, found.tag, found.modified
        try:
            self._generation = str(json.loads(self._objects.read(SEAL))["attributes"]["apsp"]["generation"])
        except NotFound:
            raise NotFound(f"there is no store at {self.path}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise StorageFailed(f"{self.path} is no matrix store: {SEAL} is not understood") from error
        self._lock = threading.Lock()
        self._seen, self._is_current = time.monotonic(), True

    def read(self, name: str) -> bytes:
        """Return a whole object of the store.  Raises StorageFailed."""
        try:
            return self._objects.read(f"{self._generation}/{name}")
        except NotFound:
            if not self._ask():
                raise StorageFailed(f"{self.path} was replaced or removed while open; open it again") from None
            raise StorageFailed(f"{self.path} is unsealed or damaged: {name} is missing") from None

    def open_inside(self, name: str) -> int:
        """Fetch an object into an anonymous file in memory, and open it for reading.  The file has the modification
        time of the seal.
        """
        handle = os.memfd_create("apsp-object", os.MFD_CLOEXEC)
        try:
            rest = memoryview(self.read(name))
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.utime(handle, (self.modified, self.modified))
            os.lseek(handle, 0, os.SEEK_SET)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def size(self, name: str) -> int:
        """Return the size in bytes of an object of the store.  Raises FileNotFoundError, StorageFailed."""
        found = self._objects.stat(f"{self._generation}/{name}")
        if found is None:
            raise FileNotFoundError(f"{self.path}: {name}")
        return found.size

    def arrays(self, names: Iterable[str]) -> MemoryStore:
        """Fetch the objects ``names`` into a store in memory that Zarr reads."""
        from zarr.core.buffer import default_buffer_prototype
        from zarr.storage import MemoryStore

        make = default_buffer_prototype().buffer.from_bytes
        return MemoryStore({name: make(self.read(name)) for name in names})

    def current(self) -> bool:
        """Return whether the last check found this store at the address; an old check is repeated in another thread."""
        with self._lock:
            due = self._is_current and time.monotonic() - self._seen > _CURRENT_SECONDS
            if due:
                self._seen = time.monotonic()
        if due:
            _asking().submit(self._ask)
        return self._is_current

    def close(self) -> None:
        """Do nothing, because this folder has no file descriptor open."""

    def _ask(self) -> bool:
        try:
            found = self._objects.stat(SEAL)
        except StorageFailed:  # the present state is unknown, so the result of the last check is kept
            return self._is_current
        self._is_current = found is not None and found.tag == self._tag
        return self._is_current


_pools: list[ThreadPoolExecutor] = []
_pools_lock = threading.Lock()


def _forget_pools() -> None:
    """In a forked child, forget the pools of threads, because only the parent has the threads."""
    global _pools_lock  # noqa: PLW0603 - another thread may have held it when the process forked
    _pools.clear()
    _pools_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _asking() -> ThreadPoolExecutor:
    with _pools_lock:
        if not _pools:
            _pools.append(ThreadPoolExecutor(1, "current"))
        return _pools[0]


class Kept:
    """A cache of the most recently used tiles, up to ``most`` bytes; safe to use from many threads."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._tiles: OrderedDict[tuple[int, int, int], Array] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int, int]) -> Array | None:
        """Return a tile if it is cached, else None."""
        with self._lock:
            found = self._tiles.get(key)
            if found is not None:
                self._tiles.move_to_end(key)
            return found

    def put(self, key: tuple[int, int, int], tile: Array) -> None:
        """Cache a tile; if the cache is then too large, drop the least recently used tiles."""
        with self._lock:
            before = self._tiles.pop(key, None)
            self._bytes += tile.nbytes - (0 if before is None else before.nbytes)
            self._tiles[key] = tile
            while self._bytes > self._most and len(self._tiles) > 1:
                self._bytes -= self._tiles.popitem(last=False)[1].nbytes


KEPT: Final = Kept(KEPT_BYTES)


#: Numbers that identify readers in ``KEPT``; not ``id()``, because a later object may get the same id.
_numbers = itertools.count()


class RemoteTiles(TileReader):
    """The tiles of a sealed store in an object store; each is fetched whole, verified and cached."""

    far = True

    def __init__(
        self,
        folder: Any,
        grid: TileGrid,
        dtype: np.dtype[np.generic],
        checksums: npt.NDArray[np.uint32],
        sizes: npt.NDArray[np.int64],
        *,
        compressed: bool,
    ) -> None:
        super().__init__(folder, grid, dtype, checksums, sizes, compressed=compressed)
        self._remote: RemoteFolder = folder
        self._number = next(_numbers)

    def prepare(self, tiles: list[tuple[int, int]]) -> None:
        """Fetch the tiles that are not cached, several at a time, but no more than fill half of the cache."""
        most = KEPT_BYTES // 2 // max(1, int(self._sizes.max(initial=1)))
        missing = [tile for tile in tiles[:most] if KEPT.get((self._number, *tile)) is None]
        if len(missing) > 1:
            each(lambda tile: self.whole(*tile), missing)

    def copy_rows(self, i: int, j: int, offsets: IntArray, wanted: IntArray, out: Array) -> None:
        """Copy rows of tile (i, j) into ``out``, with the arguments of the base class."""
        columns = self._grid.slices(i, j)[1]
        out[wanted, columns] = self.whole(i, j)[offsets, : columns.stop - columns.start]

    def pick(self, i: int, j: int, offsets: IntArray, columns: IntArray) -> Array:
        """Return some entries of tile (i, j), with the arguments of the base class."""
        picked: Array = self.whole(i, j)[offsets, columns]
        return picked

    def peek(self, i: int, j: int, offset: int, column: int) -> bytes | None:
        """Return one entry if its tile is cached, else None; the arguments are those of the base class."""
        found = KEPT.get((self._number, i, j))
        return None if found is None else bytes(found[offset, column].tobytes())

    def whole(self, i: int, j: int) -> Array:
        """Return a tile as the base class does.  The array stays valid after further calls, unlike that of the base
        class.
        """
        key = (self._number, i, j)
        found = KEPT.get(key)
        if found is None:
            found = super().whole(i, j)
            KEPT.put(key, found)
        return found

    def _read_tile(self, i: int, j: int) -> npt.NDArray[np.uint8]:
        try:
            data = self._remote.read(f"{DISTANCES}/c/{i}/{j}")
        except StorageFailed as error:
            raise self._damaged(i, j, str(error)) from error
        if len(data) != self.size(i, j):
            raise self._damaged(i, j, f"it has {len(data):,} bytes instead of {self.size(i, j):,}")
        return np.frombuffer(data, np.uint8)
