"""One pass over finished rows: how many vertices each source reaches, how far in all, and which is farthest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from engine.types import work_type

Array = npt.NDArray[np.generic]
Integers = npt.NDArray[np.int64]


@njit(nogil=True, cache=True)
def _facts(block, own, unreachable, reached, sums, largest, farthest):  # type: ignore[no-untyped-def]
    rows, n = block.shape
    for i in range(rows):
        row = block[i]
        count = 0
        total = sums[i]
        for j in range(n):  # without branches, so that it becomes vector code
            finite = row[j] != unreachable
            count += finite
            total += row[j] if finite else 0
        at = -1
        top = unreachable
        for j in range(n):
            x = row[j]
            if x != unreachable and j != own[i] and (at < 0 or x > top):
                top = x
                at = j
        reached[i] = count - (own[i] >= 0)
        sums[i] = total - (row[own[i]] if own[i] >= 0 else 0)
        farthest[i] = at
        largest[i] = top


@njit(nogil=True, cache=True)
def _count(block, own, unreachable, inverse, counts):  # type: ignore[no-untyped-def]
    below = 0
    last = len(counts) - 1
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            x = block[i, j]
            if x != unreachable and j != own[i]:
                if x < 0:
                    below += 1
                else:
                    counts[min(last, int(x * inverse))] += 1
    return below


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
    _facts(block, own, kind.sentinel(), reached, sums, largest, farthest)
    return reached, sums, largest, farthest


def count_rows(block: Array, own: Integers, width: float, counts: Integers) -> int:
    """Add the finite distances of ``block`` to ``counts``, bins of ``width`` from 0; returns how many lie below 0."""
    return int(_count(block, own, work_type(block.dtype).sentinel(), 1 / width, counts))
