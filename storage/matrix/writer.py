"""Writes a matrix store: threads write tiles into a staging folder; then the manifest is written, all is made durable,
the seal is written, and the folder is renamed.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

import numpy as np

from storage.errors import Conflict, InvalidRequest, StorageFailed
from storage.files import atomic, direct
from storage.files.checksum import crc32c
from storage.files.memory import PutTile, in_memory, put_tile
from storage.graph.graph import Graph
from storage.matrix.format import (
    DISTANCES,
    Array,
    compress,
    fill_value,
    seal_document,
)
from storage.matrix.frame import (
    Frame,
    MatrixSpec,
    check_target,
    consolidate,
    frame_of,
    further,
    write_frame,
    write_seal,
)
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid, layout
from storage.matrix.side_arrays import side_array
from storage.quantities.writing import QuantityTiles

Writer = TypeVar("Writer", bound="MatrixWriter")


def create_matrix(path: str | Path, graph: Graph, spec: MatrixSpec, *, overwrite: bool = False) -> MatrixWriter:
    """Begin a store at ``path``, where nothing changes before ``seal``; folders that killed writers left are removed.

    Args:
        path: where the store will be; its parent folder must exist.
        graph: the graph solved; labels and arcs are stored with the matrix.
        spec: what the store holds.
        overwrite: whether a store that is at ``path`` already is replaced, once this one is sealed.

    Returns:
        The open writer; leaving its context without ``seal`` removes what was written.

    Raises:
        Conflict: ``path`` exists, and ``overwrite`` is False or ``path`` is no store.
        InvalidRequest: a field of ``spec`` is not understood.
        NotFound: the parent folder does not exist.
        StorageFailed: the file system refused.
    """
    frame = frame_of(path, graph, spec, overwrite=overwrite)
    return begin(frame, lambda frame: atomic.Staging(frame.target, "solve"), MatrixWriter)


def begin(frame: Frame, place: Callable[[Frame], atomic.Staging], kind: Callable[..., Writer]) -> Writer:
    """Make the folder of a store, write everything except tiles and seal into it, and return a writer for the rest.

    Args:
        frame: the store, as from ``frame_of``.
        place: makes the staging folder of a frame.
        kind: the class of the writer, or a function with the same arguments.

    Raises:
        StorageFailed: the file system refused; the folder is discarded.
    """
    staging = place(frame)
    try:
        dtype = np.dtype(str(frame.common["type"]))
        rows, columns = (frame.graph.n if side is None else len(side) for side in frame.sides)
        grid = layout((rows, columns), dtype.itemsize)
        write_frame(staging.folder, frame.graph, frame.sides, grid, frame.common)
        return kind(staging, grid, frame.common, overwrite=frame.overwrite)
    except OSError as error:
        staging.discard()
        raise atomic.failure("write", staging.folder, error) from error
    except BaseException:
        staging.discard()
        raise


class MatrixWriter:
    """A store in the making.  ``write`` may be called from many threads at once, for different tiles.

    As a context manager it aborts unless ``seal`` was called.

    Attributes:
        also: for the name of each quantity, the writer of the quantity's tiles (sums along paths, stored beside the
            distances).
        in_memory: whether the store is in memory alone (``storage.files.memory``).
        put: writes the file of a tile in memory in one call without the GIL; None to write it in several.
    """

    def __init__(
        self, staging: atomic.Staging, grid: TileGrid, attributes: Mapping[str, object], *, overwrite: bool
    ) -> None:
        """Set up a writer into ``staging``; callers use ``create_matrix`` instead."""
        self._staging, self._grid, self._overwrite = staging, grid, overwrite
        dtype: np.dtype[np.generic] = np.dtype(str(attributes["type"]))
        self._dtype = dtype.newbyteorder("<")
        self._attributes = dict(attributes)
        self._tiles = str(staging.folder / DISTANCES / "c")
        self._checksums = np.zeros(grid.counts, np.uint32)
        self._sizes = np.zeros(grid.counts, np.int64)
        self._fill = self._dtype.type(fill_value(dtype, 0))
        self.in_memory: Final = in_memory(staging.folder)
        self.put: PutTile | None = None
        self._past = False  # whether tiles are written past the page cache
        self._compressed = attributes["compression"] == "zstd"
        self.also = {
            name: QuantityTiles(staging.folder, name, grid, about, compressed=self._compressed)
            for name, about in further(attributes).items()
        }
        # ``with`` is used on the lock, never on the condition, whose methods are Python code: an interrupt in them
        # could leave the lock held (decision 166)
        self._lock = threading.RLock()
        self._state = threading.Condition(self._lock)
        self._open, self._accepting, self._busy = True, True, 0
        self._failed: StorageFailed | None = None  # the first failure; every later commit raises it

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self._grid.tile

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self._grid.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Type of the entries as they are stored, little-endian."""
        return self._dtype

    def write(self, row: int, column: int, block: Array) -> None:
        """Write the tiles of a rectangle; a tile may be written again, and then holds the last block.

        Args:
            row, column: the upper left entry of the rectangle in the matrix.
            block: shape (rows, columns), of the store's type.  The block consists of whole tiles, which are cut only at
                the edge of the matrix.

        Raises:
            InvalidRequest: the block is of another type or shape, leaves the matrix, or cuts a tile.
            StorageFailed: the file system refused; the message has the path, the bytes asked and the bytes free.
        """
        if block.ndim != 2 or block.dtype != self._dtype:
            asked = f"{block.dtype.name} of {block.ndim} dimensions"
            raise InvalidRequest(f"a block must be {self._dtype.name} of 2 dimensions, not {asked}", field="block")
        with self._writing():
            for i, j in self._grid.covered(row, column, *block.shape):
                rows, columns = self._grid.slices(i, j)
                part = block[rows.start - row : rows.stop - row, columns.start - column : columns.stop - column]
                self._write_tile(i, j, part)

    def seal(self, summary: Mapping[str, object] | None = None) -> None:
        """Make everything durable, write the seal, put the store at its path, and close the writer.

        Raises:
            StorageFailed: a tile was never written, or the file system refused; nothing at the path has changed.
            Conflict: the writer is closed, or something else has appeared at the path meanwhile.
        """
        self._finish_writes()
        if missing := int(np.count_nonzero(self._sizes == 0)):
            first = tuple(int(k) for k in np.argwhere(self._sizes == 0)[0])
            raise StorageFailed(f"{missing} of {self._grid.tiles} tiles were never written, the first is {first}")
        check_target(self._staging.target, self._overwrite)
        folder = self._staging.folder
        try:
            self._write_manifest()
            data = seal_document(folder, {**self._attributes, "summary": summary or {}})
        except OSError as error:
            raise atomic.failure("finish", folder, error) from error
        self._publish(data)

    def _publish(self, data: bytes) -> None:
        """Publish the store, which is complete except for its root document ``data``."""
        folder = self._staging.folder
        try:
            write_seal(folder, data)
        except OSError as error:
            raise atomic.failure("finish", folder, error) from error
        try:
            self._staging.publish(replace=self._overwrite)
        finally:
            self._open = self._staging.pending

    def abort(self) -> None:
        """Remove everything that was written; the path is unchanged.  Does nothing after ``seal`` or a second time."""
        if self._open:
            self._finish_writes()
            self._open = False
            self._staging.discard()
        # drop errors: they refer to frames that refer to this object, so that neither would be freed
        self._failed = None
        for quantity in self.also.values():
            quantity.failed = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Context manager: count the running writes, so that sealing and aborting wait for them."""
        with self._lock:
            if not self._accepting:
                raise Conflict(f"the writer of {self._staging.target} is closed: sealed or aborted")
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
                self._state.notify_all()

    def _finish_writes(self) -> None:
        with self._lock:
            if not self._open:
                raise Conflict(f"the writer of {self._staging.target} is closed: sealed or aborted")
            self._accepting = False
            self._state.wait_for(lambda: self._busy == 0)

    def _write_tile(self, i: int, j: int, part: Array) -> None:
        path = f"{self._tiles}/{i}/{j}"
        try:
            checksum, size = self._write_new(path, part)
        except OSError as error:
            self._sizes[i, j] = 0
            raise atomic.failure("write tile", Path(path), error, self._grid.tile_bytes(part.itemsize)) from error
        self._checksums[i, j] = checksum
        self._sizes[i, j] = size

    def _write_new(self, path: str, part: Array) -> tuple[int, int]:
        """Write the file of a tile; return the checksum of its content, and its bytes.  Raises OSError."""
        if self.put is None or self._compressed or not self.in_memory:
            buffers, checksum, size = self._with_trailer(self._content(part))
            atomic.write_file(path, buffers, flush=not self.in_memory, past=self._past)
            return checksum, size
        return put_tile(self.put, path, part, self._grid.tile, self._fill, CHECKSUM_BYTES)

    def _content(self, part: Array) -> Array | bytes:
        """Return the content of a tile's file without its checksum.

        The padded tile is assembled in the buffer from which files are written: one call then sums up its checksum and
        another writes it, both without the GIL, while the tile is in the processor's cache.  Entries that change
        meanwhile are copied once, so that the checksum is that of what is written.
        """
        tile = direct.padded(part, self._grid.tile, self._fill, CHECKSUM_BYTES)
        return compress(tile) if self._compressed else tile

    @staticmethod
    def _with_trailer(content: Array | bytes) -> tuple[list[Array | bytes], int, int]:
        """Return the buffers of a tile's file, the checksum of its content, and the bytes of the whole file."""
        checksum = crc32c(content)
        size = len(content) if isinstance(content, bytes) else content.nbytes
        return [content, checksum.to_bytes(CHECKSUM_BYTES, "little")], checksum, size + CHECKSUM_BYTES

    def _write_manifest(self) -> None:
        folder = self._staging.folder / "manifest"
        shutil.rmtree(folder, ignore_errors=True)
        side_array(folder / "crc32c", self._checksums, ("tile_row", "tile_column"))
        side_array(folder / "bytes", self._sizes, ("tile_row", "tile_column"))
        for quantity in self.also.values():
            quantity.finish()
        consolidate(folder, {})
