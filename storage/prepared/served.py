"""The matrix of a prepared graph as a store of Zarr: an ordinary array whose chunks are computed when they are read.

Any program that reads Zarr through zarr-python can read it: ``zarr.open``, ``xarray.open_zarr``, ``dask.array``.
Metadata, keys and bytes, including checksums, are the same as in a stored matrix of the same graph.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from storage.files.checksum import crc32c
from storage.matrix.format import DISTANCES, ROOT_DOCUMENT, distances_document, fill_value, group_document
from storage.matrix.grid import CHECKSUM_BYTES

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, BufferPrototype

    from storage.prepared.reader import PreparedStore

#: Maximum size in bytes of the cache of computed rows: chunks next to each other need the same rows.
CACHE_BYTES: Final = 256 << 20
_TILE: Final = re.compile(rf"{DISTANCES}/c/(0|[1-9][0-9]{{0,9}})/(0|[1-9][0-9]{{0,9}})", re.ASCII)
#: Names of the arrays of labels, with their dimensions.  Here the arrays of sources and of targets are equal: they hold
#: the labels of all vertices.
_LABELS: Final = {"source": "source", "target": "target"}


class ComputedStore(Store):
    """A read-only store of Zarr over a prepared graph; it can be read until the prepared graph is closed.

    Args:
        prepared: the open prepared graph.
        cache: maximum size of the cache of computed rows, in bytes.
    """

    def __init__(self, prepared: PreparedStore, *, cache: int = CACHE_BYTES) -> None:
        super().__init__(read_only=True)
        self._prepared, self._cache = prepared, cache
        self._lock = threading.Lock()
        self._bands: OrderedDict[int, np.ndarray[Any, Any]] = OrderedDict()
        self._documents = self._made_documents()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only what is needed to open the prepared graph again, not what it holds in memory."""
        return _restored, (self._prepared, self._cache)

    def _made_documents(self) -> dict[str, bytes]:
        prepared = self._prepared
        attributes = {**prepared.attributes, "compression": "none", "summary": prepared.summary}
        vertex = json.loads(prepared.file("vertex/zarr.json"))
        nodes = {DISTANCES: json.loads(distances_document(prepared.grid, attributes)), "vertex": vertex}
        for name, dimension in _LABELS.items():
            nodes[name] = {**vertex, "dimension_names": [dimension]}
        inline = {"kind": "inline", "must_understand": False, "metadata": nodes}
        documents = {f"{name}/{ROOT_DOCUMENT}": json.dumps(node).encode() for name, node in nodes.items()}
        return {ROOT_DOCUMENT: json.dumps(group_document(attributes, inline)).encode(), **documents}

    def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, computed if it is a chunk of the matrix; None if there is no such key.

        Raises:
            StorageFailed: a file of the prepared graph is damaged.
        """
        if key in self._documents:
            return self._documents[key]
        tile = _TILE.fullmatch(key)
        if tile is not None:
            return self._tile(int(tile[1]), int(tile[2]))
        name, _, rest = key.partition("/")
        if rest.startswith("c/") and name in (*_LABELS, "vertex") and self._prepared.has(f"vertex/{rest}"):
            return self._prepared.file(f"vertex/{rest}")
        return None

    def _tile(self, i: int, j: int) -> bytes | None:
        grid, prepared = self._prepared.grid, self._prepared
        if not (i < grid.counts[0] and j < grid.counts[1]):
            return None
        rows, columns = grid.slices(i, j)
        if (rows.stop - rows.start) * prepared.n * prepared.dtype.itemsize <= self._cache:
            part = self._band(i)[:, columns]
        else:
            part = prepared.block(np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop))
        fill = fill_value(prepared.dtype, float(prepared.unreachable))
        tile = np.full(grid.tile, fill, prepared.dtype.newbyteorder("<"))
        tile[: part.shape[0], : part.shape[1]] = part
        return tile.tobytes() + crc32c(tile).to_bytes(CHECKSUM_BYTES, "little")

    def _band(self, i: int) -> np.ndarray[Any, Any]:
        """Return the rows of tile row ``i``, computed or from the cache; if the cache is full, drop its least recently
        used rows.
        """
        with self._lock:
            band = self._bands.pop(i, None)
            if band is None:
                rows, _ = self._prepared.grid.slices(i, 0)
                band = self._prepared.rows(np.arange(rows.start, rows.stop))
            self._bands[i] = band
            while len(self._bands) > 1 and sum(kept.nbytes for kept in self._bands.values()) > self._cache:
                self._bands.popitem(last=False)
            return band

    # ---- methods that Zarr calls ------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputedStore) and other._place == self._place

    def __hash__(self) -> int:
        return hash(self._place)

    @property
    def _place(self) -> tuple[str, str]:
        return str(self._prepared.path), self._prepared.digest

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the bytes under a key, or a part of them.

        Args:
            key: the name of a file, as Zarr forms it.
            prototype: creates the buffer that is returned.
            byte_range: which bytes to return; None for all.
        """
        data = await asyncio.to_thread(self.read, key)
        if data is None:
            return None
        return prototype.buffer.from_bytes(_ranged(data, byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return byte ranges of the content of several keys, in order.

        Args:
            prototype: creates the buffers that are returned.
            key_ranges: pairs of a key and a byte range; None stands for all bytes.
        """
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether there is such a key, without computing its content."""
        tile = _TILE.fullmatch(key)
        if tile is not None:
            counts = self._prepared.grid.counts
            return int(tile[1]) < counts[0] and int(tile[2]) < counts[1]
        name, _, rest = key.partition("/")
        return key in self._documents or (name in (*_LABELS, "vertex") and self._prepared.has(f"vertex/{rest}"))

    @property
    def supports_writes(self) -> bool:
        """Return False: nothing can be written."""
        return False

    @property
    def supports_deletes(self) -> bool:
        """Return False: nothing can be deleted."""
        return False

    @property
    def supports_listing(self) -> bool:
        """Return True: keys can be listed."""
        return True

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse to write a key.  Raises ValueError, as every read-only store of Zarr does."""
        del key, value
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refuse to delete a key.  Raises ValueError, as every read-only store of Zarr does."""
        del key
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """Iterate over all keys."""
        for key in self._documents:
            yield key
        for name in self._prepared.files():
            if name.startswith("vertex/c/"):
                for array in (*_LABELS, "vertex"):
                    yield f"{array}/{name.removeprefix('vertex/')}"
        down, across = self._prepared.grid.counts
        for i in range(down):
            for j in range(across):
                yield f"{DISTANCES}/c/{i}/{j}"

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over the keys that begin with ``prefix``."""
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over names directly below ``prefix``."""
        inside = prefix.rstrip("/") + "/" if prefix else ""
        if inside == "":
            for name in (ROOT_DOCUMENT, DISTANCES, "vertex", *_LABELS):
                yield name
            return
        seen = set()
        async for key in self.list_prefix(inside):
            name = key.removeprefix(inside).partition("/")[0]
            if name not in seen:
                seen.add(name)
                yield name


def _restored(prepared: PreparedStore, cache: int) -> ComputedStore:
    return ComputedStore(prepared, cache=cache)


def _ranged(data: bytes, part: ByteRequest | None) -> bytes:
    if isinstance(part, RangeByteRequest):
        return data[part.start : part.end]
    if isinstance(part, OffsetByteRequest):
        return data[part.offset :]
    if isinstance(part, SuffixByteRequest):
        return data[-part.suffix :] if part.suffix else b""
    return data
