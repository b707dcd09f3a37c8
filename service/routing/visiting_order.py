"""The order in which a trip visits places: the best order for few places, an order by farthest insertion for more.

Source: M. Held and R. M. Karp, A dynamic programming approach to sequencing problems (1962); D. J. Rosenkrantz,
R. E. Stearns and P. M. Lewis, An analysis of several heuristics for the traveling salesman problem (1977).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from service.routing.network import Floats, Indices

#: Most places between start and end for which the best order is found.
EXACT: Final = 14


def visiting_order(table: Floats, start: int, end: int) -> list[int]:
    """Return the places in an order with a short way: the shortest for up to ``EXACT`` places between start and end.

    Args:
        table: lengths of the ways between places, shape (n, n), finite; it need not be symmetric.
        start: the first place.
        end: the place where the way ends; the same as ``start`` for a round trip.

    Returns:
        Each place once: ``start`` first, and ``end`` last if it differs from ``start``.
    """
    middle = np.array([place for place in range(len(table)) if place not in (start, end)], np.int64)
    between = _exact(table, middle, start, end) if len(middle) <= EXACT else _inserted(table, middle, start, end)
    return [start, *between, *([end] if end != start else [])]


def _exact(table: Floats, middle: Indices, start: int, end: int) -> list[int]:
    """Return the places of ``middle`` in the order of the shortest way from ``start`` through all of them to ``end``.

    ``best[s, j]`` is the length of the shortest way from the start through all places of the set s that ends at place
    j of s.  A set is a number with a bit for each place.
    """
    k = len(middle)
    if not k:
        return []
    ways, sets = table[np.ix_(middle, middle)], np.arange(1 << k)
    sizes = sum((sets >> j) & 1 for j in range(k))
    best = np.full((1 << k, k), np.inf)
    best[1 << np.arange(k), np.arange(k)] = table[start, middle]
    for size in range(2, k + 1):
        level = sets[sizes == size]
        for j in range(k):
            those = level[(level >> j) & 1 == 1]
            best[those, j] = (best[those ^ (1 << j)] + ways[:, j]).min(axis=1)
    rest, at = (1 << k) - 1, int(np.argmin(best[-1] + table[middle, end]))
    found = [at]
    while rest != 1 << at:
        rest ^= 1 << at
        at = int(np.argmin(best[rest] + ways[:, at]))
        found.append(at)
    return [int(middle[place]) for place in found[::-1]]


def _inserted(table: Floats, middle: Indices, start: int, end: int) -> list[int]:
    """Return the places of ``middle`` in an order by farthest insertion.

    Each step finds, for each remaining place, the shortest detour through it.  The place whose shortest detour is
    longest is inserted, at the position of this detour.
    """
    way, left = [start, end], middle
    while len(left):
        before, after = np.array(way[:-1]), np.array(way[1:])
        detours = table[np.ix_(before, left)] + table[np.ix_(left, after)].T - table[before, after][:, None]
        cheapest = detours.argmin(axis=0)
        number = int(np.argmax(detours[cheapest, np.arange(len(left))]))
        way.insert(int(cheapest[number]) + 1, int(left[number]))
        left = np.delete(left, number)
    return way[1:-1]
