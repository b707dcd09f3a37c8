"""Checks, plans, makes and seals the tables of jobs whose result is a table.

The processes that plan and the runners use this module; the API process imports only light modules of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from service.options import TableOptions
from service.pool.prepared_source import open_source, watched
from storage.counted import counted
from storage.errors import DoesNotFit, InvalidRequest, LimitExceeded, NotFound
from storage.options import declared
from storage.semirings import MIN_PLUS

if TYPE_CHECKING:
    import polars as pl

    from engine.api.from_tables.measuring import PreparedMeasurement
    from engine.api.from_tables.near import PreparedNear
    from engine.api.measuring import Measurement
    from engine.api.prepared_matrix import PreparedMatrix
    from engine.graph.profile import GraphProfile
    from engine.model.plan import Plan
    from engine.model.problem import Options
    from engine.model.progress import Monitor
    from engine.rows.asked_measures import MeasureRequest
    from service.pool.passing import PassingTable
    from service.settings import Settings
    from storage.graph.graph import Graph
    from storage.pairs.near_pairs import NearPairs
    from storage.remote.generation import Generation
    from storage.tables.pieces import Pieces

#: the options of tables, by the kind of result that takes them
TAKES: Final = {
    "measures": frozenset(
        {
            "measures", "direction", "within", "quantiles", "nearest", "opportunities", "columns", "decay",
            "decay_value", "prepared",
        }
    ),
    "near": frozenset({"nearest", "prepared"}),
    "betweenness": frozenset({"of", "raw", "endpoints"}),
    "flows": frozenset({"of", "demands", "flow"}),
}  # fmt: skip
#: the options that name uploaded tables
_UPLOADED: Final = ("opportunities", "demands")
#: predicted bytes that a text name of a vertex takes in a table, in addition to the characters of the name
_CELL: Final = 16
#: rows of a table of near pairs that are made at a time
_PIECE: Final = 1 << 18


def wants_table(request: Mapping[str, Any]) -> bool:
    """Return whether a job request, as stored with the job, asks for a table: of measures, near pairs or others."""
    return request.get("result") in TAKES


def check_request(request: Mapping[str, Any], settings: Settings) -> None:
    """Refuse options that do not belong to the result, before the graph is read.

    Args:
        request: options of the job, as stored with it.
        settings: the service's settings.

    Raises:
        InvalidRequest: an option does not belong to the result; the error names it, and the results that take it.
    """
    result = request.get("result", "matrix")
    takes = TAKES.get(result, frozenset())
    for name in declared(TableOptions):
        if request.get(name) is not None and name not in takes:
            kinds = " or ".join(kind for kind, names in TAKES.items() if name in names)
            raise InvalidRequest(f"{name} belongs to result {kinds}, and result {result} was asked for", field=name)
    if request.get("also") is not None and result != "matrix":
        raise InvalidRequest(f"also belongs to result matrix, and result {result} was asked for", field="also")
    if request.get("semiring", MIN_PLUS) != MIN_PLUS and result != "matrix":
        raise InvalidRequest(
            f"semiring {request['semiring']} belongs to result matrix, and result {result} was asked for, which takes "
            "distances (min-plus)",
            field="semiring",
        )
    for name in _UPLOADED:
        if settings.store_url is not None and isinstance(request.get(name), str):
            raise InvalidRequest(
                f"{name}: an uploaded table lies on the node that received it, and any node of this service may take "
                "the job (APSP_STORE_URL); give the numbers with the request",
                field=name,
            )
    if result == "near" and request.get("cutoff") is None and request.get("nearest") is None:
        raise InvalidRequest(
            "result near needs a cutoff, or nearest: how many targets of each source are wanted", field="cutoff"
        )
    if result == "flows" and request.get("demands") is None:
        raise InvalidRequest(
            "result flows needs demands: the id of a table uploaded as demands, or origins, destinations and flows",
            field="demands",
        )


class TableTask:
    """Plans and makes the table of one job; call :meth:`close` at the end, or use it as a context manager.

    With ``prepared`` in the request, rows come from the tables of another job's result instead of from searches.

    Args:
        profile: the graph.
        request: options of the job, as stored with it.
        options: the options for the engine, from ``service.pool.tasks.job_options``.
        settings: the service's settings.

    Raises:
        InvalidRequest, NotFound, LimitExceeded: what is asked makes no sense for this graph.
        Gone, Conflict, StorageFailed: the prepared result is gone, holds other weights, or is damaged.
    """

    def __init__(self, profile: GraphProfile, request: Mapping[str, Any], options: Options, settings: Settings) -> None:
        check_request(request, settings)
        self._profile, self._request, self._options = profile, request, options
        self._measurement: Measurement | PreparedMeasurement | None = None
        self._passing: PassingTable | None = None
        self._near: PreparedNear | None = None
        self._matrix: PreparedMatrix | None = None
        if request.get("prepared") is not None:
            self._matrix = open_source(request["prepared"], profile.graph, settings)
        try:
            self._check(settings)
        except BaseException:
            self.close()
            raise

    def _check(self, settings: Settings) -> None:
        """Make the object that carries out the request; its constructor checks the request."""
        profile, request, options, matrix = self._profile, self._request, self._options, self._matrix
        if request["result"] in ("betweenness", "flows"):
            from service.pool.passing import PassingTable

            self._passing = PassingTable(profile.graph, request, options, settings)
        elif request["result"] == "measures":
            asked = _measures(profile.graph, request, settings)
            if matrix is None:
                from engine.api.measuring import Measurement

                self._measurement = Measurement(profile, options, **asked)
            else:
                from engine.api.from_tables.measuring import PreparedMeasurement

                self._measurement = PreparedMeasurement(matrix, options, **asked)
        elif matrix is not None:
            from engine.api.from_tables.near import PreparedNear

            self._near = PreparedNear(matrix, options, nearest=self._nearest)

    def close(self) -> None:
        """Close the prepared result, if there is one."""
        if self._matrix is not None:
            self._matrix.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self, out: Path, monitor: Monitor | None = None) -> Plan:
        """Return the plan of the table; its shape is the shape of the matrix, which is not made.

        Args:
            out: the folder of the result, whose disk must have enough free space.
            monitor: receives the phase in which kernels are compiled, and can stop the work.

        Raises:
            DoesNotFit: memory or disk is too small; the error has the numbers.
            InvalidRequest, NegativeCycle: the planner refuses the request or the graph.
            Gone, StorageFailed: the prepared result was removed, or is damaged.
        """
        from engine.model.plan import Phase
        from engine.planning.constants import CREATE_SECONDS, SEAL_SECONDS

        with self._watched():
            made, write = self._plan(out, monitor), CREATE_SECONDS + SEAL_SECONDS
        return replace(made, seconds=made.seconds + write, phases=(*made.phases, Phase("write", write)))

    def _watched(self) -> AbstractContextManager[None]:
        return nullcontext() if self._matrix is None else watched(self._request["prepared"], self._matrix)

    def _plan(self, out: Path, monitor: Monitor | None) -> Plan:
        if self._passing is not None:
            asked = self._passing
            names = self._names(asked.rows) * (1 if asked.vertices else 2)
            return self._within_disk(asked.plan(monitor, asked.rows * 8 * asked.columns + names), asked.rows, out)
        if self._near is not None:
            return self._near.make_plan(out=out, spills=True)
        if self._measurement is None:
            from engine.api.near import plan_near

            return plan_near(self._profile, self._options, nearest=self._nearest, out=out, spills=True)
        made = self._measurement.make_plan(monitor)
        rows = self._measurement.rows
        return self._within_disk(replace(made, disk=self._measurement.bytes + self._names(rows)), rows, out)

    def _within_disk(self, plan: Plan, rows: int, out: Path) -> Plan:
        """Return the plan of a table of ``rows`` rows; raise DoesNotFit if the disk has no space for it."""
        from engine.execution.survey import survey

        needed, free = plan.disk, survey(out=out).disk
        if free is not None and needed > free:
            raise DoesNotFit(
                f"a table of {rows:,} rows needs up to {needed} bytes of disk, and {free} are free; "
                "ask for fewer rows or columns",
                resource="disk",
                needed=needed,
                available=free,
            )
        return plan

    def make(self, place: Path, plan: Plan, monitor: Monitor, sent: Generation | None = None) -> dict[str, float]:
        """Make the table and seal it at ``place``, or in an object store; return the seconds of each phase.

        Args:
            place: path of the folder, which appears there when it is complete.
            plan: as :meth:`plan` returned it.
            monitor: receives the progress, and can stop the work.
            sent: the generation in the object store to which the table is sent, and in which it is sealed; None for a
                folder.

        Raises:
            Cancelled: the monitor has stopped the work.
            DoesNotFit: there are more near pairs than memory and disk can hold.
            Conflict: there is something at ``place``, or a result was sealed in the object store meanwhile.
            Gone: the prepared result was removed before its tables were read.
            StorageFailed: the file system has failed, or a table is damaged.
        """
        from service.pool.job_points import source_ids
        from storage.tables.writer import write_result_table

        pairs, kind, sums = None, plan.dtype, None
        frame: pl.DataFrame | Pieces
        if self._passing is not None:
            frame, seconds, sums = self._passing.make(monitor)
        elif self._measurement is not None:
            with self._watched():
                found = self._measurement.run(monitor)
            frame, seconds = found.to_polars(), dict(found.seconds)
        else:
            pairs, seconds = self._near_pairs(monitor, place)
            kind = pairs.lengths.dtype.name
        written = time.perf_counter()
        if pairs is not None:
            frame = self._pieces(pairs, monitor)
        else:
            monitor.begin("write", frame.height, "rows")
            _stop_before_writing(monitor)
        points = None if pairs is None else source_ids(self._request)
        write_result_table(place, frame, self._about(plan, kind), pairs, sums, points=points, remote=sent)
        return {**seconds, "write": time.perf_counter() - written}

    def _near_pairs(self, monitor: Monitor, place: Path) -> tuple[NearPairs, dict[str, float]]:
        """Find the near pairs; pairs that do not fit in memory are kept on the disk of ``place``."""
        from engine.api.near import near_pairs

        began, spill = time.perf_counter(), place.absolute().parent
        if self._near is None:
            pairs = near_pairs(self._profile, self._options, nearest=self._nearest, monitor=monitor, spill=spill)
        else:
            with self._watched():
                pairs = self._near.run(monitor, spill=spill)
        return pairs, {"search": time.perf_counter() - began}

    def _pieces(self, pairs: NearPairs, monitor: Monitor) -> Pieces:
        """Return the table in pieces; the monitor counts the pieces, and can stop the work."""
        from storage.pairs.saving import frames_of_pairs
        from storage.tables.pieces import Pieces

        if self._request.get("points"):
            from service.pool.job_points import lines_between_points

            count, frames = lines_between_points(pairs, self._profile.graph, self._request, self._options.targets)
        else:
            count, frames = pairs.entries, frames_of_pairs(pairs, _PIECE)
        monitor.begin("write", count, "rows")

        def told() -> Iterator[pl.DataFrame]:
            for frame in frames:
                _stop_before_writing(monitor)
                yield frame
                monitor.step(frame.height)

        return Pieces(told())

    @property
    def _nearest(self) -> int | None:
        return cast("int | None", self._request.get("nearest"))

    def _names(self, count: int) -> int:
        """Return about how many bytes the labels of ``count`` rows take in a table."""
        labels = self._profile.graph.labels
        if labels.dtype.kind in "iu" or not len(labels):
            return 8 * count
        some = labels[:: max(1, len(labels) // 1000)].tolist()
        return math.ceil(count * (_CELL + sum(len(str(label).encode()) for label in some) / len(some)))

    def _about(self, plan: Plan, kind: str) -> dict[str, object]:
        from storage.graph.graph import graph_digest
        from storage.matrix.frame import unit_of

        graph, asked = self._profile.graph, self._request
        return {
            "result": asked["result"], "shape": list(plan.shape), "dtype": kind, "directed": graph.directed,
            "unit": unit_of(graph), "graph": graph_digest(graph), "algorithm": plan.algorithm,
            "cutoff": asked.get("cutoff") if self._matrix is None else plan.cutoff, "max_hops": asked.get("max_hops"),
            "asked": {
                name: asked.get(name)
                for name in declared(TableOptions)
                if name in TAKES[asked["result"]] and name not in ("opportunities", "demands")
            },
        }  # fmt: skip


def _stop_before_writing(monitor: Monitor) -> None:
    if monitor.cancelled():
        from storage.errors import Cancelled

        raise Cancelled("stopped before the table was written")


def _measures(graph: Graph, request: Mapping[str, Any], settings: Settings) -> MeasureRequest:
    """Return the request for the engine, in which opportunities have one number for each vertex, in label order."""
    names = ("measures", "direction", "within", "quantiles", "nearest", "decay", "decay_value")
    found: dict[str, Any] = {name: request[name] for name in names if request.get(name) is not None}
    given = request.get("opportunities")
    columns = request.get("columns")
    if given is None:
        if columns is not None:
            raise InvalidRequest("columns names columns of opportunities, and none were given", field="columns")
    elif isinstance(given, str):
        from storage.graph.vertex_table import read_table
        from storage.tables.uploaded import UploadedTables

        path = UploadedTables(settings.data_dir).path(given)
        try:
            found["opportunities"] = read_table(path, graph.labels, columns)
        except NotFound as error:
            message = str(error).replace(str(path), f"table {given}")
            raise InvalidRequest(f"opportunities: {message}", field="opportunities") from None
        except InvalidRequest as error:
            raise InvalidRequest(str(error).replace(str(path), f"table {given}"), field="opportunities") from None
    else:
        found["opportunities"] = _by_vertex(graph, given, columns)
    return cast("MeasureRequest", found)


def _by_vertex(graph: Graph, given: Mapping[str, Any], wanted: list[str] | None) -> dict[str, Any]:
    """Return the columns of a request with a number for each vertex of the graph: 0 if the request does not name it.

    Raises:
        InvalidRequest: a vertex is unknown or named twice, a column is unknown or of another length.
        LimitExceeded: there are more vertices than the graph has.
    """
    import numpy as np

    from storage.graph.graph import index_of

    names, columns = given["vertices"], given["columns"]
    if len(names) > graph.n:
        message = f"opportunities: {len(names)} vertices are named, and the graph has {graph.n}"
        raise LimitExceeded(message, limit=graph.n, requested=len(names), setting="opportunities")
    for name in wanted or ():
        if name not in columns:
            known = ", ".join(columns)
            raise InvalidRequest(f"columns: opportunities have no column {name!r}; there are {known}", field="columns")
    try:
        vertices = [index_of(graph, name) for name in names]
    except NotFound as error:
        raise InvalidRequest(f"opportunities: {error}", field="opportunities") from None
    seen: set[int] = set()
    for name, vertex in zip(names, vertices, strict=True):
        if vertex in seen:
            message = f"opportunities: vertex {name} is named twice; each may have one number in a column"
            raise InvalidRequest(message, field="opportunities")
        seen.add(vertex)
    found = {}
    for name in columns if wanted is None else wanted:
        if len(columns[name]) != len(names):
            numbers, of = counted(len(columns[name]), "numbers"), counted(len(names), "vertices")
            message = f"opportunities: column {name!r} has {numbers} for {of}"
            raise InvalidRequest(message, field="opportunities")
        found[name] = np.zeros(graph.n)
        found[name][vertices] = columns[name]
    return found
