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
#: The part of each vertex, and where its line ends in the tables (in the compact form, its position).
Lines = tuple[Array, Array]

#: Most bytes of tables in the compact form that one piece of a question may compute.
PIECE: Final = 256 << 20


class TablePieces(ABC):
    """Cuts questions.

    Args:
        lines: the lines of all sources, and those of all targets.
    """

    def __init__(self, lines: tuple[Lines, Lines]) -> None:
        self._lines = lines

    @abstractmethod
    def most(self) -> int | None:
        """Return the most bytes of tables that a piece may need; None without a limit."""

    @abstractmethod
    def _places(self, vertices: Indices, *, forward: bool) -> Array:
        """Return where in the tables the lines are of sources, or of targets: numbers that are equal or neighbours
        where lines lie together.
        """

    @abstractmethod
    def _bytes(self, vertices: Indices, *, forward: bool) -> int:
        """Return the bytes of tables that hold the lines of sources, or of targets."""

    @abstractmethod
    def _bytes_each(self, vertices: Indices, *, forward: bool) -> Array:
        """Return the bytes of tables for the line of each vertex alone."""

    def cut(self, rows: Indices, columns: Indices) -> tuple[bool, list[Indices]] | None:
        """Cut a question that needs more bytes of tables than a piece may.

        Args:
            rows, columns: sources and targets.

        Returns:
            Whether the sources are cut, and the places of two halves; None if it is small enough or cannot be cut.
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
        """Return the places of sources, or of targets, in groups none of which needs more than a piece may, unless it
        has a single place in the tables; None if one group holds all.
        """
        most = self.most()
        if most is None or self._bytes(vertices, forward=forward) <= most:
            return None
        places = self._places(vertices, forward=forward)
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(np.diff(places[order], prepend=-1) != 0)
        # lines of one place end in the same section and may begin in different ones
        sizes = np.maximum.reduceat(self._bytes_each(vertices[order], forward=forward), starts)
        cuts, total = [], 0
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            if total and total + size > most:
                cuts.append(start)
                total = 0
            total += size
        return np.split(order, cuts)


class StoredPieces(TablePieces):
    """Cuts questions to tables that are read in sections.

    Args:
        tables: the tables.
        lines: as the base class.
        most: returns the most bytes of tables that a piece may need.
    """

    def __init__(self, tables: StoredTables, lines: tuple[Lines, Lines], most: Callable[[], int]) -> None:
        super().__init__(lines)
        self._tables, self._most = tables, most

    def most(self) -> int | None:
        """Return the most bytes of tables that a piece may need; None where all of them fit."""
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
    """Cuts questions to tables that are computed.

    Args:
        tables: the tables.
        lines: as the base class.
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
