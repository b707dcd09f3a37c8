"""Searches from sixteen sources together in a graph without cycles, counting shortest paths on the way.

Vertices are numbered so that every arc leads to a larger number.  So one pass in ascending order suffices: the
distances of a vertex are minima over the arcs into it, and the tails of these arcs are final by then.  The pass skips
blocks of vertices that no arc from a reached vertex enters.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.betweenness.accumulating import DONE
from engine.devices.cpu.betweenness.together import MOST, begin, finish, hand_back
from engine.devices.cpu.betweenness.vectors import (
    LANES,
    add,
    choose,
    equal,
    keep,
    larger,
    load,
    same_length,
    shorter,
    spread,
    start_at,
    store,
    store_lengths,
    tight,
)
from engine.graph.kernels import njit

#: Binary logarithm of the size of a block: a run of vertices that are all visited if one of them may be reached.
BLOCK = 4
#: The arcs of each vertex are padded to a multiple of this number: the processor then predicts ends of loops easily.
STEP = 4


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def _search(both, far, space):  # type: ignore[no-untyped-def]
    """Search from all sources; return the number of vertices that are reached, which are listed in ``taken``.

    Args:
        both, far, space: as in :func:`pass_forward`; ``near`` is 1 for the blocks of the sources.  Afterwards it is all
            0, except perhaps its last entry.
    """
    columns, before, moved, near, flags, taken, paths, coeff, told = space
    out, into = both
    indptr, tails, weights, places = into
    ends, listed, masks = before
    count, size, most = 0, 0, spread(0.0)
    for block in range(len(near) - 1):  # only padding arcs enter the last block
        if near[block] == 0:
            continue
        for v in range(block << BLOCK, min((block + 1) << BLOCK, len(flags))):
            least, starts = same_length(far), np.int64(flags[v] & (2**LANES - 1))
            for first in range(indptr[v], indptr[v + 1], STEP):
                for e in range(first, first + STEP):
                    least = shorter(columns, least, np.int64(tails[e]), weights[e])
            mine = starts | (2**LANES - 1 & ~equal(least, far))
            if mine == 0:
                continue
            sums, ends[v] = spread(0.0), size
            for first in range(indptr[v], indptr[v + 1], STEP):
                for e in range(first, first + STEP):
                    u = np.int64(tails[e])
                    mask = tight(columns, least, u, weights[e], far)
                    sums = add(sums, keep(mask, load(paths, u)))
                    listed[size], masks[size] = u, mask
                    if len(moved):
                        moved[size] = places[e]
                    size += mask != 0
            if starts:
                least, sums = start_at(starts, least), choose(starts, spread(1.0), sums)
            ends[v + 1], most = size, larger(most, keep(mine, sums))
            store_lengths(columns, v, least)
            store(paths, v, sums)
            store(coeff, v, spread(0.0))
            taken[0][count], taken[1][count] = v, mine
            count += 1
            for first in range(out[0][v], out[0][v + 1], STEP):
                for e in range(first, first + STEP):
                    near[out[1][e]] = 1
        near[block] = 0
    store(told, MOST, most)
    return count


@njit(nogil=True, cache=True, borrows=True, from_start=True)
def pass_forward(both, far, task, rows, kept, space, out):  # type: ignore[no-untyped-def]
    """Send the flow of some sources along their shortest paths, sixteen sources at a time, and add it to ``out``.

    Args:
        both: the arcs in both directions.  Arcs out: where those of each vertex begin, int64, and the blocks of their
            heads, int32; heads have larger numbers.  Arcs in: where those of each vertex begin, their tails, their
            weights, int32, and their indices among the arcs out.  In both directions the arcs of each vertex are padded
            to a multiple of ``STEP``; padding arcs have the tail n, or enter the last block.
        far: the length that stands for *unreachable*, int32, larger than any distance; twice ``far`` fits int32.
        task, rows, kept, out: as in :func:`engine.devices.cpu.betweenness.together.pass_together`.
        space: buffers of this thread: ``columns``, uint16 or int32, shape (n + 1, LANES), all ``far``; the tight arcs,
            and their indices, as in ``pass_together``; ``near``, uint8, all 0, an entry for each block of vertices and
            one more; ``flags``, ``taken``, ``paths`` (n + 1 rows), ``coeff`` and ``told``, as in ``pass_together``.

    Returns:
        ``DONE``, or the code of an error (``verdict``); after an error the sums are incomplete.
    """
    columns, before, moved, near, flags, taken, paths, coeff, told = space
    vertices, begins, arrivals, over = out
    for at in range(0, len(rows), LANES):
        some = rows[at : at + LANES]
        begin(task, some, flags, told)
        for i in some:
            near[task[0][i] >> BLOCK] = 1
        count = _search(both, far, space)
        done = taken[0][:count], taken[1][:count]
        hand_back((before, moved), flags, done, (paths, coeff, told), (kept, task[5]), (vertices, arrivals, over))
        for v in done[0]:
            store_lengths(columns, np.int64(v), same_length(far))
        said = finish(task, some, flags, told, begins)
        if said != DONE:
            return said
    return DONE
