"""One pass over finished rows: how many vertices each source reaches, how far in all, and which is farthest."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from engine.types import work_type

Array = npt.NDArray[np.generic]
Integers = npt.NDArray[np.int64]


#: Entries whose bins are found before any is counted.
CHUNK: Final = 1024
#: Counters of each bin, taken in turn: the next count need not wait for the last one of the same bin.
TURNS: Final = 4


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _top(row, unreachable, lowest):  # type: ignore[no-untyped-def]
    """The largest entry that is a distance; ``lowest`` if none is."""
    top = lowest
    for x in row:  # without branches, so that it becomes vector code
        top = max(top, lowest if x == unreachable else x)
    return top


@njit(nogil=True, cache=True)
def _facts(block, own, unreachable, lowest, reached, sums, largest, farthest):  # type: ignore[no-untyped-def]
    rows, n = block.shape
    for i in range(rows):
        row = block[i]
        count = 0
        total = sums[i]
        for j in range(n):  # without branches, too
            finite = row[j] != unreachable
            count += finite
            total += row[j] if finite else 0
        at = -1
        top = unreachable
        mine = own[i]
        reached[i] = count - (mine >= 0)
        sums[i] = total - (row[mine] if mine >= 0 else 0)
        if reached[i] > 0:
            top = max(_top(row[: max(0, mine)], unreachable, lowest), _top(row[mine + 1 :], unreachable, lowest))
            at = 0
            while row[at] != top or at == mine:
                at += 1
        farthest[i] = at
        largest[i] = top


@njit(nogil=True, cache=True)
def _bins(row, unreachable, inverse, last, bins):  # type: ignore[no-untyped-def]
    """The bin of each entry of ``row``: ``last`` and above for the last one, two more for negative and unreachable."""
    for j in range(len(row)):  # without branches
        x = row[j]
        finite = x != unreachable
        place = np.int32(min((x if finite else 0) * inverse, np.float64(last)))
        place = place if x >= 0 else last + 1
        bins[j] = place if finite else last + 2


@njit(nogil=True, cache=True)
def _count(block, own, unreachable, inverse, counts):  # type: ignore[no-untyped-def]
    n, last = block.shape[1], np.int32(len(counts) - 1)
    found = np.zeros((TURNS, len(counts) + 2), np.int64)
    bins = np.zeros(CHUNK, np.int32)
    for i in range(block.shape[0]):
        for first in range(0, n, CHUNK):
            size = min(CHUNK, n - first)
            _bins(block[i, first : first + size], unreachable, inverse, last, bins)
            for j in range(0, size - size % TURNS, TURNS):
                for turn in range(TURNS):
                    found[turn, bins[j + turn]] += 1
            for j in range(size - size % TURNS, size):
                found[0, bins[j]] += 1
        if own[i] >= 0:
            _bins(block[i, own[i] : own[i] + 1], unreachable, inverse, last, bins)
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
    """Add the finite distances of ``block`` to ``counts``, bins of ``width`` from 0; returns how many lie below 0."""
    return int(_count(block, own, work_type(block.dtype).sentinel(), 1 / width, counts))
