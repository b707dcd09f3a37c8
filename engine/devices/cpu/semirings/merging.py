"""Computes rows of bottlenecks in a directed graph, for many sources side by side, while strongly connected components
merge.  This is for graphs too large for ``bottleneck_lanes``, or for which that would take long.

Arcs are opened rank by rank.  The vertices are in the line of ``bottlenecks.line_of``, in which each component is an
interval.  A component has one word with a bit for each source that reaches it: a source that reaches one vertex of a
component reaches all of them.  *Ranks* are the places of weights in order, the best first, as in ``bottlenecks``.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.semirings.bottlenecks import root
from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def _reach(word, place, last, value, found):  # type: ignore[no-untyped-def]
    """Write ``value`` at the places ``place`` to ``last`` of the line for all sources whose bit is set in ``word``."""
    k = 0
    while word != 0:
        while word & np.uint64(255) == 0:
            word >>= np.uint64(8)
            k += 8
        if word & np.uint64(1):
            row = found[k]
            for p in range(place, last + 1):
                row[p] = value
        word >>= np.uint64(1)
        k += 1


@njit(nogil=True, cache=True)
def _flow(e, word, value, heads, chains, space, found):  # type: ignore[no-untyped-def]
    """Let sources reach the heads of a chain of open arcs, and all that open arcs lead to from there.  An arc is open
    once its rank has been passed.

    Args:
        e: the first arc of the chain; -1 for none.
        word: the sources, a bit for each.
        value: the value that is written for each source and vertex that it reaches now.
        heads, chains, space, found: the heads of the arcs, work space, and the result, as in :func:`rows_merging`.
    """
    first_arc, _, following = chains
    parent, first, last, words, stack, stacked = space
    top = 0
    while True:
        while e >= 0:
            v = root(parent, heads[e])
            fresh = word & ~words[v]
            if fresh != 0:
                words[v] |= fresh
                _reach(fresh, first[v], last[v], value, found)
                if stacked[v] == 0 and first_arc[v] >= 0:
                    stacked[v] = 1
                    stack[top] = v
                    top += 1
            e = following[e]
        if top == 0:
            return
        top -= 1
        v = stack[top]
        stacked[v] = 0
        e, word = first_arc[v], words[v]


@njit(nogil=True, cache=True)
def _merge(a, b, value, heads, chains, space, found):  # type: ignore[no-untyped-def]
    """Merge the components whose representatives are ``a`` and ``b``; the sources that reach one now reach both.

    All other arguments (the value, the arcs, work space, and the result) are as in :func:`_flow`.
    """
    first_arc, last_arc, following = chains
    parent, first, last, words, _, _ = space
    if last[a] - first[a] < last[b] - first[b]:
        a, b = b, a
    into_a, into_b = words[b] & ~words[a], words[a] & ~words[b]
    _reach(into_a, first[a], last[a], value, found)
    _reach(into_b, first[b], last[b], value, found)
    parent[b] = a
    first[a], last[a] = min(first[a], first[b]), max(last[a], last[b])
    words[a] |= words[b]
    if into_a != 0:
        _flow(first_arc[a], words[a], value, heads, chains, space, found)
    if into_b != 0:
        _flow(first_arc[b], words[a], value, heads, chains, space, found)
    if first_arc[b] >= 0:
        if first_arc[a] < 0:
            first_arc[a] = first_arc[b]
        else:
            following[last_arc[a]] = first_arc[b]
        last_arc[a] = last_arc[b]


@njit(nogil=True, cache=True)
def _open(e, value, tails, heads, chains, space, found):  # type: ignore[no-untyped-def]
    """Open arc ``e`` between two components.  All other arguments are as in :func:`_flow` (value, arcs, result)."""
    first_arc, last_arc, following = chains
    parent, first, last, words, _, _ = space
    a, b = root(parent, tails[e]), root(parent, heads[e])
    if a == b:
        return
    following[e] = -1
    if first_arc[a] < 0:
        first_arc[a] = e
    else:
        following[last_arc[a]] = e
    last_arc[a] = e
    fresh = words[a] & ~words[b]
    if fresh != 0:
        words[b] |= fresh
        _reach(fresh, first[b], last[b], value, found)
        _flow(first_arc[b], words[b], value, heads, chains, space, found)


@njit(nogil=True, cache=True)
def rows_merging(arcs, gaps, values, starts, space, chains, found):  # type: ignore[no-untyped-def]
    """Find the values of the best paths from at most 64 sources to all places of the line.

    Args:
        arcs: four arrays, int32.  ``tails`` and ``heads``, as places of the line, and ``ranks``, ascending: the arcs
            whose ends are still in different components once all arcs of their rank are open.  ``joins``: the place
            before each gap of the line at which components merge, ascending by the rank of the gap.
        gaps: int32, shape (n,): the rank at which the component before each gap merges with the component behind it.
        values: shape (ranks,): the value of each rank, the last for no path.
        starts: int64, shape (k,): the place of each source.
        space: parent, first and last place of a component, int32; words, uint64; stack, int32; stacked, uint8, all 0:
            each of shape (n,), work space.
        chains: work space: the first and last open arc out of each component, int32, shape (n,), and for each open arc
            the next one out of the same component, int32, shape (arcs,).
        found: shape (k, at least n), of the type of ``values``: receives the values.
    """
    tails, heads, ranks, joins = arcs
    parent, first, last, words, _, _ = space
    first_arc, last_arc, _ = chains
    n, none = len(gaps), np.int32(len(values) - 1)
    for v in range(n):
        parent[v] = first[v] = last[v] = v
        words[v] = 0
        first_arc[v] = last_arc[v] = -1
    for k in range(len(starts)):
        found[k, :n] = values[none]
        found[k, starts[k]] = values[0]
        words[starts[k]] |= np.uint64(1) << np.uint64(k)
    e, j = 0, 0
    while e < len(tails) or j < len(joins):
        arc, gap = none, none
        if e < len(tails):
            arc = ranks[e]
        if j < len(joins):
            gap = gaps[joins[j]]
        if gap <= arc:
            a, b = root(parent, joins[j]), root(parent, joins[j] + 1)
            _merge(a, b, values[gap], heads, chains, space, found)
            j += 1
        else:
            _open(e, values[arc], tails, heads, chains, space, found)
            e += 1


@njit(nogil=True, cache=True)
def take_places(found, places, rows, out):  # type: ignore[no-untyped-def]
    """Copy the values at ``places``, shape (columns,), of each row of ``found`` into row ``rows[k]`` of ``out``."""
    for k in range(len(rows)):
        row, line = out[rows[k]], found[k]
        for j in range(len(places)):
            row[j] = line[places[j]]
