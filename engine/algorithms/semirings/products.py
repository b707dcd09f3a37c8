"""Most reliable paths: one search for each source, by products in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings import products
from storage.errors import SolveFailed
from storage.graph.graph import Graph

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class ProductSearch:
    """Searches of one graph by one thread; work space is kept between them.

    Args:
        graph: the graph; weights lie in (0, 1].

    Attributes:
        found: float64, shape (n,): the products of the last search with their sign changed, 0 without a path.
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


class ProductRows:
    """Rows by one search for each source.

    Args:
        graph: the graph; weights lie in (0, 1].
        targets: vertex index of each column.
        threads: number of threads that may write rows.
    """

    def __init__(self, graph: Graph, targets: Indices, threads: int) -> None:
        self._graph, self._targets, self._spaces = graph, targets, Spaces(threads)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write rows.

        Args:
            worker: number of the calling thread.
            sources: vertex indices, shape (k,).
            rows: the row of ``out`` of each.
            out: float64, shape (rows, columns).

        Raises:
            SolveFailed: as :meth:`ProductSearch.run`.
        """
        search = self._spaces.of(worker, "products", lambda: ProductSearch(self._graph))
        for source, row in zip(sources.tolist(), rows.tolist(), strict=True):
            search.run(source)
            products.take_products(search.found, self._targets, out[row])
