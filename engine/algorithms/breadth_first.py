"""Breadth-first searches on the processors, from 512 sources at once, for graphs whose arcs all weigh 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.algorithms import dijkstra
from engine.algorithms.context import SolveContext

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


def solve(context: SolveContext, backend: CpuBackend) -> None:
    """Find the distances of a solve by breadth-first searches, with as many threads as ``backend`` has.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    from engine.devices.cpu.bfs_bits import BreadthFirst

    searcher = BreadthFirst(backend.threads)
    try:
        dijkstra.solve(context, searcher)
    finally:
        searcher.shutdown()
