"""Prepared results in the API process: labels and files are read here, distances are computed in helper processes.

Importing it loads NumPy, but no code that computes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.jobs.answering import Answering
from service.jobs.results import ResultReader
from service.jobs.table_results import TableReader
from service.pool.answers import PreparedPlace
from storage.errors import NotFound
from storage.matrix.format import ROOT_DOCUMENT, Array, is_prepared, is_table
from storage.matrix.reader import TILE_KEY, Matrix, open_sealed
from storage.matrix.tiles import StoreFolder
from storage.prepared.reader import PreparedStore
from storage.remote.reader import RemoteFolder
from storage.tables.reader import SealedTable

if TYPE_CHECKING:
    from storage.prepared.served import ComputedStore

Indices = npt.NDArray[np.int64]


class Found(NamedTuple):
    """A path as the helper process returns it: vertex indices, weights between them, and their sum."""

    vertices: list[int]
    weights: list[Any]
    length: Any


class AskedPrepared(PreparedStore):
    """A prepared result whose distances are computed by helper processes, for one caller.

    Attributes:
        who: the caller, to whom the processor seconds are charged.
        Others: as in ``SealedResult``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder, answering: Answering) -> None:
        """Open the result without its tables.

        Args:
            folder: the open folder.
            answering: the helper processes, and the limits of each caller.
        """
        super().__init__(folder)
        self.summary.setdefault("pairs", self.n * (self.n - 1))  # all other numbers need rows: see ``counted``
        self._answering = answering
        self._origin, self._admitted = self, True
        self.who: str | None = None

    def asked_by(self, who: str | None) -> AskedPrepared:
        """Return the same result for the questions of one request, which are charged to the caller ``who``."""
        found = copy.copy(self)
        found.who, found._admitted = who, False
        return found

    @property
    def place(self) -> PreparedPlace:
        """The description of the result for helper processes."""
        return self._answering.place(self.path, self.digest)

    def admit(self) -> None:
        """Check, once for each request, that the caller has processor seconds left.  Raises TooMuchComputing."""
        if not self._admitted:
            self._answering.budget.check(self.who)
            self._admitted = True

    def _ask(self, question: str, *given: Any) -> Any:
        self.admit()
        return self._answering.ask(self.who, self.place, question, *given)

    def chunk_at(self, key: str) -> tuple[int, int] | None:
        """Return the position of the chunk that a key names; None if it names no chunk of the grid."""
        found = TILE_KEY.fullmatch(key)
        place = None if found is None else (int(found[1]), int(found[2]))
        down, across = self.grid.counts
        return place if place is not None and place[0] < down and place[1] < across else None

    async def chunk(self, i: int, j: int) -> bytes:
        """Return a chunk of the matrix; it is computed unless it is cached.  Raises what computing raises."""
        return await self._answering.chunk(self, i, j)

    def rows(self, sources: Sequence[int] | Indices) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns)."""
        return self._array("rows", self.source_positions(sources))

    def columns(self, targets: Sequence[int] | Indices) -> Array:
        """Return the distances from all sources to several targets (vertex indices), shape (rows, len(targets))."""
        return self._array("columns", self.target_positions(targets))

    def entries(self, sources: Sequence[int] | Indices, targets: Sequence[int] | Indices) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,)."""
        return self._array("entries", self.source_positions(sources), self.target_positions(targets))

    def block(self, sources: Sequence[int] | Indices, targets: Sequence[int] | Indices) -> Array:
        """Return the distances from each source to each target (vertex indices), shape (sources, targets)."""
        return self._array("block", self.source_positions(sources), self.target_positions(targets))

    def counted(self) -> dict[str, Any]:
        """Return the summary of all rows, as a solve would have stored it; it is counted once.

        Raises:
            LimitExceeded: it is predicted to take more processor seconds than it may.
            TooMuchComputing: the caller has used up its seconds.
            Refused: what the helper process raised.
        """
        place = self.place
        return self._answering.summaries.get(place.digest, self.n, lambda most: self._ask("summary", most))

    def path_between(self, source: int, target: int) -> Found | None:
        """Return a shortest path between two vertex indices; None if there is none."""
        found = self._ask("path", source, target)
        return None if found is None else Found(*found)

    def _array(self, question: str, *given: Indices) -> Array:
        found: Array = self._ask(question, *given)
        return found

    def peek(self, source: int, target: int) -> None:
        """Return None, because every distance must be computed, which takes time."""

    def holds(self, key: str) -> bool:  # noqa: ARG002 - as ``Matrix.holds``
        """Return False, because no file that a proxy could send holds a part of the matrix."""
        return False

    def document(self, key: str) -> bytes:
        """Return the content of a key that names no chunk: metadata or labels.  Raises NotFound, StorageFailed."""
        data = self._origin._documents.read(key)
        if data is None:
            raise NotFound(f"the store has no file {key[:200]!r}")
        return data

    @cached_property
    def _documents(self) -> ComputedStore:
        from storage.prepared.served import ComputedStore

        return ComputedStore(self)


class PreparedReader(ResultReader):
    """An open prepared result; it answers the same questions as the reader of a matrix."""

    def __init__(self, matrix: AskedPrepared) -> None:
        super().__init__(matrix)

    def asked_by(self, who: str | None) -> PreparedReader:
        """Return a reader for the questions of one request; vertices near points are found once for all of them."""
        found = PreparedReader(self.matrix.asked_by(who))
        found.snapper = self.snapper
        return found

    def _route(self, source: int, target: int) -> Any:
        return self.matrix.path_between(source, target)

    def counted(self) -> dict[str, Any]:
        """Return the summary of all rows; see :meth:`AskedPrepared.counted`."""
        found: dict[str, Any] = self.matrix.counted()
        return found


def open_reader(path: str | Path, answering: Answering) -> ResultReader:
    """Open a sealed result of any kind.

    Args:
        path: a folder, or an address in an object store.
        answering: the helper processes that answer from prepared results.

    Raises:
        NotFound: there is nothing at ``path``.
        StorageFailed: ``path`` is no sealed result, or its metadata are damaged.
    """

    def made(folder: StoreFolder | RemoteFolder) -> Matrix | AskedPrepared | SealedTable:
        document = folder.read(ROOT_DOCUMENT)
        if is_table(document):
            return SealedTable(folder)
        return AskedPrepared(folder, answering) if is_prepared(document) else Matrix(folder)

    found = open_sealed(path, made)
    if isinstance(found, SealedTable):
        return TableReader(found)
    return PreparedReader(found) if isinstance(found, AskedPrepared) else ResultReader(found)
