"""Steps of sums along paths for 16 sources side by side, written as vector instructions.

A *line* is a row of 16 entries of one vertex, one for each source.  A vertex has a line of distances and, one after the
other in memory, a line of the numbers of arcs of the paths (*hops*) and one for each quantity.  Hops are 0 only at the
source of a lane, and -1 where there is no path.  Where the vertex is not summed yet, its entry among the hops is the
*code* of the last arc of its path: -2 - e for arc e.  Numba leaves short loops as they are, so these steps are written
for LLVM, which splits vectors where registers are narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.rows._squares import LANES, aligned_to, give_rows, transposed

#: The distance of a vertex without a path; the sum of FAR and a weight fits in int32.
FAR: Final = 2**30 - 1
#: Number of lines of a vertex before the lines of its quantities: hops.
SKIPPED: Final = 1

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

    def rows(self, array: Any, kind: Any = _I32, lanes: int = LANES) -> Any:
        """Return the data of an array as a pointer to lines, or to parts of lines, of ``lanes`` entries."""
        return self.build.bitcast(array.data, ir.VectorType(kind, lanes).as_pointer())

    def at(self, pointer: Any, *terms: Any) -> Any:
        """Return the pointer moved by the sum of some integers."""
        place = terms[0]
        for term in terms[1:]:
            place = self.build.add(place, term if isinstance(term, ir.Value) else word(term))
        return self.build.gep(pointer, [place])

    def load(self, pointer: Any, *terms: Any) -> Any:
        """Load a line from the place that :meth:`at` returns.  The line is aligned to a cache line, or to its own size
        if that is less.
        """
        return self.build.load(self.at(pointer, *terms), align=aligned_to(pointer.type.pointee))

    def element(self, *where: int) -> Any:
        """Return the type of the entries of an array, which is an argument or an entry of an argument."""
        return self._context.get_data_type(self.kind(*where).dtype)

    def entry(self, array: Any, *terms: Any) -> Any:
        """Load one entry of an array."""
        return self.build.load(self.at(array.data, *terms))

    def spread(self, value: Any, lanes: int = LANES) -> Any:
        """Return a vector of ``lanes`` copies of ``value``."""
        undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
        one = self.build.insert_element(undefined, value, ir.Constant(_I32, 0))
        return self.build.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))

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


def _searched(step: Step, starts: Sequence[Any], body: Callable[..., Sequence[Any]]) -> list[Any]:
    """Repeat ``body`` for each arc into a vertex; return the values after the last arc.

    The arguments of the step are (first, last, v), tails, weights, and the lines.  ``body`` makes new values from the
    arc's code, spread over the lanes, its tail, the distances of the tail, those through the arc, and the values.
    """
    build, (first, last, _) = step.build, step.numbers(0, 3)
    rows = step.rows(step.array(3, 0))

    def compared(e: Any, *values: Any) -> list[Any]:
        tail = build.zext(step.entry(step.array(1), e), _I64)
        distance = step.load(rows, tail)
        through = build.add(distance, step.spread(step.entry(step.array(2), e)))
        code = step.spread(build.trunc(build.sub(word(-2), e), _I32))
        return [build.add(e, word(1)), *body(code, tail, distance, through, *values)]

    return step.repeat([first, *starts], lambda e, *_: build.icmp_signed("<", e, last), compared)[1:]


@intrinsic
def find_arcs(typingctx, place, tails, weights, lines, limited, begun):  # type: ignore[no-untyped-def]
    """Find the last arc of the path to a vertex in each lane, and write its code to the line of hops.

    ``place`` is (first, last, v): the arcs ``first`` to ``last`` - 1 lead into ``v``.  ``lines``: distances, int32,
    shape (n, 16), and lines, int32, shape (n, 1 + k, 16).  ``begun`` has a bit for each lane whose source is ``v``.

    Returns two words: the lanes that hold no shortest distance, and the lanes in which several arcs are tight, so that
    :func:`choose_arcs` has to choose one of them.

    Distances that overflowed their type are found, too: at least one vertex of such a row gets a bit, here or where
    clusters are joined.  Assume the contrary, that none does.  Then all distances of the row lie below ``FAR``.  None
    is negative: weights are not, so the tail of the arc found is no farther than its head, and the arcs found lead back
    to the source, whose distance is 0.  So no sum here has overflowed, each distance is the length of a path, and no
    arc gives less.  A vertex without a distance to which a path leads gets a bit, however long the path is, unless
    distances beyond a cutoff are left out.
    """
    signature = types.UniTuple(types.int64, 2)(place, tails, weights, lines, limited, begun)

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step, v, zero = Step(context, build, signature, args), build.extract_value(args[0], 2), constant(0)
        rows, lines, none = step.rows(step.array(3, 0)), step.array(3, 1), ir.Constant(_MASK, [0] * LANES)
        here = step.load(rows, v)

        def least(one: Any, other: Any) -> Any:
            return build.select(build.icmp_signed("<", one, other), one, other)

        def body(code: Any, _: Any, distance: Any, through: Any, *so_far: Any) -> list[Any]:
            codes, found, several, shortest, nearest = so_far
            tight = build.icmp_signed("==", through, here)
            several = build.or_(several, build.and_(found, tight))
            found, codes = build.or_(found, tight), build.select(tight, code, codes)
            return [codes, found, several, least(through, shortest), least(distance, nearest)]

        starts = constant(-1), none, none, constant(_LARGEST), constant(_LARGEST)
        codes, found, several, shortest, nearest = _searched(step, starts, body)
        source = build.bitcast(build.trunc(args[5], _I16), _MASK)
        reached = build.icmp_signed("<", here, constant(FAR))
        searched = build.and_(reached, build.not_(source))
        codes = build.select(searched, codes, build.select(source, zero, constant(-1)))
        build.store(codes, step.at(step.rows(lines), build.mul(v, step.extent(lines, 1))), align=64)
        every = build.icmp_signed("==", step.spread(build.trunc(args[4], _I32)), zero)
        lost = build.and_(every, build.icmp_signed("<", nearest, constant(FAR)))
        wrong = build.select(reached, build.icmp_signed("<", shortest, here), lost)
        wrong = build.or_(wrong, build.and_(searched, build.not_(found)))
        wrong = build.or_(wrong, build.icmp_signed(">", here, constant(FAR)))
        told = [step.bits(wrong), step.bits(build.and_(searched, several))]
        return context.make_tuple(build, signature.return_type, told)

    return signature, codegen


@intrinsic
def choose_arcs(typingctx, place, tails, weights, lines, lanes):  # type: ignore[no-untyped-def]
    """Choose, of several tight arcs, the one whose tail has the fewest hops, and of ties the first, and write its code.

    The arguments are those of :func:`find_arcs`; ``lanes`` is the set of lanes in which arcs are chosen if ``v`` is not
    summed.  A tail that is not summed has fewer than 0 hops, so it comes before those that are.
    """
    signature = types.void(place, tails, weights, lines, lanes)

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step, v = Step(context, build, signature, args), build.extract_value(args[0], 2)
        distances, lines = step.rows(step.array(3, 0)), step.array(3, 1)
        rows, width, here = step.rows(lines), step.extent(lines, 1), step.load(distances, v)
        own = build.mul(v, width)
        before = step.load(rows, own)
        mine = build.bitcast(build.trunc(args[4], _I16), _MASK)
        mine = build.and_(mine, build.icmp_signed("<", before, constant(-1)))

        def body(code: Any, tail: Any, _: Any, through: Any, codes: Any, fewest: Any) -> list[Any]:
            hops = step.load(rows, build.mul(tail, width))
            better = build.and_(build.icmp_signed("==", through, here), build.icmp_signed("<", hops, fewest))
            better = build.and_(better, mine)
            return [build.select(better, code, codes), build.select(better, hops, fewest)]

        codes, _ = _searched(step, [before, constant(_LARGEST)], body)
        build.store(codes, step.at(rows, own), align=64)
        return context.get_dummy_value()

    return signature, codegen


def _added(step: Step, which: int, tail: Any, arc: Any, v: Any, mine: Any) -> None:
    """Add the quantities of an arc to the sums of its tail, in the lanes ``mine``.

    ``which`` is 0 for the quantities that are whole numbers, and 1 for fractions.
    """
    build, sums, amounts = step.build, step.array(3, 1 + which), step.array(2, which)
    rows, count = step.rows(sums, ir.DoubleType() if which else _I32), step.extent(amounts, 1)
    base, target = (build.mul(x, step.extent(sums, 1)) for x in (tail, v))
    row, skip = build.mul(arc, count), 0 if which else SKIPPED

    def added(k: Any) -> list[Any]:
        before, amount = step.load(rows, base, k, skip), step.spread(step.entry(amounts, row, k))
        total = build.fadd(before, amount) if which else build.add(before, amount)
        total = build.select(mine, total, step.load(rows, target, k, skip))
        build.store(total, step.at(rows, target, k, skip), align=64)
        return [build.add(k, word(1))]

    step.repeat([word(0)], lambda k: build.icmp_signed("<", k, count), added)


@intrinsic
def add_arcs(typingctx, place, tails, quantities, space):  # type: ignore[no-untyped-def]
    """Sum hops and quantities of a vertex over the arcs whose codes are in its line of hops.

    ``place`` is (v, lanes): the vertex, and the set of lanes for which it is visited.  ``quantities``: of shapes (arcs,
    k), int32, and (arcs, l), float64.  ``space``: distances; lines, int32, shape (n, 1 + k, 16); and float64, shape (n,
    l, 16).

    Returns three words: the lanes in which the tail of the arc is not summed yet, where codes stay; of these, some of
    ``lanes`` that wait for the same tail, if any do; and that tail.
    """
    signature = types.UniTuple(types.int64, 3)(place, tails, quantities, space)

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        (v, lanes), tails, lines = step.numbers(0, 2), step.array(1), step.array(3, 1)
        rows, width = step.rows(lines), step.extent(lines, 1)
        place = build.mul(v, width)
        codes = step.load(rows, place)
        entries = build.bitcast(step.at(rows, place), _I32.as_pointer())

        def added(left: Any, hops: Any, waiting: Any, wanted: Any, last: Any) -> tuple[Any, ...]:
            code = build.load(step.at(entries, build.cttz(left, ir.Constant(ir.IntType(1), 1))))
            same = build.icmp_signed("==", codes, step.spread(code))
            arc = build.sub(word(-2), build.sext(code, _I64))
            tail = build.zext(step.entry(tails, arc), _I64)
            reached = step.load(rows, build.mul(tail, width))
            ready = build.icmp_signed(">=", reached, constant(0))
            mine = build.and_(same, ready)
            for which in (0, 1):
                _added(step, which, tail, arc, v, mine)
            hops = build.select(mine, build.add(reached, constant(1)), hops)
            unready = step.bits(build.and_(same, build.not_(ready)))
            earlier = build.icmp_signed("!=", wanted, word(0))
            return (
                build.and_(left, build.not_(step.bits(same))),
                hops,
                build.or_(waiting, unready),
                build.select(earlier, wanted, build.and_(unready, lanes)),
                build.select(earlier, last, tail),
            )

        starts = step.bits(build.icmp_signed("<", codes, constant(-1))), codes, word(0), word(0), word(0)
        found = step.repeat(starts, lambda left, *_: build.icmp_signed("!=", left, word(0)), added)
        build.store(found[1], step.at(rows, place), align=64)
        return context.make_tuple(build, signature.return_type, found[2:])

    return signature, codegen


@intrinsic
def mean_distance(typingctx, distances, v):  # type: ignore[no-untyped-def]
    """Return about the mean distance of a vertex, as if it were 0 in the lanes without a path."""

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        here = step.load(step.rows(step.array(0)), args[1])
        here = build.select(build.icmp_signed("<", here, constant(FAR)), here, constant(0))
        kind = ir.FunctionType(_I32, [_ROW])
        add = build.module.declare_intrinsic(f"llvm.vector.reduce.add.v{LANES}i32", (), kind)
        return build.call(add, [build.lshr(here, constant(4))])  # sixteenths, so that the sum fits

    return types.int32(distances, v), codegen


@intrinsic
def fetch_lines(typingctx, lines, v):  # type: ignore[no-untyped-def]
    """Ask the processor for the first two lines of a vertex, which will be read soon."""

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        lines = step.array(0)
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        fetch = build.module.globals.get("llvm.prefetch.p0i8") or ir.Function(build.module, kind, "llvm.prefetch.p0i8")
        for k in range(2):
            place = step.at(step.rows(lines), build.mul(args[1], step.extent(lines, 1)), k)
            build.call(fetch, [build.bitcast(place, byte), *(ir.Constant(_I32, x) for x in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(lines, v), codegen


@intrinsic
def take_square(typingctx, rows, places, first, numbers, distances):  # type: ignore[no-untyped-def]
    """distances[numbers[first + j], k] <- rows[places[k], first + j], for 16 values of j."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, builder, signature, args)
        rows, places, numbers, distances = (step.array(k) for k in (0, 1, 3, 4))
        found = []
        for k in range(LANES):
            row = builder.mul(step.entry(places, word(k)), step.extent(rows, 1))
            found.append(builder.load(builder.bitcast(step.at(rows.data, row, args[2]), _ROW.as_pointer()), align=4))
        for j, line in enumerate(transposed(builder, found)):
            builder.store(line, step.at(step.rows(distances), step.entry(numbers, args[2], j)), align=64)
        return context.get_dummy_value()

    return types.void(rows, places, first, numbers, distances), codegen


@intrinsic
def give_square(typingctx, lines, sums, columns, none, places, out):  # type: ignore[no-untyped-def]
    """out[places[j], k, first + i] <- line ``own`` of vertex vertices[first + i] in lane j, for 16 values of i.

    The tuples are: ``sums`` (array, own), ``columns`` (vertices, first) with vertices as int64, and ``out`` (array, k).
    Entries with -1 hops, which have no path, become ``none``.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, builder, signature, args)
        lines, sums, vertices, places, out = (step.array(*k) for k in ((0,), (1, 0), (2, 0), (4,), (5, 0)))
        own, first, k = (builder.extract_value(args[i], 1) for i in (1, 2, 5))
        kind = context.get_data_type(signature.args[1].types[0].dtype)
        none, found = step.spread(args[3]), []
        for i in range(LANES):
            v = step.entry(vertices, first, i)
            hops = step.load(step.rows(lines), builder.mul(v, step.extent(lines, 1)))
            total = step.load(step.rows(sums, kind), builder.mul(v, step.extent(sums, 1)), own)
            found.append(builder.select(builder.icmp_signed("==", hops, constant(-1)), none, total))
        give_rows(step, found, [step.entry(places, word(j)) for j in range(LANES)], (out, k, first))
        return context.get_dummy_value()

    return types.void(lines, sums, columns, none, places, out), codegen
