"""How a matrix lies in a GPU's memory, and how much of it a solve takes: what planner and backend agree on.  Pure."""

from __future__ import annotations

from typing import Final

#: Largest n that one launch of the single kernel solves fastest (measured; docs/kernels.md).
SINGLE: Final = 3584
#: Most k of one launch of relax: bounds the packed copies of its operands.
SLAB: Final = 4096
#: Arcs that are sent and scattered at a time.
PIECE: Final = 1 << 20
#: Device memory beside the arrays that are counted: kernels, flags, what the allocator rounds up.
SLACK: Final = 64 * 2**20


def tile_side(itemsize: int) -> int:
    """The multiple to which a solved matrix is padded, so that no block of relax meets a ragged edge."""
    return 256 if itemsize == 2 else 128


def padded_side(n: int, itemsize: int) -> int:
    """Rows and columns of the padded matrix."""
    return -(-n // tile_side(itemsize)) * tile_side(itemsize)


def pivot_width(n: int) -> int:
    """The width of a pivot block: wide enough for relax, narrow enough for closing to hide behind it (measured)."""
    return 512 if n <= 12288 else 1024


def base_bytes(n: int, rows: int, itemsize: int) -> int:
    """The padded matrix, a piece of arcs, the row pointers and the facts of every row."""
    return padded_side(n, itemsize) ** 2 * itemsize + PIECE * (4 + itemsize) + 8 * n + 40 * rows + SLACK


def rounds_bytes(n: int, itemsize: int) -> int:
    """Packed pivot block, panels and column panels of rounds; small matrices need none."""
    if n <= SINGLE:
        return 0
    side, width, word = padded_side(n, itemsize), pivot_width(n), max(itemsize, 4)
    return width * (side + width) * (word + itemsize) + 2 * width * side * word


def product_bytes(n: int, itemsize: int) -> int:
    """Packed operands of one slab of a product of n x n matrices."""
    side = padded_side(n, itemsize)
    return min(SLAB, side) * side * (max(itemsize, 4) + itemsize)
