"""Johnson's algorithm: potentials make all arcs non-negative, then one search per source (Johnson 1977)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.algorithms import dijkstra
from engine.algorithms.context import SolveContext

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend


def solve(context: SolveContext, backend: CpuBackend) -> None:
    """Find the distances as :func:`engine.algorithms.dijkstra.solve` does, but arcs may be negative.

    Raises:
        NegativeCycle: before any row is written.
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    dijkstra.solve(context, backend, context.profile.reweighted(context.monitor).arcs)
