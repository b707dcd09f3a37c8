"""Kernels that find the rank at which both ends of each arc first lie in the same strongly connected component."""

from __future__ import annotations

import numpy as np

from engine.graph._walks import strong_components
from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def grouped(count, keys):  # type: ignore[no-untyped-def]
    """Sort by counting; equal keys stay in their order.

    Args:
        count: the number of possible keys.
        keys: shape (k,): integers from 0 to ``count`` - 1.

    Returns:
        int64, shape (count + 1,): where the group of each key begins; int64, shape (k,): the indices in the order of
        their keys.
    """
    begin = np.zeros(count + 1, np.int64)
    for key in keys:
        begin[key + 1] += 1
    for key in range(count):
        begin[key + 1] += begin[key]
    at, order = begin[:-1].copy(), np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        order[at[keys[i]]] = i
        at[keys[i]] += 1
    return begin, order


@njit(nogil=True, cache=True)
def components_of(n, tails, heads):  # type: ignore[no-untyped-def]
    """Return the strongly connected component of each of ``n`` vertices, int32; an arc never leads to a component of a
    higher number.
    """
    begin, order = grouped(n, tails)
    ends = np.empty(len(order), np.int32)
    for i in range(len(order)):
        ends[i] = heads[order[i]]
    return strong_components(begin, ends)[0]


@njit(nogil=True, cache=True)
def find_joining(n, tails, heads, ranks, none):  # type: ignore[no-untyped-def]
    """Find the joining ranks of all arcs by halving, as ``engine.algorithms.semirings.components`` describes.

    Args:
        n: number of vertices.
        tails, heads, ranks: int32, shape (arcs,) each; ranks from 1 to ``none`` - 1.
        none: the rank that stands for no path.

    Returns:
        The joining rank of each arc, int32: 0 for arcs that no path needs, ``none`` for those whose ends are never in
        the same component; and the component of each vertex if all arcs are there, as :func:`components_of` returns it.
    """
    whole = components_of(n, tails, heads)
    joined = np.full(len(tails), none, np.int32)
    left = np.empty(len(tails), np.int64)
    a, b, below = np.empty(len(tails), np.int32), np.empty(len(tails), np.int32), np.zeros(len(tails), np.int32)
    few_tails, few_heads = np.empty(len(tails), np.int32), np.empty(len(tails), np.int32)
    count = 0
    for e in range(len(tails)):
        if whole[tails[e]] == whole[heads[e]]:
            left[count], a[count], b[count] = e, tails[e], heads[e]
            count += 1
    step, vertices = 1, n
    while step < none - 1:
        step *= 2
    while step > 1 and count > 0:
        step //= 2
        number, met = np.full(vertices, -1, np.int32), 0
        for i in range(count):
            if number[a[i]] < 0:
                number[a[i]], met = met, met + 1
            if number[b[i]] < 0:
                number[b[i]], met = met, met + 1
            a[i], b[i] = number[a[i]], number[b[i]]
        few = 0
        for i in range(count):
            if ranks[left[i]] <= below[i] + step:
                few_tails[few], few_heads[few] = a[i], b[i]
                few += 1
        component = components_of(met, few_tails[:few], few_heads[:few])
        kept = 0
        for i in range(count):
            together = component[a[i]] == component[b[i]]
            if together and ranks[left[i]] > below[i] + step:
                joined[left[i]] = 0
                continue
            left[kept] = left[i]
            if together:  # vertices of the lower half of an interval keep their numbers, the upper half has others
                below[kept], a[kept], b[kept] = below[i], a[i], b[i]
            else:
                below[kept] = below[i] + step
                a[kept], b[kept] = component[a[i]] + met, component[b[i]] + met
            kept += 1
        count, vertices = kept, 2 * met
    for i in range(count):
        joined[left[i]] = below[i] + 1
    return joined, whole
