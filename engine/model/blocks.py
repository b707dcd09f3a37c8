"""Blocks of a square matrix: spans of vertices, and the sizes that splits keep to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Most bytes of pack buffers of a backend, for each thread.
PACK_BYTES: Final = 4 * 2**20
#: Splits fall on multiples of this, so that whole vectors of any type fit.
GRAIN: Final = 64
Span = tuple[int, int]


def cut(span: Span, size: int) -> Iterator[Span]:
    """``span`` in parts of at most ``size``."""
    start, stop = span
    return ((i, min(stop, i + size)) for i in range(start, stop, size))


def triangle(n: int) -> int:
    """Entries on and above the diagonal of an n x n block."""
    return n * (n + 1) // 2
