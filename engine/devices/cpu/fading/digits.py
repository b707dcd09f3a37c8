"""Sums of weights times factors that depend on distances, which are read as binary digits: no row is written."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.devices.cpu.bit_facts import SQUARES
from engine.devices.cpu.bit_rows import spread_digits
from engine.graph.kernels import njit

#: The number of columns whose digits lie side by side in ``squares``.
ACROSS: Final = 64 * SQUARES
#: The number of sources whose sums are made side by side.
SIDE: Final = 4


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc", "contract"})
def _sum_three(rows, count, table, weights, found):  # type: ignore[no-untyped-def]
    """Sum three kinds of weights, each times the factor of the distance from each of four sources.

    Each factor is looked up once, and each weight is loaded once for all four sources.

    Args:
        rows: uint16, shape (4, ACROSS): the distances of the columns from the sources.
        count: the number of columns.
        table: float64: the factor of each distance.
        weights: float64, shape (3, ACROSS).
        found: float64, shape (3, 4), receives the sums.
    """
    a0, a1, a2, b0, b1, b2, c0, c1, c2, d0, d1, d2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        w0, w1, w2 = weights[0, i], weights[1, i], weights[2, i]
        a, b, c, d = table[rows[0, i]], table[rows[1, i]], table[rows[2, i]], table[rows[3, i]]
        a0 += a * w0
        a1 += a * w1
        a2 += a * w2
        b0 += b * w0
        b1 += b * w1
        b2 += b * w2
        c0 += c * w0
        c1 += c * w1
        c2 += c * w2
        d0 += d * w0
        d1 += d * w1
        d2 += d * w2
    found[0, 0], found[0, 1], found[0, 2], found[0, 3] = a0, b0, c0, d0
    found[1, 0], found[1, 1], found[1, 2], found[1, 3] = a1, b1, c1, d1
    found[2, 0], found[2, 1], found[2, 2], found[2, 3] = a2, b2, c2, d2


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc", "contract"})
def _sum_one(rows, count, table, weights, found):  # type: ignore[no-untyped-def]
    """Do what :func:`_sum_three` does for one kind of weights, shape (1, ACROSS)."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        weight = weights[0, i]
        a += table[rows[0, i]] * weight
        b += table[rows[1, i]] * weight
        c += table[rows[2, i]] * weight
        d += table[rows[3, i]] * weight
    found[0, 0], found[0, 1], found[0, 2], found[0, 3] = a, b, c, d


@njit(nogil=True, cache=True)
def hold_weights(weights, some, held):  # type: ignore[no-untyped-def]
    """Copy the weights, shape (kinds, n), of some vertices to ``held``, float64, shape (kinds or more, ACROSS)."""
    for kind in range(len(weights)):
        for i in range(len(some)):
            held[kind, i] = weights[kind, some[i]]


@njit(nogil=True, cache=True)
def fade_squares(squares, used, extent, tables, held, rows, sums):  # type: ignore[no-untyped-def]
    """Add the weights of some columns, times the factors of their distances, to the sums of up to 64 sources.

    Args:
        squares: the digits of the distances, in which a source has a word for each digit and 64 columns
            (``bit_facts.tell_squares``); the first digits begin at ``ACROSS``.
        used: the number of digits.
        extent: the number of columns, the number of sources, and the first of these sources.
        tables: float64, shape (limits, distances): the factor of each distance.  The factor of distance 0 must be 0,
            because columns that are not reached have the digits of 0.
        held: float64, shape (kinds + 1, ACROSS): the weights of the columns; those of the last kind are 0.
        rows: uint16, shape (SIDE, ACROSS): work space.
        sums: float64, shape (kinds, limits, sources), changed in place.
    """
    columns, sources, first = extent
    kinds, every, found = len(sums), ~np.uint64(0), np.empty((3, SIDE))
    for j in range(0, sources, SIDE):  # sources beyond the last one have words, too; what is found for them is dropped
        for lane in range(SIDE):
            for start in range(0, columns, 64):
                spread_digits(squares, ACROSS + start + j + lane, ACROSS, used, every, np.uint16(0), rows[lane], start)
        for k in range(len(tables)):
            for kind in range(0, kinds, 3):
                more = min(3, kinds - kind)
                if more == 1:
                    _sum_one(rows, columns, tables[k], held[kind : kind + 1], found)
                else:
                    _sum_three(rows, columns, tables[k], held[kind : kind + 3], found)
                for lane in range(min(SIDE, sources - j)):
                    for i in range(more):
                        sums[kind + i, k, first + j + lane] += found[i, lane]


@njit(nogil=True, cache=True)
def add_own(starts, weights, shares, sums):  # type: ignore[no-untyped-def]
    """Add the weight of each source itself, whose distance is 0; ``starts`` are the numbers of the sources."""
    for kind in range(len(weights)):
        for k in range(len(shares)):
            for j in range(len(starts)):
                sums[kind, k, j] += shares[k, 0] * weights[kind, starts[j]]
