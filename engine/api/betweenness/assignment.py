"""All-or-nothing assignment: puts demands on their shortest paths, and finds the flow on every arc and vertex."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.passing import PassingTask
from engine.api.betweenness.passage import Floats, Indices, Passage, PassageRun, PathPlan, check_options
from engine.graph.profile import GraphProfile
from engine.graph.selection import check_lengths
from engine.model.problem import Options, given_options
from engine.model.progress import Monitor
from storage.arguments import check_flags, check_given_paths, shown, unmasked
from storage.errors import InvalidRequest, SolveFailed
from storage.graph.demand_table import Demands
from storage.graph.graph import Graph
from storage.graph.vertex_table import arc_frame_of, frame_of, write_table

if TYPE_CHECKING:
    import polars

Array = npt.NDArray[np.generic]

#: Largest relative difference between two sums that must agree; rounding causes far smaller differences.
TOLERANCE: Final = 1e-6
#: Smallest flow above 0 that is accepted: if many paths share it, each share still has most of the digits of float64.
SMALLEST: Final = 1e-290


@dataclass(frozen=True, eq=False)
class Assignment:
    """The flow on every arc and vertex.

    Attributes:
        graph: the graph.
        demands: the demands that were assigned.
        lengths: float64, shape (demands,): the length of the shortest path of each demand, +inf where there is none;
            NaN for a demand of 0, which is not searched for.
        flow: float64, shape (arcs,): the flow on each arc, in the order of ``graph.heads``.
        begins, ends, through: float64, shape (n,): flow that begins at each vertex, ends there, or passes through it.
            Demands from a vertex to itself use no arc, and are not counted here.
        plan: the prediction that was made before the searches.
        seconds: wall seconds of each phase.
    """

    graph: Graph
    demands: Demands
    lengths: Floats
    flow: Floats
    begins: Floats
    ends: Floats
    through: Floats
    plan: PathPlan
    seconds: dict[str, float]

    @property
    def assigned(self) -> float:
        """The sum of the demands that are on arcs: those between two different vertices that have a path."""
        return float(self.demands.flows[np.isfinite(self.lengths) & ~self._inside].sum())

    @property
    def inside(self) -> float:
        """The sum of the demands from a vertex to itself, which are on no arc."""
        return float(self.demands.flows[self._inside].sum())

    @property
    def unreachable(self) -> Indices:
        """The indices of the demands for which there is no path."""
        return np.flatnonzero(np.isinf(self.lengths))

    @property
    def lost(self) -> float:
        """The sum of the demands for which there is no path."""
        return float(self.demands.flows[self.unreachable].sum())

    @property
    def cost(self) -> float:
        """The sum of flow times length over all assigned demands."""
        there = np.isfinite(self.lengths)
        return float((self.demands.flows[there] * self.lengths[there]).sum())

    @property
    def _inside(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.demands.origins, self.demands.destinations)

    def arc_table(self) -> polars.DataFrame:
        """Return a table with a row for each arc (two for an edge): ``source``, ``target``, ``weight``, ``flow``."""
        graph = self.graph
        columns: dict[str, Array] = {"weight": graph.weights, "flow": self.flow}
        return arc_frame_of(graph.labels, _tails(graph), graph.heads.astype(np.int64), columns)

    def vertex_table(self) -> polars.DataFrame:
        """Return a table with a row for each vertex: ``vertex``, ``begins``, ``ends``, ``through``."""
        columns: dict[str, Array] = {"begins": self.begins, "ends": self.ends, "through": self.through}
        return frame_of(self.graph.labels, np.arange(self.graph.n), columns, frozenset())

    def unreachable_table(self) -> polars.DataFrame:
        """Return a table of the demands for which there is no path: ``source``, ``target``, ``flow``."""
        some, demands = self.unreachable, self.demands
        columns: dict[str, Array] = {"flow": demands.flows[some]}
        return arc_frame_of(self.graph.labels, demands.origins[some], demands.destinations[some], columns)

    def write(self, path: str | Path, *, vertices: bool = False, overwrite: bool = False) -> None:
        """Write the table of arcs, or of vertices, as Parquet or CSV, depending on the suffix of the path.

        Args:
            path: ends in ``.parquet`` or ``.csv``.
            vertices: whether to write the table of vertices instead of that of arcs.
            overwrite: whether to replace an existing file.

        Raises:
            InvalidRequest: the path has another suffix.
            Conflict: there is a file already.
            StorageFailed: the disk refused to write.
        """
        check_given_paths(path=path)
        check_flags(vertices=vertices, overwrite=overwrite)
        table, unit = (self.vertex_table(), None) if vertices else (self.arc_table(), self.graph.unit)
        write_table(table, Path(path), overwrite=overwrite, unit=unit)


class Assigning:
    """A request to assign demands: the constructor checks it, :meth:`make_plan` predicts it, :meth:`run` computes it.

    Args:
        graph: the graph.
        demands: how much is to go from one vertex to another.
        options: ``memory`` and ``threads``; nothing else may be given.

    Raises:
        InvalidRequest: a demand or an option makes no sense, or the weights have no well-defined number of shortest
            paths.
        DoesNotFit: memory is too small.
    """

    def __init__(self, graph: Graph, demands: Demands, options: Options | None = None) -> None:
        options, graph = given_options(options), GraphProfile.of(graph).graph
        check_options(options, device=False)
        check_lengths(graph)
        for name in ("sources", "targets"):
            if getattr(options, name) is not None:
                raise InvalidRequest(f"the demands say from where to where, so {name} cannot be given", field=name)
        demands = _checked(demands, graph.n)
        self._graph, self._demands = graph, demands
        passage = self._passage = Passage(graph)
        # demands of 0 are left out: each target that ``PassingTask`` lists must have a flow of more than 0
        wanted = np.flatnonzero((demands.flows > 0) & (demands.origins != demands.destinations))
        starts = passage.starts(demands.origins[wanted])
        order = np.argsort(starts, kind="stable")
        self._listed, starts = wanted[order], starts[order]
        sources, first = np.unique(starts, return_index=True)
        task = PassingTask(
            sources.astype(np.int64),
            np.full(len(sources), -1, np.int64),
            np.zeros(passage.size),
            np.append(first, len(starts)).astype(np.int64),
            passage.arrivals(demands.destinations[self._listed]),
            demands.flows[self._listed],
            ends=True,
            arcs=True,
        )
        self._run = PassageRun(passage, task, options)

    def make_plan(self, monitor: Monitor | None = None) -> PathPlan:
        """Predict memory and time; ``monitor`` receives the progress of compiling, and is asked whether to stop."""
        return self._run.make_plan(monitor)

    def run(self, monitor: Monitor | None = None) -> Assignment:
        """Assign the demands.

        Args:
            monitor: receives progress, and is asked whether to stop.

        Raises:
            Cancelled: the monitor asked to stop.
            InvalidRequest: float64 loses small weights beside large ones, or cannot hold flow times length.
            SolveFailed: two vertices have too many shortest paths for float64, or a check of the flows fails.
        """
        passed, plan, seconds = self._run.run(monitor)
        demands, passage = self._demands, self._passage
        lengths = np.where(demands.origins == demands.destinations, 0.0, np.nan)
        lengths[self._listed] = passed.lengths
        found = Assignment(
            self._graph,
            demands,
            lengths,
            passage.by_arc(passed.over),
            begins=passage.by_vertex(passed.begins),
            ends=passage.by_vertex(passed.ends),
            through=passage.by_vertex(passed.vertices),
            plan=plan,
            seconds=seconds,
        )
        _check_sums(found)
        return found


def assign(
    graph: Graph, demands: Demands, options: Options | None = None, *, monitor: Monitor | None = None
) -> Assignment:
    """Put every demand on its shortest paths, and find the flow on every arc and vertex (all-or-nothing assignment).

    If a demand has several shortest paths, each of them carries the same share, so the result does not depend on the
    names or the order of vertices.  ``engine.api.betweenness.centrality.betweenness`` says when two paths count as
    equally long.  Weights do not depend on flow.  As a check, the flows that begin, pass and end are compared.

    Args:
        graph: as from ``read_graph`` or ``build_graph``; no weight may be negative.  No path passes through a terminal.
        demands: how much is to go from one vertex to another, as from ``read_demands``.
        options: ``memory`` and ``threads``; nothing else may be given.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        The flow, and which demands have no path.

    Raises:
        InvalidRequest: a demand or an option makes no sense; a weight is negative; arcs of weight zero form a cycle (as
            both arcs of an edge do); or float64 loses small weights beside large ones.
        DoesNotFit: memory is too small.
        SolveFailed: two vertices have more than 1e300 shortest paths, or the check of the flows fails.
        Cancelled: the monitor asked to stop.
    """
    asked = Assigning(graph, demands, options)
    asked.make_plan(monitor)
    return asked.run(monitor)


def _tails(graph: Graph) -> Indices:
    return np.repeat(np.arange(graph.n), np.diff(graph.indptr))


def _checked(demands: Demands, n: int) -> Demands:
    """Return the demands as arrays of the right types; raise InvalidRequest if some demand makes no sense."""
    if not isinstance(demands, Demands):
        raise InvalidRequest(
            f"demands must be Demands, found {shown(demands)}; read_demands reads a table", field="demands"
        )
    origins, destinations = (
        _numbers(name, getattr(demands, name), "iu").astype(np.int64) for name in ("origins", "destinations")
    )
    flows = _numbers("flows", demands.flows, "iuf").astype(np.float64)
    if not origins.shape == destinations.shape == flows.shape == (len(flows),):
        shapes = f"{origins.shape}, {destinations.shape} and {flows.shape}"
        raise InvalidRequest(f"origins, destinations and flows must have one shape, found {shapes}", field="demands")
    for name, side in (("origins", origins), ("destinations", destinations)):
        wrong = np.flatnonzero((side < 0) | (side >= n))
        if len(wrong):
            row = int(wrong[0])
            raise InvalidRequest(
                f"{name} must be vertex indices from 0 to {n - 1}, and demand {row} has {side[row]}", field="demands"
            )
    wrong = np.flatnonzero(~(np.isfinite(flows) & (flows >= 0)))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidRequest(
            f"a flow must be a finite number of at least 0, and demand {row} has {flows[row]}", field="demands"
        )
    _check_range(flows)
    return Demands(origins, destinations, flows)


def _check_range(flows: Floats) -> None:
    """Raise InvalidRequest for flows that float64 cannot share among paths, or cannot sum."""
    few = np.flatnonzero((flows > 0) & (flows < SMALLEST))
    with np.errstate(over="ignore"):
        total = flows.sum()
    if len(few):
        said = f"a flow must be 0 or at least {SMALLEST:g}, and demand {int(few[0])} has {flows[few[0]]}"
    elif np.isinf(total):
        said = "the sum of the flows is beyond float64"
    else:
        return
    raise InvalidRequest(f"{said}; give them in another unit", field="demands")


def _numbers(name: str, values: npt.ArrayLike, kinds: str) -> npt.NDArray[Any]:
    """Return ``values`` as an array; raise InvalidRequest if it has another kind of entries than ``kinds``, such as
    fractions instead of indices.
    """
    array = unmasked(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        what = "numbers" if "f" in kinds else "vertex indices"
        found = f"{array.dtype} of {array.ndim} axes"
        raise InvalidRequest(f"{name} must be a list of {what}, found {found}", field="demands")
    return array


def _check_sums(found: Assignment) -> None:
    """Check, for each vertex, the flow on its arcs against the flow that begins there, passes through it or ends there.

    Also check that flow times weight, summed over arcs, equals demand times length, summed over demands.

    Raises:
        InvalidRequest: flow times length is beyond float64.
        SolveFailed: two sums differ by more than rounding explains.
    """
    graph, n = found.graph, found.graph.n
    with np.errstate(over="ignore"):
        if np.isinf(found.cost):
            raise InvalidRequest(
                "the sum of flow times length is beyond float64; give flows or weights in another unit", field="demands"
            )
    leaving = np.bincount(_tails(graph), weights=found.flow, minlength=n)
    arriving = np.bincount(graph.heads, weights=found.flow, minlength=n)
    total, cost = found.assigned, float((found.flow * graph.weights).sum())
    pairs = (
        (leaving, found.begins + found.through, "leaves"),
        (arriving, found.ends + found.through, "arrives at"),
    )
    for counted, wanted, verb in pairs:
        wrong = np.flatnonzero(~(np.abs(counted - wanted) <= TOLERANCE * np.maximum(wanted, total / max(1, n))))
        if len(wrong):
            v = int(wrong[0])
            raise SolveFailed(f"flow of {counted[v]} {verb} vertex {graph.labels[v]}, and it should be {wanted[v]}")
    sums = ((found.begins.sum(), total), (found.ends.sum(), total), (cost, found.cost))
    if not all(abs(counted - wanted) <= TOLERANCE * wanted for counted, wanted in sums):
        raise SolveFailed(f"the sums of the assignment do not agree: {sums}")
