"""Cuts questions to a prepared graph into pieces whose tables fit in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.prepared.compact import CompactTables
from engine.algorithms.prepared.tables import StoredTables

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
#: The part of each vertex; and the index at which its line ends in the tables (in the compact form: its position).
Lines = tuple[Array, Array]

#: Most bytes of tables in the compact form that one piece of a question may compute.
PIECE: Final = 256 << 20


class TablePieces(ABC):
    """Cuts questions; the subclasses say how many bytes of tables a question needs.

    Args:
        lines: where the lines of all vertices are, first as sources, then as targets.
    """

    def __init__(self, lines: tuple[Lines, Lines]) -> None:
        self._lines = lines

    @abstractmethod
    def most(self) -> int | None:
        """Return the most bytes of tables that a piece may need; None if there is no limit."""

    @abstractmethod
    def _places(self, vertices: Indices, *, forward: bool) -> Array:
        """Return a sort key for each vertex: where its line is in the tables of the given direction.

        Lines in the same place have equal keys, and lines in adjacent places have adjacent keys.
        """

    @abstractmethod
    def _bytes(self, vertices: Indices, *, forward: bool) -> int:
        """Return the bytes of the tables of the given direction that hold the lines of some vertices."""

    @abstractmethod
    def _bytes_each(self, vertices: Indices, *, forward: bool) -> Array:
        """Return, for each vertex, the bytes of tables that must be read if only its line is needed."""

    def cut(self, rows: Indices, columns: Indices) -> tuple[bool, list[Indices]] | None:
        """Cut a question, sources by targets, in two if the tables that it reads exceed ``most()`` bytes.

        Args:
            rows, columns: sources and targets.

        Returns:
            Whether the sources are cut (else the targets); and two arrays, one for each half, of indices into the
            vertices that are cut.  None if the question is small enough or cannot be cut.
        """
        most = self.most()
        if most is None or not (len(rows) and len(columns)):
            return None
        sides = (rows, True), (columns, False)
        sizes = [self._bytes(some, forward=forward) for some, forward in sides]
        if sum(sizes) <= most:
            return None
        for k in (0, 1) if sizes[0] >= sizes[1] else (1, 0):
            places = self._places(sides[k][0], forward=sides[k][1])
            if places.min() < places.max():
                order = np.argsort(places, kind="stable")
                return k == 0, [order[: len(order) // 2], order[len(order) // 2 :]]
        return None

    def groups(self, vertices: Indices, *, forward: bool) -> list[Indices] | None:
        """Divide sources, or targets, into groups that each need at most ``most()`` bytes of tables.

        Vertices that need the same part of the tables stay in one group, even if this part alone exceeds the limit.

        Returns:
            Indices into ``vertices`` for each group; None if a single group suffices.
        """
        most = self.most()
        if most is None or self._bytes(vertices, forward=forward) <= most:
            return None
        places = self._places(vertices, forward=forward)
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(np.diff(places[order], prepend=-1) != 0)
        # lines in the same place end in the same section, but may begin in different sections
        sizes = np.maximum.reduceat(self._bytes_each(vertices[order], forward=forward), starts)
        cuts, total = [], 0
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            if total and total + size > most:
                cuts.append(start)
                total = 0
            total += size
        return np.split(order, cuts)


class StoredPieces(TablePieces):
    """Cuts questions to a prepared graph whose tables are read in sections.

    Args:
        tables: the tables.
        lines: where the lines of all vertices are, first as sources, then as targets.
        most: returns the most bytes of tables that a piece may need.
    """

    def __init__(self, tables: StoredTables, lines: tuple[Lines, Lines], most: Callable[[], int]) -> None:
        super().__init__(lines)
        self._tables, self._most = tables, most

    def most(self) -> int | None:
        """Return the most bytes of tables that a piece may need; None if all tables fit in memory."""
        tables = self._tables
        return self._most() if tables.ahead.passing and not tables.memory.complete else None

    def _ends(self, vertices: Indices, *, forward: bool) -> tuple[Array, Array]:
        part, ends = self._lines[0 if forward else 1]
        some = ends[vertices]
        return some - self._tables.widths[part[vertices]], some

    def _places(self, vertices: Indices, *, forward: bool) -> Array:
        return np.asarray((self._ends(vertices, forward=forward)[1] - 1) // self._tables.ahead.section)

    def _bytes(self, vertices: Indices, *, forward: bool) -> int:
        table = self._tables.ahead if forward else self._tables.back
        return int(table.wanted(self._ends(vertices, forward=forward)).sum()) * table.section * table.values.itemsize

    def _bytes_each(self, vertices: Indices, *, forward: bool) -> Array:
        table, (begins, ends) = self._tables.ahead, self._ends(vertices, forward=forward)
        sections = (ends - 1) // table.section - begins // table.section + 1
        return np.asarray(sections * table.section * table.values.itemsize)


class CompactPieces(TablePieces):
    """Cuts questions to a prepared graph whose tables are computed when a question needs them.

    Args:
        tables: the tables.
        lines: where the lines of all vertices are, first as sources, then as targets.
    """

    def __init__(self, tables: CompactTables, lines: tuple[Lines, Lines]) -> None:
        super().__init__(lines)
        self._tables = tables

    def most(self) -> int:
        """Return the most bytes of tables that a piece may compute."""
        return PIECE

    def _places(self, vertices: Indices, *, forward: bool) -> Array:
        return self._lines[0 if forward else 1][0][vertices]

    def _bytes(self, vertices: Indices, *, forward: bool) -> int:
        return self._tables.bytes_of(self._places(vertices, forward=forward))

    def _bytes_each(self, vertices: Indices, *, forward: bool) -> Array:
        return self._tables.table_bytes[self._places(vertices, forward=forward)]
