"""Writes a prepared graph: labels, arcs, parts and tables are written into a staging folder and made durable; then the
seal is written, and the folder is renamed.

Like a matrix store, a prepared graph is a Zarr v3 group, sealed by the same kind of document, so that an incomplete one
is never opened.  Tables are flat arrays of many chunks.  The checksum of a chunk is computed when it is written, so
sealing does not read the chunk again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from storage.errors import StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.graph.graph import Graph
from storage.matrix.format import ROOT_DOCUMENT, Array, FileMark, IntArray, fill_value, plain, seal_document
from storage.matrix.frame import MatrixSpec, check_target, consolidate, frame_of, write_graph, write_seal
from storage.matrix.grid import CHECKSUM_BYTES
from storage.matrix.side_arrays import CHECKSUM, LITTLE_ENDIAN, array_document, side_array
from storage.prepared.reader import CLOSED, ELIMINATED, PreparedStore
from storage.prepared.sections import SECTIONS, Checksums, checksums_of_file, running_checksums, section_entries
from storage.remote.generation import Generation
from storage.threads import ThreadPool

#: Maximum number of entries in a chunk of a table.
TABLE_CHUNK: Final = 1 << 21
#: The beginnings of the names of chunks of those tables from which single lines are read.  Checksums of sections are
#: stored only for these tables.
_IN_SECTIONS: Final = ("tables/forward/", "tables/backward/")
#: Number of threads that write chunks.
_THREADS: Final = 4


class WrittenChunk(NamedTuple):
    """The checksums of a chunk that has been written to a file.

    Attributes:
        mark: size and checksums of the file, for a seal.
        running: the checksums of its sections (``storage.prepared.sections``); None if they were not computed.
    """

    mark: FileMark
    running: Checksums | None


class PreparedWriter:
    """A prepared graph in the making.  As a context manager it removes everything unless ``seal`` was called."""

    def __init__(
        self,
        path: str | Path,
        graph: Graph,
        spec: MatrixSpec,
        parts: Mapping[str, Array],
        *,
        overwrite: bool = False,
        base: PreparedStore | None = None,
        remote: Generation | None = None,
    ) -> None:
        """Write everything except the tables; folders that killed writers to ``path`` left are removed.

        Args:
            path: where the prepared graph will be; its parent folder must exist.
            graph: the graph; labels and arcs are stored.
            spec: type of the distances, value for *no path*, and attributes.
            parts: one-dimensional arrays of integers by name, which describe the parts.
            overwrite: whether a store that is at ``path`` already is replaced, once this one is sealed.
            base: an open prepared graph of the same labels and parts; files that are equal are shared with it.
            remote: the place in an object store to which the complete prepared graph is sent, and where it is sealed;
                ``path`` is then used only while the files are written.  None if the prepared graph stays at ``path``.

        Raises:
            Conflict: ``path`` exists, and ``overwrite`` is False or ``path`` is no store.
            NotFound: the parent folder does not exist.
            StorageFailed: the file system refused.
        """
        frame = frame_of(path, graph, spec, overwrite=overwrite)
        self._attributes, self._overwrite = dict(frame.common), overwrite
        self._fill = plain(fill_value(np.dtype(spec.dtype), spec.unreachable))
        self._known: dict[str, FileMark] = {}
        self._staging = atomic.Staging(frame.target, "prepare")
        folder = self._staging.folder
        self._base, self._remote = base, remote
        try:
            if base is None:
                side_array(folder / "vertex", graph.labels, ("vertex",))
                for name, values in parts.items():
                    side_array(folder / "parts" / name, values, (name,))
                consolidate(folder / "parts", {})
            else:
                self._share("vertex/", "parts/")
            write_graph(folder, graph)
        except OSError as error:
            self._staging.discard()
            raise atomic.failure("write", folder, error) from error
        except BaseException:
            self._staging.discard()
            raise

    def _share(self, *prefixes: str) -> None:
        """Add those files of ``base`` to this prepared graph whose names begin with one of ``prefixes``, as hard links
        or copies (``PreparedStore.share``).  Raises OSError.
        """
        assert self._base is not None
        for name in [name for name in self._base.files() if name.startswith(prefixes)]:
            (self._staging.folder / name).parent.mkdir(parents=True, exist_ok=True)
            self._known[name] = self._base.share(name, self._staging.folder)

    def add_closed(self, closed: IntArray) -> None:
        """Write the closed arcs (weight +inf), which later weights may open, as ``tail * n + head``, ascending; without
        closed arcs no file is written.

        Raises:
            StorageFailed: the file system refused.
        """
        if len(closed):
            folder = self._staging.folder / CLOSED
            try:
                side_array(folder, closed, ("closed_arc",))
            except OSError as error:
                raise atomic.failure("write", folder, error) from error

    def add_eliminated(self, arrays: Sequence[Array]) -> None:
        """Write the results of elimination other than tables, in the order of ``storage.prepared.reader.ELIMINATED``.

        Raises:
            StorageFailed: the file system refused.
        """
        for name, values in zip(ELIMINATED, arrays, strict=True):
            self._add(f"elimination/{name}", values, lambda _bytes: None, frozenset())
        self.finish_eliminated()

    def add_table(
        self,
        name: str,
        table: Array,
        report: Callable[[int], None] = lambda _bytes: None,
        same: Collection[int] = frozenset(),
    ) -> None:
        """Write one table.

        Args:
            name: ``forward`` or ``backward``.
            table: the entries, one-dimensional, of the type of the store.
            report: called with the bytes of each chunk; an exception that it raises ends the writing.
            same: numbers of the chunks that are equal to the same chunks of ``base``; its table must then have the same
                length, type and chunk size as this one.

        Raises:
            StorageFailed: the file system refused.
        """
        self._add(f"tables/{name}", table, report, same)

    def _add(self, where: str, table: Array, report: Callable[[int], None], same: Collection[int]) -> None:
        folder = self._staging.folder / where
        try:
            chunk = self._begin(where, len(table), table.dtype.name)
            with ThreadPool(_THREADS) as pool, pool:
                pieces = [table[first : first + chunk] for first in range(0, len(table), chunk)]
                names = [f"{where}/c/{k}" for k in range(len(pieces))]
                shared = [k in same for k in range(len(pieces))]
                running = list[Checksums]()
                written = pool.map(self._chunk, names, pieces, [chunk] * len(pieces), shared)
                for name, found in zip(names, written, strict=True):
                    self._note(name, found, chunk, running)
                    report(found.mark.size)
            self._add_sections(where, running, chunk)
        except OSError as error:
            raise atomic.failure("write", folder, error, table.nbytes) from error

    def _note(self, name: str, found: WrittenChunk, chunk: int, running: list[Checksums]) -> None:
        """Store the mark (size and checksums) of a chunk for the seal, and the checksums of its sections.  Raises
        OSError, StorageFailed.
        """
        self._known[name] = found.mark
        if name.startswith(_IN_SECTIONS):
            kind, known = np.dtype(str(self._attributes["type"])), found.running
            if known is None or len(known) != -(-chunk // section_entries(chunk, kind.itemsize)):
                known = checksums_of_file(self._staging.folder / name, chunk, kind)
            # a chunk that was damaged after its mark was made must not get section checksums that agree with the damage
            if found.mark.told and int(known[-1]) != found.mark.content:
                raise StorageFailed(f"{self._staging.folder / name} is damaged: it is not what its seal says")
            running.append(known)

    def _add_sections(self, where: str, running: Sequence[Checksums], chunk: int) -> None:
        """Write the checksums of the sections of a table, unless a section would lie in two chunks.  Raises OSError."""
        if len(running) == 1 or (running and chunk % -(-chunk // len(running[0])) == 0):
            name = where.removeprefix("tables/")
            side_array(self._staging.folder / SECTIONS / name, np.stack(running), (f"{name}_chunk", "section"))

    def _begin(self, where: str, entries: int, kind: str) -> int:
        """Write the document of a flat array; return the number of entries of a chunk.  Raises OSError."""
        chunk, folder = chunk_entries(entries), self._staging.folder / where
        document = array_document(
            (entries,),
            (chunk,),
            kind=kind,
            fill=self._fill,
            codecs=[LITTLE_ENDIAN, CHECKSUM],
            dimensions=(f"{folder.name}_entry",),
            attributes={},
        )
        (folder / "c").mkdir(parents=True)
        atomic.write_file(folder / ROOT_DOCUMENT, [document])
        return chunk

    def add_assembled(
        self,
        where: str,
        entries: int,
        pieces: Iterable[Array],
        whole: Mapping[int, tuple[Path, WrittenChunk]],
        report: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        """Write a flat array; some of its chunks may exist as files already.

        Args:
            where: the name of the array, such as ``tables/forward``.
            entries: the length of the array.
            pieces: the entries outside the existing chunks, in order.
            whole: for the number of each existing chunk, the path of its file and the checksums that
                :func:`write_chunk` returned.  The file gets a second name in this store, or is copied if the file
                system has no hard links.
            report: called with the bytes of each chunk; an exception that it raises ends the writing.

        Raises:
            StorageFailed: the file system refused.
        """
        folder, kind = self._staging.folder / where, np.dtype(str(self._attributes["type"]))
        try:
            chunk = self._begin(where, entries, kind.name)
            filled = np.empty(chunk, kind)
            have, left, running = 0, iter(pieces), list[Checksums]()
            piece = np.empty(0, kind)
            for k in range(-(-entries // chunk)):
                name, length = f"{where}/c/{k}", min(chunk, entries - k * chunk)
                if k in whole:
                    path, found = whole[k]
                    _same_file(path, self._staging.folder / name)
                else:
                    while have < length:
                        piece = piece if len(piece) else next(left)
                        count = min(length - have, len(piece))
                        filled[have : have + count], piece = piece[:count], piece[count:]
                        have += count
                    found = write_chunk(self._staging.folder / name, filled[:length], chunk, self._fill)
                    have = 0
                self._note(name, found, chunk, running)
                report(found.mark.size)
            self._add_sections(where, running, chunk)
        except OSError as error:
            raise atomic.failure("write", folder, error, entries * kind.itemsize) from error

    def finish_eliminated(self) -> None:
        """Write the document of the results of elimination, once ``add_assembled`` has written all arrays.  Raises
        StorageFailed.
        """
        try:
            consolidate(self._staging.folder / "elimination", {})
        except OSError as error:
            raise atomic.failure("write", self._staging.folder, error) from error

    @property
    def fill(self) -> object:
        """The value that pads the last chunk of an array, in a JSON type."""
        return self._fill

    def _chunk(self, name: str, piece: Array, chunk: int, shared: bool) -> WrittenChunk:
        """Write a chunk; if ``shared``, link to the same chunk of ``base`` instead."""
        if shared:
            assert self._base is not None
            return WrittenChunk(self._base.share(name, self._staging.folder), self._base.running_checksums(name))
        return write_chunk(self._staging.folder / name, piece, chunk, self._fill)

    def seal(self, summary: Mapping[str, object] | None = None) -> None:
        """Make everything durable, write the seal, and put the folder at its path or send it to the object store.

        Raises:
            StorageFailed: the file system or the object store refused; nothing at the path has changed.
            Conflict: something else has appeared at the path, or was sealed at the address, meanwhile.
        """
        check_target(self._staging.target, self._overwrite)
        folder = self._staging.folder
        try:
            consolidate(folder / "tables", {})
            if (folder / SECTIONS).is_dir():
                consolidate(folder / SECTIONS, {})
            data = seal_document(folder, {**self._attributes, "summary": summary or {}}, self._known)
            if self._remote is not None:
                self._remote.send_folder(folder, data, self._staging.check_held)
                sealed, self._remote = self._remote, None
                self._staging.discard()
                sealed.tidy()
                return
            write_seal(folder, data)
        except OSError as error:
            raise atomic.failure("finish", folder, error) from error
        self._staging.publish(replace=self._overwrite)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._staging.discard()
        if self._remote is not None:
            self._remote.abandon()


def chunk_entries(entries: int) -> int:
    """Return how many entries a chunk has in a flat array of ``entries`` entries."""
    return max(1, min(TABLE_CHUNK, entries))


def write_chunk(path: Path, piece: Array, chunk: int, fill: object) -> WrittenChunk:
    """Write a chunk of a flat array into a file of its own; not yet durable.

    Args:
        path: the file.
        piece: the entries of the chunk; at the end of the array there may be fewer than ``chunk``.
        chunk: number of entries of a chunk.
        fill: the value that pads the file to ``chunk`` entries.

    Returns:
        The mark (size and checksums) of the file, and the checksums of its sections.

    Raises:
        OSError: the file system refused.
    """
    body: npt.NDArray[np.generic] = np.ascontiguousarray(piece, piece.dtype.newbyteorder("<"))
    if len(body) < chunk:
        body = np.concatenate([body, np.full(chunk - len(body), fill, body.dtype)])
    running = running_checksums(body, section_entries(chunk, body.itemsize))
    checksum = int(running[-1])
    trailer = checksum.to_bytes(CHECKSUM_BYTES, "little")
    atomic.write_file(path, [body, trailer], flush=True)
    return WrittenChunk(FileMark.of(body.nbytes + len(trailer), crc32c(trailer, checksum), trailer), running)


def _same_file(path: Path, target: Path) -> None:
    """Give a file a second name, or copy it where there are no hard links.  Raises OSError."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)
