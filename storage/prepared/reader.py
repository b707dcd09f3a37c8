"""Reads a prepared graph: its parts and its tables; every chunk is compared with the seal before it is used."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.matrix.format import CLOSED_PARTS, ROOT_DOCUMENT, TABLES, Array, FileMark, IntArray, data_mark
from storage.matrix.grid import CHECKSUM_BYTES, layout
from storage.matrix.sealed import SealedResult
from storage.matrix.tiles import StoreFolder
from storage.prepared.chunks import CheckedTable
from storage.prepared.line_files import LineFiles
from storage.prepared.sections import SECTIONS, Checksums, SectionChecks
from storage.remote.objects import THREADS
from storage.remote.reader import RemoteFolder

#: Names of the arrays with results of elimination other than the tables.  They are stored so that updating the weights
#: of a few arcs takes little time.
ELIMINATED: Final = ("upward", "across", "rests")
#: Name of the array of closed arcs (arcs of weight +inf); a store without closed arcs does not have it.
CLOSED: Final = "closed"
#: Number of threads that read chunks and compute their checksums.
_THREADS: Final = 4


class PreparedStore(SealedResult):
    """The files of a prepared graph; ``engine.api.prepared_matrix`` computes answers from its tables.

    Attributes:
        compact: whether only lengths inside parts (closed parts) and lengths to their borders are stored; tables are
            computed from these when they are needed.
        Others: as in ``SealedResult``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Read and check the seal and the labels.

        Raises:
            StorageFailed: this is no prepared graph, or it is damaged.
        """
        super().__init__(folder, TABLES)

    def _read_metadata(self) -> None:
        self._checks, self._checks_lock = dict[str, SectionChecks | None](), threading.Lock()
        attributes = self.attributes
        self.compact = CLOSED_PARTS in self._arrays
        self.dtype = np.dtype(self._arrays[CLOSED_PARTS if self.compact else TABLES]["data_type"])
        self.unreachable = self.dtype.type(float(attributes["unreachable"]))
        attributes["unreachable"] = self.unreachable.item()
        self.labels = self.source_labels = self.target_labels = self._side("vertex")
        self.n = len(self.labels)
        self.grid = layout((self.n, self.n), self.dtype.itemsize)
        self.sources, self.targets = self._read_vertices("sources"), self._read_vertices("targets")

    @property
    def table_bytes(self) -> int:
        """Bytes that the tables take when they are read into memory."""
        return sum(int(self._arrays[name]["shape"][0]) for name in self._tables()) * self.dtype.itemsize

    def _tables(self) -> Iterator[str]:
        return (name for name in self._arrays if name.startswith("tables/"))

    def part_array(self, name: str) -> Array:
        """Return one of the arrays that describe the parts.  Raises StorageFailed."""
        return self._side(f"parts/{name}")

    def table(self, name: str) -> Array | None:
        """Read a table, ``forward`` or ``backward``, and check it; return None if there is no table of that name.

        Raises:
            StorageFailed: a chunk is missing or damaged; the message names the first one.
        """
        return self._flat(f"tables/{name}")

    def eliminated(self) -> tuple[Array, Array, Array] | None:
        """Read the results of elimination other than the tables, and check them.

        Returns:
            Three flat arrays: the lengths from each part to its border (``upward``), from the border to the part
            (``across``), and between the vertices of the border (``rests``).  None if they were not stored.

        Raises:
            StorageFailed: a chunk is missing or damaged; the message names the first one.
        """
        upward, across, rests = (self._flat(f"elimination/{name}") for name in ELIMINATED)
        return None if upward is None or across is None or rests is None else (upward, across, rests)

    def closed(self) -> IntArray:
        """Return the closed arcs (weight +inf), which later weights may open, as ``tail * n + head``, ascending.
        Raises StorageFailed.
        """
        if CLOSED not in self._arrays:
            return np.zeros(0, np.int64)
        return self._side(CLOSED).astype(np.int64, copy=False)

    def checked(self, where: str, *, passing: bool = False) -> CheckedTable | None:
        """Return a flat array whose sections are read and checked when they are needed.

        A section is a whole chunk if no checksums of smaller sections were stored, or if the chunk is in an object
        store.

        Args:
            where: the name of the array, such as ``tables/forward``.
            passing: whether sections may be dropped from memory, because the array may be larger than the memory.

        Returns:
            The array; None if there is no array of that name.

        Raises:
            MemoryError: the system refuses to allocate the array.
            StorageFailed: the checksums of the sections are damaged.
        """
        if where not in self._arrays:
            return None
        document = self._arrays[where]
        (entries,), (chunk,) = document["shape"], document["chunk_grid"]["configuration"]["chunk_shape"]

        threads = _THREADS if self.remote_seal is None else THREADS
        checks = self._checks_of(where) if self.remote_seal is None else None
        if checks is None or checks.together == 1:
            return CheckedTable(
                entries, chunk, self.dtype, lambda k, piece: self._read_chunk(f"{where}/c/{k}", piece), threads, passing
            )
        sections = checks

        def read(first: int, piece: Array) -> None:
            k, begin = divmod(first, sections.together)
            if begin == 0 and len(piece) == min(chunk, entries - k * chunk):
                self._read_chunk(f"{where}/c/{k}", piece)
            else:
                self._read_sections(f"{where}/c/{k}", (first, begin * sections.section, chunk), piece, sections)

        return CheckedTable(entries, sections.section, self.dtype, read, threads, passing, sections.together)

    def section_of(self, name: str) -> int:
        """Return the number of entries in a section of a table.  Raises StorageFailed."""
        checks = self._checks_of(f"tables/{name}") if self.remote_seal is None else None
        return self.chunk_of(name) if checks is None else checks.section

    def _checks_of(self, where: str) -> SectionChecks | None:
        """Return the checksums of the sections of a table, read once; None if the table was stored without checksums of
        sections.  Raises StorageFailed.
        """
        with self._checks_lock:
            if where not in self._checks:
                self._checks[where] = self._read_checks(where)
            return self._checks[where]

    def _read_checks(self, where: str) -> SectionChecks | None:
        name = where.replace("tables", SECTIONS, 1)
        if name == where or name not in self._arrays:
            return None
        (entries,), chunk = self._arrays[where]["shape"], self.chunk_of(where.removeprefix("tables/"))
        running = self._side(name)
        found = SectionChecks(running.astype(np.uint32, copy=False), chunk) if running.ndim == 2 else None
        if found is None or len(running) != -(-entries // chunk) or (len(running) > 1 and chunk % found.section):
            raise StorageFailed(f"{self.path}: array {name} does not fit {where}")
        return found

    def running_checksums(self, name: str) -> Checksums | None:
        """Return the checksums of the sections of a chunk such as ``tables/forward/c/0``; None if the table was stored
        without checksums of sections.  Raises StorageFailed.
        """
        where, _, k = name.rpartition("/c/")
        found = self._checks_of(where)
        return None if found is None else found.running[int(k)]

    def line_files(self, name: str) -> LineFiles | None:
        """Return the files of a table, ``forward`` or ``backward``, for questions that need only a few lines (a line is
        the row of a vertex); None if there is no such table, or if it lies in an object store.  Raises StorageFailed.
        """
        where = f"tables/{name}"
        if where not in self._arrays or not isinstance(self._folder, StoreFolder):
            return None
        (entries,), chunk = self._arrays[where]["shape"], self.chunk_of(name)
        marks = [self._files[f"{where}/c/{k}"] for k in range(-(-entries // chunk))]
        return LineFiles(self._folder, where, chunk, self.dtype, marks, checks=self._checks_of(where))

    @cached_property
    def least_weight(self) -> float:
        """The least weight of the graph, 0 without arcs.  Raises StorageFailed."""
        weights = self._side("graph/weights")
        return float(weights.min()) if len(weights) else 0.0

    def _flat(self, where: str) -> Array | None:
        found = self.checked(where)
        return None if found is None else found.whole()

    def chunk_of(self, name: str) -> int:
        """Return the number of entries in a chunk of a table."""
        return int(self._arrays[f"tables/{name}"]["chunk_grid"]["configuration"]["chunk_shape"][0])

    def share(self, name: str, folder: Path) -> FileMark:
        """Put a file of this prepared graph into the folder of another one, as a hard link if possible, else as a copy.

        Sealed files are never written to again, so two prepared graphs may share a file.

        Args:
            name: the name of the file.
            folder: the other folder; it already has the subfolders in the name.

        Returns:
            The mark (size and checksums) of the file in this store's seal.  It is not computed again, so that the other
            store's seal also reveals damage to the file.  The file is read and copied if it is metadata, or if a mark
            of an earlier version does not identify its content.

        Raises:
            OSError: the file system refused.
            StorageFailed: the file is missing or damaged.
        """
        # metadata is copied, because the caller reads it right after this
        linked = self._files[name].told and not name.endswith(ROOT_DOCUMENT)
        if linked and not isinstance(self._folder, RemoteFolder):
            with contextlib.suppress(OSError):
                os.link(name, folder / name, src_dir_fd=self._folder.handle, follow_symlinks=False)
                return self._files[name]
        data = self._checked(name)
        atomic.write_file(folder / name, [data], flush=True)
        return data_mark(data)

    def _read_chunk(self, name: str, piece: Array) -> None:
        """Read a chunk into ``piece``; if the chunk is longer, its remaining entries are padding."""
        sealed = self._files[name]
        if isinstance(self._folder, RemoteFolder):
            data: Any = np.frombuffer(self._folder.read(name), np.uint8)
            mark = data_mark(data)
            piece.view(np.uint8)[:] = data[: piece.nbytes] if mark.size >= piece.nbytes else 0
        else:
            mark = self._read_file(self._folder, name, piece)
        if not mark.agrees(sealed) or mark.size < piece.nbytes + CHECKSUM_BYTES:
            raise StorageFailed(f"{self.path} is damaged: {name} does not agree with the seal")

    def _read_sections(self, name: str, place: tuple[int, int, int], piece: Array, checks: SectionChecks) -> None:
        """Read sections of a chunk into ``piece``, and check them.

        Args:
            name: the file of the chunk.
            place: the number of the first section, the position of its first entry in the chunk, and the number of
                entries of the chunk.
            piece: receives the entries; if the table ends within a section, the rest of that section is padding.
            checks: the checksums of the table's sections.
        """
        assert isinstance(self._folder, StoreFolder)  # from an object store, only whole chunks are read
        first, begin, chunk = place
        whole = min(chunk - begin, -(-len(piece) // checks.section) * checks.section)
        data = piece if len(piece) == whole else np.empty(whole, piece.dtype)
        try:
            handle = self._folder.open(name)
            try:
                done = _read_at(handle, [data.view(np.uint8)], data.nbytes, begin * data.itemsize)
                found = os.fstat(handle).st_size
            finally:
                os.close(handle)
        except OSError as error:
            raise StorageFailed(f"{self.path} is damaged: {name}: {error.strerror}") from error
        if done < data.nbytes or found != self._files[name].size or not checks.agree(first, data):
            raise StorageFailed(f"{self.path} is damaged: {name} does not agree with the seal")
        if data is not piece:
            piece[:] = data[: len(piece)]

    def _read_file(self, folder: StoreFolder, name: str, piece: Array) -> FileMark:
        """Read a file into ``piece`` and return the mark (size and checksums) of the bytes read; read nothing if the
        size of the file is wrong.
        """
        size = self._files[name].size
        rest = np.empty(max(0, size - piece.nbytes), np.uint8)
        buffers: list[Any] = [piece.view(np.uint8), rest]
        try:
            handle = folder.open(name)
            try:
                done = _read_at(handle, buffers, size, 0) if os.fstat(handle).st_size == size else 0
            finally:
                os.close(handle)
        except OSError as error:
            raise StorageFailed(f"{self.path} is damaged: {name}: {error.strerror}") from error
        return FileMark.of(done, crc32c(rest, crc32c(piece)), bytes(rest[-CHECKSUM_BYTES:]))

    def file(self, name: str) -> bytes:
        """Return the content of a file other than a table, after comparing it with the seal.  Raises StorageFailed if
        they differ, KeyError if there is no such file.
        """
        return bytes(self._checked(name))

    def files(self) -> Iterator[str]:
        """Iterate over the names of all files except the root document."""
        return iter(self._files)

    def has(self, name: str) -> bool:
        """Return whether a file of that name belongs to the prepared graph."""
        return name in self._files

    def check(self) -> None:
        """Read every file again and compare it with the seal.  Raises StorageFailed."""
        self.check_files("")

    @property
    def bytes(self) -> int:
        """Bytes of all files except the root document."""
        return sum(mark.size for mark in self._files.values())


def _read_at(handle: int, buffers: list[Any], size: int, begin: int) -> int:
    """Read up to ``size`` bytes of a file from byte ``begin`` on; return how many there were.  Raises OSError."""
    done = 0
    while done < size:
        part = os.preadv(handle, [view.data for view in _left(buffers, done)], begin + done)
        if part == 0:
            break
        done += part
    return done


def _left(buffers: list[Any], done: int) -> list[Any]:
    """Return the parts of the buffers that follow their first ``done`` bytes."""
    left = []
    for buffer in buffers:
        if done < len(buffer):
            left.append(buffer[done:])
        done = max(0, done - len(buffer))
    return left
