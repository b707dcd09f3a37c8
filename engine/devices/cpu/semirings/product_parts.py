"""Rows of greatest products over the parts of a graph: the sweep of ``engine.devices.cpu.sweep``, with products in
place of sums.
"""

from __future__ import annotations

from engine.devices.cpu.sweep import _sweep_rows
from engine.devices.cpu.vector import TILE_VECTORS, VECTOR_BYTES
from engine.graph.kernels import njit


@njit(nogil=True, cache=True)
def sweep_products(walk, space, columns, sources_rows, out):  # type: ignore[no-untyped-def]
    """Sweep the rows of some sources, as many at a time as the work space holds, and write them to rows of ``out``.

    A row does not depend on the other rows.

    Args:
        walk: the parts and their products, as for ``_sweep_rows``.
        space: work space for the rows, for the left side of a product and for its edge.
        columns: places, int64, shape (n,): the position of each vertex; near, int64, shape (columns,): the position of
            the vertex of each column.
        sources_rows: sources, int64, vertex indices; rows, int64: the row of ``out`` for each source.
        out: float64, shape (rows, columns); 0 where there is no path.
    """
    places, near = columns
    sources, rows = sources_rows
    x, n, width = space[0], walk[0][-1], TILE_VECTORS * VECTOR_BYTES // out.itemsize
    stride = (n + width - 1) // width * width
    high = len(x) // stride
    for first in range(0, len(sources), high):
        some = sources[first : first + high]
        _sweep_rows(walk, space, places, 0.0, some, None)
        for i in range(len(some)):
            row, products = out[rows[first + i]], x[i * stride : i * stride + n]
            for j in range(len(near)):
                row[j] = products[near[j]]
