"""The base classes of sealed results, for what they have in common: seal, labels, graph, and queries.

``storage.matrix.reader.Matrix`` answers queries by reading tiles; a prepared graph answers by computing from tables.
"""

from __future__ import annotations

import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from storage.arguments import check_index_array, check_label, check_whole
from storage.errors import NotFound, StorageFailed
from storage.geography.coordinates import GROUP, Coordinates, assembled
from storage.graph.graph import Graph, index_of
from storage.graph.units import measured_by, said_unit
from storage.matrix.format import (
    DISTANCES,
    ROOT_DOCUMENT,
    Array,
    FileMark,
    IntArray,
    data_mark,
    read_seal,
    sealed_files,
)
from storage.matrix.grid import TileGrid
from storage.matrix.side_arrays import read_side_array
from storage.matrix.tiles import StoreFolder
from storage.remote.objects import Stat
from storage.remote.reader import RemoteFolder
from storage.semirings import MIN_PLUS, SEMIRINGS, check_understood, semiring_of

if TYPE_CHECKING:
    from storage.quantities.reading import QuantityMatrix


class SealedFolder:
    """An open folder with a seal, which names size and checksum of every file; safe to use from many threads.

    Attributes:
        path: the path or address under which the folder was opened.
        attributes: the attributes of the root document, without summary and seal.
        summary: the summary that was passed to ``seal`` when the store was written.
        digest: the digest of the seal, ``sha256:...``; equal for equal results.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder, holds: str = DISTANCES) -> None:
        """Read and check the seal of a store that has the array or file ``holds``.

        Raises:
            StorageFailed: there is no seal, the seal is damaged, or the store has no ``holds``.
        """
        self.path, self._folder = folder.path, folder
        document = read_seal(self.path, folder.read(ROOT_DOCUMENT), holds)
        try:
            self.attributes: dict[str, Any] = document["attributes"]
            seal = self.attributes.pop("seal")
            self._files: Mapping[str, FileMark] = sealed_files(seal)
            self.digest: str = seal["digest"]
            self.summary: dict[str, Any] = self.attributes.pop("summary")
            self._arrays: Mapping[str, Any] = document["consolidated_metadata"]["metadata"]
            self._read_metadata()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageFailed(f"{self.path} is damaged: its metadata cannot be understood ({error!r})") from error

    def _read_metadata(self) -> None:
        """Set the attributes of the class from the attributes and arrays of the seal."""

    @property
    def remote_seal(self) -> Stat | None:
        """Size, ETag and time of the seal, if the store is in an object store; None for a local folder."""
        return self._folder.seal if isinstance(self._folder, RemoteFolder) else None

    def current(self) -> bool:
        """Return whether the path still leads to the opened store, so that no other store has replaced it."""
        return self._folder.current()

    def check_files(self, prefix: str) -> None:
        """Compare the files whose names begin with ``prefix``, except tiles, with the seal.  Raises StorageFailed."""
        for name in self._files:
            if name.startswith(prefix):
                self._checked(name)

    def open_file(self, key: str) -> int:
        """Open a file of the store (metadata, labels, arcs, manifest or tiles) for reading, and return its descriptor.

        Raises:
            NotFound: no file of that name belongs to the store.
            StorageFailed: the file belongs to the store, but is lost, or its size differs from the sealed size.
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

    def _sealed_size(self, key: str) -> int:
        """Return the size of a file of the store in bytes, -1 for the root document.  Raises NotFound: no such file."""
        if key in self._files:
            return self._files[key].size
        if key == ROOT_DOCUMENT:
            return -1
        raise NotFound(f"the store has no file {key[:200]!r}")

    def close(self) -> None:
        """Close the folder; the result must not be used afterwards."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _side(self, name: str) -> Array:
        """Read a small array.  Its files are verified first, because Zarr would read fill values for a lost chunk."""
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
        """Return the content of a file other than a tile, after comparing it with the seal.  Raises KeyError if the
        store has no such file.
        """
        sealed = self._files[name]
        data = self._folder.read(name)
        if not data_mark(data).agrees(sealed):
            raise StorageFailed(f"{self.path} is damaged: {name} does not agree with the seal")
        return data


class SealedResult(SealedFolder, ABC):
    """A sealed result, open for reading; safe to use from many threads.

    Vertices are given as indices (positions in ``labels``).  A row is named by the vertex index of its source, a column
    by the vertex index of its target.  Entries are ``unreachable`` where there is no path: +inf for floats and the
    sentinel for integers, or the value that ``storage.semirings`` defines for the semiring.  Attributes that are not
    listed are those of ``SealedFolder``.

    Attributes:
        attributes: type, unreachable, unit, directed, algorithm, plan, graph (digest), software, max_hops, cutoff,
            sources and targets (``all`` or ``subset``), and attributes that the caller of the solve added.
        dtype: type of the entries.
        unreachable: the value for *no path*.
        grid: the tile grid.
        labels: the names of all vertices; n: the number of vertices.
        sources, targets: vertex indices of rows and columns; source_labels, target_labels: the labels of these
            vertices.
        also: the sums of quantities along the shortest paths, by name; empty if no quantity was asked for.
    """

    dtype: np.dtype[Any]
    unreachable: Any
    grid: TileGrid
    labels: Array
    source_labels: Array
    target_labels: Array
    n: int
    sources: IntArray
    targets: IntArray
    also: Mapping[str, QuantityMatrix] = MappingProxyType({})

    @abstractmethod
    def _read_metadata(self) -> None:
        """Set the attributes of the class from the attributes and arrays of the seal."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes of all files except the root document."""

    @abstractmethod
    def rows(self, sources: Sequence[int] | IntArray) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns)."""

    @abstractmethod
    def entries(self, sources: Sequence[int] | IntArray, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,)."""

    @abstractmethod
    def columns(self, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances from all sources to several targets (vertex indices), shape (rows, len(targets))."""

    @abstractmethod
    def check(self) -> None:
        """Read every file again and compare sizes and checksums with the seal.

        Raises:
            StorageFailed: a tile or file is missing or damaged; the message names the first one.
        """

    def block(self, sources: Sequence[int] | IntArray, targets: Sequence[int] | IntArray) -> Array:
        """Return the distances from each source to each target (vertex indices), shape (sources, targets)."""
        columns = self.target_positions(targets)
        return np.ascontiguousarray(self.rows(sources)[:, columns])

    def nearest(self, source: int, count: int) -> tuple[IntArray, Array]:
        """Return the reachable targets nearest to a source (vertex index), without the source itself, and their
        distances.

        Ties are in the order of the columns.  For a semiring other than min-plus, the targets with the best values,
        such as the widest paths, are returned.

        Args:
            source: vertex index.
            count: largest number of targets.
        """
        count = check_whole("count", count, 0)
        row = self.row(source)
        columns = np.flatnonzero(np.not_equal(row, self.unreachable) & (self.targets != source))
        key: Any = -row.astype(np.float64) if SEMIRINGS[self.semiring].greatest else row
        if count < len(columns):
            bound: Any = np.partition(key[columns], count - 1)[count - 1] if count else 0
            columns = columns[key[columns] <= bound] if count else columns[:0]
        columns = columns[np.argsort(key[columns], kind="stable")][:count]
        return self.targets[columns], row[columns]

    def eccentricities(self, sources: Sequence[int] | IntArray) -> Array:
        """Return the largest distance from each source (vertex indices) to another vertex among the targets, shape
        (len(sources),).

        A source that reaches no other target has the eccentricity ``unreachable``.

        Raises:
            Conflict: the values are no distances, but those of a semiring other than min-plus.
        """
        check_understood(self.path, self.attributes, MIN_PLUS)
        sources = check_index_array("sources", sources, self.n)
        found = np.full(len(sources), self.unreachable, self.dtype)
        step = max(1, (1 << 24) // max(1, self.shape[1]))
        for first in range(0, len(sources), step):
            some = sources[first : first + step]
            rows: Any = self.rows(some)
            reached = np.not_equal(rows, self.unreachable) & (self.targets != some[:, np.newaxis])
            low = -np.inf if self.dtype.kind == "f" else np.iinfo(self.dtype.name).min
            largest = np.max(rows, axis=1, where=reached, initial=low)
            known = reached.any(axis=1)
            found[first : first + len(rows)][known] = largest[known]
        return found

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (sources) and columns (targets)."""
        return self.grid.shape

    @property
    def semiring(self) -> str:
        """The semiring of the values, such as ``max-min``; ``min-plus`` for distances."""
        return semiring_of(self.attributes)

    @property
    def directed(self) -> bool:
        """Whether the graph is directed."""
        return bool(self.attributes["directed"])

    def row(self, source_index: int) -> Array:
        """Return the distances from a source (vertex index), shape (columns,).  Raises NotFound for other vertices."""
        row: Array = self.rows([check_whole("source_index", source_index)])[0]
        return row

    def source_position(self, vertex_index: int) -> int:
        """Return the number of the row of a source.  Raises NotFound if the vertex does not exist or is no source."""
        return int(self.source_positions([check_whole("vertex_index", vertex_index)])[0])

    def source_positions(self, vertices: Sequence[int] | IntArray) -> IntArray:
        """Return the number of the row of each source (vertex indices).  Raises NotFound: a vertex is no source."""
        return self._positions(vertices, "source", self._rows_of, self.shape[0])

    def target_positions(self, vertices: Sequence[int] | IntArray) -> IntArray:
        """Return the number of the column of each target (vertex indices).  Raises NotFound: a vertex is no target."""
        return self._positions(vertices, "target", self._columns_of, self.shape[1])

    def vertex(self, text: str | int) -> int:
        """Return the index of the vertex that has this name in the graph's file.  Raises NotFound, whose message names
        the range of labels.
        """
        return index_of(self.labels, check_label("text", text))

    def graph(self) -> Graph:
        """Return the graph that was solved."""
        return self._graph

    @property
    def placed(self) -> bool:
        """Whether the graph has coordinates; known from the seal, without reading a file."""
        return GROUP in self._arrays

    @property
    def arcs(self) -> int:
        """The number of arcs of the graph; known from the seal, without reading a file."""
        return int(self._arrays["graph/heads"]["shape"][0])

    @cached_property
    def coordinates(self) -> Coordinates | None:
        """The coordinates of the vertices; None if the graph has no coordinates.

        Raises:
            StorageFailed: a file is missing or damaged.
        """
        if not self.placed:
            return None
        about = json.loads(self._checked(f"{GROUP}/{ROOT_DOCUMENT}"))["attributes"]
        try:
            found = assembled(about, lambda name: self._side(f"{GROUP}/{name}"))
        except (KeyError, ValueError) as error:
            raise StorageFailed(f"{self.path} is damaged: coordinates ({error})") from error
        if len(found.x) != self.n:
            raise StorageFailed(f"{self.path} is damaged: {len(found.x)} coordinates of {self.n} vertices")
        return found

    @property
    def unit(self) -> str | None:
        """The unit of the distances, such as ``min``; None if no unit was given, or if the distances count arcs."""
        return said_unit(self.attributes.get("unit"))

    @property
    def measured(self) -> str:
        """A word for what distances measure: the unit, the column of the weights, or ``arcs``; empty if not known."""
        return measured_by(self.attributes)

    @cached_property
    def _graph(self) -> Graph:
        indptr, heads, weights = (self._side(f"graph/{name}") for name in ("indptr", "heads", "weights"))
        facts = json.loads(self._checked("graph/zarr.json"))["attributes"]
        if not self.current():
            raise StorageFailed(f"{self.path} was replaced while open; open it again")
        kind = bool(facts["directed"]), bool(facts["weighted"]), int(facts.get("terminals", 0))
        further = self._arrays.get("graph/quantities", {"attributes": {"names": []}})["attributes"]["names"]
        quantities = {name: self._side(f"graph/quantities/{name}") for name in further}
        parallel, column = str(facts.get("parallel", "least")), facts.get("weight_column")
        more = self.coordinates, facts.get("unit"), quantities, parallel, column
        return Graph(indptr, heads, weights, self.labels, *kind, *more)  # type: ignore[arg-type]

    @cached_property
    def _rows_of(self) -> IntArray | None:
        """The row of each vertex, -1 for a vertex that is no source; None if all vertices are sources, in order."""
        return None if self.attributes["sources"] == "all" else self._places(self.sources)

    @cached_property
    def _columns_of(self) -> IntArray | None:
        """The column of each vertex, -1 for a vertex that is no target; None if all vertices are targets, in order."""
        return None if self.attributes["targets"] == "all" else self._places(self.targets)

    def _places(self, vertices: IntArray) -> IntArray:
        places = np.full(self.n, -1, np.int64)
        places[vertices] = np.arange(len(vertices))
        return places

    def _positions(self, wanted: Sequence[int] | IntArray, name: str, places: IntArray | None, there: int) -> IntArray:
        vertices = check_index_array(f"{name}s", wanted, self.n)
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
