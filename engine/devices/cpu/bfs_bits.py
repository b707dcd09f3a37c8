"""Breadth-first searches from many sources at once, one bit a source.

A vertex holds a row of bits, one a source: those that have *seen* it, and those that came to it in the last step.  A
step goes over arcs for all sources of a block together (Then, Kaufmann, Chirigati, Hoang-Vu, Pham, Kemper, Neumann and
Vo, "The more the merrier: efficient multi-source graph traversal", 2014): from the vertices that were come to, or,
where most arcs would be gone over so, into all vertices that some source has not seen (Beamer, Asanović and Patterson,
"Direction-optimizing breadth-first search", 2012).

A step that comes to a vertex is not written into the rows: its number is added to *planes* of bits, the first of which
holds the lowest digit of each source's distance, and so on.  In the end squares of 64 sources and 64 vertices are
turned round and spread out, 64 distances of a row at a time.  A square that no source has come to is filled.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.search import Goal, prepare
from engine.devices.cpu.team import fetch_add
from engine.model.backend import Arcs, Array
from engine.model.dtypes import work_type

#: Words of 64 bits in a vertex's row: one register of 512 bits, or two of 256.
WORDS: Final = 8
#: Sources of a block.
BITS: Final = 64 * WORDS
#: Planes, so that steps are counted up to 255.
PLANES: Final = 8
#: Squares of 64 columns that leave side by side: pieces of rows are as long.
SQUARES: Final = 4
#: Share of all arcs from which on they are gone over backwards.
MANY: Final = 0.25


@intrinsic
def _turn_square(typingctx, square, at):  # type: ignore[no-untyped-def]
    """Turn 64 words of ``square`` from index ``at`` round: bit j of word k becomes bit k of word j."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word, index = ir.IntType(64), ir.IntType(32)
        vector = ir.VectorType(word, 64)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())
        rows = builder.load(place, align=64)
        for step in (32, 16, 8, 4, 2, 1):
            low = sum(1 << bit for bit in range(64) if not bit & step)
            lows, highs = (ir.Constant(vector, [mask] * 64) for mask in (low, low << step))
            by = ir.Constant(vector, [step] * 64)
            other = ir.Constant(ir.VectorType(index, 64), [k ^ step for k in range(64)])
            partner = builder.shuffle_vector(rows, ir.Constant(vector, ir.Undefined), other)
            upper = builder.or_(builder.and_(rows, lows), builder.shl(builder.and_(partner, lows), by))
            lower = builder.or_(builder.and_(rows, highs), builder.lshr(builder.and_(partner, highs), by))
            is_upper = ir.Constant(ir.VectorType(ir.IntType(1), 64), [int(not k & step) for k in range(64)])
            rows = builder.select(is_upper, upper, lower)
        builder.store(rows, place, align=64)
        return context.get_dummy_value()

    return types.void(square, at), codegen


@intrinsic
def _spread(typingctx, squares, at, apart, planes, seen, sentinel, out, to):  # type: ignore[no-untyped-def]
    """out[to : to + 64] <- the numbers whose binary digits are ``planes`` words of ``squares``, ``sentinel`` elsewhere.

    The words stand at ``at``, ``at + apart``, ...; ``seen`` is the word of the columns that have a number.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        at, apart, planes, seen, sentinel, to = (args[i] for i in (1, 2, 3, 4, 5, 7))
        squares, out = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 6))
        kind = signature.args[6].dtype
        element = context.get_data_type(kind)
        digits = ir.VectorType(ir.IntType(16 if kind.bitwidth == 16 else 32), 64)
        flags, word = ir.VectorType(ir.IntType(1), 64), ir.IntType(64)
        nothing = ir.Constant(digits, [0] * 64)

        def everywhere(value, vector):  # type: ignore[no-untyped-def]
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
            return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)

        entry = builder.block
        loop, done = builder.append_basic_block("plane"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", planes, ir.Constant(word, 0)), loop, done)
        builder.position_at_end(loop)
        p, total = builder.phi(word), builder.phi(digits)
        p.add_incoming(ir.Constant(word, 0), entry)
        total.add_incoming(nothing, entry)
        plane = builder.load(builder.gep(squares, [builder.add(at, builder.mul(p, apart))]))
        digit = builder.shl(ir.Constant(digits.element, 1), builder.trunc(p, digits.element))
        value = builder.select(builder.bitcast(plane, flags), everywhere(digit, digits), nothing)
        total_next = builder.or_(total, value)
        p_next = builder.add(p, ir.Constant(word, 1))
        p.add_incoming(p_next, loop)
        total.add_incoming(total_next, loop)
        builder.cbranch(builder.icmp_signed("<", p_next, planes), loop, done)
        builder.position_at_end(done)
        found = builder.phi(digits)
        found.add_incoming(nothing, entry)
        found.add_incoming(total_next, loop)
        row = ir.VectorType(element, 64)
        numbers = builder.sitofp(found, row) if isinstance(kind, types.Float) else found
        numbers = builder.select(builder.bitcast(seen, flags), numbers, everywhere(sentinel, row))
        place = builder.bitcast(builder.gep(out, [to]), row.as_pointer())
        builder.store(numbers, place, align=kind.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(squares, at, apart, planes, seen, sentinel, out, to), codegen


def _row_pointers(context, builder, kinds, values):  # type: ignore[no-untyped-def]
    """The data of arrays of rows, each row one vector."""
    vector = ir.VectorType(ir.IntType(64), WORDS)
    arrays = [context.make_array(kind)(context, builder, value).data for kind, value in zip(kinds, values, strict=True)]
    return vector, [builder.bitcast(array, vector.as_pointer()) for array in arrays]


def _any(builder, vector):  # type: ignore[no-untyped-def]
    """Whether a bit is set in a row."""
    flags = builder.icmp_unsigned("!=", vector, ir.Constant(vector.type, [0] * WORDS))
    kind = ir.IntType(WORDS)
    return builder.icmp_unsigned("!=", builder.bitcast(flags, kind), ir.Constant(kind, 0))


def _over_arcs(builder, first, last, carried, body):  # type: ignore[no-untyped-def]
    """A loop over arcs ``first`` ... ``last`` - 1: ``body(e, value)`` gives the value carried on; returns the last."""
    word, entry = ir.IntType(64), builder.block
    loop, done = builder.append_basic_block("arc"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), loop, done)
    builder.position_at_end(loop)
    e, value = builder.phi(word), builder.phi(carried.type)
    e.add_incoming(first, entry)
    value.add_incoming(carried, entry)
    onward = body(e, value)
    following = builder.add(e, ir.Constant(word, 1))
    e.add_incoming(following, loop)
    value.add_incoming(onward, loop)
    builder.cbranch(builder.icmp_signed("<", following, last), loop, done)
    builder.position_at_end(done)
    result = builder.phi(carried.type)
    result.add_incoming(carried, entry)
    result.add_incoming(onward, loop)
    return result


@intrinsic
def _pull(typingctx, first, last, tails, visit, seen, fresh, v):  # type: ignore[no-untyped-def]
    """The sources that come to ``v`` over the arcs from ``tails`` and had not seen it; whether there are any.

    If so they are put into fresh[v] and have seen it.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        tails = context.make_array(signature.args[2])(context, builder, args[2]).data
        vector, (visit, seen, fresh) = _row_pointers(context, builder, signature.args[3:6], args[3:6])
        v = args[6]

        def body(e, value):  # type: ignore[no-untyped-def]
            tail = builder.zext(builder.load(builder.gep(tails, [e])), ir.IntType(64))
            return builder.or_(value, builder.load(builder.gep(visit, [tail]), align=64))

        come = _over_arcs(builder, args[0], args[1], ir.Constant(vector, [0] * WORDS), body)
        known = builder.load(builder.gep(seen, [v]), align=64)
        new = builder.and_(come, builder.not_(known))
        some = _any(builder, new)
        with builder.if_then(some):
            builder.store(new, builder.gep(fresh, [v]), align=64)
            builder.store(builder.or_(known, new), builder.gep(seen, [v]), align=64)
        return some

    return types.boolean(first, last, tails, visit, seen, fresh, v), codegen


@intrinsic
def _push(typingctx, first, last, heads, visit, fresh, marked, v):  # type: ignore[no-untyped-def]
    """fresh[head] |= visit[v] over the arcs to ``heads``, which are ``marked``; visit[v] is cleared."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        heads, marked = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (2, 5))
        vector, (visit, fresh) = _row_pointers(context, builder, signature.args[3:5], args[3:5])
        here = builder.gep(visit, [args[6]])

        def body(e, value):  # type: ignore[no-untyped-def]
            head = builder.zext(builder.load(builder.gep(heads, [e])), ir.IntType(64))
            there = builder.gep(fresh, [head])
            builder.store(builder.or_(builder.load(there, align=64), value), there, align=64)
            builder.store(ir.Constant(ir.IntType(8), 1), builder.gep(marked, [head]))
            return value

        _over_arcs(builder, args[0], args[1], builder.load(here, align=64), body)
        builder.store(ir.Constant(vector, [0] * WORDS), here, align=64)
        return context.get_dummy_value()

    return types.void(first, last, heads, visit, fresh, marked, v), codegen


@intrinsic
def _arrive(typingctx, fresh, seen, visit, v):  # type: ignore[no-untyped-def]
    """visit[v] <- the sources in fresh[v], which is cleared, that had not seen ``v``; whether there are any."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        vector, rows = _row_pointers(context, builder, signature.args[:3], args[:3])
        fresh, seen, visit = (builder.gep(row, [args[3]]) for row in rows)
        known = builder.load(seen, align=64)
        new = builder.and_(builder.load(fresh, align=64), builder.not_(known))
        builder.store(ir.Constant(vector, [0] * WORDS), fresh, align=64)
        builder.store(new, visit, align=64)
        builder.store(builder.or_(known, new), seen, align=64)
        return _any(builder, new)

    return types.boolean(fresh, seen, visit, v), codegen


@intrinsic
def _join(typingctx, onto, i, rows, j):  # type: ignore[no-untyped-def]
    """onto[i] |= rows[j]."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pair = (signature.args[0], signature.args[2]), (args[0], args[2])
        _, (onto, rows) = _row_pointers(context, builder, *pair)
        place = builder.gep(onto, [args[1]])
        row = builder.load(builder.gep(rows, [args[3]]), align=64)
        builder.store(builder.or_(builder.load(place, align=64), row), place, align=64)
        return context.get_dummy_value()

    return types.void(onto, i, rows, j), codegen


@intrinsic
def _full(typingctx, seen, v):  # type: ignore[no-untyped-def]
    """Whether all sources have seen ``v``."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _, (seen,) = _row_pointers(context, builder, signature.args[:1], args[:1])
        row = builder.load(builder.gep(seen, [args[1]]), align=64)
        return builder.not_(_any(builder, builder.not_(row)))

    return types.boolean(seen, v), codegen


@njit(nogil=True, cache=True)
def _rows(n):  # type: ignore[no-untyped-def]
    """n rows of words, aligned to 64 bytes; what they hold is undefined."""
    space = np.empty(n * WORDS + 8, np.uint64)
    skip = (-space.ctypes.data % 64) // 8
    return space[skip : skip + n * WORDS].reshape(n, WORDS)


@njit(nogil=True, cache=True)
def _note(planes, n, step, visit, v):  # type: ignore[no-untyped-def]
    """The sources in visit[v] have come to ``v`` in ``step``: set its digits."""
    at = v
    while step > 0:
        if step & 1:
            _join(planes, at, visit, v)
        step >>= 1
        at += n


@njit(nogil=True, cache=True)
def _forwards(indptr, heads, seen, visit, fresh, planes, step, active, marked):  # type: ignore[no-untyped-def]
    """From the ``active`` vertices over their arcs; returns the arcs out of those come to, which are active then.

    ``fresh`` and ``marked`` are clean before and after.
    """
    n = len(seen)
    words = active.view(np.uint64)
    for word in range(len(words)):
        if words[word] != 0:
            for v in range(8 * word, 8 * word + 8):
                if active[v] != 0:
                    _push(indptr[v], indptr[v + 1], heads, visit, fresh, marked, v)
            words[word] = 0
    words = marked.view(np.uint64)
    onward = 0
    for word in range(len(words)):
        if words[word] != 0:
            for v in range(8 * word, 8 * word + 8):
                if marked[v] != 0 and _arrive(fresh, seen, visit, v):
                    active[v] = 1
                    onward += indptr[v + 1] - indptr[v] + 1
                    _note(planes, n, step, visit, v)
            words[word] = 0
    return onward


@njit(nogil=True, cache=True)
def _backwards(indptr, into, tails, seen, visit, fresh, planes, step, active):  # type: ignore[no-untyped-def]
    """Into every vertex that some source has not seen, from all others; returns as ``_forwards``.

    Who came is in ``fresh``, which was clean.
    """
    n = len(seen)
    onward = 0
    for v in range(n):
        active[v] = 0
        if not _full(seen, v) and _pull(into[v], into[v + 1], tails, visit, seen, fresh, v):
            active[v] = 1
            onward += indptr[v + 1] - indptr[v] + 1
            _note(planes, n, step, fresh, v)
    return onward


@njit(nogil=True, cache=True)
def _steps(indptr, heads, into, tails, limit, seen, visit, fresh, planes, active, marked, onward):  # type: ignore[no-untyped-def]
    """Step after step until nobody comes anywhere or ``limit`` is reached: planes in use, and whether it was not.

    ``visit`` and ``fresh`` are clean afterwards.
    """
    n, used, step = len(seen), 0, 1
    while step < limit and onward > 0:
        if step >> used:
            planes[used * n : (used + 1) * n] = 0
            used += 1
        if onward < MANY * (len(heads) + n):
            onward = _forwards(indptr, heads, seen, visit, fresh, planes, step, active, marked)
        else:
            onward = _backwards(indptr, into, tails, seen, visit, fresh, planes, step, active)
            visit[:] = 0
            visit, fresh = fresh, visit
        step += 1
    visit[:] = 0
    return used, onward == 0


@njit(nogil=True, cache=True)
def _emit(seen, planes, used, near, rows, out, sentinel, squares, piece):  # type: ignore[no-untyped-def]
    """Distances of the block into its ``rows`` of ``out``; column k is the vertex of number ``near[k]``.

    ``squares`` (uint64, aligned, shape ((PLANES + 1) * SQUARES * 64,)) is work space, ``piece`` 64 entries of it.
    """
    n, columns = len(seen), len(near)
    apart = SQUARES * 64
    for first in range(0, columns, apart):
        some = near[first : first + apart]
        for w in range((len(rows) + 63) // 64):
            anyone = np.uint64(0)
            for k in range(len(some)):
                squares[k] = seen[some[k], w]
                anyone |= squares[k]
            high = min(64, len(rows) - 64 * w)
            if anyone == 0:
                for j in range(high):
                    out[rows[64 * w + j], first : first + len(some)] = sentinel
                continue
            for p in range(used):
                for k in range(len(some)):
                    squares[(p + 1) * apart + k] = planes[p * n + some[k], w]
            for p in range(used + 1):
                for start in range(0, len(some), 64):
                    _turn_square(squares, p * apart + start)
            for j in range(high):
                row = out[rows[64 * w + j]]
                for start in range(0, len(some), 64):
                    reached = squares[start + j]
                    if start + 64 <= len(some):
                        _spread(squares, apart + start + j, apart, used, reached, sentinel, row, first + start)
                    else:
                        _spread(squares, apart + start + j, apart, used, reached, sentinel, piece, 0)
                        row[first + start : first + len(some)] = piece[: len(some) - start]


@njit(nogil=True, cache=True)
def _begin(indptr, starts, seen, visit, active):  # type: ignore[no-untyped-def]
    """Every source has seen its own vertex, ``starts[j]``; bits that stand for no source have seen all."""
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


@njit(nogil=True, cache=True)
def search_bits(  # type: ignore[no-untyped-def]
    worker, indptr, heads, into, tails, rank, near, limit, whole, sources, order, high, out, sentinel, counter, undone
):
    """Search block after block of ``sources[order]``, ``high`` sources each; the kernel of one thread.

    ``indptr``, ``heads``: arcs out of each vertex; ``into``, ``tails``: arcs into it.  ``rank`` numbers the vertices,
    ``near`` holds the numbers of the columns of ``out``.  Nobody goes as far as ``limit`` steps; unless nearer vertices
    are the ``whole`` of what was asked for, the entry in ``undone`` of a block that would have to becomes True.
    """
    n = len(indptr) - 1
    seen, visit, fresh, planes = _rows(n), _rows(n), _rows(n), _rows(PLANES * n)
    visit[:] = 0
    fresh[:] = 0
    active = np.zeros((n + 7) // 8 * 8, np.uint8)
    marked = np.zeros_like(active)
    squares = _rows((PLANES + 1) * SQUARES * 64 // WORDS).reshape(-1)
    squares[:] = 0
    piece = np.empty(64, out.dtype)
    while True:
        block = fetch_add(counter.ctypes.data, 1)
        if block >= len(undone):
            break
        rows = order[block * high : (block + 1) * high]
        onward = _begin(indptr, rank[sources[rows]], seen, visit, active)
        used, done = _steps(indptr, heads, into, tails, limit, seen, visit, fresh, planes, active, marked, onward)
        if done or whole:
            _emit(seen, planes, used, near, rows, out, sentinel, squares, piece)
        undone[block] = not (done or whole)


#: Fewer sources than this are searched one by one.
LEAST: Final = 32


class BreadthFirst(CpuBackend):
    """A CPU backend that searches breadth first, many sources at once, where all arcs weigh 1."""

    def search(
        self,
        arcs: Arcs,
        sources: npt.NDArray[np.int64],
        out: Array,
        *,
        unit: bool = False,
        targets: npt.NDArray[np.int64] | None = None,
        cutoff: float | None = None,
    ) -> None:
        """One search per source; sources of a block that needs too many steps are left to other searches."""
        given: dict[str, Any] = {"unit": unit, "targets": targets, "cutoff": cutoff}
        count = len(sources)
        if not unit or arcs.potentials is not None or count < LEAST:
            super().search(arcs, sources, out, **given)
            return
        ready = prepare(arcs)
        sources = np.ascontiguousarray(sources, dtype=np.int64)
        goal = Goal.of(ready, None, sources, out.dtype, targets, cutoff)
        most = 2**PLANES
        limit = most + 1 if goal.limit > most else math.ceil(goal.limit)
        order = np.argsort(ready.rank[sources], kind="stable")  # neighbours share a block
        blocks = max(-(-count // BITS), min(self.threads, count // LEAST))
        undone = np.zeros(blocks, np.bool_)
        high = -(-count // blocks)
        self._team.run(
            search_bits,
            *(ready.indptr, ready.heads, ready.into, ready.tails, ready.rank, goal.near),
            *(min(limit, most), limit <= most, sources, order, high),
            *(out, work_type(out.dtype).sentinel(), np.zeros(1, np.int64), undone),
        )
        left = order[np.repeat(undone, high)[:count]]
        if len(left):
            rows = np.empty((len(left), out.shape[1]), out.dtype)
            super().search(arcs, sources[left], rows, **given)
            out[left] = rows
