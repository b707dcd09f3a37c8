"""How a matrix lies in a GPU's memory, and how much of it a solve takes: what planner and backend agree on.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
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


#: Rows that a sweep over parts does at once, at most: enough for launches to cost little.  Multiples of ROW_STEP.
SWEEP_BATCH: Final = 8192
ROW_STEP: Final = 128
#: A sweep's batch is at most such a share of all rows, so that most rows leave while others are swept.
SWEEP_SHARE: Final = 6


@dataclass(frozen=True)
class SweepLayout:
    """What a sweep over parts keeps on the device.

    Attributes:
        n: vertices; rows: sources; itemsize: bytes an entry.
        entries: numbers in tables and packed lengths; stride: entries of a row in the order of the parts.
        deepest: vertices of the largest border.
    """

    n: int
    rows: int
    itemsize: int
    entries: int
    stride: int
    deepest: int

    def bytes(self, batch: int) -> int:
        """Device memory with batches of so many rows."""
        out = min(batch, self.rows) * self.n * (2 if batch < self.rows else 1)
        gathered = (self.deepest + 16) * batch * max(4, self.itemsize)
        return (self.entries + self.stride * batch + out) * self.itemsize + gathered + 24 * self.n + 64 * batch + SLACK

    def batch(self, memory: int) -> int:
        """Rows of a batch: as many as suit, fewer where memory is short."""
        share = -(-self.rows // SWEEP_SHARE // ROW_STEP) * ROW_STEP
        batch = min(SWEEP_BATCH, max(ROW_STEP, share))
        while batch > ROW_STEP and self.bytes(batch) > memory:
            batch = max(ROW_STEP, batch // 2 // ROW_STEP * ROW_STEP)
        return batch
