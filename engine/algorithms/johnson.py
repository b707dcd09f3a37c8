"""Johnson's algorithm: potentials make all arcs non-negative, then one search per source (Johnson 1977)."""

from __future__ import annotations

from typing import Final

import numpy.typing as npt

from engine.algorithms import dijkstra
from engine.graph.potentials import find_potentials, reduced_weights
from engine.graph.selection import Rectangle
from engine.model.backend import Arcs, Backend
from engine.model.plan import Candidate, Phase
from engine.model.progress import Monitor
from engine.planning.cost import Setting, search_candidate
from engine.rows.summary import Sink
from storage.graph.graph import Graph

#: Passes over the arcs that potentials take, more or less.
PASSES: Final = 30


def estimate(setting: Setting) -> Candidate:
    """Potentials by Bellman-Ford, then one search a source over reduced weights."""
    potentials = Phase("potentials", PASSES * setting.problem.arcs / setting.machine.search_rate)
    seconds, tried = dijkstra.abreast_seconds(setting), setting.machine.search_seconds
    return search_candidate(setting, "johnson", seconds=seconds, tried=tried, before=(potentials,))


def solve(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    rectangle: Rectangle,
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
    *,
    turned: bool = False,
) -> None:
    """As :func:`engine.algorithms.dijkstra.solve`, for arcs of any sign.

    Raises:
        NegativeCycle: before any row is written.
        Cancelled: as there.
    """
    monitor.begin("potentials", graph.arcs, "arcs")
    h = find_potentials(graph)
    arcs = Arcs(graph.indptr, graph.heads, reduced_weights(graph, h), h) if h.any() else None
    monitor.step(graph.arcs)
    dijkstra.solve(backend, graph, rectangle, dtype, sink, monitor, batch_rows, arcs=arcs, turned=turned)
