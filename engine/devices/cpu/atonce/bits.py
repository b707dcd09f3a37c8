"""Blocks of breadth-first searches, one bit per source, searched by all threads in one compiled call."""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.atonce.facts import widen_bins
from engine.devices.cpu.atonce.lanes import FINISHED, GIVEN_UP, NEXT, THREAD
from engine.devices.cpu.atonce.threads import function_of, seconds_now, share_out, stored, word_at
from engine.devices.cpu.bfs_bits import bit_space, search_bits
from engine.devices.cpu.bit_facts import FARTHEST, LARGEST, REACHED, SUM
from engine.devices.cpu.team import fetch_add
from engine.graph.kernels import njit
from engine.model.rows import BINS


@njit(nogil=True, cache=True)
def _gather(some, facts, counts, worker, gathered):  # type: ignore[no-untyped-def]
    """Copy the facts of a block's rows, and add the block's histogram to that of the thread."""
    (reached, sums, largest, farthest), bins, _, half = gathered
    for j in range(len(some)):
        i, word, bit = some[j], j // 64, j % 64
        reached[i], sums[i] = facts[word, REACHED, bit], facts[word, SUM, bit]
        largest[i], farthest[i] = facts[word, LARGEST, bit], facts[word, FARTHEST, bit]
    top = 0
    for length in range(len(counts)):
        top = length if counts[length] > 0 else top
    if top > 0:
        width = widen_bins(bins, worker, np.float64(top), half[0] > 0)
        for length in range(top + 1):
            bins[2][worker, min(int(length / width), BINS - 1)] += counts[length]


@njit(nogil=True, cache=True)
def _take(given):  # type: ignore[no-untyped-def]
    """Search blocks until none is left, or until the time is over."""
    shared, arcs, goal, batch, limits, late, gathered = given
    sources, rows, starts, states, out = batch
    numbers = shared.ctypes.data
    worker = fetch_add(numbers + 8 * THREAD, 1)
    if shared[NEXT] >= len(states):
        return
    space = bit_space(len(goal[0]))
    while seconds_now() < late:
        block = fetch_add(numbers + 8 * NEXT, 1)
        if block >= len(states):
            return
        some = rows[starts[block] : starts[block + 1]]
        finished = search_bits(arcs, space, goal, sources, some, out, limits)
        if finished and len(gathered[0][0]) > 0:
            _gather(some, space[9], space[7], worker, gathered)
        states[block] = FINISHED if finished else GIVEN_UP


@njit(nogil=True, cache=True)
def search_all_bits(threads, pool, given):  # type: ignore[no-untyped-def]
    """Search blocks of sources breadth first in several threads, and gather facts (sums, maxima) of their rows.

    Args:
        threads: the number of threads.
        pool: threads, see :mod:`engine.devices.cpu.atonce.pool`.
        given: a tuple ``(shared, arcs, goal, batch, limits, seconds, gathered)``.  ``arcs``, ``goal`` and ``limits``:
            as in :func:`engine.devices.cpu.bfs_bits.search_bits`.  ``shared``, ``batch``, ``seconds`` and ``gathered``:
            as in :func:`engine.devices.cpu.atonce.lanes.search_all_lanes`.

    Returns:
        The number of calls of :func:`_take` that failed.
    """
    shared, arcs, goal, batch, limits, seconds, gathered = given
    late = seconds_now() + seconds
    inner = (shared, arcs, goal, batch, limits, late, gathered)
    failures = stored(inner)
    share_out(pool, threads - 1, function_of(_take, inner), failures)
    return word_at(failures)
