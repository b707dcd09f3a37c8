"""Measures of every row of the matrix, without making the matrix: the plan, the run, and the resulting table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np
import numpy.typing as npt

from engine.api.planning import make_plan
from engine.api.prepared_matrix import PreparedMatrix
from engine.api.solve import solve
from engine.execution.survey import survey
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.graph.transpose import reverse
from engine.model.backend import Arcs
from engine.model.decimals import limit_on_paper
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options, given_options, refuse_also, refuse_semiring
from engine.model.progress import Monitor
from engine.model.rows import Array
from engine.rows.asked_measures import AskedMeasures, MeasureRequest, asked_measures, table_bytes
from engine.rows.measures import MeasureSink
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.graph.vertex_table import Tabular, frame_of

if TYPE_CHECKING:
    import polars

#: Number of rows of a batch for each thread: as many as the widest search computes together.
BATCH_ROWS: Final = 512
#: Searches from the targets hold all requested rows in memory.  They are used only if these take at most HELD_BYTES.
HELD_BYTES: Final = 256 << 20


@dataclass(frozen=True, eq=False)
class MeasureTable(Tabular):
    """A table with a row for each requested vertex, and a column for each measure.

    Attributes:
        labels: the labels of all vertices of the graph, shape (n,).
        vertices: the vertex index of each row, int64, shape (rows,).
        columns: measures by name, each of shape (rows,).  Counts are int64; the sum is int64 where the working type is
            an integer, else float64; ``farthest`` and ``nearest_1``, ... are vertex indices, -1 for none; all other
            columns are float64, NaN where a row has no such number.
        vertex_columns: the names of the columns that hold vertices.
        plan: the plan that was followed.
        seconds: wall seconds of each phase.
        unit: the unit of distances; None if that is not known.
    """

    labels: Array
    vertices: npt.NDArray[np.int64]
    columns: dict[str, Array]
    vertex_columns: frozenset[str]
    plan: Plan
    seconds: dict[str, float]
    unit: str | None = None

    def __len__(self) -> int:
        return len(self.vertices)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def to_polars(self) -> polars.DataFrame:
        """Return the table with a first column ``vertex``, and with labels in place of all vertex indices.

        Entries are null where a row has no such vertex or number.
        """
        return frame_of(self.labels, self.vertices, self.columns, self.vertex_columns)


class Measurement:
    """A request for measures: the constructor checks it, the first use of ``plan`` plans it, :meth:`run` computes it.

    Args:
        graph: the graph, or its profile.
        options: the options of a solve; ``sources``, ``targets``, ``cutoff`` and ``max_hops`` apply to the measures.
        request: the measures.

    Raises:
        InvalidRequest: the options or the measures contradict each other or the graph.
    """

    def __init__(
        self, graph: Graph | GraphProfile, options: Options | None = None, **request: Unpack[MeasureRequest]
    ) -> None:
        given = GraphProfile.of(graph)
        self._labels, options = given.graph.labels, given_options(options)
        self.asked: AskedMeasures = asked_measures(given.graph.n, given.weight_range[0], request)
        _check(options)
        if self.asked.direction == "in":
            given = _reversed(given)
            options = replace(options, sources=options.targets, targets=options.sources)
        self._widened = options.dtype == "auto" and not given.graph.integral
        if self._widened:
            options = replace(options, dtype="float64")  # no matrix is stored, so float32 would save nothing
        targets = options.targets
        self._options = replace(options, targets=None if targets is None else tuple(sorted(targets)))
        self._profile = given

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return self._profile.graph.n if self._options.sources is None else len(self._options.sources)

    @property
    def bytes(self) -> int:
        """The bytes of memory that the table takes."""
        return table_bytes(self.rows, self.asked.columns)

    @cached_property
    def plan(self) -> Plan:
        """The plan: algorithm, type, memory, seconds; ``shape`` is that of the matrix, although no matrix is made.

        Raises:
            DoesNotFit: memory is too small; the error names the least memory that any candidate takes.
            InvalidRequest: the options contradict the graph.
            NegativeCycle: the graph has a negative cycle; the error names it.
        """
        return self.make_plan()

    def make_plan(self, monitor: Monitor | None = None) -> Plan:
        """Make and return ``plan``; ``monitor`` receives the progress of compiling, and is asked whether to stop."""
        there = survey(memory=self._options.memory).memory
        if self.bytes >= there:
            raise DoesNotFit(
                f"a table of {self.rows:,} rows and {len(self.asked.columns)} columns needs {self.bytes} bytes of "
                f"memory, and {there} may be used; ask for fewer sources or measures",
                resource="memory",
                needed=self.bytes,
                available=there,
            )
        device = self._options.device_memory  # the table also takes device memory, until the end of the run
        left = None if device is None else max(1, device - self.bytes)
        options = replace(self._options, memory=there - self.bytes, device_memory=left)
        made = make_plan(self._profile, options, monitor=monitor, dropped=True)
        why = "no matrix is stored, so float32 would save nothing" if self._widened else made.dtype_reason
        said = replace(made, dtype_reason=why)
        self.plan = _without_matrix(said, self.bytes)
        return self.plan

    def run(self, monitor: Monitor | None = None) -> MeasureTable:
        """Compute all rows, and keep only their measures.

        Args:
            monitor: receives progress, and is asked whether to stop.

        Raises:
            Cancelled: the monitor asked to stop.
            SolveFailed: the sum of some row is not finite.
        """
        options, plan = self._options, self.plan
        rectangle = Rectangle.of(options, self._profile.graph.n)
        sink = MeasureSink(
            rectangle, WORK_TYPES[plan.dtype], self.asked, bounds_on_paper(self.asked, self._profile.graph, plan.dtype)
        )
        outcome = solve(self._profile, plan, options, sink, monitor, facts=False)
        named, unit = self.asked.vertex_columns, self._profile.graph.unit
        return MeasureTable(self._labels, rectangle.rows, sink.columns(), named, plan, outcome.seconds, unit)


def measure(
    graph: Graph | PreparedMatrix,
    options: Options | None = None,
    *,
    monitor: Monitor | None = None,
    **request: Unpack[MeasureRequest],
) -> MeasureTable:
    """Compute measures of every row of distances, without making the matrix.

    The distance of a vertex to itself counts in sums of opportunities only.  The page docs/how-to/measures.md defines
    each measure; ``MeasureRequest`` has the possible arguments.

    Args:
        graph: as from ``read_graph`` or ``build_graph``; or an open prepared graph, whose tables give the rows.
        options: which sources and targets, cutoff, memory, threads; None for all vertices and all free resources.
        monitor: receives progress, and is asked whether to stop.
        request: the measures; by default all that take no argument.

    Returns:
        A row for each source, or for each target with ``direction="in"``.

    Raises:
        InvalidRequest: the options or the measures make no sense, together or for this graph.
        DoesNotFit: memory is too small.
        NegativeCycle: the graph has a negative cycle; the error names it.
        Cancelled: the monitor asked to stop.
    """
    if isinstance(graph, PreparedMatrix):
        from engine.api.from_tables.measuring import PreparedMeasurement

        return PreparedMeasurement(graph, options, **request).run(monitor)
    measurement = Measurement(graph, options, **request)
    measurement.make_plan(monitor)
    return measurement.run(monitor)


def bounds_on_paper(asked: AskedMeasures, graph: Graph, dtype: str) -> list[float]:
    """Return, for each limit in ``asked.within``, the bound with which computed distances are compared.

    A computed distance is within the bound if and only if the sum of the decimal weights, without rounding, is within
    the limit.

    Args:
        asked: the measures.
        graph: the graph; the direction of its arcs does not matter.
        dtype: the type of the distances.
    """
    floats = np.float32 if dtype == "float32" else np.float64
    return [limit_on_paper(limit, graph.weights, graph.n, floats) for limit in asked.within]


def _check(options: Options) -> None:
    refuse_also(options, "a table of measures", "solve into a store")
    refuse_semiring(options, "a table of measures")
    if options.executor != "local":
        raise InvalidRequest(
            f"measures are computed by this process, not by executor {options.executor}", field="executor"
        )


def _reversed(profile: GraphProfile) -> GraphProfile:
    """Return the graph with every arc reversed; an undirected graph is returned unchanged."""
    graph = profile.graph
    if not graph.directed:
        return profile
    arcs = reverse(Arcs(graph.indptr, graph.heads, graph.weights))
    backwards = replace(graph, indptr=arcs.indptr, heads=arcs.heads, weights=arcs.weights, quantities={})  # type: ignore[arg-type]
    return GraphProfile(backwards)


def _without_matrix(plan: Plan, table: int) -> Plan:
    """Return the plan for measures: rows are discarded, so nothing is written, and few rows are in memory at a time.

    Args:
        plan: the plan for the matrix.
        table: bytes of the table.
    """
    rows, columns = plan.shape
    size, batch = WORK_TYPES[plan.dtype].itemsize, BATCH_ROWS * plan.threads
    if plan.device == "cuda":  # rows are reduced on the device in batches of the size that the plan says
        batch = plan.batch
    phases = tuple(phase for phase in plan.phases if phase.name != "write")
    seconds = sum(phase.seconds for phase in phases)
    from_targets = plan.from_targets and rows * columns * size <= HELD_BYTES
    if plan.from_targets and not from_targets:
        longer = rows / max(1, columns)
        phases = tuple(
            replace(phase, seconds=phase.seconds * longer) if phase.name == "search" else phase for phase in phases
        )
        seconds = sum(phase.seconds for phase in phases)
    return replace(
        plan,
        memory=plan.memory + table,
        disk=0,
        seconds=seconds,
        phases=phases,
        from_targets=from_targets,
        batch=min(plan.batch, batch) if plan.batch else batch,
    )
