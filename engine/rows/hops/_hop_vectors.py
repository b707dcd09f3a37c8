"""Steps of sums along paths of fewest arcs, for as many sources side by side as a cache line holds distances.

A *line* is a row of distances of one vertex, one for each source: 64 of 8 bits, 32 of 16 bits or 16 of 32 bits.  Each
quantity of a vertex has as many sums, which are added in *parts*: of 16, or, if they have 16 bits, of up to 32.  A set
of lanes is a word with a bit for each of them.  Like the steps of ``engine.rows._lane_vectors``, these are written for
LLVM.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.rows._lane_vectors import FAR, Step, word
from engine.rows._squares import LANES, aligned_to, give_rows

#: The number of bits of a line.
_LINE: Final = 512
_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)
#: The types of sums: 16 bits, 32 bits and float64, in this order wherever there is one array for each.
_TYPES: Final = range(3)


class _Lines:
    """The distances of all vertices: an argument of an intrinsic, or an entry of such an argument."""

    def __init__(self, step: Step, *where: int) -> None:
        bits = step.kind(*where).dtype.bitwidth
        self.lanes, self._step = _LINE // bits, step
        self._kind = ir.VectorType(ir.IntType(bits), self.lanes)
        self.far = self.filled(min(2**bits - 1, FAR))
        self._data = step.build.bitcast(step.array(*where).data, self._kind.as_pointer())

    def filled(self, value: int) -> Any:
        """Return a line of equal distances."""
        return ir.Constant(self._kind, [value] * self.lanes)

    def of(self, vertex: Any) -> Any:
        """Load the line of a vertex."""
        return self._step.load(self._data, vertex)

    def put(self, line: Any, *terms: Any) -> None:
        """Store the line of the vertex whose number is the sum of ``terms``."""
        self._step.build.store(line, self._step.at(self._data, *terms), align=64)

    def where(self, relation: str, line: Any, other: Any) -> Any:
        """Return the set of lanes in which one line is in a relation to another."""
        return self._step.bits(self._step.build.icmp_unsigned(relation, line, other))


def _part(step: Step, lanes: Any, part: Any, width: int = LANES) -> Any:
    """Return a part of a set of lanes, of ``width`` lanes, as a mask."""
    build = step.build
    bits = build.trunc(build.lshr(lanes, build.mul(part, word(width))), ir.IntType(width))
    return build.bitcast(bits, ir.VectorType(ir.IntType(1), width))


def _add(step: Step, which: int, tail: Any, arc: Any, mine: tuple[Any, int]) -> None:
    """Add the quantities of an arc, whose sums have the type ``which`` of ``_TYPES``, to the sums of its tail.

    ``mine`` is the set of lanes in which they are added, and the number of all lanes.
    """
    build, amounts, v = step.build, step.array(2, which), step.numbers(0, 2)[1]
    kind, count = step.element(3, 2, which), step.extent(amounts, 1)
    width = LANES if which else min(mine[1], 2 * LANES)
    lines, parts = step.rows(step.array(3, 2, which), kind, width), mine[1] // width
    places = [build.mul(x, count) for x in (arc, tail, v)]
    masks = [_part(step, mine[0], word(c), width) for c in range(parts)]
    total = build.fadd if isinstance(kind, ir.DoubleType) else build.add

    def added(k: Any) -> list[Any]:
        row, base, target = (build.add(place, k) for place in places)
        amount = step.spread(step.entry(amounts, row), width)
        for c, mask in enumerate(masks):
            before, now = (build.mul(x, word(parts)) for x in (base, target))
            value = build.select(mask, total(step.load(lines, before, c), amount), step.load(lines, now, c))
            build.store(value, step.at(lines, now, c), align=aligned_to(value.type))
        return [build.add(k, word(1))]

    step.repeat([word(0)], lambda k: build.icmp_signed("<", k, count), added)


@intrinsic
def mean_distance(typingctx, distances, vertex):  # type: ignore[no-untyped-def]
    """Return the mean distance of a vertex from the sources that reach it, rounded down; -1 if none does."""

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        lines, none = _Lines(step, 0), word(0)
        here = lines.of(args[1])
        reached = build.icmp_unsigned("<", here, lines.far)
        wide = ir.VectorType(ir.IntType(max(32, 2 * here.type.element.width)), lines.lanes)
        name = f"llvm.vector.reduce.add.v{wide.count}i{wide.element.width}"
        add = build.module.declare_intrinsic(name, (), ir.FunctionType(wide.element, [wide]))
        total = build.call(add, [build.zext(build.select(reached, here, lines.filled(0)), wide)])
        total = total if total.type == _I64 else build.zext(total, _I64)
        count = build.ctpop(step.bits(reached))
        some = build.icmp_signed("!=", count, none)
        return build.select(some, build.udiv(total, build.select(some, count, word(1))), word(-1))

    return types.int64(distances, vertex), codegen


@intrinsic
def prove_vertex(typingctx, place, limited, tails, space):  # type: ignore[no-untyped-def]
    """Return the lanes in which the distance of a vertex is not the shortest one that its tails give.

    The arguments are those of :func:`sum_vertex`, except that ``place`` is (first, last, v): the arcs ``first`` to
    ``last`` - 1 lead into ``v``.  Only the sources are summed yet.

    If any arc gives less than the distance, the arc from the nearest tail does, so only the nearest tail is compared.
    A vertex at distance 0 is wrong, unless it is a source.
    """
    signature = types.int64(place, limited, tails, space)

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        (first, last, v), lines = step.numbers(0, 3), _Lines(step, 3, 0)
        here, one, zero = lines.of(v), lines.filled(1), lines.filled(0)

        def compared(e: Any, nearest: Any) -> list[Any]:
            distance = lines.of(build.zext(step.entry(step.array(2), e), _I64))
            nearest = build.select(build.icmp_unsigned("<", distance, nearest), distance, nearest)
            return [build.add(e, word(1)), nearest]

        nearest = step.repeat((first, lines.far), lambda e, *_: build.icmp_signed("<", e, last), compared)[1]
        reached = lines.where("<", here, lines.far)
        searched = build.and_(reached, build.not_(step.entry(step.array(3, 1), v)))
        untight = build.or_(lines.where("==", here, zero), lines.where("!=", nearest, build.sub(here, one)))
        lost = build.and_(build.not_(reached), lines.where("<", nearest, lines.far))
        every = build.icmp_signed("==", args[1], ir.Constant(args[1].type, 0))
        return build.or_(build.and_(searched, untight), build.select(every, lost, word(0)))

    return signature, codegen


@intrinsic
def sum_vertex(typingctx, place, tails, quantities, space):  # type: ignore[no-untyped-def]
    """Sum the quantities of a vertex over its first tight arc in each lane in which it has a distance and is not summed
    yet, until a tail has to be visited first.

    ``place`` is (e, v, lanes, left).  A visit begins at the first arc into ``v``, with all bits of ``left`` set; one
    that was suspended goes on with what was returned then.  ``lanes`` is the set of lanes for which the vertex is
    visited: for these, the visit is suspended where the tail is not summed yet; in other lanes the vertex is then not
    summed either.  The arcs into a vertex have ascending ``tails``.  ``quantities``: uint16, int32 and float64, shape
    (arcs, k), each with a number k of its own.  ``space``: the distances, unsigned, shape (n, lanes); int64, shape
    (n,): the lanes in which a vertex is summed; and the sums, of the types of the quantities, shape (n, k, lanes).

    Returns four words: the arc at which the visit is suspended; if it is, the lanes that are left, and else those that
    have a distance and no sum; the lanes for which the tail of the arc has to be visited, 0 if the visit is at its end;
    and that tail.

    An arc is tight if its tail is nearer by 1.  Each lane has such an arc, because the distances are proven, so the
    visit ends without looking where the arcs into the vertex end.
    """
    signature = types.UniTuple(types.int64, 4)(place, tails, quantities, space)

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        (first, v, lanes, left), lines, none = step.numbers(0, 4), _Lines(step, 3, 0), word(0)
        here, summed = lines.of(v), step.array(3, 1)
        reached, before = lines.where("<", here, lines.far), build.sub(here, lines.filled(1))
        starts = first, build.and_(build.and_(left, reached), build.not_(step.entry(summed, v)))
        entry, (loop, take, add, following) = build.block, step.blocks("arc", "take", "add", "next")
        ends, done = step.blocks("ends", "done")
        build.cbranch(build.icmp_signed("!=", starts[1], none), loop, ends)
        build.position_at_end(loop)
        e, left = step.joined((entry, starts))
        tail = build.zext(step.entry(step.array(1), e), _I64)
        mine = build.and_(left, lines.where("==", lines.of(tail), before))
        build.cbranch(build.icmp_signed("!=", mine, none), take, following)
        build.position_at_end(take)
        ready = build.and_(mine, step.entry(summed, tail))
        wanted = build.and_(build.xor(mine, ready), lanes)
        build.cbranch(build.icmp_signed("!=", wanted, none), done, add)
        build.position_at_end(add)
        for which in _TYPES:
            _add(step, which, tail, e, (mine, lines.lanes))
        build.store(build.or_(step.entry(summed, v), ready), step.at(summed.data, v))
        rest, end = build.xor(left, mine), build.block
        build.branch(following)
        build.position_at_end(following)
        now = step.joined((loop, [left]), (end, [rest]))[0]
        e.add_incoming(build.add(e, word(1)), following)
        left.add_incoming(now, following)
        build.cbranch(build.icmp_signed("!=", now, none), loop, ends)
        build.position_at_end(ends)
        missed = build.and_(reached, build.not_(step.entry(summed, v)))
        build.branch(done)
        build.position_at_end(done)
        found = step.joined((take, [e, left, wanted, tail]), (ends, [none, missed, none, none]))
        return context.make_tuple(build, signature.return_type, found)

    return signature, codegen


@intrinsic
def take_piece(typingctx, rows, first, distances):  # type: ignore[no-untyped-def]
    """distances[first + i, j] <- rows[j, first + i] for all lanes j, and for as many values of i as 16 bytes hold.

    The rows are loaded side by side, four to a line.  In each quarter of the lines there is then a square, which is
    transposed: after as many rounds as its side has binary digits, in which pairs of lines are interleaved.
    """

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        rows, lines = step.array(0), _Lines(step, 2)
        count, side = lines.lanes, lines.lanes // 4
        piece = ir.VectorType(ir.IntType(_LINE // count), side)

        def loaded(j: int) -> Any:
            place = step.at(rows.data, build.mul(word(j), step.extent(rows, 1)), args[1])
            return build.load(build.bitcast(place, piece.as_pointer()), align=_LINE // count // 8)

        def shuffled(one: Any, other: Any, places: list[int]) -> Any:
            return build.shuffle_vector(one, other, ir.Constant(ir.VectorType(_I32, len(places)), places))

        def beside(one: Any, other: Any) -> Any:
            return shuffled(one, other, list(range(2 * one.type.count)))

        pieces = [[loaded(i + q * side) for q in range(4)] for i in range(side)]
        square = [beside(beside(*four[:2]), beside(*four[2:])) for four in pieces]
        low = [q * side + i // 2 + i % 2 * count for q in range(4) for i in range(side)]
        high = [place + side // 2 for place in low]
        for _ in range(side.bit_length() - 1):
            pairs = zip(square[: side // 2], square[side // 2 :], strict=True)
            square = [shuffled(*pair, places) for pair in pairs for places in (low, high)]
        for i, line in enumerate(square):
            lines.put(line, args[1], i)
        return context.get_dummy_value()

    return types.void(rows, first, distances), codegen


@intrinsic
def give_part(typingctx, summed, sums, columns, none, places, out):  # type: ignore[no-untyped-def]
    """out[places[j], k, first + i] <- the sum of quantity k of vertex vertices[first + i] in lane j, for 16 values of i
    and the 16 lanes of a part.

    The tuples are: ``sums`` (array, k, part) and ``columns`` (vertices, first) with vertices as int64.  Entries that
    are not summed become ``none``.
    """

    def codegen(context, build, signature, args):  # type: ignore[no-untyped-def]
        step = Step(context, build, signature, args)
        summed, sums, vertices, places, out = (step.array(*k) for k in ((0,), (1, 0), (2, 0), (4,), (5,)))
        (k, part), first = (build.extract_value(args[1], i) for i in (1, 2)), build.extract_value(args[2], 1)
        kind = step.element(1, 0)
        none, square, parts = step.spread(args[3]), [], build.sdiv(step.extent(sums, 2), word(LANES))
        for i in range(LANES):
            v = step.entry(vertices, first, i)
            line = build.add(build.mul(v, step.extent(sums, 1)), k)
            total = step.load(step.rows(sums, kind), build.mul(line, parts), part)
            square.append(build.select(_part(step, step.entry(summed, v), part), total, none))
        lane = build.mul(part, word(LANES))
        give_rows(step, square, [step.entry(places, lane, j) for j in range(LANES)], (out, k, first))
        return context.get_dummy_value()

    return types.void(summed, sums, columns, none, places, out), codegen
