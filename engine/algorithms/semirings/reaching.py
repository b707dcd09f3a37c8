"""Reachability: finds strongly connected components, then searches the arcs between them from 64 sources at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings import reaching
from storage.graph.graph import Graph

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: Number of sources that share a word of 64 bits, one bit each.
AT_ONCE = 64


class ReachedRows(RowWriter):
    """Rows that hold one of two values for each target: reachable or not.

    Args:
        graph: the graph.
        targets: vertex index of each column.
        threads: number of threads that may write rows.
        values: shape (2,): the value of a pair without a path, and that of a pair with one.
    """

    def __init__(self, graph: Graph, targets: Indices, threads: int, values: Array) -> None:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        n = graph.n
        arcs = csr_array((np.ones(graph.arcs, np.int8), graph.heads, graph.indptr), shape=(n, n))
        kind = "strong" if graph.directed else "weak"
        count, component = connected_components(arcs, directed=graph.directed, connection=kind)
        self._component = component.astype(np.int64)
        tails = np.repeat(self._component, np.diff(graph.indptr))
        heads = self._component[graph.heads]
        # one arc is kept of all arcs from one component to another; the kept arcs ascend by tail
        keys = np.unique(tails[tails != heads] * count + heads[tails != heads])
        tails, heads = np.divmod(keys, max(1, count))
        self._heads = heads.astype(np.int32)
        self._indptr = np.searchsorted(tails, np.arange(count + 1)).astype(np.int64)
        self._order = np.empty(count, np.int32)
        waiting = np.bincount(heads, minlength=count).astype(np.int32)
        if reaching.order_components(self._indptr, self._heads, waiting, self._order) != count:
            raise AssertionError("the arcs between strongly connected components form a cycle")
        self._values = values
        self._targets, self._spaces = self._component[targets].astype(np.int32), Spaces(threads)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write rows.

        Args:
            worker: number of the calling thread.
            sources: vertex indices, shape (k,).
            rows: the row of ``out`` for each source.
            out: of the type of the values, shape (rows, columns).
        """
        sizes = len(self._order), len(self._targets)
        words, taken = self._spaces.of(worker, "words", lambda: tuple(np.empty(size, np.uint64) for size in sizes))
        for first in range(0, len(sources), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            starts = self._component[sources[some]]
            arcs = self._indptr, self._heads, self._order
            reaching.rows_reached(arcs, starts, self._targets, self._values, (words, taken), rows[some], out)
