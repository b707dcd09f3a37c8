"""The kernels that reduce rows of distances to measures; each reads a few rows of a block, which then stay in a cache
for the next kernel.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from engine.devices.cpu.row_facts import add_inverses
from engine.graph.kernels import njit

#: Number of entries that are compared with a value at once; they are examined one by one only if one of them matches.
CHUNK: Final = 64
#: Number of entries that fit the first-level cache; they stay there while they are compared with each limit.
STRETCH: Final = 2048
#: Number of entries whose factors are looked up at once; with three kinds of weights they fit the first-level cache.
SHORT: Final = 1024
#: The numbers that stand for decay functions in kernels; ``step`` has no number.
EXPONENTIAL, LINEAR, LOGISTIC = 1, 2, 3
#: The coefficients of f, f^2, ... in the Taylor series of 2^f; the first term left out is below 2^-52 for |f| <= 1/2.
_T: Final = tuple(math.log(2.0) ** k / math.factorial(k) for k in range(1, 13))
_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12 = _T
#: A float64 of magnitude below 2^51 is rounded to a whole number by adding this constant; the lowest bits of the sum
#: then hold that number.
_ROUND: Final = 1.5 * 2.0**52
#: The exponents between which 2^y is a normal number.
_LEAST, _MOST = -1022.0, 1023.0
#: Factors up to this number become 0.  So unreachable targets, whose exponents are _LEAST or _MOST, count 0.
_NOTHING: Final = 2.0**-1021


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
def _holds(some, value):  # type: ignore[no-untyped-def]
    """Return whether one of a few entries is ``value``."""
    found = np.int32(0)
    for j in range(len(some)):  # no branches, so that LLVM vectorises this loop
        found |= np.int32(some[j] == value)
    return found != 0


@njit(nogil=True, cache=True)
def find_first(block, rows, own, values, vertices, out):  # type: ignore[no-untyped-def]
    """Find the first vertex whose entry is a given value, in rows whose columns are not in the order of the vertices.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row, which does not count; -1 for none.
        values: of the type of ``block``, shape (rows,): the value to find in each row.
        vertices: int64, shape (columns,): the vertex in each column; a column without a vertex has a number that is
            larger than all vertices.
        out: int64, shape (rows,): receives the vertices; rows that hold -1 here are skipped.
    """
    for i in range(len(rows)):
        if out[i] < 0:
            continue
        row, value, first = block[rows[i]], values[i], np.int64(len(vertices))
        for start in range(0, len(row), CHUNK):
            some = row[start : start + CHUNK]
            if not _holds(some, value):
                continue
            for j in range(len(some)):
                if some[j] == value and start + j != own[i]:
                    first = min(first, vertices[start + j])
        out[i] = first


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
    """Return the entries of ``row`` in ``columns``: ``row`` itself if that is all columns, else a copy in ``space``."""
    if len(columns) == len(row):
        return row
    for k in range(len(columns)):
        space[k] = row[columns[k]]
    return space


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _weighed(row, limit, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of the entries below ``limit``, in the type of the weights."""
    kind = weights.dtype.type
    nothing, total = kind(0), kind(0)
    for j in range(len(row)):  # no branches, so that LLVM vectorises this loop
        total = kind(total + (weights[j] if row[j] < limit else nothing))
    return total


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _weighed_four(row, limits, weights, sums):  # type: ignore[no-untyped-def]
    """Add the results of :func:`_weighed` for four limits to four ``sums``; every weight and entry is loaded once."""
    kind = weights.dtype.type
    l0, l1, l2, l3 = limits[0], limits[1], limits[2], limits[3]
    nothing, s0, s1, s2, s3 = kind(0), kind(0), kind(0), kind(0), kind(0)
    for j in range(len(row)):
        x, weight = row[j], weights[j]
        s0 = kind(s0 + (weight if x < l0 else nothing))
        s1 = kind(s1 + (weight if x < l1 else nothing))
        s2 = kind(s2 + (weight if x < l2 else nothing))
        s3 = kind(s3 + (weight if x < l3 else nothing))
    sums[0] += s0
    sums[1] += s1
    sums[2] += s2
    sums[3] += s3


@njit(nogil=True, cache=True)
def sum_within(block, rows, columns, limits, weights, out):  # type: ignore[no-untyped-def]
    """Sum the weights of the columns whose entries lie below each of some limits.

    Args:
        block: of a working type, shape (block's rows, block's columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        columns: int32, ascending: the columns that have weights.
        limits: of the same type as ``block``, at most *unreachable*.
        weights: float64, or int32 where int32 holds the sum of all magnitudes, shape (kinds, columns).
        out: float64, shape (rows, kinds, limits), receives the sums.
    """
    space = np.empty(len(columns), block.dtype)
    fours = len(limits) - len(limits) % 4
    for i in range(len(rows)):
        row = _picked(block[rows[i]], columns, space)
        out[i] = 0
        for first in range(0, len(row), STRETCH):
            some = row[first : first + STRETCH]
            for kind in range(len(weights)):
                held = weights[kind, first : first + STRETCH]
                for k in range(0, fours, 4):
                    _weighed_four(some, limits[k : k + 4], held, out[i, kind, k : k + 4])
                for k in range(fours, len(limits)):
                    out[i, kind, k] += _weighed(some, limits[k], held)


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _dot(one, other):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(len(one)):
        total += one[j] * other[j]
    return total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _powers(exponents, whole, bits):  # type: ignore[no-untyped-def]
    """Replace each exponent, from ``_LEAST`` to ``_MOST``, by 2 to that power, within about 2 units of the last digit.

    Args:
        exponents: float64, shape (m,), changed in place.
        whole: float64, shape (m,): work space.
        bits: ``whole`` viewed as int64.
    """
    for j in range(len(exponents)):  # three loops without branches: LLVM vectorises each of them
        y = exponents[j]
        rounded = y + _ROUND
        f = y - (rounded - _ROUND)
        p = _T8 + f * (_T9 + f * (_T10 + f * (_T11 + f * _T12)))
        p = _T2 + f * (_T3 + f * (_T4 + f * (_T5 + f * (_T6 + f * (_T7 + f * p)))))
        whole[j] = rounded
        exponents[j] = 1.0 + f * (_T1 + f * p)
    for j in range(len(exponents)):
        bits[j] = (bits[j] << np.int64(52)) + np.int64(0x3FF0000000000000)
    for j in range(len(exponents)):
        exponents[j] *= whole[j]


@njit(nogil=True, cache=True)
def _fade(row, unreachable, decay, middle, value, shares, whole):  # type: ignore[no-untyped-def]
    """Fill ``shares`` with the factors by which opportunities are multiplied at the distances in ``row``.  Where there
    is no path, the factor is 0.

    Args:
        row: distances, shape (m,).
        unreachable: the value for *no path*.
        decay: ``EXPONENTIAL``, ``LINEAR`` or ``LOGISTIC``.
        middle: half-life of an exponential decay, middle of the slope of a linear one, inflection point of a logistic
            one.
        value: width of the slope of a linear decay, or standard deviation of a logistic one.
        shares: float64, shape (m,), receives the factors.
        whole: float64, shape (m,): work space.
    """
    if decay == LINEAR:
        end = middle + value / 2
        for j in range(len(row)):
            share = min(1.0, max(0.0, (end - row[j]) / value))
            shares[j] = 0.0 if row[j] == unreachable else share
        return
    rate = -1 / middle if decay == EXPONENTIAL else np.pi / (value * np.sqrt(3.0) * np.log(2.0))
    shift, nowhere = (0.0, _LEAST) if decay == EXPONENTIAL else (middle, _MOST)
    for j in range(len(row)):
        y = nowhere if row[j] == unreachable else (row[j] - shift) * rate
        shares[j] = min(_MOST, max(_LEAST, y))
    _powers(shares, whole, whole.view(np.int64))
    top = 1 + np.exp(-middle * rate * np.log(2.0))
    for j in range(len(row)):
        share = shares[j] if decay == EXPONENTIAL else top / (1 + shares[j])
        shares[j] = share if share > _NOTHING else 0.0


@njit(nogil=True, cache=True)
def fade_all(distances, unreachable, decay, tables):  # type: ignore[no-untyped-def]
    """Fill a table for each middle with the factors of ``distances``, such as all distances that a narrow type can
    hold.

    Args:
        distances: of a working type, shape (m,).
        unreachable: the value for *no path*.
        decay: the number of the decay, its second parameter and the middles, as in :func:`sum_faded`.
        tables: float64, shape (middles, m), receives the factors.
    """
    number, value, middles = decay
    for k in range(len(middles)):
        _fade(distances, unreachable, number, middles[k], value, tables[k], np.empty(len(distances)))


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _one(some, table, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of some columns, each times the factor of its distance."""
    total = 0.0
    for j in range(len(some)):
        total += table[some[j]] * weights[j]
    return total


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _three(some, table, first, second, third):  # type: ignore[no-untyped-def]
    """Return the sums of :func:`_one` for three kinds of weights; every factor is looked up once."""
    s0, s1, s2 = 0.0, 0.0, 0.0
    for j in range(len(some)):
        share = table[some[j]]
        s0 += share * first[j]
        s1 += share * second[j]
        s2 += share * third[j]
    return s0, s1, s2


@njit(nogil=True, cache=True)
def sum_looked_up(block, rows, columns, tables, weights, out):  # type: ignore[no-untyped-def]
    """Do what :func:`sum_faded` does, with factors from tables.

    Args:
        block: uint16, shape (block's rows, block's columns).
        rows, columns, weights, out: the rows to look at, the columns that have weights, their weights, and the sums,
            all as in :func:`sum_faded`.
        tables: float64, shape (middles, 2^16): the factor of each distance.
    """
    kinds, whole = len(weights), len(columns) == block.shape[1]
    space = np.empty(SHORT, block.dtype)
    out[:] = 0
    for first in range(0, len(columns), SHORT):  # the weights of a stretch stay in the first-level cache for all rows
        last = min(first + SHORT, len(columns))
        for i in range(len(rows)):
            row = block[rows[i]]
            some = row[first:last] if whole else _picked(row, columns[first:last], space[: last - first])
            for k in range(len(tables)):
                table, kind = tables[k], 0
                while kind + 3 <= kinds:
                    held = weights[kind, first:last], weights[kind + 1, first:last], weights[kind + 2, first:last]
                    sums = _three(some, table, *held)
                    out[i, kind, k] += sums[0]
                    out[i, kind + 1, k] += sums[1]
                    out[i, kind + 2, k] += sums[2]
                    kind += 3
                for other in range(kind, kinds):
                    out[i, other, k] += _one(some, table, weights[other, first:last])


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
    space, shares, whole = np.empty(len(columns), block.dtype), np.empty(STRETCH), np.empty(STRETCH)
    for i in range(len(rows)):
        row = _picked(block[rows[i]], columns, space)
        out[i] = 0
        for first in range(0, len(row), STRETCH):
            some = row[first : first + STRETCH]
            here = shares[: len(some)]
            for k in range(len(middles)):
                _fade(some, unreachable, number, middles[k], value, here, whole[: len(some)])
                for kind in range(len(weights)):
                    out[i, kind, k] += _dot(here, weights[kind, first : first + STRETCH])


@njit(nogil=True, cache=True)
def _up_to(row, limit):  # type: ignore[no-untyped-def]
    """Return the number of entries that are at most ``limit``."""
    count = np.int32(0)
    for j in range(len(row)):  # LLVM vectorises this loop, because it has no branches
        count = np.int32(count + np.int32(row[j] <= limit))
    return count


@njit(nogil=True, cache=True)
def find_nearest(block, rows, own, unreachable, vertices, columns, distances):  # type: ignore[no-untyped-def]
    """Find the columns of the smallest distances of each row; of ties, the first columns.

    Args:
        block: of a working type, shape (block's rows, columns).
        rows: int64, shape (rows,): the rows of ``block`` to look at.
        own: int64, shape (rows,): the column of the source of each row, which does not count; -1 for none.
        unreachable: the value for *no path*, of the same type as ``block``.
        vertices: int64, shape (columns,): the vertex in each column; vertices are then found instead of columns.  Empty
            to find columns.
        columns: int64, shape (rows, most), receives the columns or vertices, nearest first; -1 where there are fewer.
        distances: float64, shape (rows, most), receives the distances; NaN where there are fewer.
    """
    most, usual = columns.shape[1], len(vertices) == 0
    near = np.empty(most, block.dtype)
    for i in range(len(rows)):
        row, mine, count, worst = block[rows[i]], own[i], 0, unreachable
        columns[i] = -1
        distances[i] = np.nan
        for first in range(0, len(row), CHUNK):
            some = row[first : first + CHUNK]
            if (_below(some, worst) if usual or count < most else _up_to(some, worst)) == 0:
                continue
            for j in range(len(some)):
                x, v = some[j], first + j if usual else vertices[first + j]
                if (x < worst or (count == most and x == worst and v < columns[i, most - 1])) and first + j != mine:
                    at = min(count, most - 1)
                    while at > 0 and (near[at - 1] > x or (near[at - 1] == x and columns[i, at - 1] > v)):
                        near[at], columns[i, at] = near[at - 1], columns[i, at - 1]
                        at -= 1
                    near[at], columns[i, at] = x, v
                    count = min(count + 1, most)
                    worst = near[most - 1] if count == most else unreachable
        for k in range(count):
            distances[i, k] = near[k]
