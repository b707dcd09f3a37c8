"""Kernels that gather facts of finished rows (targets reached, sums, eccentricity, farthest target, histogram)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.vector import copy_run
from engine.graph.kernels import njit
from engine.model.dtypes import work_type

Array = npt.NDArray[np.generic]
Integers = npt.NDArray[np.int64]
Columns = npt.NDArray[np.int32]


#: The number of entries whose bins are found before any of them is counted.
CHUNK: Final = 1024
#: Number of histograms that are filled in rotation and added up at the end, so that a count need not wait for the
#: previous count to be stored.
HISTOGRAMS: Final = 8
#: If a block of sources reaches fewer than 1 / SPARSE of all columns, only these columns are read; all other columns
#: are filled with *unreachable*.
SPARSE: Final = 2
#: An empty selection of columns means all columns.
EVERY: Final = np.empty(0, np.int32)
#: Number of maxima that are kept side by side, because LLVM does not vectorise a single maximum of floats.
ABREAST: Final = 64


# Three separate loops without branches: LLVM vectorises each of them, and together they are several times as fast as
# one loop.


@njit(nogil=True, cache=True)
def _reached(row, unreachable):  # type: ignore[no-untyped-def]
    """Return the number of entries that are distances."""
    count = np.int32(0)
    for j in range(len(row)):
        count = np.int32(count + np.int32(row[j] != unreachable))
    return count


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _sum(row, unreachable, total):  # type: ignore[no-untyped-def]
    """Return ``total`` plus all distances; floats are added in an order that suits vectors."""
    nothing = row.dtype.type(0)
    for j in range(len(row)):
        total += row[j] if row[j] != unreachable else nothing
    return total


@njit(nogil=True, cache=True)
def _top(row, unreachable, lowest, tops):  # type: ignore[no-untyped-def]
    """Return the largest distance in ``row``, ``lowest`` if there is none; ``tops`` is work space of ``ABREAST``
    entries.
    """
    whole = len(row) - len(row) % ABREAST
    tops[:] = lowest
    for first in range(0, whole, ABREAST):
        for k in range(ABREAST):
            x = row[first + k]
            x = lowest if x == unreachable else x
            tops[k] = x if x > tops[k] else tops[k]
    top = lowest
    for x in tops:
        top = max(top, x)
    for x in row[whole:]:
        top = max(top, lowest if x == unreachable else x)
    return top


@njit(nogil=True, cache=True)
def _first(row, value, mine):  # type: ignore[no-untyped-def]
    """Return the first index other than ``mine`` whose entry is ``value``; the caller makes sure that there is one."""
    for first in range(0, len(row), ABREAST):
        some = row[first : first + ABREAST]
        found = np.int32(0)
        for k in range(len(some)):
            found |= np.int32(some[k] == value)
        if found:
            for k in range(len(some)):
                if some[k] == value and first + k != mine:
                    return first + k
    return -1


@njit(nogil=True, cache=True)
def _picked(row, columns, space):  # type: ignore[no-untyped-def]
    """Return the entries of ``row`` in ``columns``, copied into ``space``; ``row`` itself if ``columns`` is empty."""
    if len(columns) == 0:
        return row
    for k in range(len(columns)):
        space[k] = row[columns[k]]
    return space


@njit(nogil=True, cache=True)
def _facts(block, rows, own, columns, nowhere, facts):  # type: ignore[no-untyped-def]
    """Fill ``facts`` (reached, sums, largest, farthest) for ``rows`` of ``block``.

    Only ``columns`` are read, and ``farthest`` receives indices of ``columns``; if ``columns`` is empty, all columns
    are read. ``nowhere`` holds *unreachable* and the lowest value of the type.
    """
    unreachable, lowest = nowhere
    reached, sums, largest, farthest = facts
    tops, space = np.empty(ABREAST, block.dtype), np.empty(len(columns), block.dtype)
    for i in range(len(rows)):
        row, mine = _picked(block[rows[i]], columns, space), own[i]
        reached[i] = _reached(row, unreachable) - (mine >= 0)
        sums[i] = _sum(row, unreachable, sums[i])
        farthest[i], largest[i] = -1, unreachable
        if mine >= 0:
            sums[i] -= row[mine]
        if reached[i] > 0:
            top = _top(row, unreachable, lowest, tops)
            if (
                mine >= 0 and top == row[mine]
            ):  # with negative arcs, the distance 0 of the source itself may be larger than all others
                before, after = row[:mine], row[mine + 1 :]
                top = max(_top(before, unreachable, lowest, tops), _top(after, unreachable, lowest, tops))
            farthest[i], largest[i] = _first(row, top, mine), top


@njit(nogil=True, cache=True)
def _bins(row, unreachable, scale, last, bins):  # type: ignore[no-untyped-def]
    """Find the bin of each entry of ``row``: all bins from ``last`` on are merged; negative and unreachable entries get
    separate bins.

    ``scale`` holds the inverse of the width, and the number that is first added to each entry; bins are computed in its
    type.
    """
    inverse, shift = scale
    number = scale.dtype.type
    top, below, nowhere = number(last), np.int32(last + 1), np.int32(last + 2)
    for j in range(len(row)):  # without branches, so that LLVM vectorises the loop
        x = row[j]
        place = (number(x) + shift) * inverse
        bin_ = np.int32(place if place < top else top)
        bin_ = bin_ if x >= 0 else below
        bins[j] = bin_ if x != unreachable else nowhere


@njit(nogil=True, cache=True)
def _count(block, rows, own, columns, unreachable, scale, counts):  # type: ignore[no-untyped-def]
    space, last = np.empty(len(columns), block.dtype), np.int32(len(counts) - 1)
    found = np.zeros((HISTOGRAMS, len(counts) + 2), np.int64)
    bins = np.zeros(CHUNK, np.int32)
    for i in range(len(rows)):
        row = _picked(block[rows[i]], columns, space)
        for first in range(0, len(row), CHUNK):
            some = row[first : first + CHUNK]
            if _reached(some, unreachable) == 0:
                continue
            _bins(some, unreachable, scale, last, bins)
            whole = len(some) - len(some) % HISTOGRAMS
            for j in range(0, whole, HISTOGRAMS):
                for k in range(HISTOGRAMS):
                    found[k, np.uint64(bins[j + k])] += 1  # unsigned, so that numba adds no code for negative indices
            for j in range(whole, len(some)):
                found[0, bins[j]] += 1
        if own[i] >= 0:
            _bins(row[own[i] : own[i] + 1], unreachable, scale, last, bins)
            found[0, bins[0]] -= 1
    for k in range(HISTOGRAMS):
        counts += found[k, : last + 1]
    return found[:, last + 1].sum()


def row_facts(
    block: Array, own: Integers, rows: Integers | None = None, columns: Columns = EVERY
) -> tuple[Integers, Array, Array, Integers]:
    """Return facts of rows of ``block``, in which the source itself does not count.

    Args:
        block: of a working type, shape (block's rows, columns).
        own: shape (rows,): the column of the source of each row; -1 for none.
        rows: shape (rows,): the rows of ``block`` to look at; None for all.
        columns: the columns to read, ascending, if all others are known to be unreachable; ``own`` and the farthest
            columns are then indices of this array.  Empty for all columns.

    Returns:
        Four arrays of shape (rows,): targets reached; sum of finite distances, int64 or float64; largest finite
        distance, *unreachable* if no target is reached; first column at that distance, -1 if no target is reached.
    """
    kind = work_type(block.dtype)
    rows = np.arange(len(block)) if rows is None else rows
    reached, farthest = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    sums = np.zeros(len(rows), np.int64 if kind.integer else np.float64)
    largest = np.zeros(len(rows), block.dtype)
    lowest = -np.inf if not kind.integer else 0 if block.dtype.kind == "u" else -(2**31)
    facts = (reached, sums, largest, farthest)
    _facts(block, rows, own, columns, (kind.sentinel(), block.dtype.type(lowest)), facts)
    return facts


def count_rows(
    block: Array,
    own: Integers,
    width: float,
    counts: Integers,
    rows: Integers | None = None,
    columns: Columns = EVERY,
) -> int:
    """Add finite distances of ``block`` to a histogram; the source itself does not count.

    Before the bin of a whole number is computed, 0.5 is added: on the edge of a bin, rounding of the inverse width
    might put the number into the previous bin.  So float32 suffices for whole numbers of 16 bits.

    Args:
        block: of a working type, shape (block's rows, columns).
        own: shape (rows,): the column of the source of each row; -1 for none.
        width: width of a bin; the first one begins at 0.
        counts: shape (bins,), changed in place; the last bin also counts everything above it.
        rows: shape (rows,): the rows of ``block`` to look at; None for all.
        columns: the columns to read, ascending, if all others are known to be unreachable; empty for all columns.

    Returns:
        The number of distances below 0.
    """
    kind = work_type(block.dtype)
    rows = np.arange(len(block)) if rows is None else rows
    number = np.float32 if block.dtype.itemsize == 2 else np.float64
    scale = np.array([1 / width, 0.5 if kind.integer else 0.0], number)
    return int(_count(block, rows, own, columns, kind.sentinel(), scale, counts))


@njit(nogil=True, cache=True)
def to_floats(block, unreachable, out):  # type: ignore[no-untyped-def]
    """Copy integers into floats, with +inf for *unreachable*, in one pass.

    Args:
        block: of an integer working type, shape (rows, columns).
        unreachable: the sentinel, of the same type.
        out: floats, shape (rows, columns).
    """
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            x = block[i, j]
            out[i, j] = np.inf if x == unreachable else x


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def add_inverses(block, unreachable, sums):  # type: ignore[no-untyped-def]
    """Add to ``sums``, for each row, the sum of 1 / distance over the distances that are not zero.

    Args:
        block: of a working type, shape (rows, columns).
        unreachable: the value for *no path*, of the same type.
        sums: float64, shape (rows,), changed in place.
    """
    nothing = block.dtype.type(0)
    for i in range(block.shape[0]):
        total = 0.0
        for j in range(block.shape[1]):  # without branches, so that LLVM vectorises the loop
            x = block[i, j]
            some = x != nothing and x != unreachable  # noqa: PLR1714 - numba knows no tuple of both types
            total += (1.0 if some else 0.0) / (x if some else 1.0)
        sums[i] += total


@njit(nogil=True, cache=True)
def expand_rows(out, rows, columns, sentinel):  # type: ignore[no-untyped-def]
    """Move the first entries of each row to the given columns, and fill all other columns.

    Args:
        out: of a working type, shape (rows, columns), changed in place.
        rows: int64: the rows of ``out`` to change.
        columns: int32, ascending: where the first, second, ... entry belongs.
        sentinel: the value of all other entries, in the type of ``out``.
    """
    first = np.empty(len(columns), out.dtype)
    for i in rows:
        row = out[i]
        copy_run(first, 0, row, 0, len(columns))
        row[:] = sentinel
        for k in range(len(columns)):
            row[columns[k]] = first[k]
