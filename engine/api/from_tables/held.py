"""The tables of an open prepared graph: read when a question needs them, dropped when memory is short."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.graph.selection import first_beyond
from engine.graph.terminals import arrivals
from engine.model.dtypes import work_type
from engine.model.system import available_memory
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
    """A prepared graph, open for reading, with its tables and what kernels need beside them.

    Attributes:
        See ``PreparedStore``.
    """

    def __init__(self, folder: StoreFolder | RemoteFolder) -> None:
        """Read and check the seal and the labels.  Raises StorageFailed."""
        super().__init__(folder)
        self._lock = threading.Lock()

    @property
    def loaded(self) -> bool:
        """Whether all tables from which rows come are in memory."""
        return "_described" in self.__dict__ and self._described.ahead.complete

    @property
    def held_bytes(self) -> int:
        """Bytes of the tables that are in memory."""
        if "_described" not in self.__dict__:
            return 0
        return sum(table.read_bytes for table in {self._described.ahead, self._described.back})

    def parts(self) -> Parts:
        """Return the parts of the graph, opened.  Raises StorageFailed."""
        from engine.algorithms.prepared.tables import parts_of

        return parts_of(self)

    @cached_property
    def _passing(self) -> bool:
        """Whether chunks of the tables are dropped where memory is short, because not all may fit."""
        return self.table_bytes > available_memory() // 2

    @property
    def most_held(self) -> int:
        """The most bytes of tables that questions keep in memory."""
        return min(self.table_bytes, (available_memory() + self.held_bytes) // 2) if self._passing else self.table_bytes

    @cached_property
    def _described(self) -> StoredTables:
        """The tables; nothing of them has been read yet."""
        from engine.algorithms.prepared.tables import StoredTables

        try:
            forward, backward = (
                self.checked(f"tables/{name}", passing=self._passing) for name in ("forward", "backward")
            )
        except MemoryError:
            self._refuse(self.table_bytes)
            raise
        assert forward is not None  # a prepared graph without it does not open
        return StoredTables.of(self.parts(), forward, backward, self._free, self._refuse)

    def _free(self) -> int:
        """Return the bytes of tables that may be read now; those that cannot all stay leave half of the memory to
        answers.
        """
        free = available_memory()
        if not self._passing:
            return free
        held = self.held_bytes
        return (free + held) // 2 - held

    def _refuse(self, needed: int) -> None:
        """Refuse to read more of the tables than there is memory for.  Raises DoesNotFit."""
        from engine.algorithms.prepared.tables import check_memory

        check_memory(f"the tables of {self.path}", needed, available_memory())

    @property
    def _tables_here(self) -> StoredTables:
        with self._lock:
            return self._described

    def _held(self, rows: Indices, columns: Indices) -> AbstractContextManager[None]:
        """Context manager: the lines of rows and columns are in memory."""
        tables = self._tables_here
        if tables.memory.complete:
            return NOTHING
        found = self._kernels
        needs = [tables.need(found[3], rows, ahead=True), tables.need(found[4], columns, ahead=False)]
        return tables.memory.using(needs)

    def _ready(self, rows: Indices, columns: Indices) -> tuple[tuple[Any, ...], Indices, Indices]:
        """Return the arguments that the kernels share, and the numbers of the lines of rows and columns in them; the
        caller holds these lines.
        """
        return self._kernels, rows, columns

    @cached_property
    def _pieces(self) -> TablePieces:
        """What cuts questions that need more of the tables than memory holds."""
        from engine.algorithms.prepared.pieces import StoredPieces

        found = self._kernels
        return StoredPieces(self._tables_here, (found[3], found[4]), lambda: available_memory() + self.held_bytes)

    @cached_property
    def _kernels(self) -> tuple[Any, ...]:
        tables = self._tables_here
        rows, columns = tables.lines(self._row_places), tables.lines(self._column_places)
        tree = tables.parts.parents, tables.widths
        return tree, (tables.ahead.values, tables.back.values), self._limits, rows, columns

    @cached_property
    def _limits(self) -> tuple[Any, Any]:
        """The largest distance, and *unreachable*."""
        from engine.algorithms.prepared.tables import limits_of

        return limits_of(work_type(self.dtype), self._beyond, nonnegative=self.least_weight >= 0)

    @cached_property
    def _beyond(self) -> Any:
        """The least entry beyond the cutoff; None without one."""
        cutoff = self.attributes["cutoff"]
        return None if cutoff is None else first_beyond(cutoff, self.dtype)

    @property
    def _row_places(self) -> Indices:
        """The position of each source."""
        return self._tables_here.parts.position[: self.n]

    @property
    def _column_places(self) -> Indices:
        """The position of each target; a path to a terminal ends at its arrival (``engine.graph.terminals``)."""
        count = int(self.attributes.get("terminals", 0))
        return self._tables_here.parts.position[arrivals(np.arange(self.n), self.n, count)]

    @cached_property
    def _walk(self) -> tuple[Array, ...]:
        """Facts of the parts that products of panels need: the first part below each part, sizes, and widths of
        tables.
        """
        tables = self._tables_here
        return tables.parts.lows(), tables.parts.sizes, tables.widths

    @cached_property
    def _mean_width(self) -> float:
        tables = self._tables_here
        return float(tables.widths @ tables.parts.sizes) / max(1, self.n)

    def _whole_array(self, where: str) -> Array | None:
        """Read an array that stays in memory as a whole; None if there is none of that name.

        Raises:
            DoesNotFit: there is no memory for it.
            StorageFailed: a chunk is missing or damaged; the message names it.
        """
        found = self.checked(where)
        if found is None:
            return None
        self._refuse(found.values.nbytes)
        return found.whole()
