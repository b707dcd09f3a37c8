"""Most reliable paths, as products in float64: by blocks of sources in the lanes of vectors, or by single searches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.arcs import prepare
from engine.devices.cpu.atonce.lane_blocks import lane_space
from engine.devices.cpu.lanes import ROW_BYTES
from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings import product_lanes, products
from engine.model.backend import Arcs
from storage.errors import SolveFailed
from storage.graph.graph import Graph

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: A block with fewer sources than this is searched one source at a time.
_LEAST: Final = 8
#: A graph with more vertices than this is also searched one source at a time: the labels of a block would take
#: hundreds of megabytes.
_MOST_VERTICES: Final = 2**20
#: A block is abandoned, and searched one source at a time, after this many vector multiplications for every arc plus
#: four times this many for every vertex.
_PASSES: Final = 256


class ProductSearch:
    """Searches of one graph by one thread, which keeps its work space between searches.

    Args:
        graph: the graph; weights lie in (0, 1].

    Attributes:
        found: float64, shape (n,): the negated products of the last search; 0 where there is no path.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, n = graph, graph.n
        self._weights = graph.weights.astype(np.float64)
        self.found = np.empty(n)
        self._space = np.empty(n), np.empty(n, np.int32), np.full(n, -1, np.int32)

    def run(self, source: int) -> None:
        """Search from a vertex.

        Raises:
            SolveFailed: the greatest product of some pair is too small for float64.
        """
        graph = self._graph
        arcs = graph.indptr, graph.heads, self._weights
        small = products.search_products(arcs, source, self.found, *self._space)
        if small >= 0:
            raise SolveFailed(
                f"every path from {graph.labels[source]} to {graph.labels[small]} has a product below "
                f"{products.LEAST:.3g}, the least that float64 holds with all its digits; ask for fewer sources or "
                "targets only if they are near, or leave out arcs that hardly ever hold"
            )


def without_null(graph: Graph) -> Graph:
    """Return a graph without its arcs of weight 0.

    Such arcs lead from a terminal to its arrival, the copy at which paths to the terminal end
    (``engine.graph.terminals``).  Their weight 0 suits sums of lengths, but not products, and no other path needs them.
    """
    kept = graph.weights > 0
    if kept.all():
        return graph
    indptr = np.concatenate([[0], np.cumsum(kept)])[graph.indptr]
    return replace(graph, indptr=indptr, heads=graph.heads[kept], weights=graph.weights[kept])


def lanes_bytes(n: int) -> int:
    """Return the bytes that the labels of a block of sources take; 0 for graphs too large for blocks."""
    return 0 if n > _MOST_VERTICES else n * (ROW_BYTES + 2)


class ProductRows(RowWriter):
    """Finds rows by searches from one source or from a block of sources; both kinds give the same numbers, bit for bit.

    Args:
        graph: the graph; weights lie in (0, 1], apart from the arcs of terminals to their own arrivals.
        targets: vertex index of each column.
        threads: number of threads that may write rows.
    """

    at_once = product_lanes.LANES

    def __init__(self, graph: Graph, targets: Indices, threads: int) -> None:
        graph = without_null(graph)
        self._graph, self._targets, self._spaces = graph, targets, Spaces(threads)
        self._blocks = Spaces(threads)
        self._finished = self._given_up = 0
        if not 0 < graph.n <= _MOST_VERTICES or not graph.arcs:
            self._given_up = 2  # a value with which :meth:`_block` never tries a block
            self._rank: npt.NDArray[Any] = np.arange(graph.n)
            return
        ready = prepare(Arcs(graph.indptr, graph.heads, graph.weights.astype(np.float64)))
        weights = ready.weights if ready.back is None else ready.weights[ready.back]
        self._arcs = ready.indptr, ready.heads, ready.into, ready.tails, weights, weights.min()
        self._rank, self._goal = ready.rank, (ready.rank, ready.rank[targets])
        self._budget = _PASSES * (graph.arcs + 4 * graph.n)

    def together(self, sources: Indices) -> Indices:
        """Return an order of ``sources`` in which sources near each other are adjacent, so that the same sweeps change
        the products of all sources of a block.
        """
        return np.argsort(self._rank[sources], kind="stable")

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write rows.

        Args:
            worker: number of the calling thread.
            sources: vertex indices, shape (k,).
            rows: the row of ``out`` for each source.
            out: float64, shape (rows, columns).

        Raises:
            SolveFailed: the greatest product of some pair is too small for float64.
        """
        for first in range(0, len(sources), product_lanes.LANES):
            some = slice(first, first + product_lanes.LANES)
            if not self._block(worker, sources[some], rows[some], out):
                self._single(worker, sources[some], rows[some], out)

    def _block(self, worker: int, sources: Indices, rows: Indices, out: Array) -> bool:
        """Write the rows of a block, and return whether they were found before the block was abandoned."""
        if len(sources) < _LEAST or self._given_up > 1 + self._finished // 4:
            return False
        space = self._blocks.of(worker, "lanes", lambda: lane_space(self._graph.n, np.float64(0)))
        done = product_lanes.search_product_lanes(self._arcs, space, self._goal, (sources, rows), out, self._budget)
        self._finished, self._given_up = self._finished + done, self._given_up + (not done)
        return bool(done)

    def _single(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write rows by one search for each source."""
        search = self._spaces.of(worker, "products", lambda: ProductSearch(self._graph))
        for source, row in zip(sources.tolist(), rows.tolist(), strict=True):
            search.run(source)
            products.take_products(search.found, self._targets, out[row])
