"""The operations relax, close and transpose on the CPU: packed min-plus products around the register tile of
``vector``.

Blocking follows Goto and van de Geijn (2008): a strip of packed B stays in the first-level cache while the strips of
packed A are read from the second.  An *item* is a block of C that one thread relaxes.  The thread packs the blocks of A
and B for its item, so items need no barrier between them: a thread that loses its processor delays the other threads by
one item at most.  Every entry of C is written by one thread, in one order, so results do not depend on the number of
threads.

A kernel takes a matrix as a flat array, the index of its first entry, and the number of entries from one row to the
next, so one compiled form serves every shape and leading dimension.  One compiled form also serves signed and
non-negative floats.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.devices.cpu.team import Team, fetch_add
from engine.devices.cpu.vector import (
    ROW,
    SQUARE,
    TILE_ROWS,
    TILE_VECTORS,
    TRANSPOSED,
    VECTOR_BYTES,
    pack_entry,
    pack_row,
    pack_square,
    packed_dtype,
    relax_row,
    relax_tile,
    transpose_square,
)
from engine.graph.kernels import njit
from engine.model.backend import Array

#: The number of columns of A, and of rows of B, that are packed at once: a strip of B (TILE_VECTORS vectors per row)
#: takes 32 KiB at most.
DEPTH: Final = 32768 // (TILE_VECTORS * max(VECTOR_BYTES, 32))
#: The number of rows of A that are packed at once.
BLOCK_ROWS: Final = 240 // TILE_ROWS * TILE_ROWS
#: The largest number of bytes of a row of C in one item, and so of a row of B that the item packs.
ITEM_BYTES: Final = 4096
#: The number of rows of B that packing reads side by side: as many as the hardware prefetches at once.
STREAMS: Final = 8
#: The number of items per thread if there is enough work: more items balance threads better, fewer need less packing.
ITEMS: Final = 3
#: A product of fewer updates than this is done by the calling thread alone.  This number of updates, four times
#: ``EACH``, takes less than 1 ms.
ALONE: Final = 2**24
#: The least number of updates that each thread of a product does.  So many updates take one or two tenths of a
#: millisecond, several times as long as waking a thread.
EACH: Final = 2**22
#: A matrix with fewer entries than this is transposed by the calling thread alone.
TRANSPOSED_ALONE: Final = 2**17
#: The number of rows in a band of a transpose: this number of entries of the narrowest type fills a cache line.
BAND: Final = 32


@njit(nogil=True, cache=True)
def pack_left(a, start, stride, rows, depth, out):  # type: ignore[no-untyped-def]
    """Pack ``rows`` x ``depth`` of A in strips of TILE_ROWS rows, column by column; the last strip is padded.

    Args:
        a, start, stride: flat array, index of the first entry, number of entries from row to row.
        rows, depth: rows and columns to pack.
        out: flat array; receives the strips.
    """
    for top in range(0, rows, TILE_ROWS):
        base, first = top * depth, start + top * stride
        height = min(TILE_ROWS, rows - top)
        whole = depth // SQUARE * SQUARE if height == TILE_ROWS else 0
        for k in range(0, whole, SQUARE):
            for r in range(0, TILE_ROWS, SQUARE):
                pack_square(out, base + k * TILE_ROWS + r, a, first + r * stride + k, stride)
        for k in range(whole, depth):
            for r in range(TILE_ROWS):
                pack_entry(out, base + k * TILE_ROWS + r, a[first + min(r, height - 1) * stride + k])


@njit(nogil=True, cache=True)
def pack_right(b, start, stride, depth, columns, out):  # type: ignore[no-untyped-def]
    """Pack ``depth`` x ``columns`` of B in strips as wide as the register tile; the last strip is padded with zeros.

    Args:
        b, start, stride: flat array, index of the first entry, number of entries from row to row.
        depth, columns: rows and columns to pack.
        out: flat array; receives the strips.
    """
    width = TILE_VECTORS * VECTOR_BYTES // b.itemsize
    for few in range(0, depth, STREAMS):
        for first in range(0, columns, width):
            wide = min(width, columns - first)
            for k in range(few, min(depth, few + STREAMS)):
                into, source = first * depth + k * width, start + k * stride + first
                if wide == width:
                    pack_row(out, into, b, source)
                else:
                    for j in range(wide):
                        out[into + j] = b[source + j]
                    for j in range(wide, width):
                        out[into + j] = 0


@njit(nogil=True, cache=True)
def _relax_edge(c, start, stride, height, wide, left, left0, right, right0, depth, by_bits, edge):  # type: ignore[no-untyped-def]
    """Relax a register tile that lies partly outside C, by copying the part that lies inside."""
    width = TILE_VECTORS * VECTOR_BYTES // c.itemsize
    for r in range(height):
        for j in range(wide):
            edge[r * width + j] = c[start + r * stride + j]
    relax_tile(edge, 0, width, left, left0, right, right0, depth, by_bits)
    for r in range(height):
        for j in range(wide):
            c[start + r * stride + j] = edge[r * width + j]


@njit(nogil=True, cache=True)
def relax_packed(c, start, stride, rows, columns, depth, below, by_bits, left, right, edge):  # type: ignore[no-untyped-def]
    """Relax ``rows`` x ``columns`` of C with packed blocks, except register tiles that lie wholly below the diagonal.

    Args:
        c, start, stride: flat array, index of the first entry, number of entries from row to row.
        rows, columns: size of the block of C.
        depth: columns of A, rows of B.
        below: by how many rows the first entry lies below the diagonal; ``-rows - columns`` or less to relax all tiles.
        by_bits: whether floats may be compared by their bits, because no entry is negative.
        left, right: packed A and packed B.
        edge: one register tile of work space.
    """
    width = TILE_VECTORS * VECTOR_BYTES // c.itemsize
    for first in range(0, columns, width):
        wide = min(width, columns - first)
        for top in range(0, rows, TILE_ROWS):
            if below + top >= first + width:
                break
            height = min(TILE_ROWS, rows - top)
            corner = start + top * stride + first
            if height == TILE_ROWS and wide == width:
                relax_tile(c, corner, stride, left, top * depth, right, first * depth, depth, by_bits)
            else:
                _relax_edge(
                    c, corner, stride, height, wide, left, top * depth, right, first * depth, depth, by_bits, edge
                )


@njit(nogil=True, cache=True)
def relax_item(  # type: ignore[no-untyped-def]
    c, c0, c_stride, a, a0, a_stride, b, b0, b_stride, rows, columns, depth, below, by_bits, left, right, edge
):
    """Relax one item, ``rows`` x ``columns`` of C and at most ITEM_BYTES wide, over the whole ``depth``."""
    for k in range(0, depth, DEPTH):
        deep = min(DEPTH, depth - k)
        pack_right(b, b0 + k * b_stride, b_stride, deep, columns, right)
        for top in range(0, rows, BLOCK_ROWS):
            high = min(BLOCK_ROWS, rows - top)
            pack_left(a, a0 + top * a_stride + k, a_stride, high, deep, left)
            relax_packed(c, c0 + top * c_stride, c_stride, high, columns, deep, below + top, by_bits, left, right, edge)


@njit(nogil=True, cache=True)
def _relax_items(  # type: ignore[no-untyped-def]
    worker, counter, item_rows, item_columns, c, c_stride, a, a_stride, b, b_stride, shape, upper, by_bits, packs
):
    """Take items of C from ``counter`` and relax them until none is left."""
    rows, columns, depth = shape
    left, right, edge = packs[0][worker], packs[1][worker], packs[2][worker]
    across = (columns + item_columns - 1) // item_columns
    items = across * ((rows + item_rows - 1) // item_rows)
    while True:
        item = fetch_add(counter.ctypes.data, 1)
        if item >= items:
            break
        i, j = item // across * item_rows, item % across * item_columns
        below = i - j if upper else -rows - columns
        high, wide = min(item_rows, rows - i), min(item_columns, columns - j)
        if below < wide:
            relax_item(
                c, i * c_stride + j, c_stride, a, i * a_stride, a_stride, b, j, b_stride,
                high, wide, depth, below, by_bits, left, right, edge,
            )  # fmt: skip


@njit(nogil=True, cache=True)
def _close_leaf(d, start, stride, n, leaf, by_bits):  # type: ignore[no-untyped-def]
    """Run Floyd-Warshall on at most ROW vertices, in a copy with rows of ROW entries.

    Rounding can make the length of a cycle of length zero negative; the diagonal is reset to zero, because otherwise
    every later round would add that error again.
    """
    for i in range(n):
        for j in range(n):
            leaf[i * ROW + j] = d[start + i * stride + j]
        for j in range(n, ROW):
            leaf[i * ROW + j] = 0
    for k in range(n):
        leaf[k * ROW + k] = max(leaf[k * ROW + k], 0)
        for i in range(n):
            relax_row(leaf, i * ROW, k * ROW, leaf[i * ROW + k], by_bits)
    for i in range(n):
        leaf[i * ROW + i] = max(leaf[i * ROW + i], 0)
        for j in range(n):
            d[start + i * stride + j] = leaf[i * ROW + j]


@njit(nogil=True, cache=True)
def better_of(one, other, by_bits):  # type: ignore[no-untyped-def]
    """Return the smaller of two entries; if ``by_bits`` is None, they are products, and the larger one is returned."""
    return max(one, other) if by_bits is None else min(one, other)


@njit(nogil=True, cache=True)
def _relax_alone(c, c0, a0, b0, stride, rows, columns, depth, by_bits, left, right, edge):  # type: ignore[no-untyped-def]
    """Relax a block of ``c`` by the product of two blocks of ``c``.  One of the two may be the relaxed block itself if
    the other is closed.

    The product may then read entries that it has already lowered.  These are lengths of walks, too, so the result is
    the same.
    """
    widest = ITEM_BYTES // c.itemsize
    for j in range(0, columns, widest):
        wide = min(widest, columns - j)
        relax_item(
            c, c0 + j, stride, c, a0, stride, c, b0 + j, stride,
            rows, wide, depth, -rows - wide, by_bits, left, right, edge,
        )  # fmt: skip


@njit(nogil=True, cache=True)
def close_whole(d, start, stride, n, by_bits, left, right, edge, leaf):  # type: ignore[no-untyped-def]
    """Close a matrix by Kleene's recursion: close the first diagonal block, relax the other blocks by it, close the
    second diagonal block, relax the other blocks by that one.

    An explicit stack replaces recursive calls, because another kernel cannot call a recursive kernel that was loaded
    from numba's cache.
    """
    stack = np.empty((64, 3), np.int64)  # unfinished blocks: first entry, vertices, closed diagonal blocks
    stack[0, 0], stack[0, 1], stack[0, 2], top = start, n, 0, 0
    while top >= 0:
        a11, size, closed = stack[top, 0], stack[top, 1], stack[top, 2]
        if size <= ROW:
            _close_leaf(d, a11, stride, size, leaf, by_bits)
            top -= 1
            continue
        h = (size // 2 + ROW - 1) // ROW * ROW
        g = size - h
        a12, a21, a22 = a11 + h, a11 + h * stride, a11 + h * stride + h
        stack[top, 2] += 1
        if closed == 0:
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = a11, h, 0
        elif closed == 1:
            _relax_alone(d, a12, a11, a12, stride, h, g, h, by_bits, left, right, edge)
            _relax_alone(d, a21, a21, a11, stride, g, h, h, by_bits, left, right, edge)
            _relax_alone(d, a22, a21, a12, stride, g, g, h, by_bits, left, right, edge)
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = a22, g, 0
        else:
            _relax_alone(d, a21, a22, a21, stride, g, h, g, by_bits, left, right, edge)
            _relax_alone(d, a12, a12, a22, stride, h, g, g, by_bits, left, right, edge)
            _relax_alone(d, a11, a12, a21, stride, h, h, g, by_bits, left, right, edge)
            for i in range(h):
                d[a11 + i * stride + i] = max(d[a11 + i * stride + i], 0)
            top -= 1


@njit(nogil=True, cache=True)
def _transpose_band(out, out_stride, a, a_stride, top, bottom, columns, lower):  # type: ignore[no-untyped-def]
    """Fill rows ``top`` to ``bottom`` of ``out`` with columns of ``a``, a few rows of ``a`` at a time."""
    for j in range(0, min(columns, bottom) if lower else columns, TRANSPOSED):
        whole = j + TRANSPOSED <= (min(columns, top + 1) if lower else columns)
        for i in range(top, bottom, TRANSPOSED):
            if whole and i + TRANSPOSED <= bottom:
                transpose_square(out, i * out_stride + j, out_stride, a, j * a_stride + i, a_stride)
            else:
                for y in range(i, min(bottom, i + TRANSPOSED)):
                    for x in range(j, min(columns, j + TRANSPOSED, y if lower else columns)):
                        out[y * out_stride + x] = a[x * a_stride + y]


@njit(nogil=True, cache=True)
def _transpose_items(worker, counter, out, out_stride, a, a_stride, rows, columns, lower):  # type: ignore[no-untyped-def]
    """Take bands of ``out`` (``rows`` x ``columns``) from ``counter`` and fill them with the transpose of ``a``."""
    while True:
        top = fetch_add(counter.ctypes.data, 1) * BAND
        if top >= rows:
            break
        _transpose_band(out, out_stride, a, a_stride, top, min(rows, top + BAND), columns, lower)


class Workspace:
    """The pack buffers of all threads, allocated when first needed and viewed as the working type of each call."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._views: dict[np.dtype[np.generic], tuple[Array, ...]] = {}
        self._bytes: list[Array] = []

    def packs(self, dtype: np.dtype[np.generic]) -> tuple[Array, ...]:
        """Return the left, right, edge and leaf buffers for ``dtype``, each of shape (threads, entries)."""
        if dtype not in self._views:
            kinds = (packed_dtype(dtype), dtype, dtype, dtype)
            sizes = _pack_bytes(dtype.itemsize)
            self._bytes = self._bytes or [aligned(self._threads * size) for size in _pack_bytes(8)]
            self._views[dtype] = tuple(
                buffer[: self._threads * size].view(kind).reshape(self._threads, -1)
                for buffer, size, kind in zip(self._bytes, sizes, kinds, strict=True)
            )
        return self._views[dtype]


def _pack_bytes(itemsize: int) -> tuple[int, int, int, int]:
    """Return the bytes per thread of the left, right, edge and leaf buffers, multiples of the size of any vector."""
    left = BLOCK_ROWS * DEPTH * max(4, itemsize)
    return left, DEPTH * ITEM_BYTES, TILE_ROWS * TILE_VECTORS * VECTOR_BYTES, ROW * ROW * itemsize


def aligned(size: int) -> Array:
    """Allocate bytes aligned to vectors, because loading a vector across two cache lines takes twice as long."""
    buffer = np.empty(size + VECTOR_BYTES, np.uint8)
    start = -buffer.ctypes.data % VECTOR_BYTES
    return buffer[start : start + size]


def flat_of(block: Array) -> tuple[Array, int]:
    """Return a matrix as a flat view of its memory, and its row stride in entries.

    Raises:
        ValueError: its rows are not contiguous.
    """
    rows, columns = block.shape
    if block.strides[1] != block.itemsize and columns > 1:
        raise ValueError(f"rows must be contiguous, but neighbours in a row are {block.strides[1]} bytes apart")
    stride = block.strides[0] // block.itemsize if rows > 1 else columns
    flat = np.lib.stride_tricks.as_strided(block, ((rows - 1) * stride + columns,), (block.itemsize,))
    return flat, stride


def item_shape(rows: int, columns: int, itemsize: int, threads: int) -> tuple[int, int]:
    """Return rows and columns of an item: at most ITEM_BYTES wide, and ITEMS items per thread if there is enough
    work.

    Args:
        rows, columns, itemsize: size of C, bytes of an entry.
        threads: the number of threads that share the items.
    """
    tile = TILE_VECTORS * VECTOR_BYTES // itemsize
    across = -(-columns * itemsize // ITEM_BYTES)
    if threads == 1:
        return rows, _share(columns, across, tile)
    down = min(-(-rows // (4 * TILE_ROWS)), -(-ITEMS * threads // across))
    across = max(across, min(-(-columns // (2 * tile)), -(-ITEMS * threads // down)))
    return _share(rows, down, TILE_ROWS), _share(columns, across, tile)


def _share(total: int, parts: int, unit: int) -> int:
    """Return the size of each of ``parts`` equal parts of ``total``, rounded up to a multiple of ``unit``."""
    return -(-total // (parts * unit)) * unit


def sharers(team: Team, updates: int) -> int:
    """Return how many threads of ``team`` should share a product of this number of updates."""
    return min(team.threads, max(2, updates // EACH)) if updates >= ALONE and team.worth_sharing() else 1
