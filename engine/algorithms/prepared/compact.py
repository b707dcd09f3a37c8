"""Tables of a prepared graph in the compact form: computed part by part when a question needs them.

Only the lengths inside parts, and those between parts and their borders, are stored; elimination finds both.  The table
of a part follows from the tables of the parts above (``PartWork.extend``) by the same sums as in the full form, so both
forms have the same entries to the last bit.  The most recently used tables are cached, up to ``KEPT`` bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.eliminated import Eliminated
from engine.algorithms.part_lengths import PartWork
from engine.graph.partition import Parts
from engine.model.dtypes import settle

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
#: Two arrays: the part of each vertex, and the position of each vertex in the order of elimination.
Places = tuple[npt.NDArray[np.int32], Indices]

#: Most bytes of computed tables that are kept for later questions.
KEPT: Final = 256 << 20


class ClosedParts(Parts):
    """Parts whose tables have only the columns of the part itself, and none for the parts above."""

    def widths(self) -> Indices:
        """Return the number of vertices of each part, shape (parts,)."""
        return self.sizes


def closed_parts(parts: Parts) -> ClosedParts:
    """Return ``parts`` as an object of :class:`ClosedParts`."""
    return ClosedParts(**{field.name: getattr(parts, field.name) for field in fields(Parts)})


@dataclass(frozen=True, eq=False)
class StoredLengths:
    """The lengths that the compact form stores.

    Attributes:
        closed: the lengths inside parts, flat: for each part, one after the other, a block of shape (size, size).
        found: the lengths between parts and their borders; ``found.rests`` is not stored.
    """

    closed: Array
    found: Eliminated

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays that are stored."""
        return self.closed.nbytes + self.found.upward.nbytes + self.found.across.nbytes


class CompactTables:
    """The tables of a prepared graph in the compact form; safe to use from many threads.

    Args:
        work: the parts, and the object that computes their tables.
        stored: the lengths that are stored.
        directed: whether the graph is directed: the tables of its reverse then differ from its own.

    Attributes:
        parts: the parts.
        widths: for each part the number of entries in the line of a vertex, shape (parts,).
        table_bytes: for each part the bytes of its table, shape (parts,).
        stored: the lengths that are stored.
    """

    def __init__(self, work: PartWork, stored: StoredLengths, *, directed: bool) -> None:
        self.parts, self.widths = work.parts, work.parts.widths()
        self.stored = stored
        self._work, self._directed = work, directed
        self._owner, squares = self.parts.owner(), self.parts.sizes**2
        self._closed_at = np.cumsum(squares) - squares
        self.table_bytes = self.parts.sizes * self.widths * stored.closed.itemsize
        self._lock = threading.RLock()
        self._kept: OrderedDict[tuple[bool, int], Array] = OrderedDict()
        self._kept_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are in use between questions."""
        return self.stored.nbytes + self._kept_bytes

    def lines(self, places: Indices) -> Places:
        """Return the part at each of the positions ``places``, and ``places`` itself."""
        return self._owner[places], places

    def bytes_of(self, parts: npt.NDArray[np.int32]) -> int:
        """Return the bytes of the tables of some parts; a part that occurs twice counts once."""
        return int(self.table_bytes[np.unique(parts)].sum())

    def flat(self, some: npt.NDArray[np.int32], *, ahead: bool) -> tuple[Array, Indices]:
        """Compute the tables of some parts.

        Args:
            some: numbers of parts, in any order; a part may occur more than once.
            ahead: True for the tables of the graph, False for those of the reversed graph.

        Returns:
            The tables one after the other, flat; and the index at which the table of each part begins, shape (parts,),
            -1 for parts that are not among ``some``.
        """
        wanted = np.unique(some)
        entries = self.parts.sizes[wanted] * self.widths[wanted]
        begins = np.full(self.parts.count, -1, np.int64)
        begins[wanted] = np.cumsum(entries) - entries
        out: Array = np.empty(int(entries.sum()), self.stored.closed.dtype)
        with self._lock:
            for i in wanted[::-1].tolist():  # parts above have higher numbers, and the parts below need their tables
                table = self._table(i, ahead=ahead or not self._directed)
                out[begins[i] : begins[i] + table.size] = table.ravel()
        if not self._work.nonnegative:
            settle(out)
        return out, begins

    def ended(self, lines: Places, vertices: Indices, *, ahead: bool) -> tuple[Array, tuple[Array, Indices]]:
        """Return the rows of some vertices in the tables of their parts; tables that are not in memory are computed.

        Args:
            lines: for every vertex its part and its position, as :meth:`lines` returns them.
            vertices: the vertices whose rows are needed.
            ahead: True for the tables of the graph, False for those of the reversed graph.

        Returns:
            The tables, flat; and for each of ``vertices`` its part and the index at which its row ends.
        """
        part, place = lines[0][vertices], lines[1][vertices]
        found, begins = self.flat(part, ahead=ahead)
        return found, (part, begins[part] + (place - self.parts.starts[part] + 1) * self.widths[part])

    def _table(self, i: int, *, ahead: bool) -> Array:
        """Return the table of a part, shape (size, width); it is computed if it is not in memory."""
        chain, known = [i], dict[int, Array]()
        while (above := int(self.parts.parents[chain[-1]])) >= 0:
            chain.append(above)
        for k in reversed(chain):
            kept = self._kept.get((ahead, k))
            if kept is None:
                kept = self._extended(k, known, ahead=ahead)
                self._kept[ahead, k] = kept
                self._kept_bytes += kept.nbytes
            known[k] = kept
        for k in chain:  # the tables of the highest parts are dropped last
            self._kept.move_to_end((ahead, k))
        while self._kept_bytes > KEPT and self._kept:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= gone.nbytes
        return known[i]

    def _extended(self, i: int, above: dict[int, Array], *, ahead: bool) -> Array:
        size, found = int(self.parts.starts[i + 1] - self.parts.starts[i]), self.stored.found
        own = self.stored.closed[self._closed_at[i] : self._closed_at[i] + size * size].reshape(size, size)
        table: Array = np.empty((size, int(self.widths[i])), own.dtype)
        table[:, :size] = own if ahead else own.T
        up = found.up(i) if ahead else np.ascontiguousarray(found.down(i).T)
        self._work.extend({**above, i: table}, i, up, self._owner)
        return table
