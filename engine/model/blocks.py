"""Blocks of a square matrix: ranges of vertices, cut at multiples of a given number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: The buffers into which a backend packs blocks for a product take at most this number of bytes for each thread.
PACK_BYTES: Final = 4 * 2**20
#: Blocks are cut at multiples of this number of vertices, so that they hold whole vectors of any working type.
GRAIN: Final = 64
#: Sizes for Floyd-Warshall in memory on processors.  LEAF: vertices of a block that a backend closes at once.  PIVOT:
#: width of the pivot block of the blocked order.  STRIPE: columns (or rows) of a panel that are copied and relaxed at
#: once.
LEAF: Final = 256
PIVOT: Final = 768
STRIPE: Final = 1024
Span = tuple[int, int]


def cut(span: Span, size: int) -> Iterator[Span]:
    """Cut ``span`` into spans of at most ``size`` vertices, in order."""
    start, stop = span
    return ((i, min(stop, i + size)) for i in range(start, stop, size))


def triangle(n: int) -> int:
    """Return the number of entries on and above the diagonal of an n x n block."""
    return n * (n + 1) // 2
