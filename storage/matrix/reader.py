"""The distance matrix as a store: create, write, seal, open, read rows and entries, verify.

A Zarr v3 group that plain ``zarr`` and ``xarray.open_zarr`` open with labelled dimensions; ``docs/store.md`` lists
what is in it and ``docs/decisions/003-matrix-layout.md`` says why it is laid out so.  This reader is stricter than a
Zarr client: a tile that is missing or damaged is an error, never a number.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.graph.graph import Graph, index_of
from storage.matrix.format import DISTANCES, ROOT_DOCUMENT, Array, IntArray, crc32c, is_foreign, read_seal
from storage.matrix.frame import MatrixSpec
from storage.matrix.grid import TileGrid, layout
from storage.matrix.side_arrays import read_side_array
from storage.matrix.tiles import StoreFolder, TileReader
from storage.matrix.writer import MatrixWriter, create_matrix
from storage.remote.objects import is_address
from storage.remote.reader import RemoteFolder, RemoteTiles

__all__ = [
    "Matrix",
    "MatrixSpec",
    "MatrixWriter",
    "check_tiles",
    "create_matrix",
    "matrix_bytes",
    "open_matrix",
    "verify_matrix",
]

_VERIFY_THREADS: Final = 4
_ATTEMPTS: Final = 20
_TILE_KEY: Final = re.compile(rf"{DISTANCES}/c/(0|[1-9][0-9]{{0,9}})/(0|[1-9][0-9]{{0,9}})", re.ASCII)


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
        StorageFailed: what is there is no sealed store, or its metadata are damaged.
    """
    if is_address(path):
        return Matrix(RemoteFolder(str(path)))
    target = Path(path).absolute()
    for _ in range(_ATTEMPTS):
        folder = StoreFolder(target)
        try:
            matrix = Matrix(folder)
        except StorageFailed:
            swapped = not folder.current()
            folder.close()
            if not swapped:
                raise
            continue
        # Metadata are read by name: if a writer has swapped the store meanwhile, begin again.
        if folder.current():
            return matrix
        folder.close()
    raise StorageFailed(f"{path} is being replaced again and again; try later")


def is_sealed_store(folder: Path) -> bool:
    """Return whether a folder is a store that this program has sealed, sound or damaged, and nothing else."""
    try:
        return not is_foreign((folder / ROOT_DOCUMENT).read_bytes())
    except (FileNotFoundError, IsADirectoryError):
        return False


def get_ready() -> None:
    """Import what opening a store needs, so that the first store opens without that wait."""
    import zarr

    zarr.create_array({}, data=np.zeros(1))[...]


def verify_matrix(path: str | Path) -> None:
    """Read every file of the store again and compare sizes and checksums with the manifest.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: naming the first tile or file that is missing or damaged.
    """
    with open_matrix(path) as matrix:
        check_tiles(matrix)


def check_tiles(matrix: Matrix) -> None:
    """Verify an open store like :func:`verify_matrix`.  Raises StorageFailed."""
    matrix.check_files("")
    down, across = matrix.grid.counts
    with ThreadPoolExecutor(_VERIFY_THREADS) as pool:
        for _ in pool.map(lambda k: matrix.check_tile(*divmod(k, across)), range(down * across)):
            pass


class Matrix:
    """A sealed store, open for reading; safe to use from many threads.

    Vertices are given as indices (positions in ``labels``); rows are named by the vertex index of their source, columns
    by that of their target.
    Entries are returned as stored: ``unreachable`` is +inf for floats and the sentinel for integers.  The first read of
    a tile verifies its checksum.  A store that is replaced while open is read from the old files as long as they exist;
    then StorageFailed is raised.  Old and new entries are never mixed.

    Attributes:
        path: where it was opened.
        attributes: type, unreachable, unit, directed, algorithm, plan, graph (digest), software, max_hops, cutoff,
            sources and targets (``all`` or ``subset``) and the caller's own.
        summary: as given to ``seal``.
        dtype: type of the entries.
        unreachable: the stored value for *no path*.
        grid: the tile grid.
        labels: the names of all vertices; n: how many there are.
        sources, targets: vertex indices of rows and columns; source_labels, target_labels: their names.
        digest: of the seal, ``sha256:...``; equal for equal stores.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Use ``open_matrix``."""
        path = self.path = folder.path
        self._folder = folder
        try:
            document = read_seal(path, self._folder.read(ROOT_DOCUMENT))
            attributes: dict[str, Any] = document["attributes"]
            seal = attributes.pop("seal")
            self._files: Mapping[str, list[int]] = seal["files"]
            self.digest: str = seal["digest"]
            self.summary: dict[str, Any] = attributes.pop("summary")
            self._arrays: Mapping[str, Any] = document["consolidated_metadata"]["metadata"]
            array = self._arrays[DISTANCES]
            rows, columns = array["shape"]
            self.grid = TileGrid((rows, columns), tuple(array["chunk_grid"]["configuration"]["chunk_shape"]))
            self.dtype = np.dtype(array["data_type"])
            self._stored = self.dtype.newbyteorder("<")
            self.unreachable = self.dtype.type(float(attributes["unreachable"]))
            attributes["unreachable"] = self.unreachable.item()
            attributes.setdefault("targets", "all")  # stores of versions without the option ``targets``
            attributes.setdefault("cutoff", None)
            self.attributes = attributes
            self.target_labels: Array = self._side("target")
            self.labels: Array = self.target_labels if attributes["targets"] == "all" else self._side("vertex")
            self.n = len(self.labels)
            self.source_labels: Array = self._side("source")
            self.sources: IntArray = self._read_vertices("sources")
            self.targets: IntArray = self._read_vertices("targets")
            reader: Any = TileReader if isinstance(folder, StoreFolder) else RemoteTiles
            self._tiles: TileReader = reader(
                self._folder,
                self.grid,
                self._stored,
                self._side("manifest/crc32c").astype(np.uint32, copy=False),
                self._side("manifest/bytes").astype(np.int64, copy=False),
                compressed=attributes["compression"] == "zstd",
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageFailed(f"{path} is damaged: its metadata cannot be understood ({error!r})") from error

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (sources) and columns (targets)."""
        return self.grid.shape

    @property
    def bytes(self) -> int:
        """Bytes of all files but the root document."""
        return self._tiles.total_bytes + sum(size for size, _ in self._files.values())

    @property
    def directed(self) -> bool:
        """Whether the graph is directed."""
        return bool(self.attributes["directed"])

    def row(self, source_index: int) -> Array:
        """Return the distances from a source (vertex index), shape (columns,).  Raises NotFound if it is no source."""
        row: Array = self.rows([source_index])[0]
        return row

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

    def source_position(self, vertex_index: int) -> int:
        """Return the row of a source.  Raises NotFound if that vertex does not exist or is no source."""
        return int(self.source_positions([vertex_index])[0])

    def target_position(self, vertex_index: int) -> int:
        """Return the column of a target.  Raises NotFound if that vertex does not exist or is no target."""
        return int(self.target_positions([vertex_index])[0])

    def source_positions(self, vertices: Sequence[int] | IntArray) -> IntArray:
        """Return the rows of sources (vertex indices); errors as in :meth:`source_position`."""
        return self._positions(vertices, "source", self._rows_of, self.shape[0])

    def target_positions(self, vertices: Sequence[int] | IntArray) -> IntArray:
        """Return the columns of targets (vertex indices); errors as in :meth:`target_position`."""
        return self._positions(vertices, "target", self._columns_of, self.shape[1])

    def vertex(self, text: str | int) -> int:
        """Return the index of a vertex named as in the graph's file.  NotFound names it and what labels there are."""
        return index_of(self.labels, text)

    def graph(self) -> Graph:
        """Return the graph that was solved."""
        return self._graph

    def current(self) -> bool:
        """Return whether the path still leads to the store that was opened."""
        return self._folder.current()

    def check_files(self, prefix: str) -> None:
        """Compare the files whose names begin with ``prefix``, tiles left out, with the seal.  Raises StorageFailed."""
        for name in self._files:
            if name.startswith(prefix):
                self._checked(name)

    def check_tile(self, i: int, j: int) -> None:
        """Compare tile (i, j) with the manifest.  Raises StorageFailed."""
        self._tiles.whole(i, j)

    def open_file(self, key: str) -> int:
        """Open a file of the store for reading and return its descriptor: metadata, labels, arcs, manifest, tiles.

        Raises:
            NotFound: no file of that name belongs to the store.
            StorageFailed: it belongs to the store and is lost, or its size is not the sealed one.
        """
        size = self._sealed_size(key)
        try:
            handle = self._folder.open_inside(key)
        except OSError as error:
            raise StorageFailed(f"{self.path} is damaged: {key}: {error.strerror}") from error
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and size in (status.st_size, -1):
            return handle
        os.close(handle)
        raise StorageFailed(f"{self.path} is damaged: {key} has {status.st_size:,} bytes instead of {size:,}")

    def holds(self, key: str) -> bool:
        """Return whether a file that belongs to the store exists with its sealed size; the file is not opened."""
        try:
            return self._folder.size(key) == self._sealed_size(key)
        except (OSError, NotFound):
            return False

    def close(self) -> None:
        """Release the folder; the matrix must not be used afterwards."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sealed_size(self, key: str) -> int:
        """Return the bytes of a file of the store, -1 for the root document.  Raises NotFound for other names."""
        tile = _TILE_KEY.fullmatch(key)
        if tile is not None and (int(tile[1]) < self.grid.counts[0] and int(tile[2]) < self.grid.counts[1]):
            return self._tiles.size(int(tile[1]), int(tile[2]))
        if key in self._files:
            return self._files[key][0]
        if key == ROOT_DOCUMENT:
            return -1
        raise NotFound(f"the store has no file {key[:200]!r}")

    @cached_property
    def _graph(self) -> Graph:
        indptr, heads, weights = (self._side(f"graph/{name}") for name in ("indptr", "heads", "weights"))
        facts = json.loads(self._folder.read("graph/zarr.json"))["attributes"]
        if not self.current():
            raise StorageFailed(f"{self.path} was replaced while open; open it again")
        kind = bool(facts["directed"]), bool(facts["weighted"]), int(facts.get("terminals", 0))
        return Graph(indptr, heads, weights, self.labels, *kind)  # type: ignore[arg-type]

    @cached_property
    def _rows_of(self) -> IntArray | None:
        """Row of each vertex, -1 where it is no source; None when all are, in order."""
        return None if self.attributes["sources"] == "all" else self._places(self.sources)

    @cached_property
    def _columns_of(self) -> IntArray | None:
        """Column of each vertex, -1 where it is no target; None when all are, in order."""
        return None if self.attributes["targets"] == "all" else self._places(self.targets)

    def _places(self, vertices: IntArray) -> IntArray:
        places = np.full(self.n, -1, np.int64)
        places[vertices] = np.arange(len(vertices))
        return places

    def _positions(self, wanted: Sequence[int] | IntArray, name: str, places: IntArray | None, there: int) -> IntArray:
        vertices = np.asarray(wanted, dtype=np.int64)
        wrong = (vertices < 0) | (vertices >= self.n)
        if wrong.any():
            raise NotFound(f"vertex index {int(vertices[wrong][0])} does not exist; the graph has {self.n} vertices")
        if places is None:
            return vertices
        found = places[vertices]
        if (found < 0).any():
            label = self.labels[vertices[found < 0][0]]
            raise NotFound(f"vertex {label} was not solved as a {name}; this store holds {there} of {self.n} {name}s")
        return found

    def _read_vertices(self, side: str) -> IntArray:
        if self.attributes[side] == "all":
            return np.arange(self.n, dtype=np.int64)
        return self._side(f"graph/{side}").astype(np.int64, copy=False)

    def _side(self, name: str) -> Array:
        """Read a small array; its files are verified first, because Zarr would fill a lost chunk silently."""
        try:
            self._checked(f"{name}/{ROOT_DOCUMENT}")
            found = read_side_array(self._arrays[name], lambda key: self._checked(f"{name}/{key}"))
            if found is not None:
                return found
            import zarr

            self.check_files(f"{name}/")
            files = [file for file in self._files if file.startswith(f"{name}/")]
            array = zarr.open_array(self._folder.arrays(files), path=name, mode="r", zarr_format=3)
            return np.asarray(array[...])
        except StorageFailed:
            raise
        except Exception as error:
            raise StorageFailed(f"{self.path}: array {name} cannot be read ({error!r})") from error

    def _checked(self, name: str) -> Any:
        """A file that is no tile, compared with the seal.  KeyError: none of that name belongs to the store."""
        size, checksum = self._files[name]
        data = self._folder.read(name)
        if (len(data), crc32c(data)) != (size, checksum):
            raise StorageFailed(f"{self.path} is damaged: {name} does not agree with the seal")
        return data
