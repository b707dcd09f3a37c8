"""Sixteen numbers side by side, one for each of sixteen sources, as values that kernels can hold and add.

numba does not vectorise such short loops, so these operations are written as vector instructions.  A *line* is sixteen
float64, which fill two cache lines; LLVM splits it where registers are narrower.  A *mask* is an integer of sixteen
bits, which says for which of the sources a condition holds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

#: The number of sources side by side: twice the number of float64 in a register of 512 bits, because much of the work
#: takes equally long for any number of sources: finding an order, and following the lists of arcs.
LANES: Final = 16
#: NumPy's type of a mask.
Mask: Final = np.uint16

_DOUBLE: Final = ir.DoubleType()
_I64: Final = ir.IntType(64)
_I32: Final = ir.IntType(32)
_LINE: Final = ir.VectorType(_DOUBLE, LANES)
_STEPS: Final = ir.VectorType(_I32, LANES)
_MASK: Final = ir.VectorType(ir.IntType(1), LANES)
#: Bytes of alignment that loads and stores assume.  Lines are aligned to cache lines for speed, but need not be.
_ALIGN: Final = 8


class LineType(types.Type):
    """numba's type of a line."""

    def __init__(self) -> None:
        super().__init__(name="Line")


class LengthsType(types.Type):
    """numba's type of sixteen lengths, int32, one for each source."""

    def __init__(self) -> None:
        super().__init__(name="Lengths")


line, lengths = LineType(), LengthsType()


@register_model(LineType)
class _LineModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _LINE)  # type: ignore[no-untyped-call]


@register_model(LengthsType)
class _LengthsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _STEPS)  # type: ignore[no-untyped-call]


def _spread(builder: Any, value: Any) -> Any:
    """Return a vector with ``value`` in all lanes."""
    vector = ir.VectorType(value.type, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, value, _I32(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _place(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Return the pointer to row ``row`` of an array with LANES entries in a row."""
    data = context.make_array(kind)(context, builder, array).data
    vector = ir.VectorType(context.get_data_type(kind.dtype), LANES)
    return builder.gep(builder.bitcast(data, vector.as_pointer()), [row])


def _lanes(builder: Any, mask: Any) -> Any:
    return builder.bitcast(builder.trunc(mask, ir.IntType(LANES)), _MASK)


def _told(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), _I64)


def _steps(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Return row ``row`` of an array of lengths as LANES int32."""
    found = builder.load(_place(context, builder, kind, array, row), align=2)
    return found if found.type == _STEPS else builder.zext(found, _STEPS)


@intrinsic
def spread(typing, value):  # type: ignore[no-untyped-def]
    """Return a line with ``value`` in all lanes."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _spread(builder, args[0])

    return line(types.float64), codegen


@intrinsic
def load(typing, array, row):  # type: ignore[no-untyped-def]
    """Return row ``row`` of ``array``, float64, shape (n, LANES)."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.load(_place(context, builder, signature.args[0], *args), align=_ALIGN)

    return line(array, types.int64), codegen


@intrinsic
def store(typing, array, row, value):  # type: ignore[no-untyped-def]
    """Set row ``row`` of ``array``, float64, shape (n, LANES)."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        builder.store(args[2], _place(context, builder, signature.args[0], *args[:2]), align=_ALIGN)
        return context.get_dummy_value()

    return types.void(array, types.int64, line), codegen


def _binary(name: str, what: str) -> Any:
    def typed(typing, a, b):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return getattr(builder, name)(*args)

        return line(line, line), codegen

    typed.__doc__ = what
    return intrinsic(typed)


add = _binary("fadd", "Return the sums of two lines.")
multiply = _binary("fmul", "Return the products of two lines.")
divide = _binary("fdiv", "Return the quotients of two lines.")


@intrinsic
def larger(typing, a, b):  # type: ignore[no-untyped-def]
    """Return the larger of the two numbers in each lane."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return line(line, line), codegen


@intrinsic
def choose(typing, mask, a, b):  # type: ignore[no-untyped-def]
    """Return ``a`` in the lanes of ``mask``, and ``b`` in the others."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(_lanes(builder, args[0]), args[1], args[2])

    return line(types.int64, line, line), codegen


@intrinsic
def keep(typing, mask, a):  # type: ignore[no-untyped-def]
    """Return ``a`` in the lanes of ``mask``, and 0 in the others."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(_lanes(builder, args[0]), args[1], ir.Constant(_LINE, [0.0] * LANES))

    return line(types.int64, line), codegen


@intrinsic
def count_lanes(typing, mask):  # type: ignore[no-untyped-def]
    """Return the number of lanes in a mask."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(builder.and_(args[0], _I64(2**LANES - 1)))

    return types.int64(types.int64), codegen


@intrinsic
def total(typing, a):  # type: ignore[no-untyped-def]
    """Return the sum of the sixteen numbers of a line."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        called = f"llvm.vector.reduce.fadd.v{LANES}f64"
        reduce = builder.module.globals.get(called)
        if reduce is None:
            reduce = ir.Function(builder.module, ir.FunctionType(_DOUBLE, [_DOUBLE, _LINE]), called)
        return builder.call(reduce, [_DOUBLE(0.0), args[0]], fastmath=("reassoc",))

    return types.float64(line), codegen


@intrinsic
def lengths_of(typing, array, row):  # type: ignore[no-untyped-def]
    """Return row ``row`` of ``array``, shape (n, LANES), uint16 or int32, as sixteen lengths."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _steps(context, builder, signature.args[0], *args)

    return lengths(array, types.int64), codegen


@intrinsic
def tight(typing, array, mine, before, weight, far):  # type: ignore[no-untyped-def]
    """Return the mask of the sources from which an arc lies on a shortest path to its head.

    Args:
        typing: numba's typing context.
        array: lengths of all vertices, shape (n, LANES).
        mine: the lengths of the head.
        before: the tail.
        weight: the weight of the arc, int32; a sum with any length fits int32.
        far: the length that stands for *unreachable*, int32.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        tail = _steps(context, builder, signature.args[0], args[0], args[2])
        arrives = builder.icmp_signed("==", builder.add(tail, _spread(builder, args[3])), args[1])
        reached = builder.icmp_signed("!=", tail, _spread(builder, args[4]))
        return _told(builder, builder.and_(arrives, reached))

    return types.int64(array, lengths, types.int64, types.int32, types.int32), codegen


@intrinsic
def equal(typing, mine, length):  # type: ignore[no-untyped-def]
    """Return the mask of the lanes in which ``mine``, sixteen lengths, is ``length``."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _told(builder, builder.icmp_signed("==", args[0], _spread(builder, args[1])))

    return types.int64(lengths, types.int32), codegen


@intrinsic
def least_length(typing, mine):  # type: ignore[no-untyped-def]
    """Return the least of sixteen lengths, int32, none below 0."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        called = f"llvm.vector.reduce.umin.v{LANES}i32"
        reduce = builder.module.globals.get(called)
        if reduce is None:
            reduce = ir.Function(builder.module, ir.FunctionType(_I32, [_STEPS]), called)
        return builder.call(reduce, [args[0]])

    return types.int32(lengths), codegen


@intrinsic
def same_length(typing, value):  # type: ignore[no-untyped-def]
    """Return sixteen lengths that are all ``value``."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _spread(builder, args[0])

    return lengths(types.int32), codegen


@intrinsic
def shorter(typing, array, least, before, weight):  # type: ignore[no-untyped-def]
    """Relax an arc: return in each lane the length over the arc if it is less than ``least``, otherwise ``least``.

    Args:
        typing: numba's typing context.
        array: lengths of all vertices, shape (n, LANES).
        least: sixteen lengths.
        before, weight: tail and weight of the arc, as in :func:`tight`; the weight is not below 0.

    A tail that is not reached needs no test if ``least`` begins with the length for *unreachable*, the largest of all.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        tail = _steps(context, builder, signature.args[0], args[0], args[2])
        over = builder.add(tail, _spread(builder, args[3]))
        return builder.select(builder.icmp_signed("<", over, args[1]), over, args[1])

    return lengths(array, lengths, types.int64, types.int32), codegen


@intrinsic
def start_at(typing, mask, others):  # type: ignore[no-untyped-def]
    """Return sixteen lengths: 0 in the lanes of ``mask``, those of ``others`` elsewhere."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(_lanes(builder, args[0]), ir.Constant(_STEPS, [0] * LANES), args[1])

    return lengths(types.int64, lengths), codegen


@intrinsic
def store_lengths(typing, array, row, value):  # type: ignore[no-untyped-def]
    """Set row ``row`` of ``array``, uint16 or int32, shape (n, LANES)."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        place, kind = _place(context, builder, signature.args[0], *args[:2]), signature.args[0].dtype
        narrow = ir.VectorType(context.get_data_type(kind), LANES)
        builder.store(args[2] if narrow == _STEPS else builder.trunc(args[2], narrow), place, align=2)
        return context.get_dummy_value()

    return types.void(array, types.int64, lengths), codegen


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose a square: return the columns of ``rows``, which are LANES vectors of LANES entries."""
    for digit in (1, 2, 4, 8):
        lower = [j ^ digit | LANES if j & digit else j for j in range(LANES)]
        upper = [j | LANES if j & digit else j | digit for j in range(LANES)]
        found = list(rows)
        for k in range(LANES):
            if not k & digit:
                pair = rows[k], rows[k | digit]
                for at, places in ((k, lower), (k | digit, upper)):
                    found[at] = builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(_I32, LANES), places))
        rows = found
    return rows


@intrinsic
def put_square(typing, block, places, v, array, keys, far):  # type: ignore[no-untyped-def]
    """Transpose the lengths from sixteen sources to the vertices ``v`` ... ``v`` + 15, and sum them for each vertex.

    Args:
        typing: numba's typing context.
        block: shape (rows, n): a row of lengths for each source.
        places: int64: the sixteen rows.
        v: the first vertex.
        array: of the type of ``block``, shape (n, LANES); receives the lengths.
        keys: int32, shape (n,); receives for each vertex the sum of the lengths from the sources that reach it; lengths
            of type int32 are divided by sixteen before they are added.
        far: the length that stands for *unreachable*, int32.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        block = context.make_array(kind)(context, builder, args[0])
        n = builder.extract_value(block.shape, 1)
        places = context.make_array(signature.args[1])(context, builder, args[1]).data
        vector = ir.VectorType(context.get_data_type(kind.dtype), LANES)
        rows = []
        for k in range(LANES):
            row = builder.load(builder.gep(places, [_I64(k)]))
            entry = builder.add(builder.mul(row, n), args[2])
            pointer = builder.bitcast(builder.gep(block.data, [entry]), vector.as_pointer())
            rows.append(builder.load(pointer, align=2))
        far, none, sums = _spread(builder, args[5]), ir.Constant(_STEPS, [0] * LANES), ir.Constant(_STEPS, [0] * LANES)
        for row in rows:
            wide = row if row.type == _STEPS else builder.zext(row, _STEPS)
            part = builder.ashr(wide, ir.Constant(_STEPS, [4] * LANES)) if row.type == _STEPS else wide
            sums = builder.add(sums, builder.select(builder.icmp_signed("==", wide, far), none, part))
        place = builder.gep(context.make_array(signature.args[4])(context, builder, args[4]).data, [args[2]])
        builder.store(sums, builder.bitcast(place, _STEPS.as_pointer()), align=4)
        for k, column in enumerate(_transposed(builder, rows)):
            place = _place(context, builder, signature.args[3], args[3], builder.add(args[2], _I64(k)))
            builder.store(column, place, align=2)
        return context.get_dummy_value()

    return types.void(block, places, types.int64, array, keys, types.int32), codegen
