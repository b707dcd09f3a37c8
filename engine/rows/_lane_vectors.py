"""Steps of sums along paths for 16 sources side by side, written as vector instructions.

A *line* is a row of 16 entries of one vertex, one for each source.  The lines of a vertex follow each other in memory:
distances, arcs of the path (hops), and one line for each quantity.  Hops are -1 where the vertex is not summed yet, and
0 only at the source of a lane.  Numba leaves short loops as they are, so these steps are written for LLVM, which splits
vectors where registers are narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

#: The number of sources side by side, which is the number of int32 in a cache line.
LANES: Final = 16
#: The distance of a vertex without a path; the sum of FAR and a weight fits in int32.
FAR: Final = 2**30 - 1
#: Number of lines of a vertex before the lines of its quantities: distances and hops.
SKIPPED: Final = 2

_LARGEST: Final = 2**31 - 1
_I16: Final = ir.IntType(16)
_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)
_ROW: Final = ir.VectorType(_I32, LANES)
_MASK: Final = ir.VectorType(ir.IntType(1), LANES)


class Step:
    """What one intrinsic works with: its arguments, and short forms of the instructions that it needs."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.build, self._context, self._types, self._given = builder, context, signature.args, args

    def array(self, *where: int) -> Any:
        """Return an argument, or an entry of an argument that is a tuple, as an array with ``data`` and ``shape``."""
        value = self._given[where[0]]
        for k in where[1:]:
            value = self.build.extract_value(value, k)
        return self._context.make_array(self.kind(*where))(self._context, self.build, value)

    def kind(self, *where: int) -> Any:
        """Return numba's type of an argument, or of an entry of an argument that is a tuple."""
        kind = self._types[where[0]]
        for k in where[1:]:
            kind = kind.types[k]
        return kind

    def extent(self, array: Any, axis: int) -> Any:
        """Return the size of an array along an axis."""
        return self.build.extract_value(array.shape, axis)

    def numbers(self, where: int, count: int) -> list[Any]:
        """Return the integers of an argument that is a tuple."""
        return [self.build.extract_value(self._given[where], k) for k in range(count)]

    def rows(self, array: Any, kind: Any = _I32) -> Any:
        """Return the data of an array as a pointer to lines."""
        return self.build.bitcast(array.data, ir.VectorType(kind, LANES).as_pointer())

    def at(self, pointer: Any, *terms: Any) -> Any:
        """Return the pointer moved by the sum of some integers."""
        place = terms[0]
        for term in terms[1:]:
            place = self.build.add(place, term if isinstance(term, ir.Value) else word(term))
        return self.build.gep(pointer, [place])

    def load(self, pointer: Any, *terms: Any) -> Any:
        """Load a line from the place that :meth:`at` returns.  The line is aligned to a cache line."""
        return self.build.load(self.at(pointer, *terms), align=64)

    def entry(self, array: Any, *terms: Any) -> Any:
        """Load one entry of an array."""
        return self.build.load(self.at(array.data, *terms))

    def spread(self, value: Any) -> Any:
        """Return a vector of 16 copies of ``value``."""
        vector = ir.VectorType(value.type, LANES)
        undefined = ir.Constant(vector, ir.Undefined)
        one = self.build.insert_element(undefined, value, ir.Constant(_I32, 0))
        return self.build.shuffle_vector(one, undefined, constant(0))

    def bits(self, mask: Any) -> Any:
        """Return a mask as a word with a bit for each lane."""
        count = mask.type.count
        bits = self.build.bitcast(mask, ir.IntType(count))
        return bits if count == _I64.width else self.build.zext(bits, _I64)

    def blocks(self, *names: str) -> list[Any]:
        """Append basic blocks to the function, and return them."""
        return [self.build.append_basic_block(name) for name in names]

    def joined(self, *ways: tuple[Any, Sequence[Any]]) -> list[Any]:
        """Return values that depend on the block from which this one is entered; ``ways`` are blocks and values."""
        found = [self.build.phi(value.type) for value in ways[0][1]]
        for block, values in ways:
            for phi, value in zip(found, values, strict=True):
                phi.add_incoming(value, block)
        return found

    def repeat(self, starts: Sequence[Any], lasts: Callable[..., Any], body: Callable[..., Sequence[Any]]) -> list[Any]:
        """Repeat the instructions of ``body`` while a condition holds.

        Args:
            starts: values before the first round.
            lasts: makes the condition of a round from the values before it.
            body: makes the values after a round from those before it.

        Returns:
            The values after the last round.
        """
        entry, (loop, done) = self.build.block, self.blocks("loop", "done")
        self.build.cbranch(lasts(*starts), loop, done)
        self.build.position_at_end(loop)
        before = self.joined((entry, starts))
        after = body(*before)
        for phi, value in zip(before, after, strict=True):
            phi.add_incoming(value, self.build.block)
        end = self.build.block
        self.build.cbranch(lasts(*after), loop, done)
        self.build.position_at_end(done)
        return self.joined((entry, starts), (end, after))


def word(value: int) -> Any:
    """Return an integer of 64 bits."""
    return ir.Constant(_I64, value)


def constant(value: int) -> Any:
    """Return a vector of 16 equal integers of 32 bits."""
    return ir.Constant(_ROW, [value] * LANES)


def _compared(step: Step) -> tuple[Any, Any, Any, Any]:
    """Compare the arcs into a vertex.  Return its distances, the arc that each lane takes, a mask of the lanes in which
    an arc gives less than the distance, and the least distance of a tail.

    A lane takes the tight arc whose tail has the fewest hops, and of ties the first.  A tail that is not summed yet has
    -1 hops, so it comes before all other tails.
    """
    build, (first, last, v) = step.build, step.numbers(0, 3)
    tails, lines = step.array(1), step.array(3, 0)
    width, rows = step.extent(lines, 1), step.rows(lines)
    here = step.load(rows, build.mul(v, width))

    def compared(e: Any, best: Any, taken: Any, *lowest: Any) -> tuple[Any, ...]:
        tail = build.mul(build.zext(step.entry(tails, e), _I64), width)
        distance = step.load(rows, tail)
        through = build.add(distance, step.spread(step.entry(step.array(2), e)))
        tight = build.icmp_signed("==", through, here)
        hops = step.load(rows, tail, 1)
        better = build.and_(tight, build.icmp_signed("<", hops, best))
        number = step.spread(build.trunc(build.sub(e, first), _I32))
        lesser = [
            build.select(build.icmp_signed("<", value, so_far), value, so_far)
            for value, so_far in zip((through, distance), lowest, strict=True)
        ]
        following = build.add(e, word(1))
        return following, build.select(better, hops, best), build.select(better, number, taken), *lesser

    starts = first, constant(_LARGEST), constant(-1), constant(_LARGEST), constant(_LARGEST)
    _, _, taken, least, nearest = step.repeat(starts, lambda e, *_: build.icmp_signed("<", e, last), compared)
    return here, taken, build.icmp_signed("<", least, here), nearest


@intrinsic
def find_arcs(typingctx, place, tails, weights, sums, limited, taken):  # type: ignore[no-untyped-def]
    """Find the last arc of the path to a vertex in each lane.

    ``place`` is (first, last, v): the arcs ``first`` to ``last`` - 1 lead into ``v``.  ``sums`` are those of
    :func:`add_arcs`.  ``taken``, int32, shape (16,), receives the number of the arc, counted from ``first``.  It
    receives -1 where there is no path, and where the vertex is the source.  Returns a word with a bit for each lane
    that holds no shortest distance.

    Distances that overflowed their type are found, too: at least one vertex of such a row gets a bit.  Assume the
    contrary, that none does.  Then all distances of the row lie below ``FAR``.  None is negative: weights are not, so
    the tail of the arc taken is no farther than its head, and the arcs taken lead back to the source, whose distance is
    0.  So no sum here has overflowed, each distance is the length of a path, and no arc gives less.  A vertex without a
    distance to which a path leads gets a bit, however long the path is, unless distances beyond a cutoff are left out.
    """
    signature = types.int64(place, tails, weights, sums, limited, taken)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        step, v = Step(context, builder, signature, args), builder.extract_value(args[0], 2)
        lines, zero = step.array(3, 0), constant(0)
        here, arcs, shorter, nearest = _compared(step)
        hops = step.load(step.rows(lines), builder.mul(v, step.extent(lines, 1)), 1)
        reached = builder.icmp_signed("<", here, constant(FAR))
        searched = builder.and_(reached, builder.icmp_signed("!=", hops, zero))
        arcs = builder.select(searched, arcs, constant(-1))
        builder.store(arcs, step.rows(step.array(5)), align=4)
        missing = builder.and_(searched, builder.icmp_signed("<", arcs, zero))
        every = builder.icmp_signed("==", step.spread(builder.trunc(args[4], _I32)), zero)
        lost = builder.and_(every, builder.icmp_signed("<", nearest, constant(FAR)))
        wrong = builder.or_(missing, builder.select(reached, shorter, lost))
        return step.bits(builder.or_(wrong, builder.icmp_signed(">", here, constant(FAR))))

    return signature, codegen


def _added(step: Step, which: int, tail: Any, arc: Any, v: Any, mine: Any) -> None:
    """Add the quantities of an arc to the sums of its tail, in the lanes ``mine``.

    ``which`` is 0 for the quantities that are whole numbers, and 1 for fractions.
    """
    build, sums, amounts = step.build, step.array(3, which), step.array(2, which)
    kind = _I32 if which == 0 else ir.DoubleType()
    rows, width, count = step.rows(sums, kind), step.extent(sums, 1), step.extent(amounts, 1)
    skip = word(0 if which else SKIPPED)
    base, target = (build.add(build.mul(x, width), skip) for x in (tail, v))
    row, every = build.mul(arc, count), build.icmp_signed("==", step.bits(mine), word(2**LANES - 1))
    some, whole, part, done = step.blocks("some", "whole", "part", "added")
    build.cbranch(build.icmp_signed(">", count, word(0)), some, done)
    build.position_at_end(some)
    build.cbranch(every, whole, part)
    for block in (whole, part):
        build.position_at_end(block)
        k = build.phi(_I64)
        k.add_incoming(word(0), some)
        before, amount = step.load(rows, base, k), step.spread(step.entry(amounts, row, k))
        total = build.fadd(before, amount) if which else build.add(before, amount)
        if block is part:
            total = build.select(mine, total, step.load(rows, target, k))
        build.store(total, step.at(rows, target, k), align=64)
        following = build.add(k, word(1))
        k.add_incoming(following, block)
        build.cbranch(build.icmp_signed("<", following, count), block, done)
    build.position_at_end(done)


@intrinsic
def add_arcs(typingctx, place, tails, quantities, sums, taken):  # type: ignore[no-untyped-def]
    """Sum hops and quantities of a vertex over the arcs that :func:`find_arcs` found.

    ``place``, ``tails`` and ``taken`` are those of :func:`find_arcs`.  ``quantities``: of shapes (arcs, k), int32, and
    (arcs, l), float64.  ``sums``: the lines, int32, shape (n, 2 + k, 16), and float64, shape (n, l, 16).  Returns a
    word with a bit for each lane in which the tail of the arc is not summed yet; hops become -1 there.
    """
    signature = types.int64(place, tails, quantities, sums, taken)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, builder, signature, args)
        (first, _, v), tails, lines, taken = step.numbers(0, 3), step.array(1), step.array(3, 0), step.array(4)
        rows, width = step.rows(lines), step.extent(lines, 1)
        arcs = builder.load(step.rows(taken), align=4)

        def added(left: Any, hops: Any, waiting: Any) -> tuple[Any, ...]:
            number = step.entry(taken, builder.cttz(left, ir.Constant(ir.IntType(1), 1)))
            mine = builder.icmp_signed("==", arcs, step.spread(number))
            arc = builder.add(first, builder.sext(number, _I64))
            tail = builder.zext(step.entry(tails, arc), _I64)
            reached = step.load(rows, builder.mul(tail, width), 1)
            waits = builder.icmp_signed("<", reached, constant(0))
            more = builder.select(waits, constant(-1), builder.add(reached, constant(1)))
            for which in (0, 1):
                _added(step, which, tail, arc, v, mine)
            others = builder.and_(left, builder.not_(step.bits(mine)))
            waiting = builder.or_(waiting, step.bits(builder.and_(mine, waits)))
            return others, builder.select(mine, more, hops), waiting

        place = builder.mul(v, width)
        left = step.bits(builder.icmp_signed(">=", arcs, constant(0)))
        starts = left, step.load(rows, place, 1), word(0)
        _, hops, waiting = step.repeat(starts, lambda left, *_: builder.icmp_signed("!=", left, word(0)), added)
        builder.store(hops, step.at(rows, place, 1), align=64)
        return waiting

    return signature, codegen


def transposed(build: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of a square of 16 vectors: each step swaps one binary digit of row and column."""
    rows = list(rows)
    for digit in (1, 2, 4, 8):
        upper = [j ^ digit ^ LANES if j & digit else j for j in range(LANES)]
        lower = [j + LANES if j & digit else j ^ digit for j in range(LANES)]
        masks = [ir.Constant(_ROW, places) for places in (upper, lower)]
        for k in range(LANES):
            if not k & digit:
                pair = rows[k], rows[k | digit]
                rows[k], rows[k | digit] = (build.shuffle_vector(*pair, mask) for mask in masks)
    return rows


@intrinsic
def take_square(typingctx, rows, places, first, lines):  # type: ignore[no-untyped-def]
    """lines[first + j, 0, k] <- rows[places[k], first + j], and lines[first + j, 1, k] <- -1, for 16 values of j."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, builder, signature, args)
        rows, places, lines = step.array(0), step.array(1), step.array(3)
        found = []
        for k in range(LANES):
            row = builder.mul(step.entry(places, word(k)), step.extent(rows, 1))
            found.append(builder.load(builder.bitcast(step.at(rows.data, row, args[2]), _ROW.as_pointer()), align=4))
        out, width = step.rows(lines), step.extent(lines, 1)
        for j, line in enumerate(transposed(builder, found)):
            at = builder.mul(builder.add(args[2], word(j)), width)
            builder.store(line, step.at(out, at), align=64)
            builder.store(constant(-1), step.at(out, at, 1), align=64)
        return context.get_dummy_value()

    return types.void(rows, places, first, lines), codegen


def give_rows(step: Step, square: list[Any], places: Sequence[Any], out: tuple[Any, Any, Any]) -> None:
    """Store 16 lines of 16 sums: those of lane j in the row ``places[j]``.

    Args:
        step: the step.
        square: the lines.
        places: the rows of the results, one for each lane.
        out: the array of the results, of shape (rows, quantities, columns), the quantity, and the first column.
    """
    build, (results, k, first) = step.build, out
    for place, line in zip(places, transposed(build, square), strict=True):
        row = build.add(build.mul(place, step.extent(results, 1)), k)
        at = step.at(results.data, build.mul(row, step.extent(results, 2)), first)
        build.store(line, build.bitcast(at, line.type.as_pointer()), align=4)


@intrinsic
def give_square(typingctx, lines, sums, columns, none, places, out):  # type: ignore[no-untyped-def]
    """out[places[j], k, first + i] <- line ``own`` of vertex vertices[first + i] in lane j, for 16 values of i.

    The tuples are: ``sums`` (array, own), ``columns`` (vertices, first) with vertices as int64, and ``out`` (array, k).
    Entries without a distance become ``none``.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, builder, signature, args)
        lines, sums, vertices, places, out = (step.array(*k) for k in ((0,), (1, 0), (2, 0), (4,), (5, 0)))
        own, first, k = (builder.extract_value(args[i], 1) for i in (1, 2, 5))
        kind = context.get_data_type(signature.args[1].types[0].dtype)
        none, found = step.spread(args[3]), []
        for i in range(LANES):
            v = step.entry(vertices, first, i)
            here = step.load(step.rows(lines), builder.mul(v, step.extent(lines, 1)))
            total = step.load(step.rows(sums, kind), builder.mul(v, step.extent(sums, 1)), own)
            found.append(builder.select(builder.icmp_signed("==", here, constant(FAR)), none, total))
        give_rows(step, found, [step.entry(places, word(j)) for j in range(LANES)], (out, k, first))
        return context.get_dummy_value()

    return types.void(lines, sums, columns, none, places, out), codegen
