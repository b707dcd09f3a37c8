"""The sweep of the partitioned algorithm on the CPU: rows of the matrix, many at a time, from part to part.

A thread takes some rows, fills in the lengths that ``engine.algorithms.partitioned`` computed (from each source to its
own part and the parts above), and goes through the parts from the last to the first.  For each part it relaxes by
(lengths from the sources to the part's border) (x) (lengths from the border to the part); the right side of that
product is packed once for all rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.relax import DEPTH, aligned, pack_right, relax_packed
from engine.devices.cpu.team import fetch_add
from engine.devices.cpu.vector import TILE_ROWS, TILE_VECTORS, VECTOR_BYTES, pack_entry
from engine.graph.kernels import njit
from engine.graph.partition import Lengths, Parts
from engine.model.backend import Arcs, Array
from engine.model.device_layout import SWEEP_ROWS
from engine.model.dtypes import work_type


@njit(nogil=True, cache=True)
def _pack_across(weights, depth, columns, out, at):  # type: ignore[no-untyped-def]
    """Pack ``weights`` (flat, depth x columns) from ``out[at]`` on as the right side of relax, DEPTH rows at a time."""
    width = TILE_VECTORS * VECTOR_BYTES // out.itemsize
    across = (columns + width - 1) // width * width
    for k in range(0, depth, DEPTH):
        deep = min(DEPTH, depth - k)
        pack_right(weights, k * columns, columns, deep, columns, out[at + k * across :])


@njit(nogil=True, cache=True)
def _gather(x, stride, rows, border, out):  # type: ignore[no-untyped-def]
    """Pack the columns ``border`` of ``x`` as relax reads its left side; the last strip is padded."""
    depth = len(border)
    for top in range(0, rows, TILE_ROWS):
        base, height = top * depth, min(TILE_ROWS, rows - top)
        for k in range(depth):
            source = top * stride + border[k]
            for r in range(TILE_ROWS):
                pack_entry(out, base + k * TILE_ROWS + r, x[source + min(r, height - 1) * stride])


@njit(nogil=True, cache=True)
def _seed(x, row, position, starts, parents, part, tables, table, wide):  # type: ignore[no-untyped-def]
    """Fill in the lengths from ``position`` to its own part and to the parts above."""
    j = part[position]
    at = table[j] + (position - starts[j]) * wide[j]
    while j >= 0:
        first, size = starts[j], starts[j + 1] - starts[j]
        x[row + first : row + first + size] = tables[at : at + size]
        at += size
        j = parents[j]


@njit(nogil=True, cache=True)
def _emit(x, places, shift, source, limit, sentinel, row):  # type: ignore[no-untyped-def]
    """Copy a finished row into ``row``, in the caller's order of columns; unreachable entries become ``sentinel``."""
    if len(shift) == 0:
        for v in range(len(places)):
            value = x[places[v]]
            row[v] = sentinel if value > limit else value
    else:
        for v in range(len(places)):
            value = x[places[v]]
            row[v] = sentinel if value == sentinel else value + (shift[v] - shift[source])


@njit(nogil=True, cache=True)
def _sweep_items(  # type: ignore[no-untyped-def]
    worker, counter, high, walk, sources, places, shift, limit, sentinel, out, by_bits, pack, edges
):
    """Take ``high`` rows at a time from ``counter`` and sweep them until none is left.

    ``walk``: ``starts``, ``parents``, ``ends`` and ``borders`` of the parts; the part of each position; the tables of
    all parts, where each part's table begins and how long its rows are; the packed lengths from borders to parts, and
    where each part's begin.  ``places``: the position of each vertex.
    """
    starts, parents, ends, borders, part, tables, table, wide, across, packed = walk
    n = starts[-1]
    width = TILE_VECTORS * VECTOR_BYTES // tables.itemsize
    stride = (n + width - 1) // width * width
    x = np.empty(high * stride, tables.dtype)
    deepest = min(DEPTH, np.max(ends[1:] - ends[:-1])) if len(parents) else 0
    left = np.empty((high + TILE_ROWS) * deepest, pack.dtype)
    edge = edges[worker]
    while True:
        first = fetch_add(counter.ctypes.data, high)
        if first >= len(sources):
            break
        rows = min(high, len(sources) - first)
        x[: rows * stride] = sentinel
        for i in range(rows):
            _seed(x, i * stride, places[sources[first + i]], starts, parents, part, tables, table, wide)
        for j in range(len(parents) - 1, -1, -1):
            depth, columns = ends[j + 1] - ends[j], starts[j + 1] - starts[j]
            padded = (columns + width - 1) // width * width
            for k in range(0, depth, DEPTH):
                deep = min(DEPTH, depth - k)
                _gather(x, stride, rows, borders[ends[j] + k : ends[j] + k + deep], left)
                right = across[packed[j] + k * padded : packed[j] + (k + deep) * padded]
                above = -rows - columns  # no tile counts as lying below the diagonal
                relax_packed(x, starts[j], stride, rows, columns, deep, above, by_bits, left, right, edge)
        for i in range(rows):
            row = x[i * stride : i * stride + n]
            _emit(row, places, shift, sources[first + i], limit, sentinel, out[first + i])


class Sweeper(CpuBackend):
    """A CPU backend whose searches sweep over the parts of one graph.

    Args:
        parts: the parts of that graph.
        lengths: lengths within and between its parts.
        nonnegative: whether no arc is negative.
        threads: threads that share the work; None for one a usable processor.
    """

    def __init__(self, parts: Parts, lengths: Lengths, *, nonnegative: bool, threads: int | None = None) -> None:
        super().__init__(threads)
        self._position = parts.position
        self._nonnegative = nonnegative
        self._parts = _flatten(parts, lengths)

    def search(
        self,
        arcs: Arcs,
        sources: npt.NDArray[np.int64],
        out: Array,
        *,
        unit: bool = False,  # noqa: ARG002
        targets: npt.NDArray[np.int64] | None = None,
        cutoff: float | None = None,
    ) -> None:
        """Compute whole rows of the matrix.

        Args:
            arcs: only the potentials are read; they turn reduced lengths into distances.
            sources: vertex indices, shape (rows,).
            out: of a working type, shape (rows, n); row i receives the distances from ``sources[i]``.
            unit: has no effect.
            targets: must be None.
            cutoff: must be None.

        Raises:
            ValueError: there are targets or a cutoff.
        """
        if targets is not None or cutoff is not None:
            raise ValueError("a sweep makes whole rows; they are cut on their way to the sink")
        kind = work_type(out.dtype)
        high = max(1, min(SWEEP_ROWS, -(-len(sources) // self.threads)))
        limit = kind.largest if self._nonnegative or not kind.integer else kind.largest_signed
        shift = np.empty(0) if arcs.potentials is None else np.ascontiguousarray(arcs.potentials)
        packs = self._space.packs(out.dtype)
        rows = (np.ascontiguousarray(sources, np.int64), self._position, shift)
        ends = (out.dtype.type(limit), kind.sentinel(), out)
        counter = np.zeros(1, np.int64)
        self._team.run(_sweep_items, counter, high, self._parts, *rows, *ends, self._nonnegative, packs[0][0], packs[2])


def _flatten(parts: Parts, lengths: Lengths) -> tuple[Array, ...]:
    """The argument ``walk`` of :func:`_sweep_items`."""
    dtype, sizes, depths, wide = lengths.flat.dtype, parts.sizes, parts.depths, parts.widths()
    table = np.cumsum(sizes * wide) - sizes * wide
    width = TILE_VECTORS * VECTOR_BYTES // dtype.itemsize
    entries = depths * (-(-sizes // width) * width)
    at = np.cumsum(entries) - entries
    packed = aligned(int(entries.sum()) * dtype.itemsize).view(dtype)
    for i in range(parts.count):
        across = lengths.across[i]
        if across.size:
            depth, columns = across.shape
            _pack_across(np.ascontiguousarray(across).reshape(-1), depth, columns, packed, at[i])
    walk = (parts.starts, parts.parents, parts.ends, parts.borders, parts.owner())
    return (*walk, lengths.flat, table, wide, packed, at)
