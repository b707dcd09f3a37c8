"""Downloads a sealed result file by file, checks the files against the seal, and publishes the store once it is
complete.

The seal (``zarr.json``) holds size and checksum of every file except the tiles.  One of these files, the manifest,
holds sizes and checksums of the tiles.  So only the seal has to be trusted, and it contains its own digest.  The files
are in the working folder next to the target (``storage.matrix.working_dir``).  This folder remains if the process ends,
so that a later download continues with the tiles that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from storage.errors import InvalidRequest, StorageFailed
from storage.files import atomic
from storage.files.checksum import crc32c
from storage.graph.cleaning import check_quantity_name
from storage.matrix.format import (
    ALSO,
    DISTANCES,
    FileMark,
    data_mark,
    file_mark,
    is_prepared,
    is_table,
    read_seal,
    sealed_files,
)
from storage.matrix.frame import check_target, write_seal
from storage.matrix.grid import CHECKSUM_BYTES, TileGrid
from storage.matrix.working_dir import WorkingDir

#: The form of the names of a store's files.  The names come from the server, and must not lead outside of the folder.
_NAME: Final = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*(/zarr\.json)?|table\.parquet", re.ASCII)
#: The form of the names of the files of a quantity.  The group that matches is the name of the quantity, which may have
#: characters that ``_NAME`` does not allow.
_OF_QUANTITY: Final = re.compile(
    rf"(?:(?:{ALSO}|graph/quantities)/([^/]+)|manifest/{ALSO}\.([^/]+)\.(?:crc32c|bytes))"
    r"(?:/zarr\.json|/c(?:/[0-9]+)+)",
    re.ASCII,
)
#: The beginning of the names of the chunks of a prepared graph's tables.
_TABLE: Final = re.compile(r"tables/[a-z]+/c/", re.ASCII)


@dataclass(frozen=True)
class Piece:
    """A file of the store: its path below the root, and its mark (size and checksum).  The checksum of a tile is that
    of its entries, without the checksum at the end of the file.
    """

    name: str
    mark: FileMark
    tile: bool = False

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.mark.size

    def holds(self, path: Path) -> bool:
        """Return whether the file at ``path`` is complete and has the checksum of the mark.  Raises OSError."""
        if path.stat().st_size != self.size:
            return False
        if not self.tile:
            return file_mark(path).agrees(self.mark)
        data = path.read_bytes()
        stored = int.from_bytes(data[-CHECKSUM_BYTES:], "little")
        return crc32c(data[:-CHECKSUM_BYTES]) == stored == self.mark.checksum


class Download:
    """A download of a store to ``target``, as a context manager.

    Accepted files stay in the working folder until the store is published, also if the context ends before that.

    Attributes:
        total: bytes of all files except the seal; None until :meth:`tiles` was called.
    """

    def __init__(self, target: str | Path, document: bytes, *, overwrite: bool = False) -> None:
        """Begin a download, or continue the download of the same store that an earlier process began.

        Args:
            target: path of the downloaded store; its parent folder must exist.
            document: the root document, which is the seal.
            overwrite: whether an existing store is replaced, once the download is complete.

        Raises:
            Conflict: ``target`` exists, another process downloads to it, or a different store was partly downloaded to
                it.
            NotFound: the parent folder does not exist.
            StorageFailed: the document is no seal, or the file system refused.
        """
        self._target, self._document, self._overwrite = Path(target).absolute(), document, overwrite
        sealed = read_seal(self._target, document, None)
        pieces = _side_pieces(sealed, self._target)
        prepared = is_prepared(document)
        self._tables = [piece for piece in pieces if prepared and _TABLE.match(piece.name)]
        self._sides = [piece for piece in pieces if piece not in self._tables]
        self._grid = None if prepared or is_table(document) else _grid(sealed, self._target)
        self._also = [] if self._grid is None else _further(sealed, self._target)
        self.total: int | None = None
        atomic.clear_stale(self._target)
        check_target(self._target, overwrite)
        digest = sealed["attributes"]["seal"]["digest"]
        self._place = WorkingDir(self._target, {"fetched": digest}, resume=True, overwrite=overwrite)
        try:
            if self._grid is not None:
                for array in (DISTANCES, *(f"{ALSO}/{name}" for name in self._also)):
                    (self._place.folder / array / "c").mkdir(parents=True, exist_ok=True)
            if self._place.record is None:
                self._place.save({"fetched": digest})
        except OSError as error:
            self._place.discard()
            raise atomic.failure("write into", self._place.folder, error) from error

    def sides(self) -> list[Piece]:
        """Return all files except the seal and the tiles; the caller downloads these before it calls :meth:`tiles`."""
        return self._sides

    def tiles(self) -> Iterator[tuple[Piece, bool]]:
        """Return all tiles (of a prepared graph all chunks of tables), each with whether it is already downloaded and
        undamaged.

        Raises:
            StorageFailed: the manifest cannot be read.
        """
        if self._grid is None:
            self.total = sum(piece.size for piece in (*self._sides, *self._tables))
            return self._checked(self._tables)
        manifests = {DISTANCES: (self._manifest("crc32c"), self._manifest("bytes"))}
        for name in self._also:
            marks = self._manifest(f"{ALSO}.{name}.crc32c"), self._manifest(f"{ALSO}.{name}.bytes")
            manifests[f"{ALSO}/{name}"] = marks
        self.total = sum(piece.size for piece in self._sides) + sum(int(sizes.sum()) for _, sizes in manifests.values())
        down, across = self._grid.counts
        return self._checked(
            Piece(
                f"{array}/c/{i}/{j}", FileMark(int(sizes[i, j]), int(checksums[i, j]), int(checksums[i, j])), tile=True
            )
            for array, (checksums, sizes) in manifests.items()
            for i in range(down)
            for j in range(across)
        )

    def draft(self, piece: Piece) -> Path:
        """Return the path of the file to which the bytes of a piece are downloaded, before :meth:`accept` is called."""
        return self._place.spare / piece.name.replace("/", "-")

    def accept(self, piece: Piece) -> bool:
        """Accept the draft of a piece if it agrees with seal or manifest; otherwise remove it and return False.

        Raises:
            StorageFailed: the file system refused.
        """
        draft, path = self.draft(piece), self._place.folder / piece.name
        try:
            if not piece.holds(draft):
                draft.unlink()
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(path)
        except OSError as error:
            raise atomic.failure("write", path, error) from error
        return True

    def publish(self) -> None:
        """Make all files durable and move the store to its target.  Raises Conflict or StorageFailed."""
        folder = self._place.folder
        check_target(self._target, self._overwrite)
        try:
            write_seal(folder, self._document)
        except OSError as error:
            raise atomic.failure("finish", folder, error) from error
        self._place.publish(replace=self._overwrite)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.discard()

    def _checked(self, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, bool]]:
        for piece in pieces:
            try:
                there = piece.holds(self._place.folder / piece.name)
            except FileNotFoundError:
                there = False
            except OSError as error:
                raise atomic.failure("read", self._place.folder / piece.name, error) from error
            yield piece, there

    def _manifest(self, name: str) -> Any:
        found = _side_array(self._place.folder / "manifest" / name, self._target)
        if self._grid is None or found.shape != self._grid.counts:
            raise StorageFailed(f"{self._target}: the manifest does not fit the shape of the matrix")
        return found


def side_files(document: bytes, arrays: tuple[str, ...]) -> list[str]:
    """Return the names of the files of some small arrays of a store.

    Args:
        document: the root document of the store.
        arrays: names of the wanted arrays, such as ``source``.

    Raises:
        StorageFailed: the document is no valid seal.
    """
    sealed = read_seal(Path("the store"), document, None)
    return [piece.name for piece in _side_pieces(sealed, Path("the store")) if piece.name.split("/")[0] in arrays]


def labels_of(document: bytes, files: Mapping[str, bytes], array: str) -> list[int | str]:
    """Return the labels in an array of a store, from files that were downloaded.

    Args:
        document: the root document of the store.
        files: content of the files by name; the names are those that ``side_files`` returned.
        array: ``source`` or ``target``, or ``vertex`` of a prepared graph.

    Raises:
        StorageFailed: a file does not agree with the seal, or cannot be read.
    """
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    where = Path("the store")
    buffer = default_buffer_prototype().buffer
    for piece in _side_pieces(read_seal(where, document, None), where):
        data = files.get(piece.name)
        if data is not None and not data_mark(data).agrees(piece.mark):
            raise StorageFailed(f"{piece.name} arrived damaged: it does not agree with the seal")
    try:
        store = MemoryStore({name: buffer.from_bytes(data) for name, data in files.items()})
        values = zarr.open_array(store, path=array, mode="r", zarr_format=3)[...]
    except Exception as error:
        raise StorageFailed(f"the labels in {array} cannot be read: {error}") from error
    found = np.asarray(values)
    return [int(v) for v in found.tolist()] if found.dtype.kind in "iu" else [str(v) for v in found.tolist()]


def _side_pieces(sealed: Mapping[str, Any], where: Path) -> list[Piece]:
    try:
        files = sealed_files(sealed["attributes"]["seal"])
        pieces = [Piece(name, mark) for name, mark in files.items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageFailed(f"{where}: the seal is not understood ({error!r})") from None
    for piece in pieces:
        if not (_NAME.fullmatch(piece.name) or _is_of_quantity(piece.name)) or piece.size < 0:
            raise StorageFailed(f"{where}: the seal names a file {piece.name[:200]!r}, which no store has")
    return pieces


def _is_of_quantity(name: str) -> bool:
    """Return whether ``name`` names a file of a quantity; False if the quantity's name could lead out of the folder."""
    found = _OF_QUANTITY.fullmatch(name)
    try:
        check_quantity_name("" if found is None else found[1] or found[2])
    except InvalidRequest:
        return False
    return True


def _further(sealed: Mapping[str, Any], where: Path) -> list[str]:
    """Return the names of the further arrays, which hold sums of quantities along paths.  Raises StorageFailed."""
    found = sealed["attributes"].get(ALSO) or {}
    try:
        for name in found:
            check_quantity_name(name)
    except (InvalidRequest, TypeError) as error:
        raise StorageFailed(f"{where}: its further arrays cannot be understood ({error})") from None
    return list(found)


def _grid(sealed: Mapping[str, Any], where: Path) -> TileGrid:
    try:
        array = sealed["consolidated_metadata"]["metadata"][DISTANCES]
        rows, columns = array["shape"]
        height, width = array["chunk_grid"]["configuration"]["chunk_shape"]
        return TileGrid((int(rows), int(columns)), (int(height), int(width)))
    except (KeyError, TypeError, ValueError) as error:
        raise StorageFailed(f"{where}: its metadata cannot be understood ({error!r})") from None


def _side_array(folder: Path, where: Path) -> Any:
    import zarr

    try:
        return np.asarray(zarr.open_array(folder, mode="r", zarr_format=3)[...])
    except Exception as error:
        raise StorageFailed(f"{where}: {folder.name} cannot be read: {error}") from error
