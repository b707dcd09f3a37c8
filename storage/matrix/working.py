"""The store in the making as a working copy: its tiles are written repeatedly, read back, committed and resumed.

The tile files become those of the sealed store, so there is only one copy and nothing is converted at the end.  An
existing tile is replaced atomically by a durable one (``storage.matrix.file_pool``); a new tile is durable after the
next commit.  Almost no tiles stay in the page cache.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequest, StorageFailed
from storage.files import atomic, direct
from storage.files.checksum import crc32c
from storage.graph.graph import Graph
from storage.matrix.exchange import Marks, TileFile
from storage.matrix.file_pool import FilePool
from storage.matrix.format import Array, decompress, plain
from storage.matrix.frame import Frame, MatrixSpec, described_matrix, frame_of, identity_of
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid
from storage.matrix.working_dir import Checkpoint, WorkingDir, discard_checkpoint, find_checkpoint
from storage.matrix.writer import MatrixWriter, begin

__all__ = ["Checkpoint", "WorkingMatrix", "discard_checkpoint", "find_checkpoint", "open_working", "resumes"]

#: At most this number of new tiles wait for a commit; the thread that writes one more makes them durable.  A matrix
#: with more tiles than this is written past the page cache.
_PENDING: Final = 128


def open_working(
    path: str | Path,
    graph: Graph,
    spec: MatrixSpec,
    *,
    overwrite: bool = False,
    resume: bool = False,
    address: str | None = None,
    claim: int = 0,
) -> WorkingMatrix:
    """Begin a working copy of the store at ``path``, or open the one that a stopped process has committed.

    Args:
        path: where the store will be; its parent folder must exist.
        graph: the graph solved; labels and arcs are stored with the matrix.
        spec: what the store holds; a checkpoint is resumed only if graph and spec are the same as before.
        overwrite: whether a store at ``path`` is replaced once this one is sealed, and whether the solve begins anew if
            there is a checkpoint from which it does not resume.
        resume: whether to continue from the checkpoint, if there is one.
        address: an address in an object store for the store; ``path`` then holds only the working copy.
        claim: number of the claim on the address.  The highest claim counts; a solve changes nothing that belongs to a
            higher claim.

    Raises:
        Conflict: another process works at ``path``; there is a checkpoint, and neither ``resume`` nor ``overwrite`` was
            asked for; the checkpoint is that of another matrix; or the path exists and may not be replaced.
        StorageFailed: the file system refused, or the record of the checkpoint is damaged.
        ApspError: any other error of ``create_matrix``.
    """

    def place(frame: Frame) -> WorkingDir:
        identity = identity_of(frame.sides, frame.common, spec.compression)
        return WorkingDir(frame.target, identity, resume=resume, overwrite=overwrite)

    frame = frame_of(path, graph, spec, overwrite=overwrite)
    if address is None:
        return begin(frame, place, WorkingMatrix)
    if spec.also:
        raise InvalidRequest(
            f"further arrays ({', '.join(spec.also)}) are written into folders only, not to {address}", field="also"
        )
    from storage.remote.addresses import check_address
    from storage.remote.objects import Objects
    from storage.remote.writer import RemoteMatrix

    before = check_address(address, overwrite=overwrite)
    return begin(frame, place, partial(RemoteMatrix, objects=Objects(address), before=before, claim=claim))


def resumes(found: Checkpoint, graph: Graph, spec: MatrixSpec) -> bool:
    """Return whether :func:`open_working` with ``resume`` continues from ``found``, and does not begin anew.

    Raises:
        InvalidRequest: ``graph`` and ``spec`` are refused by ``create_matrix``.
    """
    sides, common = described_matrix(graph, spec)
    return found.fault is None and found.identity == plain(identity_of(sides, common, spec.compression))


class WorkingMatrix(MatrixWriter):
    """A store in the making that can be read back, committed and resumed.

    Many threads may read and write different tiles at the same time.  If entries change while ``write`` runs, each
    entry of the tile file is as it was at some time during that call.

    At the end of its context, the working folder stays if something was committed but not sealed; otherwise it is
    removed.
    """

    def __init__(
        self, staging: atomic.Staging, grid: TileGrid, attributes: Mapping[str, object], *, overwrite: bool
    ) -> None:
        """Set up the working copy in ``staging``; callers use ``open_working`` instead."""
        super().__init__(staging, grid, attributes, overwrite=overwrite)
        if not isinstance(staging, WorkingDir):
            raise TypeError("a working matrix needs a working folder")
        self._place = staging
        # a large matrix is written past the page cache; a small one is read again soon
        self._past = grid.tiles > _PENDING and not self.in_memory
        self._file_pool = FilePool(staging.spare, grid.tiles)
        self._present = _present(Path(self._tiles), grid)
        self._state_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._unsynced: list[str] = []
        self._new_folders: set[str] = set()
        self._committed = False
        self._record_lock = threading.RLock()
        self._lowered: Mapping[str, object] | None = None

    @property
    def compression(self) -> str:
        """The compression of the tiles: ``none`` or ``zstd``."""
        return str(self._attributes["compression"])

    @property
    def grid(self) -> TileGrid:
        """The grid of tiles."""
        return self._grid

    def record(self) -> dict[str, Any] | None:
        """Return the record of the last commit, by this process or an earlier one; None before the first."""
        return self._place.record

    def commit(self, record: Mapping[str, object]) -> None:
        """Make everything written so far durable, then the record (JSON types), which replaces the previous one.

        Writes that run at the same time may or may not be included.

        Raises:
            StorageFailed: the file system refused, now or before; the previous commit remains the checkpoint.
        """
        folder = self._place.folder
        with self._record_lock:
            if self._failed is not None:
                raise self._failed
            try:
                for quantity in self.also.values():
                    quantity.settle()
                self._sync_new(0)
                self._file_pool.settle()
                if not self._committed:  # folders suffice: a process that resumes writes all files except tiles again
                    for path in (Path(self._tiles), Path(self._tiles).parent, folder, folder.parent):
                        atomic.sync_path(path)
                self._place.save(record)
                self._committed, self._lowered = True, None
            except OSError as error:
                raise self._fail("commit", folder, error) from error

    def lower(self, record: Mapping[str, object]) -> None:
        """Store ``record``, which claims less progress than the last commit, to commit it before the next tile changes.

        A record never claims more progress for a tile than the tile contains.  So a solve that will overwrite tiles
        with less progress calls this first; the checkpoint changes only when it writes the first tile.
        """
        with self._record_lock:
            self._lowered = record

    def make_exchange_dir(self) -> Path:
        """Make an empty folder for tiles of processes that do not own this store (``storage.matrix.shared``).

        The folder is removed with the working folder, or when the next exchange folder is made.

        Raises:
            StorageFailed: the file system refused.
        """
        base = self._place.folder.parent
        try:
            for old in base.glob("room-*"):
                shutil.rmtree(old, ignore_errors=True)
            # two levels, because a process that still writes into an old folder recreates at most one level
            exchange_dir = base / f"room-{secrets.token_hex(4)}" / "files"
            exchange_dir.mkdir(parents=True)
        except OSError as error:
            raise atomic.failure("make an exchange folder in", base, error) from error
        return exchange_dir

    def adopt(self, exchange_dir: Path, files: Iterable[TileFile]) -> None:
        """Move durable tiles from ``exchange_dir`` into the store, each atomically.

        Raises:
            StorageFailed: the file system refused.
        """
        for tile in files:
            self._adopt_tile(exchange_dir, tile)

    def marks(self, first: int, last: int) -> Marks:
        """Return sizes and checksums of tiles in the tile rows from ``first`` to ``last`` - 1; 0 if unknown."""
        rows = slice(first, last)
        return Marks(first, self._sizes[rows].copy(), self._checksums[rows].copy())

    def read_tile(self, i: int, j: int, out: Array) -> None:
        """Read tile (i, j), without its padding, and check it.

        Args:
            i, j: row and column of the tile in the grid.
            out: shape of the tile without padding; each row is contiguous.

        Raises:
            StorageFailed: the tile is missing, damaged, or cannot be read; the message names it.
        """
        rows, columns = self._grid.slices(i, j)
        path = Path(f"{self._tiles}/{i}/{j}")
        try:
            checksum, size = self._read_packed(path, out) if self._compressed else self._read_plain(path, out)
        except FileNotFoundError as error:
            raise StorageFailed(
                f"tile ({i}, {j}), file {path}, is missing, although the checkpoint counts it (No such file): bring it "
                "back, or begin anew (--overwrite)"
            ) from error
        except OSError as error:
            raise atomic.failure("read tile", path, error) from error
        except ValueError as error:
            where = f"rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}"
            raise StorageFailed(f"tile ({i}, {j}), {where}, file {path} is damaged: {error}") from None
        known = int(self._sizes[i, j])
        if known and (known, int(self._checksums[i, j])) != (size, checksum):
            raise StorageFailed(f"tile ({i}, {j}), file {path} is damaged: it is not the one that was written last")
        self._checksums[i, j], self._sizes[i, j] = checksum, size

    def read_rows(self, first: int, out: Array, *, column: int = 0) -> None:
        """Read rows of whole tiles.

        Args:
            first: the first row.
            out: shape (rows, columns of the matrix).
            column: only the tile that holds this column and the tiles right of it are read.

        Raises:
            InvalidRequest: the rows cut a tile, or ``out`` has another shape or type.
            StorageFailed: a tile is missing, damaged, or cannot be read.
        """
        width = self._grid.tile[1]
        if out.dtype != self._dtype or out.ndim != 2 or out.shape[1] != self.shape[1]:
            raise InvalidRequest(f"rows are read into {self._dtype.name} of {self.shape[1]} columns", field="out")
        begin = column // width * width
        for i, j in self._grid.covered(first, begin, len(out), self.shape[1] - begin):
            rows, columns = self._grid.slices(i, j)
            self.read_tile(i, j, out[rows.start - first : rows.stop - first, columns])

    def seal(self, summary: Mapping[str, object] | None = None) -> None:
        """Seal as the base class does; first read and check tiles of an earlier process that were not read yet."""
        for i, j in np.argwhere((self._sizes == 0) & self._present).tolist():
            rows, columns = self._grid.slices(i, j)
            self.read_tile(i, j, np.empty((rows.stop - rows.start, columns.stop - columns.start), self._dtype))
        super().seal(summary)

    def abort(self) -> None:
        """Remove everything, including the checkpoint; the path is unchanged.  Does nothing once the store is
        closed.
        """
        self._place.record = None
        super().abort()

    def leave(self) -> None:
        """Close; another process can resume from the last commit.  Does nothing after ``seal`` or a second time."""
        super().abort()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _lower_first(self) -> None:
        """Commit the record that ``lower`` stored, if any; every thread calls this before it changes a tile."""
        if self._lowered is not None:
            with self._record_lock:
                if self._lowered is not None:
                    self._commit_lowered(self._lowered)

    def _commit_lowered(self, record: Mapping[str, object]) -> None:
        WorkingMatrix.commit(self, record)

    def _write_tile(self, i: int, j: int, part: Array) -> None:
        self._lower_first()
        if not self._present[i, j]:
            super()._write_tile(i, j, part)
            self._present[i, j] = True
            if self.in_memory:
                return
            with self._state_lock:
                folder = f"{self._tiles}/{i}"
                self._unsynced.append(f"{folder}/{j}")
                self._new_folders.add(folder)
                full = len(self._unsynced) > _PENDING
            if full:
                self._settle_pending(_PENDING)
            return
        buffers, checksum, size = self._with_trailer(self._content(part))
        path = Path(f"{self._tiles}/{i}/{j}")
        try:
            self._file_pool.write(path, buffers, size)
        except OSError as error:
            raise self._fail("write tile", path, error, size) from error
        self._checksums[i, j], self._sizes[i, j] = checksum, size

    def _adopt_tile(self, exchange_dir: Path, tile: TileFile) -> None:
        self._lower_first()
        path = Path(f"{self._tiles}/{tile.i}/{tile.j}")
        try:
            path.parent.mkdir(exist_ok=True)
            (exchange_dir / tile.name).replace(path)
        except OSError as error:
            raise atomic.failure("put in place tile", path, error) from error
        self._present[tile.i, tile.j] = True
        self._checksums[tile.i, tile.j], self._sizes[tile.i, tile.j] = tile.checksum, tile.size
        with self._state_lock:
            self._new_folders.add(str(path.parent))

    def _settle_pending(self, most: int) -> None:
        try:
            self._sync_new(most)
        except OSError as error:
            raise self._fail("make tiles durable in", Path(self._tiles), error) from error

    def _fail(self, action: str, path: Path, error: OSError, wanted: int | None = None) -> StorageFailed:
        """Return the error, and let all later commits raise it: once an fsync failed, later fsyncs prove nothing."""
        self._failed = atomic.failure(action, path, error, wanted)
        return self._failed

    def _sync_new(self, most: int) -> None:
        """Make new tiles durable if there are more than ``most``, and then the folders that name them."""
        with self._sync_lock:
            with self._state_lock:
                if len(self._unsynced) <= most and (most or not self._new_folders):
                    return
                files, self._unsynced = self._unsynced, []
                folders, self._new_folders = self._new_folders, set()
            try:
                for path in files:
                    direct.settle_file(path)
                for path in [*folders, self._tiles]:
                    atomic.sync_path(path)
            except BaseException:
                with self._state_lock:
                    self._unsynced += files
                    self._new_folders |= folders
                raise

    def _read_plain(self, path: Path, out: Array) -> tuple[int, int]:
        data = direct.load_file(path, in_memory=self.in_memory)
        checksum = _checked(data, self._grid.tile_bytes(self._dtype.itemsize))
        tile = data[:-CHECKSUM_BYTES].view(self._dtype).reshape(self._grid.tile)
        out[:] = tile[: out.shape[0], : out.shape[1]]
        return checksum, len(data)

    def _read_packed(self, path: Path, out: Array) -> tuple[int, int]:
        data = direct.load_file(path, in_memory=self.in_memory)
        checksum = _checked(data, max(len(data), CHECKSUM_BYTES + 1))
        tile = decompress(data[:-CHECKSUM_BYTES], self._dtype).reshape(self._grid.tile)
        out[:] = tile[: out.shape[0], : out.shape[1]]
        return checksum, len(data)


def _present(tiles: Path, grid: TileGrid) -> npt.NDArray[np.bool_]:
    """Return which tiles an earlier process has written; files of other names are ignored."""
    found = np.zeros(grid.counts, np.bool_)
    for i, band in _numbered(tiles, grid.counts[0]):
        if band.is_dir():
            for j, tile in _numbered(Path(band.path), grid.counts[1]):
                found[i, j] = tile.is_file()
    return found


def _numbered(folder: Path, count: int) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yield the entries of a folder whose name is a number below ``count``, with that number."""
    for entry in os.scandir(folder):
        if re.fullmatch("0|[1-9][0-9]{0,8}", entry.name) and int(entry.name) < count:
            yield int(entry.name), entry


def _checked(data: npt.NDArray[np.uint8], expected: int) -> int:
    """Check a tile's file, which should have ``expected`` bytes; return its checksum.  Raises ValueError if damaged."""
    if len(data) != expected:
        raise ValueError(f"it has {len(data):,} bytes instead of {expected:,}")
    checksum = crc32c(data[:-CHECKSUM_BYTES])
    if checksum != int.from_bytes(data[-CHECKSUM_BYTES:].tobytes(), "little"):
        raise ValueError("its checksum is wrong")
    return checksum
