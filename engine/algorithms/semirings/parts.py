"""Most reliable paths over the parts of a graph, as ``engine.algorithms.partitioned`` finds distances.

Products are multiplied over borders, not arc by arc from the source on.  So they are rounded differently from those of
searches: a product of k weights has an error of at most k - 1 roundings, in any order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.part_lengths import find_lengths
from engine.algorithms.semirings.products import without_null
from engine.algorithms.semirings.writer import RowWriter
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.relax import aligned
from engine.devices.cpu.searches import Spaces
from engine.devices.cpu.semirings.product_parts import sweep_products
from engine.devices.cpu.sweep import flattened, sweep_space
from engine.devices.cpu.vector import TILE_ROWS, TILE_VECTORS, VECTOR_BYTES
from engine.graph.partition import CPU_GRAIN
from engine.graph.profile import GraphProfile
from engine.model.device_layout import SWEEP_ROWS
from engine.model.dtypes import PRODUCTS
from engine.model.progress import Monitor

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

#: _SWEEPS: the largest number of sweeps of one piece of work.  _PIECES: the least number of pieces for each thread.
_SWEEPS: Final = 5
_PIECES: Final = 4


class PartRows(RowWriter):
    """Finds rows by sweeps over the parts of a graph; the products inside parts are found first.

    Args:
        profile: the graph; weights lie in (0, 1], apart from the arcs of terminals to their own arrivals.
        targets: vertex index of each column.
        rows: the number of rows that will be written.
        threads: number of threads that may write rows.
        monitor: receives the progress of the preparation.

    Raises:
        Cancelled: the monitor asked to stop.
    """

    at_once = SWEEP_ROWS

    def __init__(self, profile: GraphProfile, targets: Indices, rows: int, threads: int, monitor: Monitor) -> None:
        monitor.begin("partition", profile.graph.arcs, "arcs")
        parts = profile.parts(CPU_GRAIN)
        monitor.step(profile.graph.arcs)
        backend = CpuBackend(threads)
        try:
            graph = without_null(profile.graph)
            found = find_lengths(backend, graph, parts, PRODUCTS, nonnegative=None, monitor=monitor)
        finally:
            backend.shutdown()
        self._walk = flattened(parts, found)
        self._columns = parts.position, parts.position[targets]
        self._high = max(1, min(SWEEP_ROWS, -(-rows // threads)))
        self.piece = self._high * max(1, min(_SWEEPS, rows // (_PIECES * self._high * threads)))
        self._spaces = Spaces(threads)

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write the rows of ``sources`` into the rows ``rows`` of ``out``; the calling thread has number ``worker``."""
        space = self._spaces.of(worker, "sweep", self._space)
        sweep_products(self._walk, space, self._columns, (sources, rows), out)

    def _space(self) -> tuple[Array, ...]:
        edge = aligned(TILE_ROWS * TILE_VECTORS * VECTOR_BYTES).view(np.float64)
        return (*sweep_space(self._walk, self._high), edge)
