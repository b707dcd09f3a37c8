"""The kernel that finds quantiles of rows of distances.

The entries of a row are counted in bins between the least and the largest distance.  The counts tell which bin holds
the wanted entry, and only the entries of that bin are partitioned.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.graph.kernels import njit

#: Number of bins; one more bin holds the unreachable entries and the entry of the source itself.
_BINS: Final = 1024
#: Number of histograms that are filled in rotation, so that a count need not wait for the previous one to be stored.
_ROTATED: Final = 4
#: Number of entries whose bins are compared with the wanted bin at once; they are examined one by one only if one of
#: them matches.
_TOGETHER: Final = 64
#: Up to this many entries, insertion sort is faster than partitioning.
_SMALL: Final = 16
#: The largest inverse width of a bin; an infinite inverse width, multiplied by 0, would be NaN.
_STEEPEST: Final = 1e300


@njit(nogil=True, cache=True)
def _select(values, first, last, k):  # type: ignore[no-untyped-def]
    """Reorder ``values[first:last]`` so that ``values[k]`` has the value that it would have after sorting, and no entry
    before it is larger.
    """
    while last - first > _SMALL:
        middle = (first + last) // 2
        a, b, c = values[first], values[middle], values[last - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = first, last - 1
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if k <= j:
            last = j + 1
        elif k >= i:
            first = i
        else:
            return
    for i in range(first + 1, last):
        x, j = values[i], i
        while j > first and values[j - 1] > x:
            values[j] = values[j - 1]
            j -= 1
        values[j] = x


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _span(row, unreachable):  # type: ignore[no-untyped-def]
    """Return the least and the largest distance of a row; the least is *unreachable* if the row has no distance."""
    least = largest = unreachable
    for x in row:
        if x != unreachable:
            largest = x
            break
    for j in range(len(row)):  # without branches, so that LLVM vectorises the loop
        x = row[j]
        least = min(x, least)
        x = largest if x == unreachable else x
        largest = max(largest, x)
    return least, largest


@njit(nogil=True, cache=True)
def _place(row, unreachable, least, inverse, bins):  # type: ignore[no-untyped-def]
    """Find the bin of each entry; a larger distance is never in a lower bin."""
    top = np.float64(_BINS - 1)
    for j in range(len(row)):  # without branches, so that LLVM vectorises the loop
        x = row[j]
        place = min(top, (np.float64(x) - least) * inverse)
        bins[j] = np.int32(place if x != unreachable else _BINS)


@njit(nogil=True, cache=True)
def _count(bins, found):  # type: ignore[no-untyped-def]
    """Count the entries in each bin, in the first row of ``found``."""
    found[:] = 0
    whole = len(bins) - len(bins) % _ROTATED
    for j in range(0, whole, _ROTATED):
        for k in range(_ROTATED):
            found[k, np.uint64(bins[j + k])] += 1  # unsigned, so that numba makes no code for negative indices
    for j in range(whole, len(bins)):
        found[0, bins[j]] += 1
    for k in range(1, _ROTATED):
        found[0] += found[k]


@njit(nogil=True, cache=True)
def _collect(row, bins, wanted, values):  # type: ignore[no-untyped-def]
    """Copy the entries of a bin to ``values``, and return their number."""
    count = 0
    for first in range(0, len(row), _TOGETHER):
        some = bins[first : first + _TOGETHER]
        hit = np.int32(0)
        for j in range(len(some)):
            hit |= np.int32(some[j] == wanted)
        if hit:
            for j in range(len(some)):
                if some[j] == wanted:
                    values[count] = row[first + j]
                    count += 1
    return count


@njit(nogil=True, cache=True)
def find_quantiles(block, rows, own, unreachable, shares, out):  # type: ignore[no-untyped-def]
    """Find quantiles: the smallest distance d of a row such that at least a share of its finite distances is <= d.

    A row without finite distances gets NaN.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row, which does not count; -1 for none.
        unreachable: the value for *no path*, of the same type as ``block``.
        shares: int64, shape (shares, 2): the numerator and denominator of each share, the shares in ascending order.
        out: float64, shape (rows, shares), receives the distances.
    """
    values, bins = np.empty(block.shape[1], block.dtype), np.empty(block.shape[1], np.int32)
    found = np.empty((_ROTATED, _BINS + 1), np.int32)
    for i in range(len(rows)):
        row = block[rows[i]]
        low, high = _span(row, unreachable)
        least, wide = np.float64(low), np.float64(high) - np.float64(low)
        inverse = min(_STEEPEST, (_BINS - 1) / wide) if wide > 0 else 0.0
        _place(row, unreachable, least, inverse, bins)
        if own[i] >= 0:
            bins[own[i]] = _BINS
        _count(bins, found)
        count = found[0, :_BINS].sum()
        inside = before = size = 0
        known = -1
        for k in range(len(shares)):
            out[i, k] = np.nan
            if count == 0:
                continue
            place = max(0, (shares[k, 0] * count + shares[k, 1] - 1) // shares[k, 1] - 1)
            while before + found[0, inside] <= place:
                before += found[0, inside]
                inside += 1
            if known != inside:
                size, known = _collect(row, bins, inside, values), inside
            _select(values, 0, size, place - before)
            out[i, k] = values[place - before]
