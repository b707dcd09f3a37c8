"""Computes rows of distances for the interfaces to other libraries.

The rows are held in memory as float64, together with predecessors if these are wanted.  Statistics of rows are computed
without holding the rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.api.solve import make_plan, solve
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES, WorkType
from engine.model.problem import Options
from engine.model.rows import Sink
from engine.rows.asked_measures import AskedMeasures
from engine.rows.floats import FloatSink
from engine.rows.measures import MeasureSink
from storage.graph.graph import Graph, build_graph

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

#: The number that means "no predecessor".
NONE: Final = -9999


def distance_rows(
    graph: Graph | GraphProfile, rows: npt.NDArray[np.int64], *, trees: bool = False, algorithm: str = "auto"
) -> tuple[Floats, Indices | None]:
    """Find rows of distances, and predecessors if wanted.

    Predecessors are found over tight arcs: the distance of the tail plus the weight is exactly the distance of the
    head.  Sums of whole numbers are exact in every algorithm.  Sums of fractions agree exactly only if they are added
    in order along a path.  So predecessors for fractions need searches, over reduced weights if arcs are negative.

    Args:
        graph: the graph, or its profile, which caches facts for further calls.
        rows: vertex indices of the sources, ascending.
        trees: whether to return predecessors, too.
        algorithm: the name of an algorithm, or ``auto``.

    Returns:
        Distances, shape (rows, n), +inf where there is no path; and predecessors of the same shape, None without
        ``trees``.

    Raises:
        NegativeCycle: the graph has a negative cycle.
    """
    profile, potentials = GraphProfile.of(graph), None
    if trees and not profile.graph.integral:
        algorithm = "dijkstra"
        if not profile.nonnegative:
            potentials = profile.potentials
            # the searches below find lengths that are reduced by the potentials
            profile = GraphProfile(profile.reduced(potentials).graph)
    distances = np.empty((len(rows), profile.graph.n))
    if distances.size:
        _solve(profile, rows, algorithm, lambda kind: FloatSink(distances, kind.unreachable))
    before = _trees(profile.graph, distances, rows) if trees else None
    if potentials is not None:
        distances += potentials - potentials[rows, None]
    return distances, before


def nearest_row(
    graph: Graph, sources: npt.NDArray[np.int64], *, trees: bool = False
) -> tuple[Floats, Indices | None, Indices | None]:
    """Find the distances from the nearest of several sources.

    If no arc is negative, SciPy searches, because planning would take longer than a single search.  Otherwise the
    distances are one row of a graph with an additional vertex, from which arcs of length zero lead to all sources.

    Args:
        graph: the graph.
        sources: vertex indices.
        trees: whether to return predecessors and origins, too.

    Returns:
        Distances, shape (n,), predecessors and origins.  The origin of a vertex is the source at which the path to this
        vertex begins.  Predecessors and origins are int32, shape (n,), ``NONE`` where there is no path, and None
        without ``trees``.  The predecessor of a source is also ``NONE``.

    Raises:
        NegativeCycle: the graph has a negative cycle.
    """
    n = root = graph.n
    if len(sources) and (graph.arcs == 0 or (graph.weights.min() >= 0 and _sums_fit(graph))):
        arcs = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(n, n))
        found = dijkstra(arcs, indices=sources, min_only=True, return_predecessors=trees)
        return found if trees else (found, None, None)
    tails = np.concatenate([np.repeat(np.arange(n), np.diff(graph.indptr)), np.full(len(sources), root)])
    heads = np.concatenate([graph.heads, sources])
    weights = np.concatenate([graph.weights, np.zeros(len(sources), graph.weights.dtype)])
    wider = build_graph(tails, heads, weights, n=n + 1, directed=True)[0]
    distances, before = distance_rows(wider, np.array([root]), trees=trees)
    if before is None:
        return distances[0, :n], None, None
    origin = _origins(before[0], root)
    tree = before[0, :n]
    tree[tree == root] = NONE
    return distances[0, :n], tree, origin[:n]


def _sums_fit(graph: Graph) -> bool:
    """Return whether float64 can hold the length of every path: exactly if weights are whole, else without overflow."""
    most = float(graph.weights.max()) * graph.n
    return most <= 2.0**53 if graph.integral else most < np.inf


def _origins(before: Indices, root: int) -> Indices:
    """Find, by pointer doubling, the source at which the path to each vertex begins.

    Args:
        before: the predecessor of each vertex; ``NONE`` for ``root``, and where there is no path.
        root: the additional vertex of :func:`nearest_row`, which has an arc to each source.

    Returns:
        The source for each vertex; ``NONE`` for ``root``, and where there is no path.
    """
    vertex = np.arange(len(before), dtype=np.int32)
    at = np.where((before == root) | (before == NONE), vertex, before)
    while True:
        further = at[at]
        if np.array_equal(further, at):
            break
        at = further
    return np.where(before[at] == root, at, np.int32(NONE))


@dataclass(frozen=True)
class RowStatistics:
    """Facts of each row.  The source itself does not count among the vertices that it reaches.

    Attributes:
        reached: number of vertices with a finite distance, shape (n,).
        sums: sum of the finite distances, shape (n,).
        largest: largest finite distance, shape (n,); 0 if no vertex is reached.
        inverse: sum of 1 / distance over distances that are not zero, shape (n,); empty if it was not requested.
    """

    reached: npt.NDArray[np.int64]
    sums: Floats
    largest: Floats
    inverse: Floats


def gather(graph: Graph, *, inverse: bool = False) -> RowStatistics:
    """Return the facts of every row of the matrix, without making the matrix; ``inverse`` adds sums of 1 / distance."""
    n, names = graph.n, ("reached", "sum", "eccentricity", *(("harmonic",) if inverse else ()))
    if n == 0:
        return RowStatistics(np.zeros(0, np.int64), *(np.zeros(0) for _ in range(3)))
    made: list[MeasureSink] = []

    def sink(kind: WorkType) -> Sink:
        made.append(MeasureSink(Rectangle(n, None, None, None), kind, AskedMeasures(names)))
        return made[0]

    _solve(GraphProfile(graph), np.arange(n), "auto", sink)
    found = made[0].columns()
    largest = np.nan_to_num(found["eccentricity"].astype(np.float64))
    inverses = found["harmonic"].astype(np.float64) if inverse else np.zeros(0)
    return RowStatistics(found["reached"].astype(np.int64), found["sum"].astype(np.float64), largest, inverses)


def _trees(graph: Graph, distances: Floats, rows: npt.NDArray[np.int64]) -> Indices:
    from engine.devices.cpu.predecessors import tight_trees
    from engine.devices.cpu.team import Team

    team = Team()
    try:
        return tight_trees(team, graph.indptr, graph.heads, graph.weights, distances, rows, NONE)
    finally:
        team.close()


def _solve(
    profile: GraphProfile, rows: npt.NDArray[np.int64], algorithm: str, sink: Callable[[WorkType], Sink]
) -> None:
    """Plan and solve ``rows``.  ``sink`` takes the working type of the plan and returns the receiver of the rows."""
    graph = profile.graph
    options = Options(
        dtype="auto" if graph.integral else "float64",
        algorithm=algorithm,
        sources=None if len(rows) == graph.n else tuple(rows.tolist()),
        device="cpu" if algorithm == "dijkstra" else "auto",
    )
    plan = make_plan(profile, options)
    solve(profile, plan, options, sink(WORK_TYPES[plan.dtype]), facts=False)
