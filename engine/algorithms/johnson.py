"""Johnson's algorithm: potentials make all arcs non-negative, then one search per source (Johnson 1977)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.backends.base import Arcs, Backend
from engine.monitor import Monitor
from engine.potentials import find_potentials, reduced_weights
from engine.summary import Sink
from storage.graph import Graph


def run(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    sources: npt.NDArray[np.int64],
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
) -> None:
    """As :func:`engine.algorithms.dijkstra.run`, for arcs of any sign.

    Raises:
        NegativeCycle: before any row is written.
        Cancelled: as there.
    """
    monitor.begin("potentials", graph.arcs, "arcs")
    h = find_potentials(graph)
    arcs = Arcs(graph.indptr, graph.heads, reduced_weights(graph, h), h) if h.any() else None
    monitor.step(graph.arcs)
    dijkstra.run(backend, graph, sources, dtype, sink, monitor, batch_rows, arcs=arcs)
