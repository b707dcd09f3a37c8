"""Opens, reads and verifies a distance matrix that is sealed in a store.

The store is a Zarr v3 group that plain ``zarr`` and ``xarray.open_zarr`` open with labelled dimensions.
``docs/store.md`` lists the content of a store, and ``docs/decisions/003-matrix-layout.md`` gives the reasons for its
layout. This reader is stricter than a Zarr client: a tile that is missing or damaged is an error, never a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from storage.arguments import check_choice, check_given_paths, check_index_array, check_whole
from storage.errors import Conflict, NotFound, StorageFailed
from storage.matrix.format import ALSO, DISTANCES, ROOT_DOCUMENT, Array, IntArray, is_foreign
from storage.matrix.frame import MatrixSpec
from storage.matrix.grid import TileGrid, layout
from storage.matrix.sealed import SealedFolder, SealedResult
from storage.matrix.tiles import StoreFolder, TileReader
from storage.matrix.writer import MatrixWriter, create_matrix
from storage.quantities.reading import QuantityMatrix, check_all, entries_of, rows_of
from storage.remote.objects import is_address
from storage.remote.reader import RemoteFolder, RemoteTiles
from storage.semirings import MIN_PLUS, SEMIRINGS, check_understood

__all__ = [
    "Matrix", "MatrixSpec", "MatrixWriter", "create_matrix", "matrix_bytes", "open_matrix",
]  # fmt: skip

Result = TypeVar("Result", bound=SealedFolder)

_ATTEMPTS: Final = 20
#: The pattern of the names of tiles; the groups of the pattern are row and column of the tile in the grid.
TILE_KEY: Final = re.compile(rf"{DISTANCES}/c/(0|[1-9][0-9]{{0,9}})/(0|[1-9][0-9]{{0,9}})", re.ASCII)

_FURTHER_KEY: Final = re.compile(rf"{ALSO}/([^/]+)/c/(0|[1-9][0-9]{{0,9}})/(0|[1-9][0-9]{{0,9}})", re.ASCII)


def matrix_bytes(shape: tuple[int, int], itemsize: int) -> int:
    """Return the exact bytes of the tile files of an uncompressed store; labels, arcs and metadata are not counted."""
    return layout(shape, itemsize).total_bytes(itemsize)


def open_matrix(path: str | Path, *, semiring: str | Collection[str] = MIN_PLUS) -> Matrix:
    """Open a sealed store for reading.

    Args:
        path: a folder, or an address in an object store (``s3://BUCKET/PREFIX``).
        semiring: the name of the semiring, or names of several, whose values the caller understands.

    Returns:
        The matrix, to be closed or used as a context: rows, entries, labels and the graph.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: ``path`` is no sealed store, or its metadata are damaged.
        Conflict: the values of the store are of a semiring that the caller does not understand.
    """
    return understood(open_sealed(path, Matrix), semiring)


def check_opening(path: object, semiring: object, device: object, device_memory: object) -> None:
    """Check the arguments with which a result is opened, before it is read.

    Args:
        path: a folder, or an address in an object store.
        semiring: name of a semiring, or names of several.
        device: ``cpu``, ``cuda`` or ``auto``.
        device_memory: bytes, or None.

    Raises:
        InvalidRequest: an argument has a different type or an unknown value.
    """
    check_given_paths(path=path)
    for name in semiring if isinstance(semiring, Collection) and not isinstance(semiring, str) else (semiring,):
        check_choice("semiring", name, SEMIRINGS)
    check_choice("device", device, ("auto", "cpu", "cuda"))
    if device_memory is not None:
        check_whole("device_memory", device_memory, 1)


def understood(result: Result, semiring: str | Collection[str]) -> Result:
    """Return an open result if the semiring of its values is ``semiring`` or among ``semiring``; else close the result.

    Raises:
        Conflict: the values of the result are of a semiring that is not in ``semiring``.
    """
    try:
        check_understood(result.path, result.attributes, semiring)
    except Conflict:
        result.close()
        raise
    return result


def open_sealed(path: str | Path, make: Callable[[StoreFolder | RemoteFolder], Result]) -> Result:
    """Open the sealed result at ``path``.  If a writer replaces it meanwhile, old and new metadata are never mixed.

    Args:
        path: a folder, or an address in an object store.
        make: opens the result in an open folder, and returns it.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: ``make`` could not read the store, or the store is replaced again and again.
    """
    if is_address(path):
        return make(RemoteFolder(str(path)))
    target = Path(path).absolute()
    for _ in range(_ATTEMPTS):
        folder = StoreFolder(target)
        try:
            result = make(folder)
        except StorageFailed:
            swapped = not folder.current()
            folder.close()
            if not swapped:
                raise
            continue
        # Metadata are read by path.  If a writer has replaced the store meanwhile, they may be mixed, so begin again.
        if folder.current():
            return result
        folder.close()
    raise StorageFailed(f"{path} is being replaced again and again; try later")


def is_sealed_store(folder: Path) -> bool:
    """Return whether a folder is a store that this program has sealed, even if it was damaged later."""
    try:
        return not is_foreign((folder / ROOT_DOCUMENT).read_bytes())
    except (FileNotFoundError, IsADirectoryError):
        return False


def get_ready() -> None:
    """Import the modules that are needed to open a store, so that opening the first store is as fast as any other."""
    import zarr

    zarr.create_array({}, data=np.zeros(1))[...]


class Matrix(SealedResult):
    """A sealed store of tiles, open for reading; safe to use from many threads.

    The first read of a tile verifies its checksum.  If the store is replaced while it is open, it is still read from
    the old files; once these are gone, StorageFailed is raised.  Old and new entries are never mixed.  The attributes
    are those of the base class ``SealedResult``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Open the matrix in a folder; callers use ``open_matrix`` instead."""
        super().__init__(folder)

    def _read_metadata(self) -> None:
        array, attributes = self._arrays[DISTANCES], self.attributes
        rows, columns = array["shape"]
        self.grid = TileGrid((rows, columns), tuple(array["chunk_grid"]["configuration"]["chunk_shape"]))
        self.dtype = np.dtype(array["data_type"])
        self._stored = self.dtype.newbyteorder("<")
        self.unreachable = self.dtype.type(float(attributes["unreachable"]))
        attributes["unreachable"] = self.unreachable.item()
        attributes.setdefault("targets", "all")  # missing in stores of versions without the option ``targets``
        attributes.setdefault("cutoff", None)
        self.target_labels = self._side("target")
        self.labels = self.target_labels if attributes["targets"] == "all" else self._side("vertex")
        self.n = len(self.labels)
        self.source_labels = self._side("source")
        self.sources, self.targets = self._read_vertices("sources"), self._read_vertices("targets")
        reader: Any = TileReader if isinstance(self._folder, StoreFolder) else RemoteTiles
        self._tiles: TileReader = reader(
            self._folder,
            self.grid,
            self._stored,
            self._side("manifest/crc32c").astype(np.uint32, copy=False),
            self._side("manifest/bytes").astype(np.int64, copy=False),
            compressed=attributes["compression"] == "zstd",
        )
        self.also = MappingProxyType({name: self._open_quantity(name) for name in attributes.get(ALSO) or {}})

    def _open_quantity(self, name: str) -> QuantityMatrix:
        """Return the array with the sums of a quantity along paths.  Raises StorageFailed if it cannot be read."""
        if not isinstance(self._folder, StoreFolder):
            raise StorageFailed(f"{self.path} has a further array {name!r}, which is read from folders only")
        marks = [self._side(f"manifest/{ALSO}.{name}.{mark}") for mark in ("crc32c", "bytes")]
        tiles = TileReader(
            self._folder,
            self.grid,
            np.dtype(str(self.attributes[ALSO][name]["type"])).newbyteorder("<"),
            marks[0].astype(np.uint32, copy=False),
            marks[1].astype(np.int64, copy=False),
            compressed=self.attributes["compression"] == "zstd",
            name=f"{ALSO}/{name}",
        )
        return QuantityMatrix(self, name, self._folder, tiles)

    @property
    def bytes(self) -> int:
        """Bytes of all files except the root document."""
        further = sum(quantity.bytes for quantity in self.also.values())
        return self._tiles.total_bytes + further + sum(mark.size for mark in self._files.values())

    def rows(self, sources: Sequence[int] | IntArray) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns)."""
        return rows_of(self._tiles, self.grid, self._stored, self.source_positions(sources))

    def entries(self, sources: Sequence[int] | IntArray, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,); pairs of the same tile are read together."""
        places = self.source_positions(sources), self.target_positions(targets)
        return entries_of(self._tiles, self.grid, self._stored, *places)

    def columns(self, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances from all sources to several targets (vertex indices), shape (rows, len(targets)).  Whole
        tiles are read.
        """
        across = check_index_array("targets", targets, self.n)
        found = self.entries(np.repeat(self.sources, len(across)), np.tile(across, len(self.sources)))
        return found.reshape(len(self.sources), len(across))

    def check(self) -> None:
        """Read every tile and file again and compare them with manifest and seal.  Raises StorageFailed."""
        self.check_files("")
        check_all(self._tiles, self.grid)
        for quantity in self.also.values():
            quantity.check()

    def peek(self, source: int, target: int) -> np.generic | None:
        """Return the distance of one pair (vertex indices) if it can be read without waiting.

        Returns:
            The distance; None if only ``entries`` can read it.

        Raises:
            BlockingIOError: the kernel is reading the entry from the disk; a later call will find it in memory.
        """
        source, target = check_whole("source", source), check_whole("target", target)
        if self._rows_of is not None or self._columns_of is not None or not (0 <= source < self.n > target >= 0):
            return None
        height, width = self.grid.tile
        (i, offset), (j, column) = divmod(source, height), divmod(target, width)
        found = self._tiles.peek(i, j, offset, column)
        return None if found is None else self.dtype.type(np.frombuffer(found, self._stored)[0])

    def holds(self, key: str) -> bool:
        """Return whether a file that belongs to the store exists with its sealed size; the file is not opened."""
        try:
            return self._folder.size(key) == self._sealed_size(key)
        except (OSError, NotFound):
            return False

    def _sealed_size(self, key: str) -> int:
        """Return the size of a file of the store in bytes, -1 for the root document.  Raises NotFound: no such file."""
        tile = TILE_KEY.fullmatch(key)
        if tile is not None and (int(tile[1]) < self.grid.counts[0] and int(tile[2]) < self.grid.counts[1]):
            return self._tiles.size(int(tile[1]), int(tile[2]))
        further = _FURTHER_KEY.fullmatch(key)
        if further is not None and further[1] in self.also:
            i, j = int(further[2]), int(further[3])
            if i < self.grid.counts[0] and j < self.grid.counts[1]:
                return self.also[further[1]].size(i, j)
        return super()._sealed_size(key)
