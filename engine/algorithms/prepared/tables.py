"""The tables of an open prepared graph, in the form in which kernels read them; questions load the chunks they need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.algorithms.eliminated import Eliminated
from engine.graph.partition import Lengths, Parts
from engine.model.dtypes import WorkType, settle
from storage.errors import DoesNotFit
from storage.prepared.chunks import CheckedTable, Need, TableMemory
from storage.prepared.reader import PreparedStore

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
#: The part of each vertex, and the index at which its line ends in the flat tables.
Ends = tuple[npt.NDArray[np.int32], Indices]


@dataclass(frozen=True, eq=False)
class StoredTables:
    """The tables of a prepared graph.

    Attributes:
        parts: the parts.
        widths: for each part the number of entries in the line of a vertex, shape (parts,).
        begins: the index at which the table of each part begins, shape (parts,).
        ahead, back: the tables of the graph and of the reversed graph; the same object if the graph is undirected.
        memory: the memory that both tables share.
    """

    parts: Parts
    widths: Indices
    begins: Indices
    ahead: CheckedTable
    back: CheckedTable
    memory: TableMemory

    @classmethod
    def of(
        cls, parts: Parts, forward: CheckedTable, backward: CheckedTable | None, free: Callable[[], int],
        refuse: Callable[[int], None],
    ) -> StoredTables:  # fmt: skip
        """Make the object.

        Args:
            parts: the parts.
            forward: the table of the graph.
            backward: the table of the reversed graph; None if it is the same as that of the graph.
            free: returns the bytes that may be read now.
            refuse: raises the error for a question whose entries do not fit in memory; called with the number of
                bytes that would have to be read.
        """
        widths, back = parts.widths(), forward if backward is None else backward
        memory = TableMemory([forward] if backward is None else [forward, backward], free, refuse)
        return cls(parts, widths, _begins(parts, widths), forward, back, memory)

    def lines(self, places: Indices) -> Ends:
        """Return, for each of ``places`` (positions), its part and the index at which its line ends in the tables."""
        return line_ends(self.parts, self.widths, places)

    def need(self, lines: Ends, vertices: Indices, *, ahead: bool) -> Need:
        """Return the argument of ``TableMemory.using`` for the lines of some vertices.

        Args:
            lines: the lines of all vertices.
            vertices: the vertices whose lines are needed.
            ahead: True for the tables of the graph, False for those of the reversed graph.
        """
        ends = lines[1][vertices]
        return self.ahead if ahead else self.back, (ends - self.widths[lines[0][vertices]], ends)

    def whole(self) -> AbstractContextManager[None]:
        """Context manager: keep all entries in memory in its body.  It raises what ``TableMemory.using`` raises."""
        return self.memory.using([(self.ahead, None), (self.back, None)])

    def swept(self, eliminated: Array | None, *, forward: bool, nonnegative: bool) -> Lengths:
        """Return the lengths from which whole rows, or columns, of the matrix are computed part by part (a sweep).

        Args:
            eliminated: lengths that elimination has found: for rows from borders to parts, for columns from parts to
                borders; None to gather them from the tables, which are then read completely.
            forward: whether rows are swept, else columns.
            nonnegative: promises that no arc is negative.

        Returns:
            The lengths; a caller that then reads lines from their flat table must keep these lines in memory.

        Raises:
            StorageFailed: a chunk is missing or damaged.
            DoesNotFit: the lengths must be gathered, and the tables do not fit in memory.
        """
        parts = self.parts
        own, other = (self.ahead, self.back) if forward else (self.back, self.ahead)
        if eliminated is None:
            with self.memory.using([(other, None)]):
                return Lengths([], self._gathered(other.values), own.values)
        if not nonnegative:
            settle(eliminated)
        found = Eliminated.of(parts, eliminated, eliminated, eliminated)
        across = [found.down(i) if forward else np.ascontiguousarray(found.up(i).T) for i in range(parts.count)]
        return Lengths([], across, own.values)

    def _gathered(self, others: Array) -> list[Array]:
        """Return for each part the lengths from its border to it, from ``others``, the tables of the reversed graph."""
        parts, owner, across = self.parts, self.parts.owner(), []
        for i in range(parts.count):
            border, wide = parts.border(i), self.widths[i]
            size = int(parts.starts[i + 1] - parts.starts[i])
            table = others[self.begins[i] : self.begins[i] + size * wide].reshape(size, wide)
            above = owner[border]
            across.append(np.ascontiguousarray(table[:, wide - self.widths[above] + border - parts.starts[above]].T))
        return across


def parts_of(store: PreparedStore) -> Parts:
    """Return the parts of a prepared graph.  Raises StorageFailed."""
    position, starts, parents, ends, borders = map(
        store.part_array, ("position", "starts", "parents", "ends", "borders")
    )
    return Parts(
        position.astype(np.int64, copy=False),
        starts.astype(np.int64, copy=False),
        parents.astype(np.int32, copy=False),
        ends.astype(np.int64, copy=False),
        borders.astype(np.int32, copy=False),
    )


def line_ends(parts: Parts, widths: Indices, places: Indices) -> Ends:
    """Return, for each of ``places``, its part and the index at which its line ends in the tables.

    Args:
        parts: the parts.
        widths: for each part the number of entries in the line of a vertex.
        places: positions of vertices in the order of elimination.
    """
    part = parts.owner()[places]
    return part, _begins(parts, widths)[part] + (places - parts.starts[part] + 1) * widths[part]


def _begins(parts: Parts, widths: Indices) -> Indices:
    """Return the index at which the table of each part begins, shape (parts,)."""
    counts: Indices = parts.sizes * widths
    return np.cumsum(counts) - counts


def limits_of(kind: WorkType, beyond: Any, *, nonnegative: bool) -> tuple[Any, Any]:
    """Return the largest distance and the value for *unreachable*, as arguments of kernels.

    Args:
        kind: the working type.
        beyond: the smallest number above the cutoff; None if there is no cutoff.
        nonnegative: promises that no arc is negative.
    """
    limit: Any = kind.dtype.type(kind.largest_signed if kind.integer and not nonnegative else kind.largest)
    if beyond is not None:
        below: Any = np.nextafter(beyond, -np.inf) if kind.dtype.kind == "f" else beyond - 1
        limit = min(limit, kind.dtype.type(below))
    return limit, kind.sentinel()


def check_memory(what: str, needed: int, available: int) -> None:
    """Raise DoesNotFit if the bytes to be read do not fit in the available memory."""
    if needed > available:
        raise DoesNotFit(
            f"{what} do not fit in memory: {needed} bytes are needed, {available} may be used",
            resource="memory",
            needed=needed,
            available=available,
            candidates=[],
        )
