"""Computes sums and maxima of the rows of breadth-first searches from the bits that hold distances (decision 113)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.bit_rows import WORDS, count_word, lowest_bit
from engine.graph.kernels import njit
from engine.model.dtypes import work_type
from engine.model.rows import FoundFacts, ReducedLevels, RowFacts

Indices = npt.NDArray[np.int64]

#: The number of sources of a block.
BITS: Final = 64 * WORDS
#: The number of binary digits of a distance; steps are counted up to 255.
PLANES: Final = 8
#: The number of squares, each of 64 sources and 64 columns, that are transposed together before their entries of the
#: rows are written.
SQUARES: Final = 4
#: Row numbers in the array of a block's facts; the digits of the largest distances begin at row ``DIGITS``.
REACHED, SUM, LARGEST, FARTHEST, DIGITS = range(5)


@njit(nogil=True, cache=True)
def begin_facts(arrivals, steps, facts):  # type: ignore[no-untyped-def]
    """Set the largest distance of each source, which is the last step in which it reached a vertex, and clear all other
    facts.

    Args:
        arrivals: rows of bits: for each step the sources that reached a vertex in it.
        steps: the number of steps.
        facts: int64, shape (``WORDS``, ``DIGITS`` + ``PLANES``, 64), changed in place: for each word of sources one row
            each of ``REACHED``, ``SUM``, ``LARGEST`` and ``FARTHEST``, then a row for each digit of the largest
            distances, -1 (all bits set) for the digit 1.
    """
    facts[:] = 0
    facts[:, FARTHEST] = -1
    for step in range(1, steps + 1):
        for w in range(WORDS):
            word = arrivals[step, w]
            while word != 0:
                facts[w, LARGEST, lowest_bit(word)] = step
                word &= word - np.uint64(1)
    for w in range(WORDS):
        for p in range(PLANES):
            facts[w, DIGITS + p] = -((facts[w, LARGEST] >> p) & 1)


@njit(nogil=True, cache=True)
def tell_squares(squares, start, used, kept, column, facts, work):  # type: ignore[no-untyped-def]
    """Add 64 columns to the facts of 64 sources.

    Args:
        squares: uint64: bit k of a word is the digit of the distance to column ``column`` + k.
        start: index of the first word of the lowest digit, which has one word per source; the words of each further
            digit lie ``SQUARES`` squares later.
        used: the number of digits.
        kept: uint64: a bit is set for each of the 64 columns that exists.
        column: the first column.
        facts: the facts of one word of sources, as in :func:`begin_facts`, changed in place.
        work: uint64, shape (128,): work space.
    """
    some, same, sums, reached, farthest = work[:64], work[64:], facts[SUM], facts[REACHED], facts[FARTHEST]
    some[:] = 0
    same[:] = kept
    for p in range(used):
        at = start + p * SQUARES * 64
        digits, far = squares[at : at + 64], facts[DIGITS + p]
        for j in range(64):  # without branches, so that LLVM vectorises the loop
            word = digits[j] & kept
            some[j] |= word
            same[j] &= ~(word ^ np.uint64(far[j]))
            sums[j] += count_word(word) << p
    hit = np.uint64(0)
    for j in range(64):
        reached[j] += count_word(some[j])
        same[j] &= some[j]
        hit |= same[j]
    if hit != 0:
        for j in range(64):
            if same[j] != 0 and farthest[j] < 0:
                farthest[j] = column + lowest_bit(same[j])


@njit(nogil=True, cache=True)
def count_levels(squares, start, used, steps, kept, levels, terms):  # type: ignore[no-untyped-def]
    """Count how many of 64 columns are at each distance from 64 sources.

    A distance is a number of ``used`` binary digits.  The columns with each value of the lower digits are found once,
    and likewise those with each value of the upper digits.  The columns at a distance are then those in both sets.

    Args:
        squares, start, used, kept: the digits of the distances, and which columns exist, as in :func:`tell_squares`.
        steps: the largest distance.
        levels: int64, shape (``steps`` + 1 or more, 64), changed in place: a count for each distance and source.
        terms: uint64, shape (2, 2^(``PLANES`` / 2), 64): work space.
    """
    low = min(used, PLANES // 2)
    terms[0, 0] = kept
    terms[1, 0] = ~np.uint64(0)
    for p in range(used):
        half, digit = (0, p) if p < low else (1, p - low)
        at = start + p * SQUARES * 64
        for term in range(1 << digit):
            without, with_ = terms[half, term], terms[half, term + (1 << digit)]
            for j in range(64):
                word = squares[at + j]
                with_[j] = without[j] & word
                without[j] &= ~word
    for level in range(1, steps + 1):
        lower, upper, counts = terms[0, level & ((1 << low) - 1)], terms[1, level >> low], levels[level]
        for j in range(64):  # without branches, so that LLVM vectorises the loop
            counts[j] += count_word(lower[j] & upper[j])


@njit(nogil=True, cache=True)
def renumber_farthest(facts, columns):  # type: ignore[no-untyped-def]
    """Replace the farthest column of each source, an index of ``columns``, by the column at this index.

    Args:
        facts: the facts of a block, as in :func:`begin_facts`, changed in place.
        columns: int32: the columns that were read, ascending.
    """
    for w in range(WORDS):
        for j in range(64):
            if facts[w, FARTHEST, j] >= 0:
                facts[w, FARTHEST, j] = columns[facts[w, FARTHEST, j]]


def facts_found(
    rows: int,
    dtype: np.dtype[np.generic],
    counts: Indices,
    facts: Indices,
    levels: Indices | None = None,
    reduced: ReducedLevels | None = None,
) -> FoundFacts:
    """Return the facts of a block as :class:`engine.model.rows.FoundFacts`.

    Args:
        rows: the number of rows of the block.
        dtype: the type of the distances in the block.
        counts: int64: how many distances in the block are 0, 1, ...; the count for 0 is always 0.
        facts: the facts in the layout of :func:`begin_facts`.
        levels: shape (``WORDS``, distances, 64): how many targets are at each distance from each source; None if the
            rows were written.
        reduced: the sums and nearest vertices that were found in place of the rows; None if the rows were written.
    """
    reached, sums, largest, farthest = facts[:, :DIGITS].transpose(1, 0, 2).reshape(DIGITS, BITS)[:, :rows].copy()
    lengths = np.flatnonzero(counts)
    numbers = counts[lengths]

    def count(width: float, bins: Indices) -> int:
        np.add.at(bins, np.minimum((lengths / width).astype(np.int64), len(bins) - 1), numbers)
        return 0

    sums = sums if work_type(dtype).integer else sums.astype(np.float64)
    by_row = None if levels is None else levels.transpose(0, 2, 1).reshape(BITS, -1)[:rows].copy()
    return FoundFacts(RowFacts(reached, sums, largest.astype(dtype), farthest), count, by_row, reduced)
