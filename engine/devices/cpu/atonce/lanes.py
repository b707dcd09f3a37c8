"""Blocks of sources in lanes, searched by all threads in one compiled call."""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.atonce.facts import gather_rows
from engine.devices.cpu.atonce.threads import function_of, seconds_now, share_out, stored, word_at
from engine.devices.cpu.lanes import ROW_BYTES, search_lanes
from engine.devices.cpu.team import fetch_add
from engine.graph.kernels import njit

#: States of a block: no thread has taken it, it is finished, it was given up.
UNTAKEN, FINISHED, GIVEN_UP = 0, 1, 2
#: Indices in the array of counters that all threads change: blocks taken, threads begun, blocks finished, blocks given
#: up.
NEXT, THREAD, GOOD, BAD = range(4)


@njit(nogil=True, cache=True)
def _space(n, far, weights):  # type: ignore[no-untyped-def]
    """Return the work space of a thread for :func:`engine.devices.cpu.lanes.search_lanes`."""
    memory = np.empty(n * ROW_BYTES + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    labels = memory[skip : skip + n * ROW_BYTES].view(weights.dtype).reshape(n, ROW_BYTES // weights.itemsize)
    labels[:] = far
    marks = (n + 7) // 8 * 8
    return labels, np.zeros(marks, np.uint8), np.zeros(marks, np.uint8)


@njit(nogil=True, cache=True)
def _take(given):  # type: ignore[no-untyped-def]
    """Search blocks until none is left or the time is over; skip the remaining blocks once too many blocks were given
    up.
    """
    shared, arcs, ends, goal, batch, bounds, late, gathered = given
    sources, rows, starts, states, out = batch
    n, numbers = len(goal[0]), shared.ctypes.data
    worker = fetch_add(numbers + 8 * THREAD, 1)
    if shared[NEXT] >= len(states):
        return
    space = _space(n, ends[0], arcs[4])
    while seconds_now() < late:
        block = fetch_add(numbers + 8 * NEXT, 1)
        if block >= len(states):
            return
        if fetch_add(numbers + 8 * BAD, 0) > 1 + fetch_add(numbers + 8 * GOOD, 0) // 4:
            continue
        some = rows[starts[block] : starts[block + 1]]
        finished, columns = search_lanes(arcs, space, ends, goal, (sources, some), out, bounds)
        fetch_add(numbers + 8 * (GOOD if finished else BAD), 1)
        if finished and len(gathered[0][0]) > 0:
            gather_rows(out, sources, some, columns, worker, gathered)
        states[block] = FINISHED if finished else GIVEN_UP


@njit(nogil=True, cache=True)
def search_all_lanes(threads, pool, given):  # type: ignore[no-untyped-def]
    """Search blocks of sources in several threads, and gather facts (sums, maxima) of their rows.

    Args:
        threads: the number of threads.
        pool: threads, see :mod:`engine.devices.cpu.atonce.pool`.
        given: a tuple ``(shared, arcs, ends, goal, batch, bounds, seconds, gathered)``.  ``shared``, int64: the
            counters ``NEXT`` to ``BAD``, changed in place.  ``arcs``, ``ends``, ``goal`` and ``bounds``: as in
            :func:`engine.devices.cpu.lanes.search_lanes`.  ``batch``: the sources; ``rows``, int64: the rows of all
            blocks, one block after the other; ``starts``, int64, shape (blocks + 1,): where each block begins in
            ``rows``; ``states``, uint8, shape (blocks,), receives the state of each block; and ``out``, which receives
            the rows.  ``seconds``: no block is begun later than this number of seconds after the call.  ``gathered``:
            from :meth:`engine.devices.cpu.atonce.facts.Gathered.arrays`.

    Returns:
        The number of calls of :func:`_take` that failed.
    """
    shared, arcs, ends, goal, batch, bounds, seconds, gathered = given
    late = seconds_now() + seconds
    inner = (shared, arcs, ends, goal, batch, bounds, late, gathered)
    failures = stored(inner)
    share_out(pool, threads - 1, function_of(_take, inner), failures)
    return word_at(failures)
