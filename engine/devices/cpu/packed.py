"""Products by a matrix B that is packed once and used many times; all stripes of a round are relaxed by one row panel.

``engine.devices.cpu.relax`` packs B again for each product, which takes as long as relaxing some forty rows of C; with
a packed B, stripes of few rows take hardly longer than their updates.  A packed B consists of blocks of columns, and
each block of slabs of rows, in the order in which the kernels read them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.devices.cpu.relax import (
    BLOCK_ROWS,
    DEPTH,
    ITEM_BYTES,
    ITEMS,
    Workspace,
    flat_of,
    pack_left,
    pack_right,
    relax_packed,
    share,
    sharers,
)
from engine.devices.cpu.team import Team, fetch_add
from engine.devices.cpu.vector import TILE_ROWS, TILE_VECTORS, VECTOR_BYTES
from engine.graph.kernels import njit
from engine.model.backend import Array

#: Fewest rows of C in an item.
_LOW: Final = 4 * TILE_ROWS


@njit(nogil=True, cache=True)
def _padded(columns, itemsize):  # type: ignore[no-untyped-def]
    """Return ``columns`` rounded up to whole strips."""
    width = TILE_VECTORS * VECTOR_BYTES // itemsize
    return (columns + width - 1) // width * width


@njit(nogil=True, cache=True)
def _pack_items(worker, counter, b, b_stride, depth, columns, out):  # type: ignore[no-untyped-def]
    """Take blocks of B, as wide as an item and DEPTH deep, from ``counter`` and pack them."""
    widest = ITEM_BYTES // b.itemsize
    slabs = (depth + DEPTH - 1) // DEPTH
    items = slabs * ((columns + widest - 1) // widest)
    while True:
        item = fetch_add(counter.ctypes.data, 1)
        if item >= items:
            break
        j, k = item // slabs * widest, item % slabs * DEPTH
        wide = min(widest, columns - j)
        into = j * depth + k * _padded(wide, b.itemsize)
        pack_right(b, k * b_stride + j, b_stride, min(DEPTH, depth - k), wide, out[into:])


@njit(nogil=True, cache=True)
def _unpack(out, stride, rows, columns, packed, depth, first):  # type: ignore[no-untyped-def]
    """Undo :func:`_pack_items` for the rows ``first`` to ``first`` + ``rows`` - 1."""
    widest, width = ITEM_BYTES // out.itemsize, TILE_VECTORS * VECTOR_BYTES // out.itemsize
    for j in range(0, columns, widest):
        wide = min(widest, columns - j)
        for row in range(first, first + rows):
            k = row // DEPTH * DEPTH
            deep, slab = min(DEPTH, depth - k), j * depth + k * _padded(wide, out.itemsize)
            for strip in range(0, wide, width):
                source, into = slab + strip * deep + (row - k) * width, (row - first) * stride + j + strip
                for column in range(min(width, wide - strip)):
                    out[into + column] = packed[source + column]


@njit(nogil=True, cache=True)
def _relax_items(  # type: ignore[no-untyped-def]
    worker, counter, item_rows, c, c_stride, a, a_stride, packed, shape, by_bits, packs
):
    """Take items of C from ``counter`` and relax them until none is left."""
    rows, columns, depth = shape
    left, edge = packs[0][worker], packs[2][worker]
    widest = ITEM_BYTES // c.itemsize
    down = (rows + item_rows - 1) // item_rows
    items = down * ((columns + widest - 1) // widest)
    while True:
        item = fetch_add(counter.ctypes.data, 1)
        if item >= items:
            break
        i, j = item % down * item_rows, item // down * widest
        wide, bottom = min(widest, columns - j), min(rows, i + item_rows)
        for k in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - k)
            right = packed[j * depth + k * _padded(wide, c.itemsize) :]
            for top in range(i, bottom, BLOCK_ROWS):
                high = min(BLOCK_ROWS, bottom - top)
                pack_left(a, top * a_stride + k, a_stride, high, deep, left)
                relax_packed(
                    c, top * c_stride + j, c_stride, high, wide, deep, -rows - columns, by_bits, left, right, edge
                )


def packed_entries(depth: int, columns: int, itemsize: int) -> int:
    """Return the number of entries of a packed B, whose last strip is padded.

    Args:
        depth: rows of B.
        columns: columns of B.
        itemsize: bytes per entry.
    """
    width = TILE_VECTORS * VECTOR_BYTES // itemsize
    return depth * (-(-columns // width) * width)


def pack(team: Team, out: Array, b: Array) -> None:
    """Pack ``b`` into ``out``.

    Args:
        team: the threads.
        out: flat, of the type of ``b``, with :func:`packed_entries` entries or more.
        b: shape (depth, columns), rows contiguous.

    Raises:
        ValueError: ``out`` does not suit ``b``.
    """
    depth, columns = b.shape
    if out.dtype != b.dtype or out.ndim != 1 or len(out) < packed_entries(depth, columns, b.itemsize):
        raise ValueError(f"{b.dtype}{b.shape} cannot be packed into {out.dtype}{out.shape}")
    if b.size:
        team.run(_pack_items, np.zeros(1, np.int64), *flat_of(b), depth, columns, out)


def unpack(out: Array, packed: Array, depth: int, first: int) -> None:
    """Copy rows of a packed B to ``out``.

    Args:
        out: shape (rows, columns of B), rows contiguous.
        packed: flat, as :func:`pack` wrote it.
        depth: rows of B.
        first: the row of B that becomes row 0 of ``out``.

    Raises:
        ValueError: types differ, or B has no such rows.
    """
    rows, columns = out.shape
    if out.dtype != packed.dtype or first + rows > depth or len(packed) < packed_entries(depth, columns, out.itemsize):
        raise ValueError(f"{out.dtype}{out.shape} from row {first} on is no part of what is packed")
    if out.size:
        _unpack(*flat_of(out), rows, columns, packed, depth, first)


def relax(team: Team, space: Workspace, c: Array, a: Array, packed: Array, *, nonnegative: bool) -> None:
    """Compute C <- min(C, A (x) B) with a packed B; equal to ``engine.devices.cpu.relax.relax`` to the last bit.

    Args:
        team: the threads.
        space: the buffers of the threads.
        c: shape (rows, columns), changed in place.
        a: shape (rows, depth).
        packed: B, shape (depth, columns), as :func:`pack` wrote it.
        nonnegative: promises that no entry is below zero or -0.0.

    Raises:
        ValueError: shapes or types do not match, or rows are not contiguous.
    """
    (rows, columns), depth = c.shape, a.shape[1]
    if (
        len(a) != rows
        or len(packed) < packed_entries(depth, columns, c.itemsize)
        or not c.dtype == a.dtype == packed.dtype
    ):
        raise ValueError(f"shapes or types do not match: C {c.dtype}{c.shape}, A {a.dtype}{a.shape}")
    if 0 in (rows, columns, depth):
        return
    threads = sharers(team, rows * depth * columns)
    across = -(-columns * c.itemsize // ITEM_BYTES)
    down = max(1, min(-(-rows // _LOW), -(-ITEMS * threads // across)))
    arguments = (
        np.zeros(1, np.int64), share(rows, down, TILE_ROWS), *flat_of(c), *flat_of(a), packed, (rows, columns, depth),
        nonnegative, space.packs(c.dtype),
    )  # fmt: skip
    if threads == 1:
        _relax_items(0, *arguments)
    else:
        team.run(_relax_items, *arguments, most=threads)
