"""Johnson's algorithm: potentials make all arcs non-negative, then one search per source (Johnson 1977)."""

from __future__ import annotations

import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.graph.potentials import find_potentials, reduced_weights
from engine.graph.selection import Rectangle
from engine.model.backend import Arcs, Backend
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
    """Solve as :func:`engine.algorithms.dijkstra.solve`; arcs may be negative.

    Args:
        backend: makes the searches.
        graph: the graph.
        rectangle: rows and columns of the result.
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        batch_rows: most rows of a batch.
        from_targets: search from the targets over the reversed arcs.

    Raises:
        NegativeCycle: before any row is written.
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    monitor.begin("potentials", graph.arcs, "arcs")
    h = find_potentials(graph, monitor)
    arcs = Arcs(graph.indptr, graph.heads, reduced_weights(graph, h), h) if h.any() else None
    monitor.step(graph.arcs)
    dijkstra.solve(backend, graph, rectangle, dtype, sink, monitor, batch_rows, arcs=arcs, from_targets=from_targets)
