"""Johnson's algorithm: potentials make all arcs non-negative, then one search per source (Johnson 1977)."""

from __future__ import annotations

from engine.algorithms import dijkstra
from engine.algorithms.context import SolveContext
from engine.model.backend import Backend


def solve(context: SolveContext, backend: Backend) -> None:
    """Find the distances as :func:`engine.algorithms.dijkstra.solve` does, but arcs may be negative.

    Raises:
        NegativeCycle: before any row is written.
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    dijkstra.solve(context, backend, context.profile.reweighted(context.monitor).arcs)
