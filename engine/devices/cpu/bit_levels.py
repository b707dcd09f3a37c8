"""Breadth-first searches that write no rows of distances: sums and nearest vertices are gathered step by step.

After each step, a vertex has a row of bits: the sources that reached it in this step.  So the weights of vertices are
added for 64 sources at once.  All vertices of a step are at the same distance, so their sum is multiplied once by the
share of a weight that counts there.  The nearest vertices are those of the first steps, until there are enough.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.devices.cpu.bfs_bits import begin_sources, bit_rows_of, gather_squares, take_step
from engine.devices.cpu.bit_facts import BITS, PLANES, SQUARES, begin_facts, count_levels, tell_squares
from engine.devices.cpu.bit_rows import (
    WORDS,
    count_arrivals,
    everywhere,
    join_row,
    keep_others,
    lowest_bit,
    transpose_bits,
)
from engine.devices.cpu.fading.digits import SIDE, add_own, fade_squares, hold_weights
from engine.graph.kernels import njit
from engine.model.backend import LevelReduction
from engine.model.rows import Array, ReducedLevels

#: Weights are summed in one of two ways: step by step, or by looking up the share of each distance.  The first way is
#: slower if it adds more than this number of rows of bits for each vertex and limit (decision 259).
DEAR: Final = 8
#: The largest weight that is added in 16 bits, in which the sum over four blocks of four vertices then fits.
NARROW: Final = 4095
#: The number of vertices whose weights are added together, one word of sources after the other: their rows of bits stay
#: in the first-level cache meanwhile.
TOGETHER: Final = 256


class LevelSpace(NamedTuple):
    """What :func:`search_levels` reduces for a block of sources, and what it finds.

    Attributes:
        weights: uint16, int32 or float64, shape (kinds, vertices): some kinds of weight, by the number of the vertex.
        blocks: the number of blocks of four vertices whose sum of weights fits the type of ``weights``.
        lanes: int32, or float64 if the weights are, shape (kinds, ``BITS``): work space.
        held: uint8: 1 for each vertex that has a weight other than 0; as long as ``active`` (``bit_space``).
        shares: float64, shape (limits, ``MOST_HOPS``): how much of a weight counts at each distance.
        sums: float64, shape (kinds, limits, ``BITS``): receives the sums for each source.
        nearest: int32, shape (``BITS``, nearest): receives the columns of the nearest vertices; -1 where there are
            fewer.
        lengths: uint8, of the same shape: their distances.
    """

    weights: Array
    blocks: int
    lanes: Array
    held: npt.NDArray[np.uint8]
    shares: npt.NDArray[np.float64]
    sums: npt.NDArray[np.float64]
    nearest: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, asked: LevelReduction, near: npt.NDArray[np.int32], bytes_of_flags: int) -> LevelSpace:
        """Return the space for a block.

        Args:
            asked: what is to be reduced.
            near: the numbers of the vertices in the order of the columns.
            bytes_of_flags: the length of ``active`` (``bit_space``).
        """
        narrow, blocks = asked.weights, TOGETHER // 4
        if narrow.dtype == np.int32 and narrow.size and narrow.min() >= 0 and narrow.max() <= NARROW:
            narrow = narrow.astype(np.uint16)
            blocks = min(blocks, 2**16 // (4 * (int(narrow.max()) + 1)))
        weights = np.empty_like(narrow)
        weights[:, near] = narrow
        held = np.zeros(bytes_of_flags, np.uint8)
        held[: len(near)] = (weights != 0).any(0)
        sums = np.zeros((len(weights), len(asked.shares), BITS))
        lanes = np.zeros((len(weights), BITS), asked.weights.dtype)
        return cls(weights, blocks, lanes, held, asked.shares, sums, *cls._none(min(asked.nearest, len(near))))

    @staticmethod
    def _none(most: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        return np.full((BITS, most), -1, np.int32), np.zeros((BITS, most), np.uint8)

    def empty(self) -> LevelSpace:
        """Return a space for another block, with the same weights and shares."""
        nearest, lengths = self._none(self.nearest.shape[1])
        lanes, sums = np.zeros_like(self.lanes), np.zeros_like(self.sums)
        return self._replace(lanes=lanes, sums=sums, nearest=nearest, lengths=lengths)

    def found(self, rows: int, nearest: int) -> ReducedLevels:
        """Return what was found for the first ``rows`` sources, with ``nearest`` vertices each."""
        columns, lengths = np.full((rows, nearest), -1, np.int64), np.full((rows, nearest), np.nan)
        most = self.nearest.shape[1]
        columns[:, :most] = self.nearest[:rows]
        lengths[:, :most] = np.where(self.nearest[:rows] < 0, np.nan, self.lengths[:rows])
        return ReducedLevels(self.sums.transpose(2, 0, 1)[:rows].copy(), columns, lengths)


@intrinsic(prefer_literal=True)
def add_marked(typingctx, rows, starts, weights, sums, place, together):  # type: ignore[no-untyped-def]
    """Add the weights of vertices to the sums of 64 sources: weights[kind, i] to sums[kind, 64 * w + j] for every bit j
    that is set in rows[i, w].

    Args:
        typingctx: numba's typing context.
        rows: rows of bits.
        starts: int32: the vertices come in blocks of four, and these are the first of each block.
        weights: shape (kinds, vertices), of a type in which the sums of these blocks fit.
        sums: int32, or float64 if ``weights`` are, shape (kinds, lanes).
        place: first, last, kind, w: the blocks are starts[first] ... starts[last - 1]; ``kind`` is the first kind, and
            ``w`` the word of the rows.
        together: a constant: the number of kinds to add, one after the other from the first one on.
    """
    kinds = range(together.literal_value)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        rows, starts, weights, sums = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in range(4)
        )
        first, last, kind, w = cgutils.unpack_tuple(builder, args[4])
        narrow, wide = (ir.VectorType(context.get_data_type(signature.args[i].dtype), 64) for i in (2, 3))
        word, size = ir.IntType(64), signature.args[3].dtype.bitwidth // 8
        real = isinstance(signature.args[3].dtype, types.Float)
        add, zeros = builder.fadd if real else builder.add, ir.Constant(narrow, [0.0 if real else 0] * 64)
        numbers = [builder.add(kind, ir.Constant(word, k)) for k in kinds]
        totals = [cgutils.alloca_once_value(builder, zeros) for _ in kinds]

        def entry_of(array, number, column):  # type: ignore[no-untyped-def]
            width = builder.extract_value(array.shape, 1)
            return builder.gep(array.data, [builder.add(builder.mul(number, width), column)])

        with cgutils.for_range(builder, last, first) as block:
            start = builder.zext(builder.load(builder.gep(starts.data, [block.index])), word)
            for r in range(4):
                i = builder.add(start, ir.Constant(word, r))
                mark = builder.bitcast(builder.load(entry_of(rows, i, w)), ir.VectorType(ir.IntType(1), 64))
                for number, total in zip(numbers, totals, strict=True):
                    weight = everywhere(builder, builder.load(entry_of(weights, number, i)), narrow)
                    builder.store(add(builder.load(total), builder.select(mark, weight, zeros)), total)
        lane = builder.mul(w, ir.Constant(word, 64))
        for number, total in zip(numbers, totals, strict=True):
            there, found = builder.bitcast(entry_of(sums, number, lane), wide.as_pointer()), builder.load(total)
            found = found if narrow.element == wide.element else builder.zext(found, wide)
            builder.store(add(builder.load(there, align=size), found), there, align=size)
        return context.get_dummy_value()

    return types.void(rows, starts, weights, sums, place, together), codegen


@njit(nogil=True, cache=True)
def _add_some(gathered, weights, count, most, lanes, starts):  # type: ignore[no-untyped-def]
    """Add ``weights``, shape (kinds, ``TOGETHER``), of ``count`` vertices to the sums of the sources in the
    ``gathered`` rows of bits.

    The vertices are added in blocks of four, at most ``most`` blocks before their sums are widened.  ``starts`` is work
    space.
    """
    for i in range(count, (count + 3) // 4 * 4):
        for w in range(WORDS):
            gathered[i, w] = 0
    for w in range(WORDS):
        blocks = 0
        for i in range(0, count, 4):  # without branches
            starts[blocks] = i
            blocks += (gathered[i, w] | gathered[i + 1, w] | gathered[i + 2, w] | gathered[i + 3, w]) != 0
        for first in range(0, blocks, most):
            last, kind, kinds = min(blocks, first + most), 0, len(weights)
            while kind + 3 <= kinds:
                add_marked(gathered, starts, weights, lanes, (first, last, kind, w), 3)
                kind += 3
            if kind + 2 == kinds:
                add_marked(gathered, starts, weights, lanes, (first, last, kind, w), 2)
            elif kind < kinds:
                add_marked(gathered, starts, weights, lanes, (first, last, kind, w), 1)


@njit(nogil=True, cache=True)
def _add_rows(reducing, rows, before, flags, step):  # type: ignore[no-untyped-def]
    """Add weights of the vertices with ``flags`` to the sums of the sources whose bits are set in their ``rows``,
    multiplied by the shares of the distance ``step``.

    If ``before`` has rows, the sources in them are left out, and ``rows`` are joined to them afterwards.  Return the
    number of rows whose weights were added.
    """
    weights, most, lanes, held, shares, sums, _, _ = reducing
    lanes[:] = 0
    some, starts = np.zeros((len(weights), TOGETHER), weights.dtype), np.empty(TOGETHER // 4, np.int32)
    gathered, nothing = bit_rows_of(TOGETHER), bit_rows_of(1)
    nothing[:] = 0
    marked, holding, count, added = flags.view(np.uint64), held.view(np.uint64), 0, 0
    for word in range(len(marked)):
        if marked[word] & holding[word]:
            for v in range(8 * word, 8 * word + 8):
                if flags[v] & held[v]:
                    if len(before) > 0:
                        keep_others(rows, v, before, v, gathered, count)
                        join_row(before, v, rows, v)
                    else:
                        keep_others(rows, v, nothing, 0, gathered, count)
                    for kind in range(len(weights)):
                        some[kind, count] = weights[kind, v]
                    count += 1
            if count > TOGETHER - 8:
                _add_some(gathered, some, count, most, lanes, starts)
                count, added = 0, added + count
    _add_some(gathered, some, count, most, lanes, starts)
    for kind in range(len(weights)):
        for k in range(len(shares)):
            share = shares[k, step]
            if share != 0:
                for j in range(lanes.shape[1]):
                    sums[kind, k, j] += share * lanes[kind, j]
    return added + count


@njit(nogil=True, cache=True)
def _add_level(reducing, rows, active, step, last, held_back):  # type: ignore[no-untyped-def]
    """Add the weights of the vertices that were reached in ``step``, or hold them back if the next step has equal
    shares.

    Weights of several steps that are held back are added together; in the ``last`` step none are held back.  ``rows``:
    seen, visit.  ``held_back``: the rows of ``seen`` before the first step that is held back, and the number of this
    step, -1 for none.  Return the number of rows whose weights were added.
    """
    seen, visit = rows
    held, shares = reducing[3], reducing[4]
    before, since = held_back
    counts = (shares[:, step] != 0).any()
    if counts and not last and (shares[:, step] == shares[:, step + 1]).all():
        if since[0] < 0:
            for v in range(len(before)):
                keep_others(seen, v, visit, v, before, v)
            since[0] = step
    elif since[0] >= 0:
        since[0] = -1
        return _add_rows(reducing, seen, before, held, step)
    elif counts:
        return _add_rows(reducing, visit, before[:0], active, step)
    return 0


@njit(nogil=True, cache=True)
def _held_back(reducing):  # type: ignore[no-untyped-def]
    """Return ``held_back`` of :func:`_add_level`; it has no rows if no two successive steps have equal shares."""
    weights, shares = reducing[0], reducing[4]
    alike = False
    for step in range(shares.shape[1] - 1):
        alike |= len(weights) > 0 and (shares[:, step] == shares[:, step + 1]).all() and (shares[:, step] != 0).any()
    before = bit_rows_of(weights.shape[1] if alike else 0)
    return before, np.full(1, -1)


@njit(nogil=True, cache=True)
def _take_nearest(reducing, near, rows, step, lacking):  # type: ignore[no-untyped-def]
    """Note the vertices that were reached in ``step``, in the order of their columns, for the sources in ``need``.

    A source leaves ``need`` when it has as many vertices as are asked for, or reaches no vertex in a step.  ``rows``:
    visit, active, arrivals, as in ``bit_space``.  ``lacking``: ``need``, a row of bits, and the number of vertices
    that each source has.
    """
    nearest, lengths = reducing[6], reducing[7]
    need, filled = lacking
    visit, active, arrivals = rows
    most, waiting = nearest.shape[1], np.uint64(0)
    for w in range(WORDS):
        need[w] &= arrivals[step, w]
        waiting |= need[w]
    for c in range(len(near)):
        if waiting == 0:
            return
        v = near[c]
        if active[v] == 0:
            continue
        for w in range(WORDS):
            word = visit[v, w] & need[w]
            while word != 0:
                bit = lowest_bit(word)
                j = 64 * w + bit
                k = filled[j]
                nearest[j, k], lengths[j, k] = c, step
                filled[j] += 1
                if k == most - 1:
                    need[w] &= ~(np.uint64(1) << np.uint64(bit))
                    waiting = np.uint64(0)
                    for other in range(WORDS):
                        waiting |= need[other]
                word &= word - np.uint64(1)


@njit(nogil=True, cache=True)
def _steps(arcs, space, near, pairs, limits, reducing, dear):  # type: ignore[no-untyped-def]
    """Step as ``bfs_bits`` does, and after each step add weights and note the nearest vertices.

    If ``dear``, which means that looking up shares is faster, no weights are added.  Return also the number of rows of
    bits whose weights were added, and ``dear``: it becomes true, and adding stops, if half of the rows that ``DEAR``
    allows were added before half of the pairs were reached.
    """
    seen, visit, fresh, planes, _, active, marked, counts, arrivals, _ = space
    counts[:] = 0
    most, summing, (limit, onward) = reducing[6].shape[1], len(reducing[0]) > 0 and not dear, limits
    held_back, need, filled = _held_back(reducing), np.zeros(WORDS, np.uint64), np.zeros(BITS, np.int32)
    if most > 0:
        need[:] = ~np.uint64(0)
    used, step, added, reached = 0, 0, 0, 0
    most_added = DEAR * len(near) * len(reducing[4])
    while True:
        if step > 0:
            rows = seen, visit, fresh, planes
            used, onward, changed = take_step(arcs, rows, step, used, onward, (active, marked))
            if changed:
                visit, fresh = fresh, visit
            counts[step] = count_arrivals(visit, active, arrivals, step)
            reached += counts[step]
            _take_nearest(reducing, near, (visit, active, arrivals), step, (need, filled))
        step += 1
        last = step >= limit or onward == 0
        if summing:
            added += _add_level(reducing, (seen, visit), active, step - 1, last, held_back)
            dear = 2 * added > most_added and 2 * reached < pairs and not last
            summing = not dear
        if last:
            break
    visit[:] = 0
    return used, onward == 0, step - 1, added, dear


@njit(nogil=True, cache=True)
def search_levels(arcs, space, near, starts, limits, levels, reducing):  # type: ignore[no-untyped-def]
    """Search breadth first as ``search_bits`` does, and count the vertices at each distance in place of writing rows.

    Args:
        arcs, space, limits: arcs in both directions, work space, and the two limits of steps, as for
            :func:`engine.devices.cpu.bfs_bits.search_bits`; ``facts`` of ``space`` receives the same facts.
            A third entry of ``limits`` says whether shares are looked up, because an earlier block found that faster.
        near: int32, shape (n,): the numbers of all vertices, in the order of the columns.
        starts: int64, at most ``BITS``: the numbers of the sources.
        levels: int64, shape (``WORDS``, 2^``PLANES``, 64), receives the number of vertices at each distance from each
            source.
        reducing: a :class:`LevelSpace` as a tuple, whose sums are 0.

    Returns:
        Whether the block is finished, the largest distance, and whether it is faster to look up shares than to add
        weights by level.
    """
    limit, whole, dear = limits
    onward = begin_sources(arcs[0], starts, space[0], space[1], space[5])
    weights, shares, sums = reducing[0], reducing[4], reducing[5]
    ends = len(near) * len(starts), (limit, onward)
    used, done, steps, added, dear = _steps(arcs, space, near, *ends, reducing, dear)
    squares, facts, apart = space[4], space[9], SQUARES * 64
    work, terms = np.empty(128, np.uint64), np.empty((2, 1 << (PLANES // 2), 64), np.uint64)
    if not (done or whole):
        return False, 0, dear
    begin_facts(space[8], steps, facts)
    levels[:, : steps + 1] = 0
    held, rows, tables = np.zeros((len(weights) + 1, apart)), np.empty((SIDE, apart), np.uint16), shares.copy()
    tables[:, 0] = 0.0
    if dear:
        sums[:] = 0.0
        add_own(starts, weights, shares, sums)
    for first in range(0, len(near), apart):
        some = near[first : first + apart]
        if dear:
            hold_weights(weights, some, held)
        for w in range((len(starts) + 63) // 64):
            if not gather_squares(space, used, some, w):
                continue
            for p in range(1, used + 1):
                for start in range(0, len(some), 64):
                    transpose_bits(squares, p * apart + start)
            for start in range(0, len(some), 64):
                kept = ~np.uint64(0) >> np.uint64(max(0, start + 64 - len(some)))
                tell_squares(squares, apart + start, used, kept, first + start, facts[w], work)
                count_levels(squares, apart + start, used, steps, kept, levels[w], terms)
            if dear:
                extent = len(some), min(64, len(starts) - 64 * w), 64 * w
                fade_squares(squares, used, extent, tables, held, rows, sums)
    return True, steps, dear or added > DEAR * len(near) * len(shares)
