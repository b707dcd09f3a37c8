"""Breadth-first searches on the processors, 512 sources side by side, where all arcs weigh 1."""

from __future__ import annotations

import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.graph.selection import Rectangle
from engine.model.backend import Backend
from engine.model.progress import Monitor
from engine.model.rows import Sink
from storage.graph.graph import Graph


def solve(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    rectangle: Rectangle,
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
    *,
    from_targets: bool = False,
) -> None:
    """Solve as :func:`engine.algorithms.dijkstra.solve`, for arcs that all weigh 1.

    Args:
        backend: its number of threads is used.
        graph: the graph.
        rectangle: rows and columns of the result.
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        batch_rows: most rows of a batch.
        from_targets: search from the targets over the reversed arcs.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    from engine.devices.cpu.bfs_bits import BreadthFirst

    searcher = BreadthFirst(backend.threads)
    try:
        dijkstra.solve(
            searcher, graph, rectangle, dtype, sink, monitor, batch_rows, unit=True, from_targets=from_targets
        )
    finally:
        searcher.shutdown()
