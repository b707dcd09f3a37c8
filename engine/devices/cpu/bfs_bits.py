"""Breadth-first searches from many sources at once, one bit per source.

A vertex holds two rows of bits, one bit per source: the sources that have *seen* it, and those that reached it in the
last step.  A step follows arcs for all sources of a block together (Then, Kaufmann, Chirigati, Hoang-Vu, Pham, Kemper,
Neumann and Vo, "The more the merrier: efficient multi-source graph traversal", 2014): either out of the vertices that
were reached, or, if that would follow more than the share ``MANY`` of all arcs, into all vertices that some source has
not seen (Beamer, Asanović and Patterson, "Direction-optimizing breadth-first search", 2012).

The number of the step in which a source reaches a vertex is kept in *planes* of bits: the first plane holds the lowest
binary digit of each source's distance, the next plane the next digit.  At the end squares of 64 sources and 64 vertices
are transposed and the digits become numbers, 64 distances of a row at a time.  A square that no source has reached is
filled with *unreachable*; if few vertices were reached, only their columns are read.

The facts of rows are computed from the bits, so that no row is read again.  Each step counts the bits that it sets, for
the histogram, and notes which sources set a bit, for the eccentricities; the set digits give the number of reached
targets and the sum of their distances.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.bit_facts import (
    DIGITS,
    PLANES,
    SQUARES,
    begin_facts,
    renumber_farthest,
    tell_squares,
)
from engine.devices.cpu.bit_rows import (
    WORDS,
    arrive,
    count_arrivals,
    is_full,
    join_row,
    pull_sources,
    push_sources,
    spread_digits,
    transpose_bits,
)
from engine.devices.cpu.row_facts import SPARSE, expand_rows
from engine.devices.cpu.search import SearchBatch
from engine.devices.cpu.searches import Searches
from engine.devices.cpu.vector import copy_run
from engine.graph.kernels import njit
from engine.model.backend import NOTHING_SPECIAL, Arcs, Array, RowsWanted

#: If a step would follow more than this share of all arcs, it goes backwards: it follows the arcs into the vertices
#: that some source has not seen.
MANY: Final = 0.25


@njit(nogil=True, cache=True)
def bit_rows_of(n):  # type: ignore[no-untyped-def]
    """Return n rows of words, aligned to 64 bytes, not cleared."""
    space = np.empty(n * WORDS + 8, np.uint64)
    skip = (-space.ctypes.data % 64) // 8
    return space[skip : skip + n * WORDS].reshape(n, WORDS)


@njit(nogil=True, cache=True, from_start=True)
def _note(planes, n, step, visit, v):  # type: ignore[no-untyped-def]
    """Record that the sources in visit[v] reached ``v`` in ``step``: set the binary digits of ``step``."""
    at = v
    while step > 0:
        if step & 1:
            join_row(planes, at, visit, v)
        step >>= 1
        at += n


@njit(nogil=True, cache=True, from_start=True)
def _forwards(indptr, heads, rows, step, active, marked):  # type: ignore[no-untyped-def]
    """Follow the arcs out of the ``active`` vertices; return the number of arcs out of the vertices reached, plus the
    number of these vertices.

    ``rows``: seen, visit, fresh, planes, as in :func:`bit_space`. The vertices that were reached are ``active``
    afterwards.  ``fresh`` and ``marked`` are all 0 before and after.
    """
    seen, visit, fresh, planes = rows
    n = len(seen)
    words = active.view(np.uint64)
    for word in range(len(words)):
        if words[word] != 0:
            for v in range(8 * word, 8 * word + 8):
                if active[v] != 0:
                    push_sources(indptr[v], indptr[v + 1], heads, visit, fresh, marked, v)
            words[word] = 0
    words = marked.view(np.uint64)
    onward = 0
    for word in range(len(words)):
        if words[word] != 0:
            for v in range(8 * word, 8 * word + 8):
                if marked[v] != 0 and arrive(fresh, seen, visit, v):
                    active[v] = 1
                    onward += indptr[v + 1] - indptr[v] + 1
                    _note(planes, n, step, visit, v)
            words[word] = 0
    return onward


@njit(nogil=True, cache=True, from_start=True)
def _backwards(indptr, into, tails, rows, step, active):  # type: ignore[no-untyped-def]
    """Follow the arcs into every vertex that some source has not seen; return the number of arcs out of the vertices
    reached, plus the number of these vertices.

    ``rows``: seen, visit, fresh, planes, as in :func:`bit_space`.  ``fresh`` is all 0 before; afterwards it holds, for
    each vertex, the sources that reached this vertex in ``step``.
    """
    seen, visit, fresh, planes = rows
    n = len(seen)
    onward = 0
    for v in range(n):
        active[v] = 0
        if not is_full(seen, v) and pull_sources(into[v], into[v + 1], tails, visit, seen, fresh, v):
            active[v] = 1
            onward += indptr[v + 1] - indptr[v] + 1
            _note(planes, n, step, fresh, v)
    return onward


@njit(nogil=True, cache=True, from_start=True)
def take_step(arcs, rows, step, used, onward, flags):  # type: ignore[no-untyped-def]
    """Let every source reach the vertices that are ``step`` arcs away.

    Args:
        arcs: in both directions, as in :func:`search_bits`.
        rows: seen, visit, fresh, planes, as in :func:`bit_space`.
        step: the number of the step, from 1 on.
        used: the number of planes in use before.
        onward: the number of arcs out of the vertices reached in the last step, plus the number of these vertices.
        flags: active, marked, as in :func:`bit_space`; the vertices that were reached are ``active`` afterwards.

    Returns:
        ``used`` and ``onward`` after the step, and whether the caller must swap ``visit`` and ``fresh``.
    """
    indptr, heads, into, tails = arcs
    visit, planes = rows[1], rows[3]
    active, marked = flags
    n = len(visit)
    if step >> used:
        planes[used * n : (used + 1) * n] = 0
        used += 1
    if onward < MANY * (len(heads) + n):
        return used, _forwards(indptr, heads, rows, step, active, marked), False
    onward = _backwards(indptr, into, tails, rows, step, active)
    visit[:] = 0
    return used, onward, True


@njit(nogil=True, cache=True, from_start=True)
def _steps(arcs, space, limit, onward):  # type: ignore[no-untyped-def]
    """Step until no source reaches a vertex, or up to ``limit``; return the number of planes in use, whether the
    searches ended before the limit, and the number of steps.

    ``arcs`` (in both directions) and ``space`` (work space) are as in :func:`search_bits`.  ``visit`` and ``fresh`` are
    all 0 afterwards.
    """
    seen, visit, fresh, planes, _, active, marked, counts, arrivals, _ = space
    counts[:] = 0
    used, step = 0, 1
    while step < limit and onward > 0:
        rows = seen, visit, fresh, planes
        used, onward, changed = take_step(arcs, rows, step, used, onward, (active, marked))
        if changed:
            visit, fresh = fresh, visit
        counts[step] = count_arrivals(visit, active, arrivals, step)
        step += 1
    visit[:] = 0
    return used, onward == 0, step - 1


@njit(nogil=True, cache=True, from_start=True)
def _emit(space, used, near, rows, out, sentinel):  # type: ignore[no-untyped-def]
    """Write the distances of the block to its ``rows`` of ``out``, and gather their facts; column k is vertex
    ``near[k]``.
    """
    squares, facts = space[4], space[-1]
    piece, work = np.empty(64, out.dtype), np.empty(128, np.uint64)
    apart = SQUARES * 64
    for first in range(0, len(near), apart):
        some = near[first : first + apart]
        for w in range((len(rows) + 63) // 64):
            high = min(64, len(rows) - 64 * w)
            if not gather_squares(space, used, some, w):
                for j in range(high):
                    out[rows[64 * w + j], first : first + len(some)] = sentinel
                continue
            for p in range(used + 1):
                for start in range(0, len(some), 64):
                    transpose_bits(squares, p * apart + start)
            for start in range(0, len(some), 64):
                kept = ~np.uint64(0) >> np.uint64(max(0, start + 64 - len(some)))
                tell_squares(squares, apart + start, used, kept, first + start, facts[w], work)
            for j in range(high):
                row = out[rows[64 * w + j]]
                for start in range(0, len(some), 64):
                    reached, at = squares[start + j], apart + start + j
                    if start + 64 <= len(some):
                        spread_digits(squares, at, apart, used, reached, sentinel, row, first + start)
                    else:
                        spread_digits(squares, at, apart, used, reached, sentinel, piece, 0)
                        copy_run(row, first + start, piece, 0, len(some) - start)


@njit(nogil=True, cache=True, from_start=True)
def gather_squares(space, used, some, w):  # type: ignore[no-untyped-def]
    """Copy word ``w`` of the vertices ``some`` into the squares; return False if no source of that word has reached any
    of these vertices.
    """
    seen, _, _, planes, squares, _, _, _, _, _ = space
    n, apart, anyone = len(seen), SQUARES * 64, np.uint64(0)
    for k in range(len(some)):
        squares[k] = seen[some[k], w]
        anyone |= squares[k]
    if anyone == 0:
        return False
    for p in range(used):
        for k in range(len(some)):
            squares[(p + 1) * apart + k] = planes[p * n + some[k], w]
    return True


@njit(nogil=True, cache=True, from_start=True)
def begin_sources(indptr, starts, seen, visit, active):  # type: ignore[no-untyped-def]
    """Mark each source's own vertex, ``starts[j]``, as seen; for bits without a source, mark all vertices as seen.

    Return the number of arcs out of the sources, plus the number of these vertices.
    """
    active[:] = 0
    for w in range(WORDS):
        bits = min(64, max(0, len(starts) - 64 * w))
        seen[:, w] = ~np.uint64(0) << np.uint64(bits) if bits < 64 else np.uint64(0)
    onward = 0
    for j in range(len(starts)):
        v = starts[j]
        bit = np.uint64(1) << np.uint64(j % 64)
        seen[v, j // 64] |= bit
        visit[v, j // 64] |= bit
        active[v] = 1
        onward += indptr[v + 1] - indptr[v] + 1
    return onward


@njit(nogil=True, cache=True, from_start=True)
def search_bits(arcs, space, goal, sources, rows, out, limits):  # type: ignore[no-untyped-def]
    """Search ``sources[rows]`` breadth first, one bit each, and write their distances to ``out[rows]``.

    Args:
        arcs: indptr, heads: CSR of the arcs out of each vertex; into, tails: CSR of the arcs into each vertex.
        space: work space from :func:`bit_space`; ``visit`` and ``fresh`` are all 0 afterwards, too.  If the block is
            finished, and its columns are all vertices, ``counts`` and ``facts`` describe its rows afterwards.
        goal: rank, int32, shape (n,): the number of each vertex; near, int32, shape (columns,): the numbers of the
            columns' vertices; sentinel, *unreachable* in the type of ``out``.
        sources: int64, vertex indices.
        rows: int64, at most ``BITS``: indices of ``sources`` and rows of ``out``.
        out: shape (len(sources), columns).
        limits: limit, the step before which searches end; and whole, whether only distances below ``limit`` are wanted.

    Returns:
        Whether the block is finished; if not, it needs more steps, and ``out`` is unchanged.
    """
    seen, visit, active, arrivals, facts = space[0], space[1], space[5], space[8], space[9]
    rank, near, sentinel = goal
    limit, whole = limits
    onward = begin_sources(arcs[0], rank[sources[rows]], seen, visit, active)
    used, done, steps = _steps(arcs, space, limit, onward)
    if done or whole:
        begin_facts(arrivals, steps, facts)
        columns = _reached_columns(seen, near, len(rows))
        if len(columns) > 0:  # only these columns are read; all others are filled with the sentinel
            _emit(space, used, near[columns], rows, out, sentinel)
            expand_rows(out, rows, columns, sentinel)
            renumber_farthest(facts, columns)
        else:
            _emit(space, used, near, rows, out, sentinel)
    return done or whole


@njit(nogil=True, cache=True, from_start=True)
def _reached_columns(seen, near, sources):  # type: ignore[no-untyped-def]
    """Return the columns that any of the first ``sources`` sources has reached; none if they are many (``SPARSE``)."""
    kept = np.zeros(WORDS, np.uint64)
    for j in range(sources):
        kept[j // 64] |= np.uint64(1) << np.uint64(j % 64)
    columns = np.empty(len(near), np.int32)
    count = 0
    for k in range(len(near)):
        some = np.uint64(0)
        for w in range(WORDS):
            some |= seen[near[k], w] & kept[w]
        columns[count] = k
        count += some != 0
    return columns[: count if SPARSE * count < len(near) else 0]


@njit(nogil=True, cache=True, from_start=True)
def bit_space(n):  # type: ignore[no-untyped-def]
    """Return the work space of a thread for searches on ``n`` vertices.

    Returns:
        A tuple of arrays.  ``seen``, ``visit``, ``fresh`` and ``planes``: rows of bits for the sources that have seen
        each vertex, that reached it in the last step, that reach it in this step, and for the digits of the distances.
        ``squares``: uint64.  ``active`` and ``marked``: uint8, a byte per vertex.  ``counts``: int64, shape (256,):
        entry d is the number of distances d in the block, for d above 0.  ``arrivals``: rows of bits: the sources that
        reached a vertex in each step.  ``facts``: int64, for each word of sources one row each of ``REACHED``, ``SUM``,
        ``LARGEST`` (0 where no vertex is reached) and ``FARTHEST``, then a row for each digit of the largest distances,
        -1 (all bits set) for the digit 1.
    """
    seen, visit, fresh, planes = bit_rows_of(n), bit_rows_of(n), bit_rows_of(n), bit_rows_of(PLANES * n)
    visit[:] = 0
    fresh[:] = 0
    squares = bit_rows_of((PLANES + 1) * SQUARES * 64 // WORDS).reshape(-1)
    squares[:] = 0
    active = np.zeros((n + 7) // 8 * 8, np.uint8)
    counts, arrivals, facts = (
        np.zeros(2**PLANES, np.int64),
        bit_rows_of(2**PLANES),
        np.zeros((WORDS, DIGITS + PLANES, 64), np.int64),
    )
    return seen, visit, fresh, planes, squares, active, np.zeros_like(active), counts, arrivals, facts


#: Batches with fewer sources than this are searched in lanes or one by one, not by bits.  A batch that is cut into
#: several blocks has at least this many sources in each block.
LEAST: Final = 32


class BreadthFirst(CpuBackend):
    """A CPU backend whose searches are breadth first, many sources at once, for graphs whose arcs all weigh 1."""

    def begin_search(
        self, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, wanted: RowsWanted = NOTHING_SPECIAL
    ) -> Searches:
        """Prepare one search per source; blocks that need too many steps are searched in lanes or one by one.

        Args:
            arcs: weights are non-negative, and reduced if there are potentials.
            sources: vertex indices, shape (rows,).
            out: shape (rows, columns); row i receives the distances from ``sources[i]``.
            wanted: which entries are wanted, and what is known of the graph and of rows.
        """
        if not wanted.unit or arcs.potentials is not None or len(sources) < LEAST:
            return super().begin_search(arcs, sources, out, wanted)
        batch = SearchBatch.of(arcs, sources, out, wanted)
        left, copies = batch.without(wanted.known)
        from engine.devices.cpu.atonce.bit_blocks import bit_blocks

        return Searches([*copies, *bit_blocks(batch, left, self.threads, self._spaces, wanted.levels)])
