"""One pass over finished rows: how many vertices each source reaches, how far in all, and which is farthest."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from engine.model.dtypes import work_type

Array = npt.NDArray[np.generic]
Integers = npt.NDArray[np.int64]


#: Entries whose bins are found before any is counted.
CHUNK: Final = 1024
#: Counters of each bin, taken in turn: the next count need not wait for the last one of the same bin.
TURNS: Final = 8
#: Largest values that are kept side by side: that of floats becomes vector code no other way.
ABREAST: Final = 64


# Three loops of their own and none with a branch: so each of them becomes vector code, and together they are several
# times as fast as one loop.


@njit(nogil=True, cache=True)
def _reached(row, unreachable):  # type: ignore[no-untyped-def]
    """How many entries are distances."""
    count = np.int32(0)
    for j in range(len(row)):
        count = np.int32(count + np.int32(row[j] != unreachable))
    return count


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _sum(row, unreachable, total):  # type: ignore[no-untyped-def]
    """``total`` and all distances; floats in an order that suits the vectors."""
    nothing = row.dtype.type(0)
    for j in range(len(row)):
        total += row[j] if row[j] != unreachable else nothing
    return total


@njit(nogil=True, cache=True)
def _top(row, unreachable, lowest, tops):  # type: ignore[no-untyped-def]
    """The largest entry that is a distance; ``lowest`` if none is.  ``tops`` is ``ABREAST`` entries of work space."""
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
    """The first place but ``mine`` where ``value`` stands; it does stand somewhere."""
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
def _facts(block, own, unreachable, lowest, reached, sums, largest, farthest):  # type: ignore[no-untyped-def]
    tops = np.empty(ABREAST, block.dtype)
    for i in range(block.shape[0]):
        row, mine = block[i], own[i]
        reached[i] = _reached(row, unreachable) - (mine >= 0)
        sums[i] = _sum(row, unreachable, sums[i])
        farthest[i], largest[i] = -1, unreachable
        if mine >= 0:
            sums[i] -= row[mine]
        if reached[i] > 0:
            top = _top(row, unreachable, lowest, tops)
            if mine >= 0 and top == row[mine]:  # all others may be shorter still, some arcs being negative
                before, after = row[:mine], row[mine + 1 :]
                top = max(_top(before, unreachable, lowest, tops), _top(after, unreachable, lowest, tops))
            farthest[i], largest[i] = _first(row, top, mine), top


@njit(nogil=True, cache=True)
def _bins(row, unreachable, scale, last, bins):  # type: ignore[no-untyped-def]
    """The bin of each entry of ``row``: ``last`` and above for the last one, two more for negative and unreachable.

    ``scale`` holds the inverse of the width and what is added before; both in the type that is counted in.
    """
    inverse, shift = scale
    number = scale.dtype.type
    top, below, nowhere = number(last), np.int32(last + 1), np.int32(last + 2)
    for j in range(len(row)):  # without branches
        x = row[j]
        place = (number(x) + shift) * inverse
        bin_ = np.int32(place if place < top else top)
        bin_ = bin_ if x >= 0 else below
        bins[j] = bin_ if x != unreachable else nowhere


@njit(nogil=True, cache=True)
def _count(block, own, unreachable, scale, counts):  # type: ignore[no-untyped-def]
    n, last = block.shape[1], np.int32(len(counts) - 1)
    found = np.zeros((TURNS, len(counts) + 2), np.int64)
    bins = np.zeros(CHUNK, np.int32)
    for i in range(block.shape[0]):
        for first in range(0, n, CHUNK):
            some = block[i, first : first + CHUNK]
            if _reached(some, unreachable) == 0:
                continue
            _bins(some, unreachable, scale, last, bins)
            whole = len(some) - len(some) % TURNS
            for j in range(0, whole, TURNS):
                for turn in range(TURNS):
                    found[turn, np.uint64(bins[j + turn])] += 1  # unsigned: no index counts from the end
            for j in range(whole, len(some)):
                found[0, bins[j]] += 1
        if own[i] >= 0:
            _bins(block[i, own[i] : own[i] + 1], unreachable, scale, last, bins)
            found[0, bins[0]] -= 1
    for turn in range(TURNS):
        counts += found[turn, : last + 1]
    return found[:, last + 1].sum()


def row_facts(block: Array, own: Integers) -> tuple[Integers, Array, Array, Integers]:
    """Facts of each row of ``block`` (rows, columns); column ``own[i]`` is the source of row i itself, -1 for none.

    Returns, per row and leaving out the source itself: targets reached, sum of finite distances (int64 or float64),
    largest finite distance, and the column at that distance (-1 if none is reached).
    """
    kind = work_type(block.dtype)
    rows = len(block)
    reached, farthest = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    sums = np.zeros(rows, np.int64 if kind.integer else np.float64)
    largest = np.zeros(rows, block.dtype)
    lowest = -np.inf if not kind.integer else 0 if block.dtype.kind == "u" else -(2**31)
    _facts(block, own, kind.sentinel(), block.dtype.type(lowest), reached, sums, largest, farthest)
    return reached, sums, largest, farthest


def count_rows(block: Array, own: Integers, width: float, counts: Integers) -> int:
    """Add the finite distances of ``block`` to ``counts``, bins of ``width`` from 0; returns how many lie below 0.

    Whole numbers are counted half a unit further on, so that none stands on an edge, where a rounded inverse might put
    it into the bin before; 16 bits of them are then told apart in float32.
    """
    kind = work_type(block.dtype)
    number = np.float32 if block.dtype.itemsize == 2 else np.float64
    scale = np.array([1 / width, 0.5 if kind.integer else 0.0], number)
    return int(_count(block, own, kind.sentinel(), scale, counts))
