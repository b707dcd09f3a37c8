"""Rows of distances in memory, as the doors need them: float64 with +inf, trees of paths, or facts of rows alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.potentials import find_potentials, reduced_weights
from engine.problem import Options
from engine.solve import make_plan, solve
from engine.summary import Sink
from engine.types import WORK_TYPES
from storage.graph import Graph

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

#: What stands for "no predecessor".
NONE: Final = -9999


def distance_rows(
    graph: Graph, rows: npt.NDArray[np.int64], *, trees: bool = False, algorithm: str = "auto"
) -> tuple[Floats, Indices | None]:
    """Distances from ``rows`` (vertex indices, ascending), shape (len(rows), n), and predecessors with ``trees``.

    Trees come from arcs that are tight.  Whole numbers are exact whoever adds them; fractions are tight only in the
    sums that searches make, in order along a path, so those answer then, over reduced weights if arcs are negative.

    Raises:
        NegativeCycle: the graph has one.
    """
    potentials = None
    if trees and not graph.integral:
        algorithm = "dijkstra"
        if graph.arcs and graph.weights.min() < 0:
            potentials = find_potentials(graph)
            graph = replace(graph, weights=reduced_weights(graph, potentials))
    distances = np.empty((len(rows), graph.n))
    if distances.size:
        _solve(graph, rows, algorithm, lambda kind: _FloatSink(distances, kind))
    before = _trees(graph, distances, rows) if trees else None
    if potentials is not None:
        distances += potentials - potentials[rows, None]
    return distances, before


@dataclass
class RowStatistics:
    """Facts of each row, the source itself left out; also a sink that gathers them, which is told whole rows.

    Attributes:
        reached: how many vertices; sums, largest: of their distances; inverse: sum of 1 / distance where not zero.
    """

    reached: npt.NDArray[np.int64]
    sums: Floats
    largest: Floats
    inverse: Floats
    unreachable: float
    tile: tuple[int, int]

    def write(self, row: int, column: int, block: npt.NDArray[np.generic]) -> None:  # noqa: ARG002
        """Take rows ``row``, ``row`` + 1, ...; the source's own distance is 0 and adds nothing."""
        rows = slice(row, row + len(block))
        values = block.astype(np.float64)
        values[block == self.unreachable] = np.inf
        finite = np.isfinite(values)
        self.reached[rows] = finite.sum(1) - 1
        self.sums[rows] = np.sum(values, axis=1, where=finite)
        self.largest[rows] = np.max(values, axis=1, where=finite, initial=0.0)
        some = finite & (values != 0)
        self.inverse[rows] = np.sum(np.divide(1.0, values, out=np.zeros_like(values), where=some), axis=1)


def gather(graph: Graph) -> RowStatistics:
    """The facts of every row of the matrix, which is never held as a whole."""
    n = graph.n
    zeros = (np.zeros(n, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))
    facts = RowStatistics(*zeros, unreachable=np.inf, tile=(64, max(1, n)))

    def told(unreachable: float) -> Sink:
        facts.unreachable = unreachable
        return facts

    if n:
        _solve(graph, np.arange(n), "auto", told)
    return facts


def _trees(graph: Graph, distances: Floats, rows: npt.NDArray[np.int64]) -> Indices:
    from engine.backends.cpu_tight import tight_trees
    from engine.backends.team import Team

    team = Team()
    try:
        return tight_trees(team, graph.indptr, graph.heads, graph.weights, distances, rows, NONE)
    finally:
        team.close()


def _solve(graph: Graph, rows: npt.NDArray[np.int64], algorithm: str, sink: Callable[[float], Sink]) -> None:
    """Plan and run; ``sink`` is told what stands for *unreachable*."""
    options = Options(
        dtype="auto" if graph.integral else "float64",
        algorithm=algorithm,
        sources=None if len(rows) == graph.n else tuple(rows.tolist()),
        device="cpu" if algorithm == "dijkstra" else "auto",
    )
    plan = make_plan(graph, options)
    solve(graph, plan, options, sink(WORK_TYPES[plan.dtype].unreachable))


class _FloatSink:
    """A sink that is a float64 array in memory; what is unreachable becomes +inf."""

    def __init__(self, out: Floats, unreachable: float) -> None:
        self._out, self._unreachable = out, unreachable
        self.tile = (64, max(1, out.shape[1]))

    def write(self, row: int, column: int, block: npt.NDArray[np.generic]) -> None:
        """Convert ``block`` into its place."""
        place = self._out[row : row + block.shape[0], column : column + block.shape[1]]
        place[...] = block
        if block.dtype.kind in "iu":
            place[block == self._unreachable] = np.inf
