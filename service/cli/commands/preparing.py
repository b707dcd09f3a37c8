"""Runs ``apsp prepare``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from engine.model.plan import Plan
from engine.model.problem import Options
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json, table
from service.cli.commands.solving import GraphArgs, describe_plan, load, tell
from service.cli.progress import ProgressMonitor
from service.options import PrepareOptions
from service.units import format_bytes, format_seconds, parse_size
from storage.errors import InvalidRequest
from storage.matrix.frame import check_target
from storage.remote.objects import is_address


def prepare(graph_args: GraphArgs, given: PrepareOptions, out: Path, *, overwrite: bool, as_json: bool) -> None:
    """Read, plan, prepare, write and seal; the plan and the progress go to standard error.

    Args:
        graph_args: the graph file.
        given: the options, as the command line has them.
        out: the folder.
        overwrite: whether a store at ``out`` may be replaced.
        as_json: whether to print one JSON object instead of text.

    Raises:
        Conflict: there is something at ``out``.
        ApspError: as ``engine.api.prepared.prepare``.
    """
    from engine.api.prepared import plan_prepared
    from engine.api.prepared import prepare as prepare_graph
    from engine.graph.profile import GraphProfile

    memory = None if given["memory"] is None else parse_size(str(given["memory"]), field="--memory")
    if is_address(str(out)) or str(out).startswith("s3:"):
        raise InvalidRequest(f"--out {out} is in an object store; a graph is prepared into a folder", field="out")
    check_target(out.absolute(), overwrite)
    started = time.perf_counter()
    graph, receipt = load(graph_args)
    reading = time.perf_counter() - started
    options = Options(dtype=given["dtype"], cutoff=given["cutoff"], memory=memory, threads=given["threads"])
    profile = GraphProfile(graph)
    selected = plan_prepared(profile, options, out=out)
    planning = time.perf_counter() - started - reading
    tell([*_described(selected), *(f"note: {note}" for note in receipt.notes)])
    INTERRUPTS.left_behind = "nothing of the prepared graph is left"
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        outcome = prepare_graph(profile, out, options, plan=selected, overwrite=overwrite, monitor=monitor)
    seconds = {"read": reading, "plan": planning, **outcome.seconds}
    if as_json:
        facts = {"n": graph.n, "m": graph.m, "directed": graph.directed, "format": receipt.format}
        said = {"prepared": str(out), "graph": {"file": str(graph_args.graph), **facts, "notes": receipt.notes}}
        emit_json({**said, "plan": selected.to_dict(), "seconds": seconds, "summary": outcome.summary})
        return
    phases = ", ".join(f"{name} {format_seconds(value)}" for name, value in seconds.items())
    rows, columns = selected.shape
    parts, size = outcome.summary["parts"], outcome.summary["bytes"]
    assert isinstance(size, int)
    lines = [("tables", f"{format_bytes(size)}, {parts:,} parts"), ("answers", f"{rows:,} x {columns:,} distances")]
    emit([f"{out}: done ({phases})", *table(lines, indent="  ")])


def _described(selected: Plan) -> list[str]:
    """Return the plan in a few lines; there are tables in it, and no matrix."""
    rows, columns = selected.shape
    instead = f"  tables  for {rows:,} x {columns:,} distances, {format_bytes(selected.disk)} on disk"
    return [instead if line.startswith("  matrix") else line for line in describe_plan(selected)]
