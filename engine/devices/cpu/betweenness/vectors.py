"""Operations on eight counts side by side, written as vector instructions, because numba does not vectorise such short
loops.

A row of eight float64 is a cache line; LLVM splits it where registers are narrower.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

#: Sources side by side: as many float64 as a cache line has.
LANES: Final = 8

_DOUBLE: Final = ir.DoubleType()
_ROW: Final = ir.VectorType(_DOUBLE, LANES)
_I64: Final = ir.IntType(64)
_I32: Final = ir.IntType(32)
#: Bytes of alignment that loads and stores assume.  Rows are aligned to cache lines for speed, but need not be.
_ALIGN: Final = 8


class _Arrays:
    """The data pointers of the arguments of an intrinsic, by their position; the third argument is a tuple of arrays of
    rows.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._given, self._types, self._context, self._builder = args, signature.args, context, builder

    def data(self, k: int) -> Any:
        """Return the data pointer of argument ``k``, an array."""
        return self._pointer(self._types[k], self._given[k])

    def _pointer(self, kind: Any, value: Any) -> Any:
        return self._context.make_array(kind)(self._context, self._builder, value).data

    def rows(self, which: int, v: Any) -> Any:
        """Return the pointer to row ``v`` of array ``which`` in the tuple, the third argument."""
        value = self._builder.extract_value(self._given[2], which)
        pointer = self._pointer(self._types[2].dtype, value)
        return self._builder.gep(self._builder.bitcast(pointer, _ROW.as_pointer()), [v])

    def hops(self, v: Any) -> Any:
        """Return the pointer to the hops to vertex ``v``, which are the fourth argument."""
        kind = ir.VectorType(_I32, LANES)
        return self._builder.gep(self._builder.bitcast(self.data(3), kind.as_pointer()), [v])

    def times(self) -> Any:
        """Return the array, shape (LANES,), that is the second entry of the fifth argument."""
        pointer = self._pointer(self._types[4].types[1], self._builder.extract_value(self._given[4], 1))
        return self._builder.load(self._builder.bitcast(pointer, _ROW.as_pointer()), align=_ALIGN)

    def place(self) -> Any:
        """Return the first argument: vertex, level, first arc, and one past the last arc."""
        return [self._builder.extract_value(self._given[0], k) for k in range(4)]


def _spread(builder: Any, value: Any) -> Any:
    """Return a vector with ``value`` in all eight lanes."""
    vector = ir.VectorType(value.type, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _at_level(builder: Any, hops: Any, level: Any) -> Any:
    """Return a vector that says for each lane whether its entry in the row at ``hops`` is ``level``."""
    row = builder.load(hops, align=4)
    return builder.icmp_signed("==", row, _spread(builder, builder.trunc(level, _I32)))


def _reduce(builder: Any, name: str, vector: Any) -> Any:
    """Return the sum (``name`` is ``fadd``) or the maximum (``fmax``) of the eight numbers of a vector."""
    before = [_DOUBLE] if name == "fadd" else []
    called = f"llvm.vector.reduce.{name}.v{LANES}f64"
    reduce = builder.module.globals.get(called)
    if reduce is None:
        reduce = ir.Function(builder.module, ir.FunctionType(_DOUBLE, [*before, _ROW]), called)
    first = [ir.Constant(_DOUBLE, 0.0)] if before else []
    return builder.call(reduce, [*first, vector], fastmath=("reassoc",) if before else ())


def _sum_rows(builder: Any, arcs: tuple[Any, Any, Any], rows: Any, own: Any = None, over: Any = None) -> Any:
    """Return the sum of the rows that belong to the ends of some arcs; add the scalar product of ``own`` and each of
    these rows to the entry of its arc in ``over``.

    Args:
        builder: the LLVM builder of the code.
        arcs: the first arc, one past the last arc, and the pointer to the ends of arcs.
        rows: pointer to the rows.
        own: a row; None where nothing is added to ``over``.
        over: pointer to a number for each arc.
    """
    first, last, ends = arcs
    zero = ir.Constant(_ROW, [0.0] * LANES)
    entry = builder.block
    loop, done = builder.append_basic_block("arc"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), loop, done)
    builder.position_at_end(loop)
    e, total = builder.phi(_I64), builder.phi(_ROW)
    e.add_incoming(first, entry)
    total.add_incoming(zero, entry)
    end = builder.zext(builder.load(builder.gep(ends, [e])), _I64)
    row = builder.load(builder.gep(rows, [end]), align=_ALIGN)
    further = builder.fadd(total, row)
    if own is not None:
        place = builder.gep(over, [e])
        part = _reduce(builder, "fadd", builder.fmul(own, row))
        builder.store(builder.fadd(builder.load(place), part), place)
    following = builder.add(e, ir.Constant(_I64, 1))
    e.add_incoming(following, loop)
    total.add_incoming(further, loop)
    builder.cbranch(builder.icmp_signed("<", following, last), loop, done)
    builder.position_at_end(done)
    found = builder.phi(_ROW)
    found.add_incoming(zero, entry)
    found.add_incoming(further, loop)
    return found


@intrinsic
def count_vertex(typing, place, tails, rows, hops):  # type: ignore[no-untyped-def]
    """Count the shortest paths to a vertex in the lanes in which it is at a level; return the largest count.

    Args:
        typing: numba's typing context.
        place: the vertex, the level, the first of its arcs in, and one past the last of them; int64.
        tails: int32, shape (arcs,).
        rows: three arrays, float64, shape (n, LANES).  The first one has the counts of the previous level, 0 in all
            other lanes; the second one receives the counts of this level, 0 in all other lanes; the third one receives
            the counts of this level, and its other entries do not change.
        hops: int32, shape (n, LANES).
    """
    signature = types.float64(place, tails, rows, hops)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = _Arrays(context, builder, signature, args)
        v, level, first, last = arrays.place()
        total = _sum_rows(builder, (first, last, arrays.data(1)), arrays.rows(0, ir.Constant(_I64, 0)))
        now = _at_level(builder, arrays.hops(v), level)
        kept = arrays.rows(2, v)
        found = builder.select(now, total, ir.Constant(_ROW, [0.0] * LANES))
        builder.store(found, arrays.rows(1, v), align=_ALIGN)
        builder.store(builder.select(now, total, builder.load(kept, align=_ALIGN)), kept, align=_ALIGN)
        return _reduce(builder, "fmax", found)

    return signature, codegen


@intrinsic
def hand_back_vertex(typing, place, heads, rows, hops, given, over):  # type: ignore[no-untyped-def]
    """Sum the flow that leaves a vertex in the lanes in which it is at a level; return the sum over these lanes.

    Args:
        typing: numba's typing context.
        place: the vertex, the level, the first of its arcs out, and one past the last of them; int64.
        heads: int32, shape (arcs,).
        rows: three arrays, float64, shape (n, LANES).  The first one has, for vertices of the next level, the flow that
            ends there or leaves, divided by the number of paths, 0 in all other lanes.  The second one receives this
            number for the vertex, 0 in all other lanes.  The third one has the numbers of paths.
        hops: int32, shape (n, LANES).
        given: the flow that ends at the vertex, float64; and the number by which all flow in each lane is multiplied,
            float64, shape (LANES,).
        over: float64, shape (arcs,); the flow over each arc is added.  None where that is not wanted.
    """
    signature = types.float64(place, heads, rows, hops, given, over)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays, nothing = _Arrays(context, builder, signature, args), ir.Constant(_ROW, [0.0] * LANES)
        v, level, first, last = arrays.place()
        now = _at_level(builder, arrays.hops(v), level)
        count = builder.load(arrays.rows(2, v), align=_ALIGN)
        own = builder.select(now, count, nothing)
        more = (own, arrays.data(5)) if isinstance(signature.args[5], types.Array) else ()
        total = _sum_rows(builder, (first, last, arrays.data(1)), arrays.rows(0, ir.Constant(_I64, 0)), *more)
        through = builder.fmul(own, total)
        ending = builder.fmul(arrays.times(), _spread(builder, builder.extract_value(args[4], 0)))
        share = builder.fdiv(builder.fadd(ending, through), count)
        builder.store(builder.select(now, share, nothing), arrays.rows(1, v), align=_ALIGN)
        return _reduce(builder, "fadd", through)

    return signature, codegen
