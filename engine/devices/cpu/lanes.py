"""Many searches at once: label correcting with one source in each lane of the processor's vectors.

A vertex holds one row of labels (tentative distances), one lane per source.  Relaxing an arc is one vector addition and
one vector minimum for all sources together, with no heap (compare Okuyama, Ino and Hagihara, "A task parallel algorithm
for finding all-pairs shortest paths using the GPU", 2008).  The vertices whose in-neighbours have changed are visited
in the order of ``engine.devices.cpu.arcs``, in alternate directions, until none is left.  A block is given up if it
needs many more relaxations than Dijkstra's searches would cost, so the worst case takes only a small factor longer than
Dijkstra's searches.

Labels are uint16, int32 or float64.  Sums cannot wrap: no label and no weight exceeds the type's ``unreachable``, and
twice that fits the type.  Labels begin at ``far`` and never grow.  With a cutoff, ``far`` is the first length beyond
the cutoff, so vertices beyond it are not searched.

The same sweeps find other values of paths: greatest products, and least bottlenecks.  The argument ``algebra`` says
which.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.devices.cpu.row_facts import SPARSE, expand_rows
from engine.graph.kernels import njit

#: Bytes of a vertex's row of labels: four vectors of 512 bits, or eight of 256, which fit in the registers.
ROW_BYTES: Final = 256

#: Side of the squares that are transposed in registers; a power of two that divides the lanes.
SIDE: Final = 16
#: The number of squares that are transposed together before their entries of the rows are written.
SQUARES: Final = 4

#: A block is given up after about this many passes; a pass counts a relaxation for each arc and four for each vertex.
#: Measured: 64 searches with a heap take as long as 130 to 160 such passes.
PASSES: Final = 96

#: The algebras.  numba knows them by their types, so each has compiled forms of its own.
LENGTHS: Final = True
PRODUCTS: Final = None
BOTTLENECKS: Final = ()


@intrinsic
def _pull(typingctx, into, tails, weights, labels, v, algebra):  # type: ignore[no-untyped-def]
    """Relax the arcs into vertex ``v``; return whether a label of ``v`` improved.

    For each arc e, with the weight w and the label x of ``tails[e]``: labels[v] <- min(labels[v], x + w); for products
    max(labels[v], x * w); for bottlenecks min(labels[v], max(x, w)).

    ``labels`` must be aligned to 64 bytes with rows of ``ROW_BYTES``; LLVM splits vectors that are wider than the
    processor's registers.
    """
    signature = types.boolean(into, tails, weights, labels, v, algebra)
    size = weights.dtype.bitwidth // 8
    lanes = ROW_BYTES // size
    real = isinstance(weights.dtype, types.Float)
    products, bottlenecks = isinstance(algebra, types.NoneType), isinstance(algebra, types.BaseTuple)

    def better(builder, x, y):  # type: ignore[no-untyped-def]
        if real:
            return builder.fcmp_ordered(">" if products else "<", x, y)
        return builder.icmp_unsigned("<", x, y)

    def extended(builder, label, weight):  # type: ignore[no-untyped-def]
        if products:
            return builder.fmul(label, weight)
        if bottlenecks:
            return builder.select(better(builder, label, weight), weight, label)
        # no sum wraps: the largest, twice `unreachable`, is below 2^31 (int32) or 2^16 (uint16)
        return builder.fadd(label, weight) if real else builder.add(label, weight)

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        v = args[4]
        into, tails, weights, labels = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:4], args[:4], strict=True)
        )
        i32, i64 = ir.IntType(32), ir.IntType(64)
        first, last = (builder.load(builder.gep(into, [k])) for k in (v, builder.add(v, ir.Constant(i64, 1))))
        vector = ir.VectorType(context.get_data_type(signature.args[2].dtype), lanes)
        spread = ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        rows = builder.bitcast(labels, vector.as_pointer())
        here = builder.gep(rows, [v])
        before = builder.load(here, align=64)
        entry = builder.block
        loop, done = builder.append_basic_block("arc"), builder.append_basic_block("done")
        store, leave = builder.append_basic_block("store"), builder.append_basic_block("leave")
        builder.cbranch(builder.icmp_signed("<", first, last), loop, done)

        builder.position_at_end(loop)
        e, best = builder.phi(i64), builder.phi(vector)
        e.add_incoming(first, entry)
        best.add_incoming(before, entry)
        tail = builder.zext(builder.load(builder.gep(tails, [e])), i64)
        weight = builder.insert_element(undefined, builder.load(builder.gep(weights, [e])), ir.Constant(i32, 0))
        weight = builder.shuffle_vector(weight, undefined, spread)
        label = builder.load(builder.gep(rows, [tail]), align=64)
        through = extended(builder, label, weight)
        kept = builder.select(better(builder, through, best), through, best)
        following = builder.add(e, ir.Constant(i64, 1))
        e.add_incoming(following, loop)
        best.add_incoming(kept, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, done)

        builder.position_at_end(done)
        after = builder.phi(vector)
        after.add_incoming(before, entry)
        after.add_incoming(kept, loop)
        mask = ir.IntType(lanes)
        improved = builder.bitcast(better(builder, after, before), mask)
        improved = builder.icmp_unsigned("!=", improved, ir.Constant(mask, 0))
        builder.cbranch(improved, store, leave)
        builder.position_at_end(store)
        builder.store(after, here, align=64)
        builder.branch(leave)
        builder.position_at_end(leave)
        return improved

    return signature, codegen


@njit(nogil=True, cache=True, from_start=True)
def _mark(indptr, heads, u, dirty):  # type: ignore[no-untyped-def]
    """Mark the heads of the arcs out of ``u`` in ``dirty``; return how many of them were not marked before."""
    fresh = 0
    for e in range(indptr[u], indptr[u + 1]):
        v = heads[e]
        fresh += 1 - dirty[v]
        dirty[v] = 1
    return fresh


@njit(nogil=True, cache=True, from_start=True)
def _sweep(arcs, space, waiting, budget, algebra):  # type: ignore[no-untyped-def]
    """Relax until no label improves any more; return False if that would take more than ``budget`` relaxations.

    ``arcs`` (in both directions) and ``space`` (work space) are as in :func:`search_lanes`.  ``dirty`` (uint8, its
    length a multiple of 8) marks the vertices to relax, ``waiting`` in number; it is all 0 afterwards.  ``touched``, an
    array of the same form, marks the vertices of which some label improved.
    """
    indptr, heads, into, tails, weights = arcs
    labels, dirty, touched = space
    words = dirty.view(np.uint64)
    upwards = True
    while waiting > 0:
        budget -= len(words)
        for k in range(len(words)):
            word = k if upwards else len(words) - 1 - k
            if words[word] == 0:
                continue
            for i in range(8):
                v = 8 * word + (i if upwards else 7 - i)
                if dirty[v] == 0:
                    continue
                dirty[v] = 0
                waiting -= 1
                budget -= into[v + 1] - into[v] + 4
                if _pull(into, tails, weights, labels, v, algebra):
                    touched[v] = 1
                    waiting += _mark(indptr, heads, v, dirty)
        upwards = not upwards
        if budget < 0:
            dirty[:] = 0
            return waiting == 0
    return True


@njit(nogil=True, cache=True, from_start=True)
def _clean(labels, far, touched, tops):  # type: ignore[no-untyped-def]
    """Reset the labels of the ``touched`` vertices to ``far`` and the marks to 0; return the largest label below
    ``far``.

    ``tops``, shape (lanes,), is work space for the largest label; if it is empty, the largest label is not searched
    for.
    """
    words = touched.view(np.uint64)
    nothing = labels.dtype.type(0)
    tops[:] = nothing
    for word in range(len(words)):
        if words[word] != 0:
            for v in range(8 * word, min(8 * word + 8, len(labels))):
                if touched[v] != 0:
                    row = labels[v]
                    for j in range(len(tops)):
                        label = nothing if row[j] == far else row[j]
                        tops[j] = label if label > tops[j] else tops[j]
                    row[:] = far
            words[word] = 0
    return tops.max() if len(tops) else nothing


@intrinsic
def _transpose_square(typingctx, labels, vertices, first, lane, squares, q):  # type: ignore[no-untyped-def]
    """squares[q, j, k] <- labels[vertices[first + k], lane + j]: SIDE vertices and lanes transposed in registers."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        labels, vertices, squares = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1, 4)
        )
        kind = signature.args[0].dtype
        word, vector = ir.IntType(64), ir.VectorType(context.get_data_type(kind), SIDE)
        width = ir.Constant(word, ROW_BYTES * 8 // kind.bitwidth)
        rows = []
        for k in range(SIDE):
            vertex = builder.load(builder.gep(vertices, [builder.add(args[2], ir.Constant(word, k))]))
            place = builder.gep(labels, [builder.add(builder.mul(vertex, width), args[3])])
            rows.append(builder.load(builder.bitcast(place, vector.as_pointer()), align=kind.bitwidth // 8))
        for step in (1, 2, 4, 8):  # each step swaps one binary digit of the row number with one of the column number
            upper = [j ^ step ^ SIDE if j & step else j for j in range(SIDE)]
            lower = [j + SIDE if j & step else j ^ step for j in range(SIDE)]
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), SIDE), places) for places in (upper, lower)]
            for k in range(SIDE):
                if not k & step:
                    pair = rows[k], rows[k | step]
                    rows[k], rows[k | step] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        for j, row in enumerate(rows):
            at = builder.add(builder.mul(args[5], ir.Constant(word, SIDE * SIDE)), ir.Constant(word, SIDE * j))
            place = builder.gep(squares, [at])
            builder.store(row, builder.bitcast(place, vector.as_pointer()), align=kind.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(labels, vertices, first, lane, squares, q), codegen


@njit(nogil=True, cache=True, from_start=True)
def _worth(label, ends, unit, values):  # type: ignore[no-untyped-def]
    """Return the entry for a label, as :func:`_emit` does; numba decides at compile time what is None."""
    far, sentinel = ends
    if values is not None:
        return values[label]
    length = label if unit is None else label * unit
    return sentinel if label == far else length


@njit(nogil=True, cache=True, from_start=True)
def _emit(labels, ends, rank, rows, out, unit, values):  # type: ignore[no-untyped-def]
    """Copy lane j into row ``rows[j]`` of ``out``, for all lanes; column k is vertex number ``rank[k]``.

    Labels are multiples of ``unit``, unless that is None, or indices into ``values``, unless that is None.  ``ends``:
    *no path* in the type of the labels, and *unreachable* in the type of ``out``.
    """
    n = len(rank)
    # several squares of vertices and lanes are transposed together, so that each row is written in several cache lines;
    # the last squares may overlap the previous ones
    wide = SQUARES * SIDE
    near = np.empty(wide, np.int64)
    squares = np.empty((SQUARES, SIDE, SIDE), labels.dtype)
    for first in range(0, n if n >= wide else 0, wide):
        start = min(first, n - wide)
        for k in range(wide):
            near[k] = rank[start + k]
        for lane in range(0, len(rows), SIDE):
            for q in range(SQUARES):
                _transpose_square(labels, near, q * SIDE, lane, squares, q)
            for j in range(min(SIDE, len(rows) - lane)):
                row = out[rows[lane + j], start : start + wide]
                for q in range(SQUARES):
                    for k in range(SIDE):
                        row[q * SIDE + k] = _worth(squares[q, j, k], ends, unit, values)
    if n < wide:
        for j in range(len(rows)):
            for v in range(n):
                out[rows[j], v] = _worth(labels[rank[v], j], ends, unit, values)


@njit(nogil=True, cache=True, from_start=True)
def _emit_shifted(labels, ends, goal, sources, rows, out):  # type: ignore[no-untyped-def]
    """Write distances as ``_emit`` does, but compute them from reduced lengths: add the potentials of the columns
    (``onto``) and subtract those of the sources (``shift``).

    ``ends`` (values for *unreachable*) and ``goal`` (columns and potentials) are as in :func:`search_lanes`.
    """
    far, sentinel, beyond, _ = ends
    _, rank, shift, onto = goal
    n = len(rank)
    for start in range(0, n, 16):
        for j in range(len(rows)):
            base = shift[sources[rows[j]]]
            row = out[rows[j]]
            for v in range(start, min(n, start + 16)):
                value = labels[rank[v], j]
                # the difference of potentials is computed first: it is nearly exact, and exact for whole numbers
                row[v] = sentinel if value == far else shift.dtype.type(value) + (onto[v] - base)
                if row[v] >= beyond:
                    row[v] = sentinel


@njit(nogil=True, cache=True, from_start=True)
def _touched_columns(touched, near):  # type: ignore[no-untyped-def]
    """Return the columns whose vertices have a label, ascending; none if they are many (see ``SPARSE``)."""
    columns = np.empty(len(near), np.int32)
    count = 0
    for k in range(len(near)):
        columns[count] = k
        count += touched[near[k]]
    return columns[: count if SPARSE * count < len(near) else 0]


@njit(nogil=True, cache=True, from_start=True)
def search_lanes(arcs, space, ends, goal, sources_rows, out, bounds):  # type: ignore[no-untyped-def]
    """Search some sources, one in each lane, and write their distances to their rows of ``out``.

    Args:
        arcs: indptr, heads: CSR of the arcs out of each vertex; into, tails, weights: CSR of the arcs into each
            vertex, ``weights`` in the type of the labels.
        space: labels, shape (n, lanes), all ``far``; dirty and touched, uint8, one byte per vertex, their length a
            multiple of 8, all 0.  They are in the same state afterwards.
        ends: four values.  far: *no path* in the type of the labels.  sentinel: *unreachable* in the type of ``out``.
            beyond: in the type of ``out``, the distance from which on entries become *unreachable*; only read where
            there are potentials.  unit: a length is its label times this unit; None if labels are the lengths.
        goal: rank, int32, shape (n,): the number of each vertex; near, int32, shape (columns,): the numbers of the
            columns' vertices; shift, onto: potentials of all vertices and of the columns' vertices, empty for none.
        sources_rows: sources, int64, vertex indices; rows, int64, at most as many as there are lanes: indices of
            ``sources`` and rows of ``out``.
        out: shape (len(sources), columns).
        bounds: two integers: the number of relaxations after which the block is given up, and the largest weight.  If
            a label may have been capped at ``far``, the block also counts as given up; no label was capped if the
            largest label plus the largest weight is below ``far``.  0 in place of the largest weight: do not check.

    Returns:
        Whether the block is finished; if not, its rows of ``out`` must be searched in another way.  Also the columns,
        int32, ascending, outside of which all entries of its rows are unreachable; empty unless they are few.
    """
    indptr, heads, _, _, _ = arcs
    labels, dirty, touched = space
    far, sentinel, _, unit = ends
    rank, near, shift, _ = goal
    sources, rows = sources_rows
    budget, heaviest = bounds
    tops = np.empty(labels.shape[1] if heaviest > 0 else 0, labels.dtype)
    waiting = 0
    for j in range(len(rows)):
        s = rank[sources[rows[j]]]
        labels[s, j] = 0
        touched[s] = 1
        waiting += _mark(indptr, heads, s, dirty)
    finished = _sweep(arcs, space, waiting, budget, LENGTHS)
    columns = np.empty(0, np.int32)
    if finished and len(shift) == 0:
        columns = _touched_columns(touched, near)
        if len(columns) > 0:  # only these columns are copied, all others are filled with the sentinel
            _emit(labels, (far, sentinel), near[columns], rows, out, unit, None)
            expand_rows(out, rows, columns, sentinel)
        else:
            _emit(labels, (far, sentinel), near, rows, out, unit, None)
    elif finished:
        _emit_shifted(labels, ends, goal, sources, rows, out)
    largest = _clean(labels, far, touched, tops)
    return finished and (heaviest == 0 or largest + heaviest < far), columns
