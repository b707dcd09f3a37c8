"""Runs ``apsp measure``."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.model.plan import Plan
from engine.rows.asked_measures import MeasureRequest
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_done, emit_json, table, unit_of_graph
from service.cli.commands.preparing import opened_prepared
from service.cli.commands.solving import GraphArgs, budgets_of, describe_plan, load, options_of, read_facts, tell
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import values_of
from service.options import MeasureOptions, SolveOptions
from service.units import format_bytes
from storage.errors import InvalidRequest
from storage.files.writing import writing_early
from storage.graph.graph import Graph, Receipt
from storage.graph.vertex_table import check_table, read_table
from storage.number_texts import decimal_number

if TYPE_CHECKING:
    from engine.api.from_tables.measuring import PreparedMeasurement
    from engine.api.measuring import Measurement
    from engine.api.prepared_matrix import PreparedMatrix


@dataclass(frozen=True)
class MeasureArgs:
    """The arguments of the command: the graph, what is measured, how it is solved, and where the table goes."""

    graph: GraphArgs
    measures: MeasureOptions
    options: SolveOptions
    out: Path | None
    overwrite: bool


def measure(args: MeasureArgs, *, as_json: bool) -> None:
    """Read, plan, measure, and write or print the table; the plan and the progress go to standard error.

    Args:
        args: the arguments of the command.
        as_json: whether to print one JSON object instead of text.

    Raises:
        ApspError: whatever ``engine.api.measuring.measure`` raises.  Wrong options are refused before any work.
    """
    if args.out is not None:
        check_table(args.out, overwrite=args.overwrite)
    budgets_of(args.options)
    with writing_early(args.out, "measure"):
        _measure(args, as_json=as_json)


def _measure(args: MeasureArgs, *, as_json: bool) -> None:
    """Read the graph or open the prepared graph, and measure it.  The caller has locked the output file."""
    numbers = {name: _numbers(args.measures, name) for name in ("within", "quantiles")}
    started = time.perf_counter()
    with contextlib.ExitStack() as context:
        device, memory = args.options["device"], budgets_of(args.options)["device_memory"]
        matrix = opened_prepared(args.graph, "apsp measure", device=device, device_memory=memory)
        if matrix is None:
            graph, receipt = load(args.graph)
        else:
            context.enter_context(matrix)
            graph, receipt = matrix.graph(), Receipt("prepared graph", None, matrix.graph().m, 0, 0, 0, None)
        reading = time.perf_counter() - started
        _run(args, _Asked(graph, receipt, matrix, started, reading), numbers, as_json=as_json)


class _Asked(NamedTuple):
    """The graph to measure.  ``matrix`` is the prepared graph from which it was read, or None.

    ``started`` is the ``time.perf_counter()`` at the start, and ``reading`` the seconds that reading took.
    """

    graph: Graph
    receipt: Receipt
    matrix: PreparedMatrix | None
    started: float
    reading: float


def _run(args: MeasureArgs, given: _Asked, numbers: dict[str, list[float]], *, as_json: bool) -> None:
    """Plan, measure, and write or print the table."""
    from engine.api.from_tables.measuring import PreparedMeasurement
    from engine.api.measuring import Measurement

    graph, receipt, matrix, started, reading = given
    request = _request(args.measures, graph, numbers)
    options = options_of(args.options, graph, args.graph.snap_limit)
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor:
        measurement: Measurement | PreparedMeasurement = (
            Measurement(graph, options, **request)
            if matrix is None
            else PreparedMeasurement(matrix, options, **request)
        )
        selected = measurement.make_plan(monitor)
    planning = time.perf_counter() - started - reading
    tell([*_described(selected, measurement), *(f"note: {note}" for note in receipt.notes)])
    INTERRUPTS.left_behind = "no table was written"
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        found = measurement.run(monitor)
    if args.out is not None:
        found.write(args.out, overwrite=args.overwrite)
    seconds = {"read": reading, "plan": planning, **found.seconds}
    if as_json:
        said = {"graph": read_facts(args.graph, graph, receipt, unit=graph.unit)}
        shown = {"table": str(args.out)} if args.out is not None else {"measures": found.to_polars().to_dicts()}
        columns = ["vertex", *found.columns]
        emit_json({**said, "plan": selected.to_dict(), "seconds": seconds, "columns": columns, **shown})
    elif args.out is None:
        emit(found.to_polars().write_csv().removesuffix("\n"))
    else:
        lines = [("rows", f"{len(found):,}"), ("columns", ", ".join(["vertex", *found.columns]))]
        lines += [("unit", f"{unit}, of distances")] if (unit := unit_of_graph(graph)) else []
        emit_done(args.out, seconds, table(lines, indent="  "))


def _request(given: MeasureOptions, graph: Graph, numbers: dict[str, list[float]]) -> MeasureRequest:
    """Return the request for the engine; this reads the table of opportunities."""
    if given["columns"] is not None and given["opportunities"] is None:
        raise InvalidRequest("--columns names columns of --opportunities, and no file was given", field="columns")
    request = MeasureRequest(
        direction=given["direction"],
        within=numbers["within"],
        quantiles=numbers["quantiles"],
        nearest=given["nearest"],
        decay=given["decay"],
        decay_value=given["decay_value"],
    )
    if given["measures"] is not None:
        request["measures"] = values_of(given["measures"], "measures", str)
    if given["opportunities"] is not None:
        columns = None if given["columns"] is None else values_of(given["columns"], "columns", str)
        request["opportunities"] = read_table(given["opportunities"], graph.labels, columns)
    return request


def _numbers(given: MeasureOptions, field: str) -> list[float]:
    """Return the numbers of an option such as ``15,30``."""
    text = given["within"] if field == "within" else given["quantiles"]
    return [] if text is None else values_of(text, field, decimal_number)


def _described(selected: Plan, measurement: Measurement | PreparedMeasurement) -> list[str]:
    """Return the plan in a few lines, with a line about the table in place of the line about the matrix."""
    columns = 1 + len(measurement.asked.columns)
    instead = f"  table   {measurement.rows:,} x {columns:,}, {format_bytes(measurement.bytes)}; no matrix"
    return [instead if line.startswith("  matrix") else line for line in describe_plan(selected)]
