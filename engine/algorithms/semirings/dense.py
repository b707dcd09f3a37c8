"""Most reliable paths of a dense graph, whose whole matrix of products is closed before rows are copied from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.algorithms import floyd_warshall
from engine.algorithms.semirings.products import without_null
from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.backend import CpuBackend
from engine.graph.profile import GraphProfile
from engine.model.dtypes import PRODUCTS
from engine.model.progress import Monitor
from engine.rows.dense import weight_matrix

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class DenseRows(RowWriter):
    """Copies rows of the products of all pairs, which Floyd and Warshall's algorithm finds first.

    Args:
        profile: the graph; weights lie in (0, 1], apart from the arcs of terminals to their own arrivals.
        targets: vertex index of each column.
        threads: number of threads.
        monitor: receives the progress of the preparation.

    Raises:
        Cancelled: the monitor asked to stop.
    """

    def __init__(self, profile: GraphProfile, targets: Indices, threads: int, monitor: Monitor) -> None:
        graph, backend = without_null(profile.graph), CpuBackend(threads)
        self._targets = None if np.array_equal(targets, np.arange(graph.n)) else targets
        try:
            self._products = weight_matrix(graph, PRODUCTS, monitor, threads)
            np.fill_diagonal(self._products, PRODUCTS.itself)
            symmetric = not graph.directed
            floyd_warshall.recursive(backend, self._products, nonnegative=None, symmetric=symmetric, monitor=monitor)
        finally:
            backend.shutdown()

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:  # noqa: ARG002 - no work space
        """Write the rows of ``sources`` into the rows ``rows`` of ``out``."""
        for source, row in zip(sources.tolist(), rows.tolist(), strict=True):
            found = self._products[source]
            out[row] = found if self._targets is None else found[self._targets]
