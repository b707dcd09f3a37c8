"""Divides the memory that may be used among tables, the rows that are computed from them, and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from storage.errors import DoesNotFit

if TYPE_CHECKING:
    from engine.api.prepared_matrix import PreparedMatrix

#: Most bytes of a band of whole rows, unless one row for each thread takes more.
BAND_BYTES: Final = 64 << 20
#: Number of arrays as large as a band that are in memory at the same time: the band that is reduced, its rows with
#: columns in the order of computation, the group of rows that is being computed, and the wanted columns of this group.
BANDS: Final = 4


@dataclass(frozen=True)
class MemoryShares:
    """How the memory for a question is divided.

    Attributes:
        tables: bytes of tables that may be in memory.
        band: bytes of a band of rows.
        needed: bytes of tables, bands, results of elimination, and results of the question together.
    """

    tables: int
    band: int
    needed: int


def smaller(asked: int | None, opened: int | None) -> int | None:
    """Return the smaller of two budgets; either may be None for no limit."""
    return opened if asked is None else asked if opened is None else min(asked, opened)


def usual_band(memory: int | None) -> int:
    """Return the bytes of a band of rows for questions whose memory is not divided by :func:`memory_shares`.

    ``memory`` is the number of bytes that tables and answers may take together; None for no limit.
    """
    return BAND_BYTES if memory is None else min(BAND_BYTES, memory // (2 * BANDS))


def memory_shares(matrix: PreparedMatrix, rows: int, memory: int, kept: int, what: str) -> MemoryShares:
    """Divide the memory; if tables and bands of the usual size do not fit together, make the bands smaller first.

    Args:
        matrix: the prepared graph.
        rows: the number of rows wanted.
        memory: bytes that may be used.
        kept: bytes of results.
        what: the name of the results, for the message.

    Raises:
        DoesNotFit: with the smallest bands, memory does not hold the lines of one source and one target; the error
            names the least memory that would suffice.
    """
    row, left = matrix.row_bytes, memory - kept - matrix.swept_bytes
    smallest = row * max(1, min(matrix.threads, rows))
    band = max(smallest, min(BAND_BYTES, row * rows))
    least, most = matrix.least_held, matrix.most_held
    while band > smallest and left - BANDS * band < most and BANDS * band > min(left // 2, left - least):
        band = max(smallest, band // 2)
    tables = min(most, left - BANDS * band)
    if tables < least:
        needed = memory - left + BANDS * band + least
        raise DoesNotFit(
            f"{what} of {matrix.path} need {needed} bytes of memory for lines of its tables, some rows and the result, "
            f"and {memory} may be used; measure the graph itself, or ask for less",
            resource="memory",
            needed=needed,
            available=memory,
        )
    return MemoryShares(tables, band, memory - left + BANDS * band + tables)
