"""The kernels that reduce rows of distances to measures; each reads some rows of a block while they are in a cache."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.devices.cpu.row_facts import add_inverses
from engine.graph.kernels import njit

#: Entries that are compared with the limit together; only if one of them is below it, they are examined one by one.
CHUNK: Final = 64
#: Entries that fit the first-level cache, in which they stay while they are compared with each limit.
STRETCH: Final = 2048
#: The numbers of the decays other than ``step``.
EXPONENTIAL, LINEAR, LOGISTIC = 1, 2, 3
#: Up to this many entries, insertion sort is faster than partitioning.
_SMALL: Final = 16


@njit(nogil=True, cache=True)
def _below(row, limit):  # type: ignore[no-untyped-def]
    """Return the number of entries below ``limit``."""
    count = np.int32(0)
    for j in range(len(row)):  # LLVM vectorises this loop, because it has no branches
        count = np.int32(count + np.int32(row[j] < limit))
    return count


@njit(nogil=True, cache=True)
def count_within(block, rows, own, limits, out):  # type: ignore[no-untyped-def]
    """Count the entries below each of some limits; the source itself does not count.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row; -1 for none.
        limits: of the same type as ``block``, at most *unreachable*.
        out: int64, shape (rows, limits), receives the counts.
    """
    for i in range(len(rows)):
        row, mine = block[rows[i]], own[i]
        out[i] = 0
        for first in range(0, len(row), STRETCH):
            some = row[first : first + STRETCH]
            for k in range(len(limits)):
                out[i, k] += _below(some, limits[k])
        for k in range(len(limits)):
            if mine >= 0 and row[mine] < limits[k]:
                out[i, k] -= 1


@njit(nogil=True, cache=True)
def sum_inverses(block, rows, unreachable, out):  # type: ignore[no-untyped-def]
    """Sum 1 / distance, over the distances of each row that are not zero.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        unreachable: the value for *no path*, of the same type.
        out: float64, shape (rows,), receives the sums.
    """
    out[:] = 0
    for i in range(len(rows)):
        add_inverses(block[rows[i] : rows[i] + 1], unreachable, out[i : i + 1])


@njit(nogil=True, cache=True)
def _picked(row, columns, space):  # type: ignore[no-untyped-def]
    """Copy the entries of ``row`` in ``columns`` to ``space``, and return them; if they are all, return ``row``."""
    if len(columns) == len(row):
        return row
    for k in range(len(columns)):
        space[k] = row[columns[k]]
    return space


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _weighed(row, limit, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of the entries below ``limit``."""
    total = 0.0
    for j in range(len(row)):  # no branches, so that LLVM vectorises this loop
        total += weights[j] if row[j] < limit else 0.0
    return total


@njit(nogil=True, cache=True)
def sum_within(block, rows, columns, limits, weights, out):  # type: ignore[no-untyped-def]
    """Sum the weights of the columns whose entries lie below each of some limits.

    Args:
        block: of a working type, shape (block's rows, block's columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        columns: int32, ascending: the columns that have weights.
        limits: of the same type as ``block``, at most *unreachable*.
        weights: float64, shape (kinds, columns).
        out: float64, shape (rows, kinds, limits), receives the sums.
    """
    space = np.empty(len(columns), block.dtype)
    for i in range(len(rows)):
        row = _picked(block[rows[i]], columns, space)
        out[i] = 0
        for first in range(0, len(row), STRETCH):
            some = row[first : first + STRETCH]
            for kind in range(len(weights)):
                held = weights[kind, first : first + STRETCH]
                for k in range(len(limits)):
                    out[i, kind, k] += _weighed(some, limits[k], held)


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _dot(one, other):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(len(one)):
        total += one[j] * other[j]
    return total


@njit(nogil=True, cache=True)
def _fade(row, unreachable, decay, middle, value, shares):  # type: ignore[no-untyped-def]
    """Fill ``shares`` with the factor by which an opportunity at each distance counts; 0 where there is no path."""
    if decay == EXPONENTIAL:
        rate = -np.log(2.0) / middle
        for j in range(len(row)):
            shares[j] = 0.0 if row[j] == unreachable else np.exp(rate * row[j])
    elif decay == LINEAR:
        end = middle + value / 2
        for j in range(len(row)):
            share = min(1.0, max(0.0, (end - row[j]) / value))
            shares[j] = 0.0 if row[j] == unreachable else share
    else:
        rate = np.pi / (value * np.sqrt(3.0))
        top = 1 + np.exp(-middle * rate)
        for j in range(len(row)):
            shares[j] = 0.0 if row[j] == unreachable else top / (1 + np.exp((row[j] - middle) * rate))


@njit(nogil=True, cache=True)
def sum_faded(block, rows, columns, unreachable, decay, weights, out):  # type: ignore[no-untyped-def]
    """Sum the weights of the columns, each multiplied by the value of a decay function at the column's distance.

    Args:
        block: of a working type, shape (block's rows, block's columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        columns: int32, ascending: the columns that have weights.
        unreachable: the value for *no path*, of the same type.
        decay: the number of the decay (``EXPONENTIAL``, ``LINEAR``, ``LOGISTIC``), its second parameter, and, float64,
            half-lives, middles of slopes, or inflection points.
        weights: float64, shape (kinds, columns).
        out: float64, shape (rows, kinds, middles), receives the sums.
    """
    number, value, middles = decay
    space, shares = np.empty(len(columns), block.dtype), np.empty(len(columns))
    for i in range(len(rows)):
        row = _picked(block[rows[i]], columns, space)
        for k in range(len(middles)):
            _fade(row, unreachable, number, middles[k], value, shares)
            for kind in range(len(weights)):
                out[i, kind, k] = _dot(shares, weights[kind])


@njit(nogil=True, cache=True)
def _select(values, first, last, k):  # type: ignore[no-untyped-def]
    """Bring the entry of rank ``k`` to its place in ``values[first:last]``; none before it is larger then."""
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


@njit(nogil=True, cache=True)
def find_quantiles(block, rows, own, unreachable, shares, out):  # type: ignore[no-untyped-def]
    """Find quantiles: the smallest distance d of a row such that at least a share of its finite distances is <= d.

    A row without finite distances gets NaN.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row, which does not count; -1 for none.
        unreachable: the value for *no path*, of the same type as ``block``.
        shares: int64, shape (shares, 2): numerators and denominators, ascending as shares.
        out: float64, shape (rows, shares), receives the distances.
    """
    values = np.empty(block.shape[1], block.dtype)
    for i in range(len(rows)):
        row, mine, count = block[rows[i]], own[i], 0
        for j in range(len(row)):
            values[count] = row[j]
            count += (row[j] != unreachable) & (j != mine)
        first = 0
        for k in range(len(shares)):
            out[i, k] = np.nan
            if count > 0:
                place = max(0, (shares[k, 0] * count + shares[k, 1] - 1) // shares[k, 1] - 1)
                _select(values, first, count, place)
                out[i, k] = values[place]
                first = place


@njit(nogil=True, cache=True)
def find_nearest(block, rows, own, unreachable, columns, distances):  # type: ignore[no-untyped-def]
    """Find the columns of the smallest distances of each row, the first ones where distances are equal.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row, which does not count; -1 for none.
        unreachable: the value for *no path*, of the same type as ``block``.
        columns: int64, shape (rows, most), receives them, nearest first; -1 where there are fewer.
        distances: float64, shape (rows, most), receives the distances; NaN where there are fewer.
    """
    most = columns.shape[1]
    near = np.empty(most, block.dtype)
    for i in range(len(rows)):
        row, mine, count, worst = block[rows[i]], own[i], 0, unreachable
        columns[i] = -1
        distances[i] = np.nan
        for first in range(0, len(row), CHUNK):
            some = row[first : first + CHUNK]
            if _below(some, worst) == 0:
                continue
            for j in range(len(some)):
                x = some[j]
                if x < worst and first + j != mine:
                    at = min(count, most - 1)
                    while at > 0 and near[at - 1] > x:
                        near[at], columns[i, at] = near[at - 1], columns[i, at - 1]
                        at -= 1
                    near[at], columns[i, at] = x, first + j
                    count = min(count + 1, most)
                    worst = near[most - 1] if count == most else unreachable
        for k in range(count):
            distances[i, k] = near[k]
