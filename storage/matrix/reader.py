"""The distance matrix as a store: opens, reads and verifies it.

A Zarr v3 group that plain ``zarr`` and ``xarray.open_zarr`` open with labelled dimensions; ``docs/store.md`` lists
what is in it and ``docs/decisions/003-matrix-layout.md`` says why it is laid out so.  This reader is stricter than a
Zarr client: a tile that is missing or damaged is an error, never a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.matrix.format import DISTANCES, ROOT_DOCUMENT, Array, IntArray, is_foreign
from storage.matrix.frame import MatrixSpec
from storage.matrix.grid import TileGrid, layout
from storage.matrix.sealed import SealedFolder, SealedResult
from storage.matrix.tiles import StoreFolder, TileReader
from storage.matrix.writer import MatrixWriter, create_matrix
from storage.remote.objects import is_address
from storage.remote.reader import RemoteFolder, RemoteTiles

__all__ = [
    "Matrix", "MatrixSpec", "MatrixWriter", "check_tiles", "create_matrix", "matrix_bytes", "open_matrix",
    "verify_matrix",
]  # fmt: skip

Result = TypeVar("Result", bound=SealedFolder)

_VERIFY_THREADS: Final = 4
_ATTEMPTS: Final = 20
#: The names of tiles, with their place in the grid.
TILE_KEY: Final = re.compile(rf"{DISTANCES}/c/(0|[1-9][0-9]{{0,9}})/(0|[1-9][0-9]{{0,9}})", re.ASCII)


def matrix_bytes(shape: tuple[int, int], itemsize: int) -> int:
    """Return the bytes of the tile files of an uncompressed store, exactly; labels, arcs and metadata come on top."""
    return layout(shape, itemsize).total_bytes(itemsize)


def open_matrix(path: str | Path) -> Matrix:
    """Open a sealed store for reading.

    Args:
        path: a folder, or an address in an object store (``s3://BUCKET/PREFIX``).

    Returns:
        The matrix, to be closed or used as a context: rows, entries, labels and the graph.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: ``path`` is no sealed store, or its metadata are damaged.
    """
    return open_sealed(path, Matrix)


def open_sealed(path: str | Path, make: Callable[[StoreFolder | RemoteFolder], Result]) -> Result:
    """Open the sealed result at ``path``; all its metadata are of one result, even if a writer replaces it meanwhile.

    Args:
        path: a folder, or an address in an object store.
        make: makes the result from its open folder.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: as ``make``.
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
        # Metadata are read by name: if a writer has swapped the store meanwhile, begin again.
        if folder.current():
            return result
        folder.close()
    raise StorageFailed(f"{path} is being replaced again and again; try later")


def is_sealed_store(folder: Path) -> bool:
    """Return whether a folder is a store that this program has sealed, even if it is damaged by now."""
    try:
        return not is_foreign((folder / ROOT_DOCUMENT).read_bytes())
    except (FileNotFoundError, IsADirectoryError):
        return False


def get_ready() -> None:
    """Import the modules that opening a store needs, so that opening the first store takes no longer than later
    ones.
    """
    import zarr

    zarr.create_array({}, data=np.zeros(1))[...]


def verify_matrix(path: str | Path) -> None:
    """Read every file of the store again and compare sizes and checksums with the manifest.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: a tile or file is missing or damaged; the message names the first one.
    """
    with open_matrix(path) as matrix:
        check_tiles(matrix)


def check_tiles(matrix: Matrix) -> None:
    """Verify an open store like :func:`verify_matrix`.  Raises StorageFailed."""
    matrix.check()


class Matrix(SealedResult):
    """A sealed store of tiles, open for reading; safe to use from many threads.

    The first read of a tile verifies its checksum.  A store that is replaced while open is read from the old files as
    long as they exist; then StorageFailed is raised.  Old and new entries are never mixed.

    Attributes:
        Others: as in ``SealedResult``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Use ``open_matrix``."""
        super().__init__(folder)

    def _read_metadata(self) -> None:
        array, attributes = self._arrays[DISTANCES], self.attributes
        rows, columns = array["shape"]
        self.grid = TileGrid((rows, columns), tuple(array["chunk_grid"]["configuration"]["chunk_shape"]))
        self.dtype = np.dtype(array["data_type"])
        self._stored = self.dtype.newbyteorder("<")
        self.unreachable = self.dtype.type(float(attributes["unreachable"]))
        attributes["unreachable"] = self.unreachable.item()
        attributes.setdefault("targets", "all")  # stores of versions without the option ``targets``
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

    @property
    def bytes(self) -> int:
        """Bytes of all files except the root document."""
        return self._tiles.total_bytes + sum(size for size, _ in self._files.values())

    def rows(self, sources: Sequence[int] | IntArray) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns)."""
        positions = self.source_positions(sources)
        out = np.empty((len(positions), self.shape[1]), self._stored)
        bands = positions // self.grid.tile[0]
        for i in np.unique(bands).tolist():
            wanted = np.flatnonzero(bands == i)
            if self._tiles.far:
                self._tiles.prepare([(i, j) for j in range(self.grid.counts[1])])
            for j in range(self.grid.counts[1]):
                self._tiles.copy_rows(i, j, positions[wanted] - i * self.grid.tile[0], wanted, out)
        return out.astype(self.dtype, copy=False)

    def entries(self, sources: Sequence[int] | IntArray, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,); pairs in one tile are read together."""
        positions, columns = self.source_positions(sources), self.target_positions(targets)
        if positions.shape != columns.shape:
            raise InvalidRequest(f"{len(positions)} sources do not pair with {len(columns)} targets", field="targets")
        out = np.empty(len(columns), self._stored)
        height, width = self.grid.tile
        tiles = (positions // height) * self.grid.counts[1] + columns // width
        order = np.argsort(tiles, kind="stable")
        first = np.flatnonzero(np.diff(tiles[order], prepend=-1))
        if self._tiles.far:
            self._tiles.prepare([divmod(tile, self.grid.counts[1]) for tile in tiles[order][first].tolist()])
        for group in np.split(order, first[1:]) if len(order) else []:
            i, j = divmod(int(tiles[group[0]]), self.grid.counts[1])
            out[group] = self._tiles.pick(i, j, positions[group] - i * height, columns[group] - j * width)
        return out.astype(self.dtype, copy=False)

    def columns(self, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances from all sources to several targets, as the base class does; reads whole tiles."""
        sources = np.repeat(self.sources, len(targets))
        found = self.entries(sources, np.tile(np.asarray(targets, np.int64), len(self.sources)))
        return found.reshape(len(self.sources), len(targets))

    def check(self) -> None:
        """Read every tile and file again and compare them with manifest and seal.  Raises StorageFailed."""
        self.check_files("")
        down, across = self.grid.counts
        with ThreadPoolExecutor(_VERIFY_THREADS) as pool:
            for _ in pool.map(lambda k: self.check_tile(*divmod(k, across)), range(down * across)):
                pass

    def peek(self, source: int, target: int) -> np.generic | None:
        """Return the distance of one pair (vertex indices) if it can be read without waiting.

        Returns:
            None if the pair needs ``entries``.

        Raises:
            BlockingIOError: the kernel is reading it from the disk; try again soon.
        """
        if self._rows_of is not None or self._columns_of is not None or not (0 <= source < self.n > target >= 0):
            return None
        height, width = self.grid.tile
        (i, offset), (j, column) = divmod(source, height), divmod(target, width)
        found = self._tiles.peek(i, j, offset, column)
        return None if found is None else self.dtype.type(np.frombuffer(found, self._stored)[0])

    def check_tile(self, i: int, j: int) -> None:
        """Compare tile (i, j) with the manifest.  Raises StorageFailed."""
        self._tiles.whole(i, j)

    def holds(self, key: str) -> bool:
        """Return whether a file that belongs to the store exists with its sealed size; the file is not opened."""
        try:
            return self._folder.size(key) == self._sealed_size(key)
        except (OSError, NotFound):
            return False

    def _sealed_size(self, key: str) -> int:
        """Return the bytes of a file of the store, -1 for the root document.  Raises NotFound for other names."""
        tile = TILE_KEY.fullmatch(key)
        if tile is not None and (int(tile[1]) < self.grid.counts[0] and int(tile[2]) < self.grid.counts[1]):
            return self._tiles.size(int(tile[1]), int(tile[2]))
        return super()._sealed_size(key)
