"""Operations on rows of bits, one bit per source, in LLVM vectors, for ``engine.devices.cpu.bfs_bits``.

A *row* is ``WORDS`` words of 64 bits, aligned to 64 bytes, and belongs to one vertex.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: The number of words of 64 bits in a vertex's row: one register of 512 bits, or two of 256.
WORDS: Final = 8


@intrinsic
def transpose_bits(typingctx, square, at):  # type: ignore[no-untyped-def]
    """Transpose 64 words of ``square`` from index ``at`` on: bit j of word k becomes bit k of word j.

    Args:
        typingctx: numba's typing context.
        square: uint64, aligned to 64 bytes, changed in place.
        at: index of the first word.
    """

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


def everywhere(builder, value, vector):  # type: ignore[no-untyped-def]
    """Return a vector of 64 copies of ``value``."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


@intrinsic
def spread_digits(typingctx, squares, at, apart, planes, seen, sentinel, out, to):  # type: ignore[no-untyped-def]
    """Set out[to : to + 64] to the numbers whose binary digits are in ``squares``; ``sentinel`` where ``seen`` has no
    bit.

    Args:
        typingctx: numba's typing context.
        squares: uint64: the word with digit p of all 64 numbers has the index ``at + p * apart``.
        at, apart: index of the word of the first digit, and number of words from one digit to the next.
        planes: the number of digits.
        seen: uint64: bit k says whether number k exists.
        sentinel: the value where a number does not exist, in the type of ``out``.
        out, to: flat array, and the index of the first number.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        at, apart, planes, seen, sentinel, to = (args[i] for i in (1, 2, 3, 4, 5, 7))
        squares, out = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 6))
        kind = signature.args[6].dtype
        element = context.get_data_type(kind)
        digits = ir.VectorType(ir.IntType(16 if kind.bitwidth == 16 else 32), 64)
        flags, word = ir.VectorType(ir.IntType(1), 64), ir.IntType(64)
        nothing = ir.Constant(digits, [0] * 64)

        entry = builder.block
        loop, done = builder.append_basic_block("plane"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", planes, ir.Constant(word, 0)), loop, done)
        builder.position_at_end(loop)
        p, total = builder.phi(word), builder.phi(digits)
        p.add_incoming(ir.Constant(word, 0), entry)
        total.add_incoming(nothing, entry)
        plane = builder.load(builder.gep(squares, [builder.add(at, builder.mul(p, apart))]))
        digit = builder.shl(ir.Constant(digits.element, 1), builder.trunc(p, digits.element))
        value = builder.select(builder.bitcast(plane, flags), everywhere(builder, digit, digits), nothing)
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
        numbers = builder.select(builder.bitcast(seen, flags), numbers, everywhere(builder, sentinel, row))
        place = builder.bitcast(builder.gep(out, [to]), row.as_pointer())
        builder.store(numbers, place, align=kind.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(squares, at, apart, planes, seen, sentinel, out, to), codegen


def _row_pointers(context, builder, kinds, values):  # type: ignore[no-untyped-def]
    """Return the LLVM type of a row, which is one vector, and for each array the pointer to its first row."""
    vector = ir.VectorType(ir.IntType(64), WORDS)
    arrays = [context.make_array(kind)(context, builder, value).data for kind, value in zip(kinds, values, strict=True)]
    return vector, [builder.bitcast(array, vector.as_pointer()) for array in arrays]


def _any(builder, vector):  # type: ignore[no-untyped-def]
    """Return whether any bit of a row is set."""
    flags = builder.icmp_unsigned("!=", vector, ir.Constant(vector.type, [0] * WORDS))
    kind = ir.IntType(WORDS)
    return builder.icmp_unsigned("!=", builder.bitcast(flags, kind), ir.Constant(kind, 0))


def _over_arcs(builder, first, last, carried, body):  # type: ignore[no-untyped-def]
    """Loop over arcs ``first`` ... ``last`` - 1; ``body(e, value)`` returns the next value; return the last value."""
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
def pull_sources(typingctx, first, last, tails, visit, seen, fresh, v):  # type: ignore[no-untyped-def]
    """Find the sources that reach ``v`` from ``tails`` and had not seen it; return whether there are any.

    These sources are written to fresh[v] and added to seen[v].

    Args:
        typingctx: numba's typing context.
        first, last: the arcs into ``v`` are ``first`` ... ``last`` - 1.
        tails: the tail of each arc.
        visit: rows: the sources that reached each vertex in the previous step.
        seen: rows: the sources that have seen each vertex.
        fresh: rows: the sources that reach each vertex in this step.
        v: a vertex.
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
def push_sources(typingctx, first, last, heads, visit, fresh, marked, v):  # type: ignore[no-untyped-def]
    """fresh[head] |= visit[v] and marked[head] = 1 for the arcs out of ``v``; clears visit[v].

    Args:
        typingctx: numba's typing context.
        first, last: the arcs out of ``v`` are ``first`` ... ``last`` - 1.
        heads: the head of each arc.
        visit: rows: the sources that reached each vertex in the previous step.
        fresh: rows: the sources that reach each vertex in this step.
        v: a vertex.
        marked: uint8: the vertices whose row of ``fresh`` may have changed.
    """

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
def arrive(typingctx, fresh, seen, visit, v):  # type: ignore[no-untyped-def]
    """visit[v] <- the sources in fresh[v] that had not seen ``v``; clears fresh[v]; returns whether there are any.

    Args:
        typingctx: numba's typing context.
        fresh, seen, visit: rows of bits, as in :func:`pull_sources`; the sources are added to seen[v].
        v: a vertex.
    """

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
def join_row(typingctx, onto, i, rows, j):  # type: ignore[no-untyped-def]
    """onto[i] |= rows[j].

    Args:
        typingctx: numba's typing context.
        onto, rows: rows of bits.
        i, j: indices of rows.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pair = (signature.args[0], signature.args[2]), (args[0], args[2])
        _, (onto, rows) = _row_pointers(context, builder, *pair)
        place = builder.gep(onto, [args[1]])
        row = builder.load(builder.gep(rows, [args[3]]), align=64)
        builder.store(builder.or_(builder.load(place, align=64), row), place, align=64)
        return context.get_dummy_value()

    return types.void(onto, i, rows, j), codegen


@intrinsic
def keep_others(typingctx, rows, i, known, j, out, k):  # type: ignore[no-untyped-def]
    """out[k] <- rows[i] without the bits of known[j].

    Args:
        typingctx: numba's typing context.
        rows, known, out: rows of bits.
        i, j, k: indices of rows.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _, pointers = _row_pointers(context, builder, signature.args[::2], args[::2])
        row, known, place = (builder.gep(one, [at]) for one, at in zip(pointers, args[1::2], strict=True))
        left = builder.and_(builder.load(row, align=64), builder.not_(builder.load(known, align=64)))
        builder.store(left, place, align=64)
        return context.get_dummy_value()

    return types.void(rows, i, known, j, out, k), codegen


@intrinsic
def is_full(typingctx, seen, v):  # type: ignore[no-untyped-def]
    """Return whether all sources have seen ``v``.

    Args:
        typingctx: numba's typing context.
        seen: rows: the sources that have seen each vertex.
        v: a vertex.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _, (seen,) = _row_pointers(context, builder, signature.args[:1], args[:1])
        row = builder.load(builder.gep(seen, [args[1]]), align=64)
        return builder.not_(_any(builder, builder.not_(row)))

    return types.boolean(seen, v), codegen


@intrinsic
def count_arrivals(typingctx, rows, active, arrivals, i):  # type: ignore[no-untyped-def]
    """Set arrivals[i] to the union of the rows of all ``active`` vertices; return the number of bits in these rows.

    Args:
        typingctx: numba's typing context.
        rows: rows of bits.
        active: uint8, one byte per vertex, 0 or 1; its length is a multiple of 8.
        arrivals: rows of bits.
        i: index of a row.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        vector, (rows, arrivals) = _row_pointers(context, builder, signature.args[:3:2], args[:3:2])
        active = context.make_array(signature.args[1])(context, builder, args[1])
        word, flag = ir.IntType(64), ir.IntType(8)
        words = builder.bitcast(active.data, word.as_pointer())
        popcount = builder.module.declare_intrinsic(f"llvm.ctpop.v{WORDS}i64", (), ir.FunctionType(vector, [vector]))
        nothing = ir.Constant(vector, [0] * WORDS)
        some, counts = (cgutils.alloca_once_value(builder, nothing) for _ in range(2))
        with cgutils.for_range(builder, builder.lshr(active.nitems, ir.Constant(word, 3))) as eight:
            flags = builder.load(builder.gep(words, [eight.index]))
            with builder.if_then(builder.icmp_unsigned("!=", flags, ir.Constant(word, 0))):
                first = builder.shl(eight.index, ir.Constant(word, 3))
                with cgutils.for_range(builder, ir.Constant(word, 8)) as one:
                    v = builder.add(first, one.index)
                    marked = builder.load(builder.gep(active.data, [v]))
                    with builder.if_then(builder.icmp_unsigned("!=", marked, ir.Constant(flag, 0))):
                        row = builder.load(builder.gep(rows, [v]), align=64)
                        builder.store(builder.or_(builder.load(some), row), some)
                        builder.store(builder.add(builder.load(counts), builder.call(popcount, [row])), counts)
        builder.store(builder.load(some), builder.gep(arrivals, [args[3]]), align=64)
        total, lanes = builder.load(counts), ir.IntType(32)
        sums = [builder.extract_element(total, ir.Constant(lanes, k)) for k in range(WORDS)]
        while len(sums) > 1:
            sums = [builder.add(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)]
        return sums[0]

    return types.int64(rows, active, arrivals, i), codegen


@intrinsic
def count_word(typingctx, word):  # type: ignore[no-untyped-def]
    """Return how many bits of a word of 64 bits are set.

    Args:
        typingctx: numba's typing context.
        word: uint64.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def lowest_bit(typingctx, word):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is set in a word of 64 bits; 64 if none is.

    Args:
        typingctx: numba's typing context.
        word: uint64.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen
