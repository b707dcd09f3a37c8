"""Reads the tables of an open prepared graph when a question needs them, and drops them when memory is short."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.api.from_tables.shares import MemoryShares, usual_band
from engine.graph.selection import first_beyond
from engine.graph.terminals import arrivals
from engine.model.dtypes import work_type
from engine.model.system import available_memory
from storage.errors import DoesNotFit
from storage.matrix.tiles import StoreFolder
from storage.prepared.chunks import NOTHING
from storage.prepared.reader import PreparedStore
from storage.remote.reader import RemoteFolder

if TYPE_CHECKING:
    from engine.algorithms.prepared.pieces import TablePieces
    from engine.algorithms.prepared.tables import StoredTables
    from engine.graph.partition import Parts

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class HeldTables(PreparedStore):
    """A prepared graph, open for reading, with its tables and the other arrays that kernels take as arguments.

    Attributes:
        memory: bytes that tables and answers may take together; None for all that is free.
        All other attributes: see ``PreparedStore``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Read and check the seal and the labels.  Raises StorageFailed."""
        super().__init__(folder)
        self.memory: int | None = None
        self._lock = threading.Lock()
        self._shares, self._whole_bytes = list[MemoryShares](), 0

    @property
    def loaded(self) -> bool:
        """Whether the whole table of the forward direction, from which rows are made, is in memory."""
        return "_described" in self.__dict__ and self._described.ahead.complete

    @property
    def held_bytes(self) -> int:
        """Bytes of the tables that are in memory."""
        if "_described" not in self.__dict__:
            return 0
        return sum(table.read_bytes for table in {self._described.ahead, self._described.back})

    def parts(self) -> Parts:
        """Return the parts of the opened graph, which has a copy of each terminal where paths end.

        Raises StorageFailed.
        """
        return self.own_parts

    @cached_property
    def own_parts(self) -> Parts:
        """The parts of the opened graph; they are read only once."""
        from engine.algorithms.prepared.tables import parts_of

        return parts_of(self)

    @property
    def row_bytes(self) -> int:
        """Bytes of a computed row, including a column for each arrival, the copy of a terminal where paths end."""
        return (self.n + int(self.attributes.get("terminals", 0))) * self.dtype.itemsize

    @property
    def swept_bytes(self) -> int:
        """Bytes of the results of elimination that are in memory while rows are computed, and of one copy of them."""
        arrays = [self._arrays.get(f"elimination/{name}") for name in ("across", "upward")]
        return 2 * max(0 if array is None else int(array["shape"][0]) for array in arrays) * self.dtype.itemsize

    @property
    def band_bytes(self) -> int:
        """Most bytes of a band of whole rows, which are in memory at the same time."""
        return min((shares.band for shares in tuple(self._shares)), default=usual_band(self.memory))

    @property
    def _drops(self) -> bool:
        """Whether sections of the tables may be dropped if memory is short; not if all tables are in memory already."""
        if "_described" not in self.__dict__:
            return True
        return self._described.ahead.passing and not self._described.memory.complete

    @property
    def most_held(self) -> int:
        """The most bytes of tables that questions keep in memory if no ``MemoryShares`` limit them."""
        return (
            max(self.least_held, min(self.table_bytes, self._memory_here() // 2)) if self._drops else self.table_bytes
        )

    @property
    def least_held(self) -> int:
        """The fewest bytes of tables that must be in memory at the same time: the lines of a source and of a target."""
        if not self._drops or "elimination/across" not in self._arrays:
            return self.table_bytes
        most, section = int(self.own_parts.widths().max(initial=1)), self.section_of("forward")
        return min(self.table_bytes, 2 * ((most - 2) // section + 2) * section * self.dtype.itemsize)

    def _memory_here(self) -> int:
        """Return the bytes that tables and answers may now take together."""
        here = available_memory() + self.held_bytes
        return here if self.memory is None else max(0, min(here, self.memory - self._whole_bytes))

    def _most_tables(self, *, drops: bool) -> int:
        """Return the bytes of tables that may now be in memory.

        If tables are dropped (``drops``), half of the memory is left to answers, unless ``MemoryShares`` limit the
        tables.
        """
        shares = min((found.tables for found in tuple(self._shares)), default=None)
        if shares is not None:
            return min(shares, available_memory() + self.held_bytes)
        return self._memory_here() // 2 if drops else self._memory_here()

    @contextmanager
    def holding(self, shares: MemoryShares) -> Iterator[None]:
        """Context manager: limit the tables in memory and the bands of rows, for all questions, to ``shares``."""
        with self._lock:
            self._shares.append(shares)
        try:
            if self._drops and "_described" in self.__dict__:
                self._described.memory.drop_beyond(shares.tables)
            yield
        finally:
            with self._lock:
                self._shares.remove(shares)

    @cached_property
    def _described(self) -> StoredTables:
        """The tables; making this object reads none of their entries."""
        from engine.algorithms.prepared.tables import StoredTables

        passing = self.table_bytes > self._most_tables(drops=True)
        try:
            forward, backward = (self.checked(f"tables/{name}", passing=passing) for name in ("forward", "backward"))
        except MemoryError:
            self._refuse(self.table_bytes)
            raise
        assert forward is not None  # no prepared graph opens without this table
        return StoredTables.of(self.parts(), forward, backward, self._free, self._refuse)

    def _free(self) -> int:
        """Return the bytes of tables that may now be read in addition to those in memory."""
        return self._most_tables(drops=self._described.ahead.passing) - self.held_bytes

    def _refuse(self, needed: int) -> None:
        """Raise an error if further bytes of the tables do not fit in memory.

        Args:
            needed: the number of further bytes.

        Raises:
            DoesNotFit: the bytes do not fit; the error names the least memory that would suffice.
        """
        from engine.algorithms.prepared.tables import check_memory

        what, held = f"the tables of {self.path}", self.held_bytes
        check_memory(what, needed, available_memory())
        if self.memory is not None and not self._shares:
            halves = 2 if "_described" in self.__dict__ and self._described.ahead.passing else 1
            check_memory(what, halves * (needed + held) + self._whole_bytes, self.memory)

    @contextmanager
    def _in_pieces(self) -> Iterator[None]:
        """Context manager: if a piece of a question is refused, the error names the least memory that suffices for
        every piece.
        """
        try:
            yield
        except DoesNotFit as error:
            if self.memory is not None and not self._shares and error.available == self.memory:
                from engine.algorithms.prepared.tables import check_memory

                every = 2 * self.least_held + self._whole_bytes
                check_memory(f"the tables of {self.path}", max(every, error.needed), self.memory)
            raise

    @property
    def _tables_here(self) -> StoredTables:
        with self._lock:
            return self._described

    def _held(self, rows: Indices, columns: Indices) -> AbstractContextManager[None]:
        """Context manager: keep the lines of rows and columns in memory in its body."""
        tables = self._tables_here
        if tables.memory.complete:
            return NOTHING
        found = self._kernels
        needs = [tables.need(found[3], rows, ahead=True), tables.need(found[4], columns, ahead=False)]
        return tables.memory.using(needs)

    def _ready(self, rows: Indices, columns: Indices) -> tuple[tuple[Any, ...], Indices, Indices]:
        """Return the common arguments of kernels, and the indices of rows and columns in these arguments.

        The caller keeps the lines of rows and columns in memory.
        """
        return self._kernels, rows, columns

    @cached_property
    def _pieces(self) -> TablePieces:
        """The object that cuts a question into pieces if it needs more bytes of tables than memory can hold."""
        from engine.algorithms.prepared.pieces import StoredPieces

        found = self._kernels
        return StoredPieces(self._tables_here, (found[3], found[4]), self._most_of_a_piece)

    def _most_of_a_piece(self) -> int:
        """Return the bytes of tables that a piece of a question may need.

        Without ``MemoryShares`` this is two thirds of the bytes that tables may take now: free memory may shrink.
        """
        most = self._most_tables(drops=True)
        return most if self._shares else 2 * most // 3

    @cached_property
    def _kernels(self) -> tuple[Any, ...]:
        tables = self._tables_here
        rows, columns = tables.lines(self._row_places), tables.lines(self._column_places)
        tree = tables.parts.parents, tables.widths
        return tree, (tables.ahead.values, tables.back.values), self._limits, rows, columns

    @cached_property
    def _limits(self) -> tuple[Any, Any]:
        """The largest distance, and the value for *unreachable*, as arguments of kernels."""
        from engine.algorithms.prepared.tables import limits_of

        return limits_of(work_type(self.dtype), self._beyond, nonnegative=self.least_weight >= 0)

    @cached_property
    def _beyond(self) -> Any:
        """The smallest number above the cutoff; None if there is no cutoff."""
        cutoff = self.attributes["cutoff"]
        return None if cutoff is None else first_beyond(cutoff, self.dtype)

    @property
    def _row_places(self) -> Indices:
        """The position of each source in the order of elimination."""
        return self._tables_here.parts.position[: self.n]

    @property
    def _column_places(self) -> Indices:
        """The position of each target in the order of elimination.

        A path to a terminal ends at the terminal's copy, its arrival (``engine.graph.terminals``).
        """
        count = int(self.attributes.get("terminals", 0))
        return self._tables_here.parts.position[arrivals(np.arange(self.n), self.n, count)]

    @cached_property
    def _walk(self) -> tuple[Array, ...]:
        """For products of panels: the lowest number of the parts below each part, the size of each part, and the width
        of its table.
        """
        tables = self._tables_here
        return tables.parts.lows(), tables.parts.sizes, tables.widths

    @cached_property
    def _mean_width(self) -> float:
        tables = self._tables_here
        return float(tables.widths @ tables.parts.sizes) / max(1, self.n)

    def _whole_array(self, where: str) -> Array | None:
        """Read an array that stays in memory as a whole; return None if there is no array of that name.

        Raises:
            DoesNotFit: there is too little memory for the array.
            StorageFailed: a chunk is missing or damaged; the message names it.
        """
        found = self.checked(where)
        if found is None:
            return None
        from engine.algorithms.prepared.tables import check_memory

        what, size = f"the entries of {where} in {self.path}", found.values.nbytes
        check_memory(what, size, available_memory())
        if self.memory is not None and not self._shares:
            check_memory(what, self._whole_bytes + size + 2 * self.least_held, self.memory)
        self._whole_bytes += size
        try:
            if self._drops and "_described" in self.__dict__:
                self._described.memory.drop_beyond(self._most_tables(drops=True))
            return found.whole()
        except BaseException:
            self._whole_bytes -= size  # the next attempt to read the array counts it again
            raise
