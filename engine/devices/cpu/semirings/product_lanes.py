"""Greatest products from many sources at once, one source in each lane of the processor's vectors.

As ``engine.devices.cpu.lanes`` does with lengths, vertices are swept until no product grows any more.  The final
products do not depend on the order of the sweeps: each is the greatest product of any path from the source, where
products are rounded after each arc.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.devices.cpu.lanes import ROW_BYTES, _emit, _mark, _touched_columns
from engine.devices.cpu.row_facts import expand_rows
from engine.devices.cpu.semirings.products import LEAST
from engine.graph.kernels import njit

#: The number of sources in a block.
LANES = ROW_BYTES // 8


@intrinsic
def _pull_products(typingctx, first, last, tails, weights, labels, v):  # type: ignore[no-untyped-def]
    """labels[v] <- max(labels[v], labels[tails[e]] * weights[e]) for each arc e from ``first`` to ``last`` - 1; return
    whether a label of ``v`` grew.

    ``labels`` must be aligned to 64 bytes with rows of ``ROW_BYTES``.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        first, last, v = args[0], args[1], args[5]
        tails, weights, labels = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[2:5], args[2:5], strict=True)
        )
        i32, i64 = ir.IntType(32), ir.IntType(64)
        vector = ir.VectorType(ir.DoubleType(), LANES)
        spread = ir.Constant(ir.VectorType(i32, LANES), [0] * LANES)
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
        product = builder.fmul(builder.load(builder.gep(rows, [tail]), align=64), weight)
        greater = builder.select(builder.fcmp_ordered(">", product, best), product, best)
        following = builder.add(e, ir.Constant(i64, 1))
        e.add_incoming(following, loop)
        best.add_incoming(greater, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, done)

        builder.position_at_end(done)
        after = builder.phi(vector)
        after.add_incoming(before, entry)
        after.add_incoming(greater, loop)
        mask = ir.IntType(LANES)
        grew = builder.bitcast(builder.fcmp_ordered(">", after, before), mask)
        grew = builder.icmp_unsigned("!=", grew, ir.Constant(mask, 0))
        builder.cbranch(grew, store, leave)
        builder.position_at_end(store)
        builder.store(after, here, align=64)
        builder.branch(leave)
        builder.position_at_end(leave)
        return grew

    return types.boolean(first, last, tails, weights, labels, v), codegen


@njit(nogil=True, cache=True)
def _sweep_products(arcs, space, waiting, budget):  # type: ignore[no-untyped-def]
    """Sweep until no product grows any more; return False if that would take more than ``budget`` multiplications.

    ``arcs`` and ``space`` are as in :func:`search_product_lanes`; ``dirty`` marks the vertices to visit, ``waiting`` in
    number, and no vertex afterwards.
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
                if _pull_products(into[v], into[v + 1], tails, weights, labels, v):
                    touched[v] = 1
                    waiting += _mark(indptr, heads, v, dirty)
        upwards = not upwards
        if budget < 0:
            dirty[:] = 0
            return waiting == 0
    return True


@njit(nogil=True, cache=True)
def _clean_products(labels, touched):  # type: ignore[no-untyped-def]
    """Reset the products of the ``touched`` vertices and the marks to 0; return the least product above 0."""
    words, smallest = touched.view(np.uint64), np.ones(LANES)
    for word in range(len(words)):
        if words[word] != 0:
            for v in range(8 * word, min(8 * word + 8, len(labels))):
                if touched[v] != 0:
                    row = labels[v]
                    for j in range(LANES):  # without branches, so that LLVM vectorises the loop
                        label = 1.0 if row[j] == 0.0 else row[j]
                        smallest[j] = label if label < smallest[j] else smallest[j]
                    row[:] = 0.0
            words[word] = 0
    return smallest.min()


@njit(nogil=True, cache=True)
def search_product_lanes(arcs, space, goal, sources_rows, out, budget):  # type: ignore[no-untyped-def]
    """Search the greatest products of some sources, one in each lane, and write them to their rows of ``out``.

    Args:
        arcs: indptr, heads: CSR of the arcs out of each vertex; into, tails, weights: CSR of the arcs into each vertex,
            with float64 weights above 0 and at most 1; and the least weight.
        space: labels, float64, shape (n, LANES), all 0; dirty and touched, uint8, a byte for each vertex, their length
            a multiple of 8, all 0.  They are in the same state afterwards.
        goal: rank, int32, shape (n,): the number of each vertex; near, int32, shape (columns,): the numbers of the
            columns' vertices.
        sources_rows: sources, int64, vertex indices; rows, int64: the row of ``out`` for each source.
        out: float64, shape (rows, columns).
        budget: the number of multiplications of vectors after which the block is given up.

    Returns:
        Whether the block is finished; it is also given up if a product may be too small for float64.
    """
    indptr, heads, into, tails, weights, least = arcs
    labels, dirty, touched = space
    rank, near = goal
    sources, rows = sources_rows
    waiting = 0
    for j in range(len(sources)):
        s = rank[sources[j]]
        labels[s, j] = 1.0
        touched[s] = 1
        waiting += _mark(indptr, heads, s, dirty)
    finished = _sweep_products((indptr, heads, into, tails, weights), space, waiting, budget)
    if finished:
        columns = _touched_columns(touched, near)
        if len(columns) > 0:  # only these columns are copied, all others are filled with 0, which means no path
            _emit(labels, 0.0, near[columns], rows, out, 0.0, None)
            expand_rows(out, rows, columns, 0.0)
        else:
            _emit(labels, 0.0, near, rows, out, 0.0, None)
    return _clean_products(labels, touched) * least >= LEAST and finished
