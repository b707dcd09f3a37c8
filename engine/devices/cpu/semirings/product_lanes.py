"""Greatest products from many sources at once, one source in each lane of the processor's vectors.

As ``engine.devices.cpu.lanes`` does with lengths, vertices are swept until no product grows any more.  The final
products do not depend on the order of the sweeps: each is the greatest product of any path from the source, where
products are rounded after each arc.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.lanes import PRODUCTS, ROW_BYTES, _emit, _mark, _sweep, _touched_columns
from engine.devices.cpu.row_facts import expand_rows
from engine.devices.cpu.semirings.products import LEAST
from engine.graph.kernels import njit

#: The number of sources in a block.
LANES = ROW_BYTES // 8


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
    finished = _sweep((indptr, heads, into, tails, weights), space, waiting, budget, PRODUCTS)
    if finished:
        columns = _touched_columns(touched, near)
        if len(columns) > 0:  # only these columns are copied, all others are filled with 0, which means no path
            _emit(labels, (0.0, 0.0), near[columns], rows, out, None, None)
            expand_rows(out, rows, columns, 0.0)
        else:
            _emit(labels, (0.0, 0.0), near, rows, out, None, None)
    return _clean_products(labels, touched) * least >= LEAST and finished
