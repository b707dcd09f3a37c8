"""Sums of quantities along the paths of fewest arcs of up to 64 rows side by side (decision 262)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.model.rows import Array
from engine.rows.lane_sums import FAR, KeptSpaces, aligned, arcs_into, by_nearness, side_by_side
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]

#: The types of distances, from the narrowest to the widest; the narrower a type is, the more rows fit side by side.
WIDTHS: Final = (np.uint8, np.uint16, np.uint32)
#: The bytes of a line of distances, which is a cache line, and the largest number of rows side by side.
LINE: Final = 64
#: The bytes of each row that are transposed at a time.  The last ones may lie behind the end of the row, and their
#: lines behind that of the last vertex; the memory has space for them.
PIECE: Final = 16


def hop_bytes(n: int, terminals: int, sums: int) -> int:
    """Return the bytes that one thread works with.

    Args:
        n: number of vertices.
        terminals: number of terminals.
        sums: bytes of the sums of one entry, of all quantities.
    """
    return (n + terminals) * (LINE * (1 + sums) + 8) + n * (LINE + 45) + LINE * PIECE


class HopSums:
    """Sums quantities along the paths of fewest arcs of rows, 64 rows at a time, or fewer where distances need more
    than 8 bits.  Several threads may call :meth:`add`.

    Args:
        graph: the graph, all of whose arcs count 1.
        unit: the number of units that make 1, by which rows of floats are multiplied.
        quantities: three arrays, uint16, int32 and float64, by the types of their sums, shape (arcs, k), each with a
            number k of its own, in the order of the graph's arcs.
        columns: vertex indices of the columns.
    """

    def __init__(self, graph: Graph, unit: float, quantities: tuple[Array, ...], columns: Indices) -> None:
        self._n, self._terminals, self._unit, self._columns = graph.n, graph.terminals, unit, columns
        into, tails, order = arcs_into(graph, np.arange(graph.n))
        self._graph = (into, tails), tuple(values[order] for values in quantities)
        self._spaces = KeptSpaces(self._new_spaces)
        self._narrowest = 0  # the index in WIDTHS of the narrowest type that held all rows so far

    def add(
        self,
        which: Indices,
        searched: tuple[Indices, Array, np.generic],
        limited: bool,
        wanted: tuple[Any, ...],
    ) -> tuple[int, int, int]:
        """Sum along the paths of the first of some rows, as many as can be summed side by side.

        Args:
            which: the numbers of these rows, which ascend.
            searched: three entries: the sources, vertex indices, shape (rows,); int32, uint16 or float64, shape (rows,
                n): the distances from them to all vertices; and the value for *no path* among these.
            limited: whether distances beyond a cutoff are unreachable.
            wanted: the values for *no path* of the three types of sums; and the arrays that receive the sums, uint16,
                int32 and float64, shape (rows, k, columns).

        Returns:
            How many of the rows ``which`` are summed; and row and vertex of an entry that is not a shortest distance,
            or -1 and -1.
        """
        from engine.rows.hops._hop_sums import narrow_rows, sum_hops

        (sources, rows, none), first, count = searched, 0, side_by_side(len(which), LINE)
        order = by_nearness(which[:count], sources, rows, _lanes(self._narrowest))
        unit = None if rows.dtype.kind in "iu" else float(self._unit)
        with self._spaces.one() as spaces:
            while first < count:
                width = self._narrowest
                while width < len(WIDTHS) - 1 and count - first <= _lanes(width + 1):
                    width += 1
                buffer, space, far = spaces[width]
                some = order[np.minimum(np.arange(first, first + _lanes(width)), count - 1)]
                lane, vertex = narrow_rows(rows, some, unit, none, far, buffer)
                if lane >= 0 and width < len(WIDTHS) - 1:
                    self._narrowest = width + 1
                    continue
                if lane < 0:
                    block = buffer, sources[some], far, int(limited)
                    lane, vertex = sum_hops(block, self._graph, space, (some, self._columns, *wanted))
                if lane >= 0:
                    return first, int(some[lane]), vertex
                first += _lanes(width)
        return count, -1, -1

    def _new_spaces(self) -> tuple[Any, ...]:
        """Return, for each type of distances, the arrays that one thread works with, all in the same memory."""
        n, every = self._n, self._n + self._terminals
        memory = aligned((every + PIECE, LINE), np.uint8)
        sums = tuple(aligned((every, values.shape[1], LINE), values.dtype) for values in self._graph[1])
        for part in sums:
            part[:] = 0  # masked loads from memory that was never written are slow
        bytes_of_rows = np.empty(LINE * n + PIECE, np.uint8)[: LINE * n]
        summed = np.empty(every, np.int64)
        orders = (
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.uint8),
            np.empty((n + 1, 4), np.int64),
        )
        starts = np.empty(n + 4, np.int32)
        spaces = []
        for width, kind in enumerate(WIDTHS):
            lanes, far = _lanes(width), np.int32(min(2 ** (8 * np.dtype(kind).itemsize) - 1, FAR))
            space = (memory.view(kind), summed, _first_lanes(sums, lanes)), orders, starts
            spaces.append((bytes_of_rows.view(kind).reshape(lanes, n), space, far))
        return tuple(spaces)


def _first_lanes(sums: tuple[Array, ...], lanes: int) -> tuple[Array, ...]:
    """Return arrays in the memory of ``sums``, shape (n, k, 64), that have fewer lanes."""
    return tuple(part.reshape(-1)[: part.size // LINE * lanes].reshape(*part.shape[:2], lanes) for part in sums)


def _lanes(width: int) -> int:
    """Return the number of distances of the type ``WIDTHS[width]`` in a line."""
    return LINE // np.dtype(WIDTHS[width]).itemsize
