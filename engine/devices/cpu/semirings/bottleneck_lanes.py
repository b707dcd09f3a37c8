"""Bottlenecks from many sources at once, one source in each lane of the processor's vectors.

Labels are *ranks*, the places of weights in order, the best first, as in ``bottlenecks``.  As
``engine.devices.cpu.lanes`` does with lengths, vertices are swept until no label falls any more.  They are swept along
the line of ``bottlenecks.line_of``, in which each component is an interval while components merge.
"""

from __future__ import annotations

import numpy as np

from engine.devices.cpu.lanes import BOTTLENECKS, ROW_BYTES, _clean, _emit, _mark, _sweep, _touched_columns
from engine.devices.cpu.row_facts import expand_rows
from engine.graph.kernels import njit

#: The number of sources in a block.
LANES = ROW_BYTES // 4


@njit(nogil=True, cache=True)
def search_bottleneck_lanes(arcs, space, places, sources_rows, values, out, budget):  # type: ignore[no-untyped-def]
    """Search the bottlenecks of some sources, one in each lane, and write their values to their rows of ``out``.

    Args:
        arcs: indptr, heads: CSR of the arcs out of each place of the line; into, tails, ranks: CSR of the arcs into
            each place, with their ranks, int32.
        space: labels, int32, shape (n, LANES), all of them the rank that means no path; dirty and touched, uint8, a
            byte for each place, their length a multiple of 8, all 0.  They are in the same state afterwards.
        places: int32, shape (columns,): the place of each column's vertex.
        sources_rows: sources, int64, places; rows, int64: the row of ``out`` for each source.
        values: shape (ranks,): the value of each rank, the last for no path.
        out: of the type of ``values``, shape (rows, columns).
        budget: the number of relaxations of vectors after which the block is given up.

    Returns:
        Whether the block is finished.
    """
    indptr, heads, _, _, _ = arcs
    labels, dirty, touched = space
    sources, rows = sources_rows
    far = np.int32(len(values) - 1)
    waiting = 0
    for j in range(len(sources)):
        labels[sources[j], j] = 0
        touched[sources[j]] = 1
        waiting += _mark(indptr, heads, sources[j], dirty)
    finished = _sweep(arcs, space, waiting, budget, BOTTLENECKS)
    if finished:
        columns = _touched_columns(touched, places)
        if len(columns) > 0:  # only these columns are copied, all others are filled with the value of no path
            _emit(labels, (far, values[far]), places[columns], rows, out, None, values)
            expand_rows(out, rows, columns, values[far])
        else:
            _emit(labels, (far, values[far]), places, rows, out, None, values)
    _clean(labels, far, touched, np.empty(0, np.int32))
    return finished
