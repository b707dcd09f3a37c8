"""The innermost loop of the min-plus product, and of the max-times product for most reliable paths, in LLVM vectors as
wide as this machine's registers.

A tile of C, ``TILE_ROWS`` x ``TILE_VECTORS`` vectors, stays in registers during the loop over the depth of the product,
as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).  Everything that depends on the
machine is decided once, in this module, from the features that numba compiles for; numba's disk cache is keyed by the
same features, so machines can share a cache.  (After an edit here, clear ``__pycache__`` if numba's own cache is used:
it notices only changes of the file in which a kernel is defined; the cache of ``engine.graph.kernels`` notices all.)

Two facts of arithmetic decide which instructions are used (``benchmarks/kernels/cpu_ceiling.py`` measures them):

* Where the adders also compute minima (AMD's Zen), sums and minima share two pipes while the multipliers are idle.
  a * 1 + b is a + b to the last bit and runs on the multipliers, so sums of floats are fused multiply-adds.
* Floats that are not negative are ordered like the integers of their bits, and integer minima run on more pipes.
  Products are compared as floats, because multiplications leave the adders to the comparisons: 17.5 and not 13.2
  billion updates a second on one thread of an AMD EPYC (Zen 4), where sums reach 17.1 (2026-11-28).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic


def _features() -> frozenset[str]:
    """Return the processor's features for which numba compiles (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES override them)."""
    settings: Any = config
    if settings.CPU_NAME not in (None, "host") or settings.CPU_FEATURES is not None:
        return frozenset(name[1:] for name in (settings.CPU_FEATURES or "").split(",") if name.startswith("+"))
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


_FEATURES: Final = _features()
_ARM: Final = binding.get_default_triple().startswith(("aarch64", "arm64"))
_WIDE: Final = {"avx512f", "avx512bw", "avx512vl"} <= _FEATURES

#: Bytes of one vector register.
VECTOR_BYTES: Final = 64 if _WIDE else 32 if "avx2" in _FEATURES else 16
#: The number of rows of the register tile; in each step of depth, one entry of A is broadcast for each row.
TILE_ROWS: Final = 12 if _WIDE else 8 if _ARM else 6
#: The number of vectors in a row of the register tile.
TILE_VECTORS: Final = 2
#: Edge of the square blocks of A that are transposed in registers while A is packed; divides TILE_ROWS.
SQUARE: Final = 4 if TILE_ROWS % 4 == 0 else 2
#: Edge of the square blocks that ``transpose_square`` transposes in registers.
TRANSPOSED: Final = 8
#: The number of entries in each row of the block that ``relax_row`` works on.
ROW: Final = 64
#: Whether a fused multiply-add is one instruction.
FUSED: Final = _ARM or "fma" in _FEATURES

#: For floats of 32 and of 64 bits: whether a minimum is faster if it compares their bits as integers.  AVX2 and SSE
#: lack a 64-bit integer minimum.
_BITS_HELP: Final = {32: not _ARM, 64: _WIDE}

_WORD: Final = ir.IntType(64)
_BYTE: Final = ir.IntType(8)

Builder = Any
Value = Any


class VectorType:
    """How vectors of one element type are stored, combined and compared.

    Args:
        element: numba's type of an entry.
        by_bits: numba's type of the argument ``by_bits``; if that is None, entries are multiplied and the greatest is
            kept (max-times).
    """

    def __init__(self, element: Any, by_bits: Any = types.boolean) -> None:
        self.products = isinstance(by_bits, types.NoneType)
        self.floating = isinstance(element, types.Float)
        self.signed = not self.floating and element.signed
        self.bits: int = element.bitwidth
        self.lanes = VECTOR_BYTES * 8 // self.bits
        self.integer = ir.VectorType(ir.IntType(self.bits), self.lanes)
        scalar = {32: ir.FloatType(), 64: ir.DoubleType()}[self.bits] if self.floating else ir.IntType(self.bits)
        self.vector = ir.VectorType(scalar, self.lanes)
        # loading broadcasts 32 bits for free, but 16 bits need a shuffle, so an entry of 16 bits is stored twice
        self.packed = scalar if self.bits >= 32 else ir.IntType(32)

    def worst(self) -> Value:
        """Return a vector of the value to which every other is preferred: the largest; for products 0."""
        if self.products:
            return ir.Constant(self.vector, [0.0] * self.lanes)
        if self.floating:
            return ir.Constant(self.vector, [float("inf")] * self.lanes)
        return ir.Constant(self.vector, [2 ** (self.bits - self.signed) - 1] * self.lanes)

    def broadcast(self, builder: Builder, scalar: Value) -> Value:
        """Return a vector with one packed entry of A in all lanes."""
        wide = ir.VectorType(scalar.type, VECTOR_BYTES * 8 // max(32, self.bits))
        first = builder.insert_element(ir.Constant(wide, ir.Undefined), scalar, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), wide.count), [0] * wide.count)
        return builder.bitcast(builder.shuffle_vector(first, first, mask), self.vector)

    def extend(self, builder: Builder, a: Value, b: Value, one: Value) -> Value:
        """Emit a + b; for products a * b.

        Args:
            builder: LLVM's builder.
            a, b: vectors.
            one: a vector of ones, to compute a * 1 + b; None for an addition.
        """
        if self.products:
            return builder.fmul(a, b)
        if not self.floating:
            return builder.add(a, b)
        if one is None:
            return builder.fadd(a, b)
        fused = self._intrinsic(builder, f"llvm.fma.v{self.lanes}f{self.bits}", self.vector, 3)
        return builder.call(fused, [a, one, b])

    def better(self, builder: Builder, a: Value, b: Value, *, by_bits: bool) -> Value:
        """Emit the lane-wise minimum of two vectors; for products the maximum.

        Args:
            builder: LLVM's builder.
            a, b: vectors.
            by_bits: whether to compare floats as signed integers, which is right if neither is negative.
        """
        if self.floating and not by_bits:
            return builder.select(builder.fcmp_ordered(">" if self.products else "<", a, b), a, b)
        name = f"llvm.{'smin' if self.floating or self.signed else 'umin'}.v{self.lanes}i{self.bits}"
        least = self._intrinsic(builder, name, self.integer, 2)
        x, y = builder.bitcast(a, self.integer), builder.bitcast(b, self.integer)
        return builder.bitcast(builder.call(least, [x, y]), self.vector)

    @staticmethod
    def _intrinsic(builder: Builder, name: str, kind: ir.Type, arguments: int) -> Value:
        return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * arguments), name)

    def opaque_one(self, builder: Builder) -> Value:
        """Return a vector of ones that hides its value from the optimiser, so that a * 1 + b stays a multiply-add."""
        if self.products or not (self.floating and FUSED):
            return None
        bits = ir.IntType(self.bits)
        hide = ir.InlineAsm(ir.FunctionType(bits, [bits]), "", "=r,0")
        one = builder.call(hide, [bits(0x3F800000 if self.bits == 32 else 0x3FF0000000000000)])
        return self.broadcast(builder, builder.bitcast(one, self.vector.element))


def _at(builder: Builder, pointer: Value, offset: int | Value) -> Value:
    """Return ``pointer`` plus ``offset`` bytes."""
    return builder.gep(pointer, [_WORD(offset) if isinstance(offset, int) else offset], source_etype=_BYTE)


def _entry(context: Any, builder: Builder, kind: Any, array: Value, index: Value) -> Value:
    """Return the address of ``array[index]`` for a contiguous array of one dimension."""
    data = builder.bitcast(context.make_array(kind)(context, builder, array).data, _BYTE.as_pointer())
    return _at(builder, data, builder.mul(index, _WORD(kind.dtype.bitwidth // 8)))


def _load(builder: Builder, pointer: Value, kind: ir.Type, align: int) -> Value:
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=align, typ=kind)


def _tile_loop(builder: Builder, kind: VectorType, depth: Value, a: Value, b: Value, *, by_bits: bool) -> list[Value]:
    """Emit the loop over the depth of a product; return the TILE_ROWS * TILE_VECTORS vectors of the product, row by
    row.

    ``a`` and ``b`` are the addresses of packed strips.  For each step of the loop, ``a`` holds TILE_ROWS entries, and
    ``b`` holds TILE_VECTORS aligned vectors.
    """
    one = kind.opaque_one(builder)
    before, loop, after = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("tile")
    builder.branch(loop)
    builder.position_at_end(loop)
    step = builder.phi(_WORD)
    sums = [builder.phi(kind.vector) for _ in range(TILE_ROWS * TILE_VECTORS)]
    size = kind.packed.width // 8 if isinstance(kind.packed, ir.IntType) else kind.bits // 8
    row = _at(builder, b, builder.mul(step, _WORD(TILE_VECTORS * VECTOR_BYTES)))
    column = _at(builder, a, builder.mul(step, _WORD(TILE_ROWS * size)))
    starts = [_at(builder, row, v * VECTOR_BYTES) for v in range(TILE_VECTORS)]
    right = [_load(builder, start, kind.vector, VECTOR_BYTES) for start in starts]
    following = []
    for r in range(TILE_ROWS):
        left = kind.broadcast(builder, _load(builder, _at(builder, column, r * size), kind.packed, size))
        for v in range(TILE_VECTORS):
            # if minima do not need the adders, half of the sums run on the adders and half on the multipliers
            factor = None if by_bits and v % 2 == 0 else one
            total = kind.extend(builder, left, right[v], factor)
            following.append(kind.better(builder, total, sums[r * TILE_VECTORS + v], by_bits=by_bits))
    advanced = builder.add(step, _WORD(1))
    builder.cbranch(builder.icmp_signed("<", advanced, depth), loop, after)
    step.add_incoming(_WORD(0), before)
    step.add_incoming(advanced, loop)
    for phi, value in zip(sums, following, strict=True):
        phi.add_incoming(kind.worst(), before)
        phi.add_incoming(value, loop)
    builder.position_at_end(after)
    return following


def _prefetch(builder: Builder, pointer: Value) -> None:
    pointer_type, flag = _BYTE.as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer_type, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer, flag(1), flag(3), flag(1)])


@intrinsic
def relax_tile(typing, c, c_index, c_stride, a, a_index, b, b_index, depth, by_bits):  # type: ignore[no-untyped-def]
    """Relax one full register tile: C <- min(C, A (x) B) for packed strips of A and B; for products, C <- max(C, A B).

    Args:
        c, c_index, c_stride: a flat array, the index of the tile's first entry, and the stride of rows in entries.
        a, a_index: packed A (see :data:`VectorType.packed`), and the index of its first entry.
        b, b_index: packed B, and the index of its first entry, whose address is a multiple of VECTOR_BYTES.
        depth: steps, at least 1.
        by_bits: whether floats may be compared by their bits (no entry is negative); ignored for integers.  None for
            products.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        kind = VectorType(kinds[0].dtype, kinds[8])
        size = kind.bits // 8
        first = _entry(context, builder, kinds[0], args[0], args[1])
        stride = builder.mul(args[2], _WORD(size))
        rows = [_at(builder, first, builder.mul(stride, _WORD(r))) for r in range(TILE_ROWS)]
        places = [_at(builder, row, v * VECTOR_BYTES) for row in rows for v in range(TILE_VECTORS)]
        for place in places:
            _prefetch(builder, place)
        left = _entry(context, builder, kinds[3], args[3], args[4])
        right = _entry(context, builder, kinds[5], args[5], args[6])

        def finish(*, by_bits: bool) -> None:
            totals = _tile_loop(builder, kind, args[7], left, right, by_bits=by_bits)
            for place, total in zip(places, totals, strict=True):
                old = _load(builder, place, kind.vector, size)
                new = kind.better(builder, total, old, by_bits=by_bits)
                builder.store(new, builder.bitcast(place, kind.vector.as_pointer()), align=size)

        if kind.floating and _BITS_HELP[kind.bits] and not kind.products:
            with builder.if_else(args[8]) as (promised, otherwise):
                with promised:
                    finish(by_bits=True)
                with otherwise:
                    finish(by_bits=False)
        else:
            finish(by_bits=False)
        return context.get_dummy_value()

    index = types.intp
    by_bits = by_bits if isinstance(by_bits, types.NoneType) else types.boolean
    return types.void(c, index, index, a, index, b, index, index, by_bits), codegen


@intrinsic
def relax_row(typing, rows, target, source, value, by_bits):  # type: ignore[no-untyped-def]
    """``rows[target + j] <- min(rows[target + j], value + rows[source + j])`` for 0 <= j < ROW; for products the
    maximum, and ``value`` times the entry.

    Args:
        typing: numba's typing context.
        rows: flat array of aligned rows of ROW entries.
        target, source: indices of the first entries of two rows.
        value: the entry that is added to the source row.
        by_bits: None for products; any other value makes no difference.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        kind = VectorType(kinds[0].dtype, kinds[4])
        first = builder.insert_element(ir.Constant(kind.vector, ir.Undefined), args[3], ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.lanes), [0] * kind.lanes)
        left = builder.shuffle_vector(first, first, zeros)
        into = _entry(context, builder, kinds[0], args[0], args[1])
        other = _entry(context, builder, kinds[0], args[0], args[2])
        for offset in range(0, ROW * kind.bits // 8, VECTOR_BYTES):
            old = _load(builder, _at(builder, into, offset), kind.vector, VECTOR_BYTES)
            right = _load(builder, _at(builder, other, offset), kind.vector, VECTOR_BYTES)
            new = kind.better(builder, kind.extend(builder, left, right, None), old, by_bits=False)
            place = builder.bitcast(_at(builder, into, offset), kind.vector.as_pointer())
            builder.store(new, place, align=VECTOR_BYTES)
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp, rows.dtype, by_bits), codegen


def _packed(builder: Builder, value: Value, bits: int) -> Value:
    """Return entries of A (a scalar or a vector) in packed form: an entry of 16 bits is stored twice in a 32-bit word;
    wider entries are unchanged.
    """
    if bits >= 32:
        return value
    wide = ir.IntType(32) if value.type == ir.IntType(16) else ir.VectorType(ir.IntType(32), value.type.count)
    places = ir.Constant(wide, 16 if wide == ir.IntType(32) else [16] * value.type.count)
    word = builder.zext(value, wide)
    return builder.or_(word, builder.shl(word, places))


def _transposed(builder: Builder, rows: list[Value]) -> list[Value]:
    """Return the columns of a square of vectors, transposed by repeated perfect shuffles."""
    n = len(rows)
    low = [j for i in range(n // 2) for j in (i, n + i)]
    masks = [ir.Constant(ir.VectorType(ir.IntType(32), n), [j + half for j in low]) for half in (0, n // 2)]
    for _ in range(n.bit_length() - 1):
        pairs = zip(rows[: n // 2], rows[n // 2 :], strict=True)
        rows = [builder.shuffle_vector(one, two, mask) for one, two in pairs for mask in masks]
    return rows


@intrinsic
def pack_entry(typing, out, index, value):  # type: ignore[no-untyped-def]
    """``out[index]`` <- one entry of A in the form that :func:`relax_tile` reads.

    Args:
        typing: numba's typing context.
        out: flat array of packed entries.
        index: where the entry goes.
        value: the entry.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word = _packed(builder, args[2], signature.args[2].bitwidth)
        place = _entry(context, builder, signature.args[0], args[0], args[1])
        builder.store(word, builder.bitcast(place, word.type.as_pointer()))
        return context.get_dummy_value()

    return types.void(out, types.intp, value), codegen


@intrinsic
def pack_square(typing, out, index, a, a_index, a_stride):  # type: ignore[no-untyped-def]
    """Pack SQUARE x SQUARE entries of A: ``out[index + TILE_ROWS * k + r]`` <- ``a[a_index + a_stride * r + k]``.

    Args:
        typing: numba's typing context.
        out: flat array of packed entries.
        index: where the first entry goes.
        a: flat array.
        a_index: index of the first entry.
        a_stride: number of entries from row to row.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        size, step = kinds[2].dtype.bitwidth // 8, kinds[0].dtype.bitwidth // 8
        vector = ir.VectorType(VectorType(kinds[2].dtype).vector.element, SQUARE)
        first = _entry(context, builder, kinds[2], args[2], args[3])
        stride = builder.mul(args[4], _WORD(size))
        places = [_at(builder, first, builder.mul(stride, _WORD(r))) for r in range(SQUARE)]
        rows = [_packed(builder, _load(builder, place, vector, size), size * 8) for place in places]
        into = _entry(context, builder, kinds[0], args[0], args[1])
        for k, column in enumerate(_transposed(builder, rows)):
            place = _at(builder, into, k * TILE_ROWS * step)
            builder.store(column, builder.bitcast(place, column.type.as_pointer()), align=step)
        return context.get_dummy_value()

    return types.void(out, types.intp, a, types.intp, types.intp), codegen


@intrinsic
def transpose_square(typing, out, index, stride, a, a_index, a_stride):  # type: ignore[no-untyped-def]
    """``out[index + stride * i + j]`` <- ``a[a_index + a_stride * j + i]`` for i, j < TRANSPOSED.

    Args:
        typing: numba's typing context.
        out, a: flat arrays.
        index, a_index: indices of the first entries.
        stride, a_stride: numbers of entries from row to row.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        size = kinds[0].dtype.bitwidth // 8
        vector = ir.VectorType(VectorType(kinds[0].dtype).vector.element, TRANSPOSED)
        into = _entry(context, builder, kinds[0], args[0], args[1])
        source = _entry(context, builder, kinds[3], args[3], args[4])
        down, across = builder.mul(args[2], _WORD(size)), builder.mul(args[5], _WORD(size))
        places = [_at(builder, source, builder.mul(across, _WORD(j))) for j in range(TRANSPOSED)]
        rows = [_load(builder, place, vector, size) for place in places]
        for i, column in enumerate(_transposed(builder, rows)):
            place = _at(builder, into, builder.mul(down, _WORD(i)))
            builder.store(column, builder.bitcast(place, vector.as_pointer()), align=size)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.intp, a, types.intp, types.intp), codegen


@intrinsic
def pack_row(typing, out, index, b, b_index):  # type: ignore[no-untyped-def]
    """Copy TILE_VECTORS vectors of a row of B to ``out``.

    Args:
        typing: numba's typing context.
        out: flat array of packed entries.
        index: where the first entry goes; its address is a multiple of VECTOR_BYTES.
        b: flat array.
        b_index: index of the first entry.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        kind = VectorType(kinds[0].dtype)
        into = _entry(context, builder, kinds[0], args[0], args[1])
        source = _entry(context, builder, kinds[2], args[2], args[3])
        for offset in range(0, TILE_VECTORS * VECTOR_BYTES, VECTOR_BYTES):
            vector = _load(builder, _at(builder, source, offset), kind.vector, kind.bits // 8)
            place = builder.bitcast(_at(builder, into, offset), kind.vector.as_pointer())
            builder.store(vector, place, align=VECTOR_BYTES)
        return context.get_dummy_value()

    return types.void(out, types.intp, b, types.intp), codegen


@intrinsic
def copy_run(typing, out, index, values, start, count):  # type: ignore[no-untyped-def]
    """Copy ``count`` entries, ``values[start : start + count]``, to ``out[index : index + count]``.

    An assignment of slices copies, too, but numba takes seconds to compile such an assignment for each pair of types.

    Args:
        typing: numba's typing context.
        out, values: flat arrays of the same type; the two ranges must not overlap.
        index, start: indices of the first entries.
        count: number of entries.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        into = _entry(context, builder, kinds[0], args[0], args[1])
        source = _entry(context, builder, kinds[2], args[2], args[3])
        cgutils.raw_memcpy(builder, into, source, args[4], kinds[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    if out.dtype != values.dtype:
        raise TypeError(f"{out.dtype} and {values.dtype} are different types")
    return types.void(out, types.intp, values, types.intp, types.intp), codegen


def packed_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the NumPy type of packed entries of A."""
    return dtype if dtype.itemsize >= 4 else np.dtype(np.uint32)
