"""Computes the indices and the bytes of memory that a GPU needs to answer from the tables of a prepared graph.

The *line* of a vertex is its row in the table of its part (see ``engine.algorithms.prepared.lines``).  The last entries
of the lines of two vertices concern the same parts: those that lie above both vertices.  Parts are numbered children
first.  So the number of these entries is the least width among the parents of all parts numbered from the lower of the
two vertices' parts to the part before the higher one.  A table of such minima over runs of 1, 2, 4, ... parts (a sparse
table; Bender and Farach-Colton, "The LCA problem revisited", 2000) gives this number with two reads, however deep the
tree is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.graph.partition import Parts
from engine.model.device_layout import SLACK, TILE_ROWS
from engine.model.dtypes import WorkType
from storage.errors import DoesNotFit

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: How kernels take a line, the row of a vertex in a table: the index where the line ends in the table, the part of the
#: vertex, and the row or column of the vertex in a block of distances.
LINE: Final = np.dtype([("end", "i8"), ("part", "i4"), ("place", "i4")], align=True)
#: The largest number of rows that are swept at a time; a batch takes the memory of a multiple of ``ROW_STEP`` rows.
BATCH: Final = 4096
ROW_STEP: Final = 32
#: The number of columns of a part that a thread holds (COLUMNS of tables.cu), for 64-bit entries and for all others.
COLUMNS_64: Final = 16
COLUMNS: Final = 32


@dataclass(frozen=True, eq=False)
class HostTables:
    """The tables of a prepared graph as they lie in host memory.

    Attributes:
        parts: the parts.
        lows: for each part the first part below it; the part itself where there is none.
        forward: the forward table, flat.
        backward: the backward table, flat; the same object as ``forward`` if one table serves both directions.
        rows: int64, the position of each source, shape (n,).
        columns: int64, the position of each target, shape (n,).
        kind: the working type.
        limit: the largest distance; larger values mean unreachable.
        nonnegative: whether no arc is negative.
    """

    parts: Parts
    lows: Indices
    forward: Array
    backward: Array
    rows: Indices
    columns: Indices
    kind: WorkType
    limit: np.generic
    nonnegative: bool


class TableLayout:
    """Indices over the parts of a prepared graph.

    Args:
        parts: the parts.
        itemsize: bytes of an entry.
    """

    def __init__(self, parts: Parts, itemsize: int) -> None:
        self.parts, self.itemsize = parts, itemsize
        self.sizes, self.depths, self.widths = parts.sizes, parts.depths, parts.widths()
        self.begins = np.cumsum(self.sizes * self.widths) - self.sizes * self.widths
        entries = self.sizes * self.depths
        self.lengths = int(entries.sum())
        self.length_begins = np.cumsum(entries) - entries
        self.owner = parts.owner()

    def lines(self, positions: Indices) -> Array:
        """Return the lines of the vertices at ``positions``, as an array of type ``LINE``, shape (len(positions),)."""
        found, part = np.zeros(len(positions), LINE), self.owner[positions]
        found["part"] = part
        found["end"] = self.begins[part] + (positions - self.parts.starts[part] + 1) * self.widths[part]
        return found

    @cached_property
    def meets(self) -> npt.NDArray[np.int32]:
        """For runs of parts, the least width among the parents of these parts, shape (rows, parts).

        Row k is for runs of 2^k parts.  An entry is 0 if a part of the run has no parent.
        """
        parents = self.parts.parents
        least = np.where(parents < 0, 0, self.widths[parents]).astype(np.int32)
        rows, run = [least], 1
        while 2 * run < max(1, len(parents)):
            row = rows[-1].copy()
            row[:-run] = np.minimum(row[:-run], rows[-1][run:])
            rows.append(row)
            run *= 2
        return np.array(rows)

    @cached_property
    def levels(self) -> npt.NDArray[np.int32]:
        """The number of parts above each part."""
        found = [0] * self.parts.count
        parents = self.parts.parents.tolist()
        for i in range(len(found) - 1, -1, -1):
            if parents[i] >= 0:
                found[i] = found[parents[i]] + 1
        return np.array(found, np.int32)

    def items(self) -> tuple[npt.NDArray[np.int32], list[int]]:
        """Return the work of a sweep, cut into items of one part and at most ``COLUMNS`` of its columns.

        Returns:
            The part and the first column of each item, shape (items, 2), sorted by ``levels``; and the index of the
            first item of each level, followed by the number of items.
        """
        high = COLUMNS_64 if self.itemsize == 8 else COLUMNS
        pieces = -(-self.sizes // high)
        part = np.repeat(np.arange(self.parts.count), pieces)
        first = (np.arange(len(part)) - (np.cumsum(pieces) - pieces)[part]) * high
        order = np.argsort(self.levels[part], kind="stable")
        counts = np.bincount(self.levels[part], minlength=1)
        items = np.stack([part[order], first[order]], axis=1).astype(np.int32)
        return items, [0, *np.cumsum(counts).tolist()]

    def bytes(self, n: int, tables: int) -> int:
        """Return the bytes of device memory that tables and indices take, without the memory for answers.

        Args:
            n: the number of vertices of the graph.
            tables: the number of tables: 1, or 2 if forward and backward tables differ.
        """
        entries = int(self.sizes @ self.widths) + self.lengths
        index = 40 * n + 4 * (self.meets.size + len(self.parts.borders) + len(self.owner)) + 64 * self.parts.count
        return tables * entries * self.itemsize + index

    def row_bytes(self, n: int, rows: int) -> int:
        """Return the bytes that a sweep of ``rows`` rows takes in addition to the tables."""
        padded = -(-rows // ROW_STEP) * ROW_STEP
        return (padded * len(self.owner) + rows * n) * self.itemsize + 16 * rows

    def batch(self, n: int, rows: int, memory: int) -> int:
        """Return the number of rows to sweep at a time: what ``memory`` bytes allow, at least ``ROW_STEP``.

        ``n`` is the number of vertices, and ``rows`` the number of rows to sweep in all.
        """
        found = min(BATCH, -(-max(1, rows) // ROW_STEP) * ROW_STEP)
        while found > ROW_STEP and self.row_bytes(n, found) > memory:
            found = max(ROW_STEP, found // 2 // ROW_STEP * ROW_STEP)
        return found


def check_budget(path: object, table_bytes: int, n: int, itemsize: int, usable: int) -> None:
    """Raise an error if tables are larger than the device memory that may be used.

    Args:
        path: path of the prepared graph, for the message.
        table_bytes: bytes of its tables.
        n: the number of vertices.
        itemsize: bytes of an entry.
        usable: bytes of device memory that may be used.

    Raises:
        DoesNotFit: the tables need more; the message has both numbers.
    """
    needed = table_bytes + 40 * n + TILE_ROWS * 2 * n * itemsize + SLACK
    if needed > usable:
        raise DoesNotFit(
            f"the tables of {path} do not fit on the GPU: {needed:,} bytes are needed, {usable:,} may be used; "
            "--device auto or cpu answers on the processors",
            resource="device memory",
            needed=needed,
            available=usable,
            candidates=[],
        )
