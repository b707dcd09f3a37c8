"""Blocks of the matrix of a prepared graph as min-plus products of panels of lines.

A distance is the least sum over what two lines have in common (``engine.algorithms.prepared.lines``): the columns of
every part above both vertices.  Sorted by position, the vertices below a part are adjacent.  So each part needs one
min-plus product: of the lines of all sources below it with those of all targets below it, over the part's columns.
The sums are exactly those of merging the lines of single pairs, and a minimum does not depend on the order of its
terms.  So both ways give the same results to the last bit, even for floats.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.relax import BLOCK_ROWS, DEPTH, ITEM_BYTES, Workspace, relax_packed
from engine.devices.cpu.vector import TILE_ROWS, TILE_VECTORS, VECTOR_BYTES, pack_entry
from engine.graph.kernels import njit
from storage.threads import in_threads

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: Nanoseconds, measured on one machine (AMD EPYC, Zen 5) on road networks.  _PACKED: for each entry of a line that is
#: packed for a product.  _MULTIPLIED: for each pair in a product, a constant, and a number for each entry of a line.
#: _MERGED: the same two numbers for a pair whose lines are merged.
_PACKED: Final = 3.0
_MULTIPLIED: Final = (2.0, 0.012)
_MERGED: Final = (50.0, 0.2)
#: Nanoseconds for each entry of a row when whole rows are computed part by part (_SWEPT), and for each entry that is
#: then copied to its place in the result (_MOVED).
_SWEPT: Final = 4.0
_MOVED: Final = 2.0
#: Most entries of a band: the piece of a block that a thread computes, and then copies to its rows and columns.
BAND: Final = 1 << 22
#: Most rows of a band.  The lines of the targets are packed once for each band, so taller bands pack them less often.
BAND_ROWS: Final = 1024


@njit(nogil=True, cache=True)
def _pack_sources(table, ends, back, depth, out):  # type: ignore[no-untyped-def]
    """Pack ``depth`` entries of each source's line in the layout of the left operand of relax.

    The first of these entries is ``back`` entries before the end of the line.
    """
    rows = len(ends)
    for top in range(0, rows, TILE_ROWS):
        for r in range(TILE_ROWS):
            end = ends[min(top + r, rows - 1)] - back
            line, at = table[end : end + depth], top * depth + r
            for k in range(depth):
                pack_entry(out, at + k * TILE_ROWS, line[k])


@njit(nogil=True, cache=True)
def _pack_targets(table, ends, back, depth, out):  # type: ignore[no-untyped-def]
    """Pack ``depth`` entries of each target's line in the layout of the right operand of relax.

    The first of these entries is ``back`` entries before the end of the line.  The layout is transposed and padded with
    zeros.
    """
    width = TILE_VECTORS * VECTOR_BYTES // table.itemsize
    for first in range(0, len(ends), width):
        strip = out[first * depth : (first + width) * depth]
        for j in range(width):
            if first + j < len(ends):
                end = ends[first + j] - back
                line = table[end : end + depth]
                for k in range(depth):
                    strip[k * width + j] = line[k]
            else:
                for k in range(depth):
                    strip[k * width + j] = 0


@njit(nogil=True, cache=True)
def _span(parts, low, high):  # type: ignore[no-untyped-def]
    """Return where the parts ``low`` to ``high`` begin and end in the ascending array ``parts``."""
    return np.searchsorted(parts, low), np.searchsorted(parts, high, side="right")


@njit(nogil=True, cache=True)
def _relax_panels(walk, tables, sources, targets, found, by_bits, packs):  # type: ignore[no-untyped-def]
    """Fill ``found`` with the distances of all pairs: the least sums over the columns that both lines have.

    Args:
        walk: for each part the first part below it (itself if there is none), its size, and the width of its table.
        tables: the forward and the backward tables, flat.
        sources, targets: for each row and column its part and the index at which its line ends, by ascending part.
        found: flat, shape (rows * columns,); set to *unreachable* by the caller.
        by_bits: whether floats may be compared by their bits, because none is negative.
        packs: buffers for the packed left and right operands, and for one register tile.
    """
    lows, sizes, wide = walk
    left, right, edge = packs
    stride, most = len(targets[0]), ITEM_BYTES // found.itemsize
    for j in range(len(lows)):
        top, bottom = _span(sources[0], lows[j], j)
        first, last = _span(targets[0], lows[j], j)
        if top == bottom or first == last:
            continue
        for k in range(0, sizes[j], DEPTH):
            deep, back = min(DEPTH, sizes[j] - k), wide[j] - k
            for column in range(first, last, most):
                across = min(most, last - column)
                _pack_targets(tables[1], targets[1][column : column + across], back, deep, right)
                for row in range(top, bottom, BLOCK_ROWS):
                    high = min(BLOCK_ROWS, bottom - row)
                    _pack_sources(tables[0], sources[1][row : row + high], back, deep, left)
                    # ``above`` says where the diagonal lies; with this value no tile lies below it, so all are computed
                    at, above = row * stride + column, -high - across
                    relax_packed(found, at, stride, high, across, deep, above, by_bits, left, right, edge)


@njit(nogil=True, cache=True)
def _place(found, rows, columns, ends, out):  # type: ignore[no-untyped-def]
    """Copy ``found`` to ``rows`` and ``columns`` of ``out``; entries above the largest distance become unreachable."""
    limit, sentinel = ends
    for i in range(len(rows)):
        row, line = out[rows[i]], found[i * len(columns) : (i + 1) * len(columns)]
        for j in range(len(columns)):
            row[columns[j]] = sentinel if line[j] > limit else line[j]


def cheapest(rows: int, columns: int, n: int, width: float, *, sweeps: bool) -> tuple[str, float]:
    """Find the fastest way to make a block of the matrix.

    Args:
        rows, columns: shape of the block.
        n: number of vertices of the graph.
        width: mean number of entries of a line.
        sweeps: whether whole rows and columns of the matrix may be computed instead.

    Returns:
        ``merge`` for pairs one by one, ``multiply`` for products of panels, ``rows`` or ``columns`` for sweeps; and the
        time that one thread is predicted to take, in nanoseconds.
    """
    packed = rows * -(-columns // max(1, BAND // max(1, min(BAND_ROWS, rows)))) + columns * -(-rows // BAND_ROWS)
    costs = {
        "merge": rows * columns * (_MERGED[0] + _MERGED[1] * width),
        "multiply": _PACKED * width * packed + rows * columns * (_MULTIPLIED[0] + _MULTIPLIED[1] * width) + 1e5,
    }
    if sweeps:
        costs["rows"] = rows * (_SWEPT * n + _MOVED * columns)
        costs["columns"] = columns * (_SWEPT * n + _MOVED * rows)
    way = min(costs, key=lambda way: costs[way])
    return way, costs[way]


class PanelProduct:
    """A block of the matrix, which several threads make band by band.

    Args:
        lines: the tree of parts and the tables, see ``engine.algorithms.prepared.lines``.
        walk: for each part the first part below it, its size, and the width of its table.
        rows, columns: the rows and columns of the matrix in the block, int64, in any order.
        nonnegative: promises that no arc is negative.
        out: receives the block, shape (rows, columns), of the type of the tables.
    """

    def __init__(
        self, lines: tuple[Any, ...], walk: tuple[Array, ...], rows: Indices, columns: Indices, *,
        nonnegative: bool, out: Array,
    ) -> None:  # fmt: skip
        _, self._tables, self._ends, sources, targets = lines
        self._walk, self._by_bits, self._out = walk, nonnegative, out
        self._rows, self._columns = (
            np.argsort(lines[1][wanted], kind="stable") for lines, wanted in ((sources, rows), (targets, columns))
        )
        self._sources, self._targets = (
            tuple(field[wanted[order]] for field in lines)
            for lines, wanted, order in ((sources, rows, self._rows), (targets, columns, self._columns))
        )
        high = max(1, min(BAND_ROWS, len(rows)))
        wide = max(1, BAND // high)
        self.bands = [(i, j, high, wide) for i in range(0, len(rows), high) for j in range(0, len(columns), wide)]

    def make_all(self, threads: int) -> None:
        """Make all bands, in several threads."""
        if len(self.bands) == 1 or threads == 1:
            for band in self.bands:
                self.make(band)
            return
        in_threads(threads, self.make, self.bands)

    def make(self, band: tuple[int, int, int, int]) -> None:
        """Make one of ``bands``; other threads may make other bands at the same time.

        Args:
            band: the first row, the first column, and the largest number of rows and of columns.
        """
        i, j, high, wide = band
        rows, columns = slice(i, i + high), slice(j, j + wide)
        sources, targets = (
            tuple(field[rows] for field in self._sources),
            tuple(field[columns] for field in self._targets),
        )
        found = np.full(len(sources[0]) * len(targets[0]), self._ends[1], self._out.dtype)
        left, right, edge, _ = (buffer[0] for buffer in Workspace(1).packs(self._out.dtype))
        _relax_panels(self._walk, self._tables, sources, targets, found, self._by_bits, (left, right, edge))
        _place(found, self._rows[rows], self._columns[columns], self._ends, self._out)
