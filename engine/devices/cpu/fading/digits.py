"""Sums of weights times factors that depend on distances, which are read as binary digits: no row is written."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.devices.cpu.bit_facts import SQUARES
from engine.devices.cpu.bit_rows import spread_digits
from engine.graph.kernels import njit

#: The number of columns whose digits lie side by side in ``squares``.
ACROSS: Final = 64 * SQUARES


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _add_three(columns, factors, weights, sums, j):  # type: ignore[no-untyped-def]
    """Add three kinds of weights, from ``kind`` on, to the sums of source ``j``; each factor is looked up once.

    ``columns``: ``row``, the distances of some columns, and their number; ``factors``: ``tables`` and the index of a
    table; ``weights``: ``held`` and ``kind``.  The arrays are those of :func:`fade_squares`.
    """
    (row, count), (tables, k), (held, kind) = columns, factors, weights
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(count):
        share = tables[k, row[i]]
        s0 += share * held[kind, i]
        s1 += share * held[kind + 1, i]
        s2 += share * held[kind + 2, i]
    sums[kind, k, j] += s0
    sums[kind + 1, k, j] += s1
    sums[kind + 2, k, j] += s2


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _add_one(columns, factors, weights, sums, j):  # type: ignore[no-untyped-def]
    """Do what :func:`_add_three` does for one kind."""
    (row, count), (tables, k), (held, kind) = columns, factors, weights
    total = 0.0
    for i in range(count):
        total += tables[k, row[i]] * held[kind, i]
    sums[kind, k, j] += total


@njit(nogil=True, cache=True)
def hold_weights(weights, some, held):  # type: ignore[no-untyped-def]
    """Copy the weights, shape (kinds, n), of some vertices to ``held``, float64, shape (kinds, ACROSS)."""
    for kind in range(len(weights)):
        for i in range(len(some)):
            held[kind, i] = weights[kind, some[i]]


@njit(nogil=True, cache=True)
def fade_squares(squares, used, extent, tables, held, row, sums):  # type: ignore[no-untyped-def]
    """Add the weights of some columns, times the factors of their distances, to the sums of up to 64 sources.

    Args:
        squares: the digits of the distances, in which a source has a word for each digit and 64 columns
            (``bit_facts.tell_squares``); the first digits begin at ``ACROSS``.
        used: the number of digits.
        extent: the number of columns, the number of sources, and the first of these sources.
        tables: float64, shape (limits, distances): the factor of each distance.  The factor of distance 0 must be 0,
            because columns that are not reached have the digits of 0.
        held: float64, shape (kinds, ACROSS): the weights of the columns.
        row: uint16, shape (ACROSS,): work space.
        sums: float64, shape (kinds, limits, sources), changed in place.
    """
    columns, sources, first = extent
    kinds, every = len(held), ~np.uint64(0)
    for j in range(sources):
        for start in range(0, columns, 64):
            spread_digits(squares, ACROSS + start + j, ACROSS, used, every, np.uint16(0), row, start)
        for k in range(len(tables)):
            for kind in range(0, kinds - kinds % 3, 3):
                _add_three((row, columns), (tables, k), (held, kind), sums, first + j)
            for kind in range(kinds - kinds % 3, kinds):
                _add_one((row, columns), (tables, k), (held, kind), sums, first + j)


@njit(nogil=True, cache=True)
def add_own(starts, weights, shares, sums):  # type: ignore[no-untyped-def]
    """Add the weight of each source itself, whose distance is 0; ``starts`` are the numbers of the sources."""
    for kind in range(len(weights)):
        for k in range(len(shares)):
            for j in range(len(starts)):
                sums[kind, k, j] += shares[k, 0] * weights[kind, starts[j]]
