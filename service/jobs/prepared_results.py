"""Prepared results in the API process: labels, files and single pairs are read here; helper processes compute the rest.

The distance of a pair is the least sum of entries of two lines of the tables, that of the source and that of the
target.  Reading it adds some microseconds to the time of a request (decision 226).  Importing this module loads NumPy,
but no compiled kernels.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    from engine.algorithms.prepared.single_pairs import SinglePairs
    from storage.prepared.served import ComputedStore

#: up to this many pairs are read here, which takes less time than sending them to a helper process
_FEW: Final = 16
Indices = npt.NDArray[np.int64]


class Found(NamedTuple):
    """A path as the helper process returns it: vertex indices, weights between them, and their sum."""

    vertices: list[int]
    weights: list[Any]
    length: Any


class AskedPrepared(PreparedStore):
    """A prepared result for one caller; a few pairs are read from its files, and helper processes compute the rest.

    Attributes:
        who: the caller, to whom the processor seconds are charged.
        budget: the processor seconds of all callers.
        All other attributes are those of ``SealedResult``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder, answering: Answering) -> None:
        """Open the result without its tables.

        Args:
            folder: the open folder.
            answering: the helper processes, and the limits of each caller.
        """
        super().__init__(folder)
        # the number of pairs follows from n; all other numbers of the summary need rows, which ``counted`` computes
        self.summary.setdefault("pairs", self.n * (self.n - 1))
        self._answering, self.budget = answering, answering.budget
        self._origin, self._admitted = self, True
        self._pairs_lock = threading.Lock()
        self._pairs: list[SinglePairs | None] = []
        self.who: str | None = None

    def asked_by(self, who: str | None) -> AskedPrepared:
        """Return a copy of this result for one request, whose questions are charged to the caller ``who``."""
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
            self.budget.check(self.who)
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
        """Return a chunk of the matrix, from the cache or computed.  Raises what :meth:`Answering.chunk` raises."""
        return await self._answering.chunk(self, i, j)

    def rows(self, sources: Sequence[int] | Indices) -> Array:
        """Return the rows of several sources (vertex indices), in the order given, shape (len(sources), columns)."""
        return self._array("rows", self.source_positions(sources))

    def columns(self, targets: Sequence[int] | Indices) -> Array:
        """Return the distances from all sources to several targets (vertex indices), shape (rows, len(targets))."""
        return self._array("columns", self.target_positions(targets))

    def entries(self, sources: Sequence[int] | Indices, targets: Sequence[int] | Indices) -> Array:
        """Return the distances of pairs (vertex indices), shape (k,)."""
        rows, columns = self.source_positions(sources), self.target_positions(targets)
        pairs = self._opened_pairs() if len(rows) == len(columns) <= _FEW else None
        if pairs is None:
            return self._array("entries", rows, columns)
        self.admit()
        began = time.thread_time()
        try:
            found = [pairs.read(*pair) for pair in zip(rows.tolist(), columns.tolist(), strict=True)]
        finally:
            self.budget.charge(self.who, time.thread_time() - began)
        return np.array(found, self.dtype)

    def block(self, sources: Sequence[int] | Indices, targets: Sequence[int] | Indices) -> Array:
        """Return the distances from each source to each target (vertex indices), shape (sources, targets)."""
        return self._array("block", self.source_positions(sources), self.target_positions(targets))

    def counted(self) -> dict[str, Any]:
        """Return the summary of all rows, as a solve would have stored it; it is counted once.

        Raises:
            LimitExceeded: counting is predicted to take more processor seconds than it may.
            TooMuchComputing: the caller has used up its seconds.
            Refused: the helper process raised an error, which ``Refused`` describes.
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

    def peek(self, source: int, target: int) -> np.generic | None:
        """Return the distance of one pair (vertex indices) if it can be read without waiting, as ``Matrix.peek`` does.

        Raises:
            BlockingIOError: the operating system is still reading the distance from the disk; try again soon.
        """
        # only ``entries`` opens the reader of pairs, because the thread that calls ``entries`` may wait
        pairs = self._pairs[0] if self._pairs else None
        if pairs is None or not (0 <= source < self.n > target >= 0):
            return None
        found: np.generic | None = pairs.peek(source, target)
        return found

    def _opened_pairs(self) -> SinglePairs | None:
        """Return the reader of single pairs; None if only helper processes can compute pairs.  Raises StorageFailed."""
        with self._pairs_lock:
            if not self._pairs:
                from engine.algorithms.prepared.single_pairs import SinglePairs

                self._pairs.append(SinglePairs.of(self))
        return self._pairs[0]

    def holds(self, key: str) -> bool:  # noqa: ARG002 - as ``Matrix.holds``
        """Return False, because no file that a proxy could send holds a part of the matrix."""
        return False

    def document(self, key: str) -> bytes:
        """Return a file of the store that is no chunk, such as metadata or labels.  Raises NotFound, StorageFailed."""
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
        """Return a reader for the questions of one request; it shares the index that finds vertices near points."""
        found = PreparedReader(self.matrix.asked_by(who))
        found.snapper = self.snapper
        return found

    def check_budget(self, who: str | None) -> None:
        """Raise TooMuchComputing if the caller ``who`` has no processor seconds left."""
        self.matrix.budget.check(who)

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
