"""Plans and makes the tables of jobs for betweenness or for flows, and sums up the flows that were assigned.

The processes that plan and the runners use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from engine.api.betweenness.assignment import Assigning, Assignment
from engine.api.betweenness.centrality import Centrality
from engine.model.plan import Candidate, Phase, Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.counted import counted
from storage.errors import InvalidRequest, NotFound
from storage.graph.demand_table import Demands, read_demands
from storage.graph.graph import Graph, index_of
from storage.tables.uploaded import UploadedTables

if TYPE_CHECKING:
    import polars as pl

    from service.settings import Settings

#: most demands without a path that the summary of a result names
NAMED: Final = 100


class PassingTable:
    """Makes the table of betweenness or of flows of one job; the constructor checks the request before any work.

    Args:
        graph: the graph.
        request: options of the job, as stored with it.
        options: the options for the engine, from ``service.pool.tasks.job_options``.
        settings: the service's settings.

    Attributes:
        vertices: whether rows are vertices; else they are arcs.
        rows: how many rows the table has.
        columns: how many numbers a row has besides the names.

    Raises:
        InvalidRequest, DoesNotFit: ``Centrality`` or ``Assigning`` of the engine refuses the request.
    """

    def __init__(self, graph: Graph, request: Mapping[str, Any], options: Options, settings: Settings) -> None:
        self._graph, self._options = graph, options
        self._demands: Demands | None = None
        self._asked: Centrality | Assigning
        usual = "vertices"
        if request["result"] == "flows":
            usual, self._demands = "arcs", _demands(graph, request, settings)
            self._asked = Assigning(graph, self._demands, options)
        else:
            self._asked = Centrality(
                graph,
                options,
                arcs=request.get("of") == "arcs",
                normalized=not request.get("raw"),
                endpoints=bool(request.get("endpoints")),
            )
        self.vertices = (request.get("of") or usual) == "vertices"
        if isinstance(self._asked, Centrality):
            self.rows, self.columns = self._asked.rows, 1
        else:
            self.rows, self.columns = (graph.n, 3) if self.vertices else (graph.arcs, 2)

    def plan(self, monitor: Monitor | None, disk: int) -> Plan:
        """Return the plan; its shape is the numbers of sources and targets between which paths are counted.

        Args:
            monitor: receives the phase in which kernels are compiled, and can stop the work.
            disk: bytes of the table.
        """
        found = self._asked.make_plan(monitor)
        name = "betweenness" if self._demands is None else "assignment"
        phases = (Phase("search", found.seconds),)
        where = "a GPU counts shortest paths" if found.device == "cuda" else "processors count shortest paths"
        what = "shortest paths are counted" if self._demands is None else "demands are put on shortest paths"
        return Plan(
            algorithm=name, dtype="float64", device=found.device, threads=found.threads, shape=self._shape(),
            memory=found.memory, disk=disk, seconds=found.seconds, device_memory=found.device_memory,
            reason=f"{what} from {counted(found.sources, 'sources')}: {found.search}",
            dtype_reason="numbers and shares of paths are float64", device_reason=where,
            phases=phases, candidates=(Candidate(name, found.memory, disk, found.seconds, phases),),
        )  # fmt: skip

    def _shape(self) -> tuple[int, int]:
        if self._demands is not None:
            return len(set(self._demands.origins.tolist())), len(set(self._demands.destinations.tolist()))
        sides = (self._options.sources, self._options.targets)
        down, across = (self._graph.n if side is None else len(side) for side in sides)
        return down, across

    def make(self, monitor: Monitor) -> tuple[pl.DataFrame, dict[str, float], dict[str, Any]]:
        """Return the table, the seconds of each phase, and sums for the summary.

        Raises:
            Cancelled: the monitor has stopped the work.
            InvalidRequest, SolveFailed: ``betweenness`` or ``assign`` of the engine raised it.
        """
        found = self._asked.run(monitor)
        if isinstance(found, Assignment):
            frame = found.vertex_table() if self.vertices else found.arc_table()
            return frame, dict(found.seconds), _sums(found)
        return found.to_polars(), dict(found.seconds), {}


def _sums(found: Assignment) -> dict[str, Any]:
    """Return the sums of assigned and of lost flow, and the first demands without a path."""
    return {
        "demands": len(found.demands), "assigned": found.assigned, "inside": found.inside, "lost": found.lost,
        "cost": found.cost, "unreachable": len(found.unreachable),
        "unreachable_first": [list(row) for row in found.unreachable_table().head(NAMED).rows()],
    }  # fmt: skip


def _demands(graph: Graph, request: Mapping[str, Any], settings: Settings) -> Demands:
    """Return the demands of a request, from an uploaded table or from the request itself; errors name ``demands``."""
    import numpy as np

    given, flow = request["demands"], request.get("flow")
    if isinstance(given, str):
        path = UploadedTables(settings.data_dir).path(given, "demands")
        try:
            return read_demands(path, graph.labels, flow)
        except (NotFound, InvalidRequest) as error:
            message = str(error).replace(str(path), f"table {given}")
            raise InvalidRequest(f"demands: {message}", field="demands") from None
    if flow is not None:
        raise InvalidRequest("flow names a column of an uploaded table; these demands have one only", field="flow")
    sizes = {name: len(given[name]) for name in ("origins", "destinations", "flows")}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise InvalidRequest(f"demands: there must be as many of each, found {said}", field="demands")
    try:
        ends = [np.array([index_of(graph, name) for name in given[side]]) for side in ("origins", "destinations")]
    except NotFound as error:
        raise InvalidRequest(f"demands: {error}", field="demands") from None
    return Demands(ends[0], ends[1], np.array(given["flows"], np.float64))
