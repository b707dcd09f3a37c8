"""Runs ``apsp prepare``, ``apsp plan --prepared`` and ``apsp reweight``."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.model.plan import Plan
from engine.model.problem import Options
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_done, emit_json, table
from service.cli.commands.querying import store_folder
from service.cli.commands.showing import show_refusal, table_of
from service.cli.commands.solving import GraphArgs, budgets_of, describe_plan, load, options_of, read_facts, tell
from service.cli.progress import ProgressMonitor
from service.options import LocalOptions, PrepareForm, PrepareOptions, ReweightOptions
from service.units import format_bytes, parse_size
from storage.counted import counted
from storage.errors import DoesNotFit, InvalidRequest
from storage.files.writing import writing_early
from storage.options import ArcReadingOptions, spelled
from storage.remote.objects import address_of
from storage.remote.places import prepared_place

if TYPE_CHECKING:
    from engine.api.from_tables.on_device import AnswerDevice
    from engine.api.prepared_matrix import PreparedMatrix
    from storage.remote.generation import Generation

#: The message about the files that an interrupted run leaves.
_LEFT: Final = "a run of more than ten seconds keeps its work, and the same command continues from there"


@dataclass(frozen=True)
class Target:
    """Where a prepared graph goes.

    Attributes:
        out: a folder, or an address in an object store.
        work: the working folder if ``out`` is an address; None for a folder in the user's cache.
        overwrite: whether a store at ``out`` may be replaced.
    """

    out: str
    work: Path | None
    overwrite: bool


def prepare(graph_args: GraphArgs, given: PrepareForm, target: Target, *, as_json: bool) -> None:
    """Read a graph, plan, and write the sealed prepared graph; the plan and the progress go to standard error.

    Args:
        graph_args: the graph file.
        given: the options of the command line.
        target: where the prepared graph goes.
        as_json: whether to print one JSON object instead of text.

    Raises:
        Conflict: there is a store already.
        ApspError: whatever ``engine.api.prepared.prepare`` raises.
    """
    options = _options(given)
    place, sent = prepared_place(target.out, target.work, overwrite=target.overwrite)
    with writing_early(place, "prepare"):
        _prepare(graph_args, options, target, (place, sent), compact=given["compact"], as_json=as_json)


def _prepare(
    graph_args: GraphArgs, options: Options, target: Target, at: tuple[Path, Generation | None], *, compact: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Prepare a graph at the path in ``at``, which the caller has locked.

    If the graph goes to an object store, ``at`` also holds the generation (name prefix) of its new objects.
    """
    from engine.api.from_tables.compacting import prepare_compact
    from engine.api.prepared import plan_prepared
    from engine.api.prepared import prepare as prepare_graph
    from engine.graph.profile import GraphProfile

    place, out, overwrite = at[0], target.out, target.overwrite
    started = time.perf_counter()
    graph, receipt = load(graph_args)
    reading = time.perf_counter() - started
    profile = GraphProfile(graph)
    selected = plan_prepared(profile, options, out=place, compact=compact)
    planning = time.perf_counter() - started - reading
    tell([*_described(selected), *(f"note: {note}" for note in receipt.notes)])
    INTERRUPTS.left_behind = _LEFT
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        made = prepare_compact if compact else prepare_graph
        outcome = made(profile, at, options, plan=selected, overwrite=overwrite, monitor=monitor)
    seconds = {"read": reading, "plan": planning, **outcome.seconds}
    if as_json:
        said = {"prepared": str(out), "graph": read_facts(graph_args, graph, receipt)}
        emit_json({**said, "plan": selected.to_dict(), "seconds": seconds, "summary": outcome.summary})
        return
    rows, columns = selected.shape
    parts, size = outcome.summary["parts"], outcome.summary["bytes"]
    assert isinstance(parts, int)
    assert isinstance(size, int)
    tables = "closed" if compact else "tables"
    lines = [
        (tables, f"{format_bytes(size)}, {counted(parts, 'parts')}"),
        ("answers", f"{rows:,} x {columns:,} distances"),
    ]
    emit_done(out, seconds, table(lines + _resumed(outcome.summary), indent="  "))


def plan(graph_args: GraphArgs, given: LocalOptions, *, compact: bool, out: Path | None, as_json: bool) -> None:
    """Print what preparing a graph would take; nothing is prepared.

    Args:
        graph_args: the graph file.
        given: the options of the command line; options that prepared graphs do not have are refused.
        compact: plan the compact form.
        out: the folder whose disk is checked for free space.
        as_json: whether to print one JSON object instead of text.

    Raises:
        ApspError: whatever ``engine.api.prepared_planning.plan_prepared`` raises.
    """
    from engine.api.prepared_planning import plan_prepared

    budgets_of(given)
    graph, receipt = load(graph_args)
    options = options_of(given, graph, graph_args.snap_limit)
    try:
        selected = plan_prepared(graph, options, out=out, compact=compact)
    except DoesNotFit as refusal:
        show_refusal(refusal, str(graph_args.graph), receipt, as_json=as_json)
        raise
    tell(f"note: {note}" for note in receipt.notes)
    if as_json:
        emit_json({"graph": str(graph_args.graph), "notes": receipt.notes, "plan": selected.to_dict()})
    else:
        emit([*_described(selected), "", *table_of(selected.candidates)])


def _options(given: PrepareOptions) -> Options:
    """Convert the options of a command to those of the engine.  Raises InvalidRequest if the memory is no size."""
    memory = None if given["memory"] is None else parse_size(str(given["memory"]), field="--memory")
    return Options(
        dtype=given["dtype"], cutoff=given["cutoff"], memory=memory, threads=given["threads"],
        executor=given["executor"], scheduler=given["scheduler"],
    )  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Which prepared graph gets new weights, and where the result goes.

    Attributes:
        prepared: the folder of the prepared graph, or its address as a path.
        out: the new folder or address; None to replace ``prepared``.
        overwrite: whether a store at ``out`` may be replaced.
    """

    prepared: Path
    out: Path | None
    overwrite: bool


def reweight(place: Place, weights: Path, reading: ArcReadingOptions, given: ReweightOptions, *, as_json: bool) -> None:
    """Read new weights, and write and seal the tables for them; the progress goes to standard error.

    Args:
        place: which prepared graph, and where the result goes.
        weights: the file with the new weights.
        reading: how that file is read.
        given: the options, as the command line has them.
        as_json: whether to print one JSON object instead of text.

    Raises:
        NotFound: if there is a file, or a folder that is no store.
        ApspError: whatever ``engine.api.from_tables.reweighting.reweight`` raises.
    """
    from engine.api.from_tables.reweighting import reweight as reweight_graph

    options = _options(given)
    store_folder(address_of(place.prepared) or str(place.prepared))
    INTERRUPTS.left_behind = _LEFT
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        outcome = reweight_graph(
            place.prepared,
            weights,
            out=place.out,
            changed=given["changed"],
            overwrite=place.overwrite,
            options=options,
            monitor=monitor,
            **reading,
        )
    named = place.prepared if place.out is None else place.out
    facts, out = outcome.summary, address_of(named) or named
    if as_json:
        emit_json({"prepared": str(out), "seconds": outcome.seconds, "summary": facts, "plan": outcome.plan.to_dict()})
        return
    again = f"{facts['eliminated']:,} of {facts['parts']:,} eliminated again, {facts['differ']:,} have other tables"
    lines = [("arcs", f"{facts['changed']:,} changed, {facts['closed']:,} closed now"), ("parts", again)]
    emit_done(out, outcome.seconds, table(lines + _resumed(facts), indent="  "))


def _resumed(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return a line (heading, text) about the reused work of an earlier run; an empty list if there is none."""
    steps = facts.get("resumed")
    if not isinstance(steps, dict) or not any(steps.values()):
        return []
    words = {"eliminate": "eliminated", "extend": "extended", "backward": "extended backward"}
    return [
        ("resumed", ", ".join(f"{counted(count, 'parts')} {words[step]}" for step, count in steps.items() if count))
    ]


def _described(selected: Plan) -> list[str]:
    """Return the plan in a few lines, with a line about the tables in place of the line about the matrix."""
    rows, columns = selected.shape
    instead = f"  tables  for {rows:,} x {columns:,} distances, {format_bytes(selected.disk)} on disk"
    return [instead if line.startswith("  matrix") else line for line in describe_plan(selected)]


def opened_prepared(
    graph: GraphArgs, command: str, *, device: str = "cpu", device_memory: int | None = None
) -> PreparedMatrix | None:
    """Open the argument of a command if it is a folder or an address in an object store; return None for a file.

    Args:
        graph: the graph file, or the folder or address of a prepared graph.
        command: the command, for messages.
        device: ``cuda`` for tables in the memory of a GPU; anything else for the processors.
        device_memory: bytes of device memory that may be used; None for all that is free.

    Raises:
        DoesNotFit: the tables are larger than the memory of the GPU.
        InvalidRequest: the argument is a solved store, or there are options that say how a file is read.
        NotFound, StorageFailed: there is no store, or it cannot be read.
    """
    address = address_of(graph.graph)
    if address is None and not graph.graph.is_dir():
        return None
    from engine.api.prepared_matrix import PreparedMatrix, open_result

    named = address or str(graph.graph)
    answering: AnswerDevice = "cuda" if device == "cuda" else "cpu"
    found = open_result(store_folder(named), device=answering, device_memory=device_memory)
    if not isinstance(found, PreparedMatrix):
        found.close()
        raise InvalidRequest(
            f"{named} is a solved store; {command} takes a graph file or a prepared graph", field="graph"
        )
    if given := [
        name
        for name, value in graph.reading.items()
        if value is not None and (value is not False or name == "directed")
    ]:
        found.close()
        flag = spelled(given[0], graph.reading.get(given[0]))
        raise InvalidRequest(f"{flag} says how a file is read, and {named} is a prepared graph", field=given[0])
    return found
