"""Runs ``apsp inspect``, ``apsp plan`` and ``apsp solve``."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from engine.model.plan import Candidate, Plan
from engine.model.problem import Options, Statistics
from engine.model.progress import COMPILING, PhaseClock, kernels_are_kept
from service.cli.arguments import GraphOptions, OutputOptions
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_done, emit_json, number, table, unit_of_facts
from service.cli.commands.showing import show_refusal, summary_lines, table_of
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import selected_vertices
from service.name_lists import split_names
from service.options import AlsoOptions, BulkOptions, LocalOptions, SolveOptions
from service.units import format_about, format_bytes, format_seconds, parse_size
from service.views.graph_summary import graph_facts
from storage.counted import counted
from storage.errors import Conflict, DoesNotFit, InvalidRequest, StorageFailed
from storage.files.writing import writing_early
from storage.graph.graph import Graph, Receipt
from storage.matrix.working_dir import find_checkpoint
from storage.options import FileReadingOptions
from storage.readers import read_graph
from storage.remote import places
from storage.semirings import needed_parallel

#: words for the arc that was kept of parallel arcs, by the rule that selected it
_KEPT: Final = {"least": "shortest", "greatest": "one of the greatest weight"}


@dataclass(frozen=True)
class GraphArgs:
    """A graph file, how it is read, the columns to sum along paths, and how far a point may be from its vertex."""

    graph: Path
    reading: FileReadingOptions
    snap_limit: float | None = None
    also: tuple[str, ...] = ()

    @classmethod
    def of(cls, graph: Path, given: GraphOptions, options: AlsoOptions | None = None) -> GraphArgs:
        """Return the arguments from the options of a command.

        Args:
            graph: the graph file.
            given: how the file is read.
            options: the options of a solve, which may name columns that are summed along the paths.

        Raises:
            InvalidRequest: the columns cannot be understood.
        """
        reading: Any = {name: value for name, value in given.items() if name != "snap_limit"}
        reading["parallel"] = reading.get("parallel") or needed_parallel((options or {}).get("semiring"))
        text = None if options is None else options.get("also")
        also = () if text is None else tuple(split_names([text], "--also", "column"))
        return cls(graph, reading, given.get("snap_limit"), also)


def load(args: GraphArgs) -> tuple[Graph, Receipt]:
    """Read the graph; raises what ``storage.readers.read_graph`` raises."""
    return read_graph(args.graph, also=args.also, **args.reading)


def read_facts(args: GraphArgs, graph: Graph, receipt: Receipt, **more: object) -> dict[str, object]:
    """Return what the JSON output of a command says about the graph that it has read.

    Args:
        args: the arguments with the graph file.
        graph, receipt: the graph, and the receipt of its reader.
        more: further facts, which come before the notes.
    """
    facts = {"file": str(args.graph), "n": graph.n, "m": graph.m, "directed": graph.directed, "format": receipt.format}
    return {**facts, **more, "notes": receipt.notes}


def options_of(given: SolveOptions | BulkOptions, graph: Graph, snap_limit: float | None = None) -> Options:
    """Return the options for the engine; a vertex named twice counts once.  Errors name the option.

    Args:
        given: the options, as the command line has them.
        graph: the graph to solve.
        snap_limit: the farthest that a point may be from its vertex; None for no limit.
    """
    values: dict[str, Any] = {**given, **budgets_of(given)}
    values["also"] = tuple(graph.quantities)
    if values.get("sources") == values.get("targets") == "-":
        raise InvalidRequest("--sources - and --targets - cannot both read standard input", field="targets")
    for field in ("sources", "targets"):
        if (text := values.get(field)) is not None:
            values[field] = selected_vertices(text, graph, f"--{field}", snap_limit)
    return Options(**values)


def budgets_of(given: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the bytes of memory and of device memory; None for a budget that is not given.

    Commands call this before they read a large graph, so that wrong sizes are refused at once.
    """
    return {
        field: None if given[field] is None else parse_size(given[field], field=f"--{field.replace('_', '-')}")
        for field in ("memory", "device_memory")
    }


def inspect(graph_args: GraphArgs, *, as_json: bool) -> None:
    """Print the facts of the graph, and what was dropped or merged."""
    facts = graph_facts(*load(graph_args))
    if as_json:
        emit_json({"graph": str(graph_args.graph), **facts})
    else:
        emit([str(graph_args.graph), *table(list(_inspection(facts)), indent="  ")])


def _inspection(facts: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    weights = cast(Mapping[str, object], facts["weights"])
    dropped = cast(Mapping[str, int], facts["dropped"])
    packed = f", {facts['compression']}" if facts["compression"] else ""
    yield "format", f"{facts['format']}{packed}"
    span = f" ({facts['first_vertex']} … {facts['last_vertex']})" if facts["vertices"] else ""
    yield "vertices", f"{facts['vertices']:,}{span}"
    yield ("arcs, directed", f"{facts['arcs']:,}") if facts["directed"] else ("edges", f"{facts['edges']:,}")
    if not weights["weighted"]:
        yield "weights", "none: every arc counts 1 (hops)"
    elif facts["arcs"]:
        kind = "whole numbers" if weights["integral"] else "fractions"
        column = f", column {weights['column']}" if weights["column"] else ""
        column = f", {weights['length_of']}" if weights["length_of"] else column
        unit = f" {facts['unit']}" if facts["unit"] else ""
        yield "weights", f"{number(weights['smallest'])} … {number(weights['largest'])}{unit}, {kind}{column}"
        yield "zero, negative", f"{weights['zero']:,}, {weights['negative']:,}"
    if facts["coordinates"]:
        yield "coordinates", _coordinates_text(cast(Mapping[str, Any], facts["coordinates"]))
    weak, strong = facts["weak_components"], facts["strong_components"]
    yield "components", f"{weak:,} weak, {strong:,} strong" if facts["directed"] else f"{weak:,}"
    yield "entries read", f"{facts['entries']:,}"
    yield "dropped", f"{dropped['self_loops']:,} self loops, {dropped['infinite_arcs']:,} infinite arcs"
    yield "merged", f"{dropped['parallel_arcs']:,} parallel arcs, each into the {_KEPT[str(facts['parallel'])]}"
    for note in cast(list[str], facts["notes"]):
        yield "note", note


def _coordinates_text(facts: Mapping[str, Any]) -> str:
    kind = "longitude, latitude" if facts["system"] == "lonlat" else "of a plane"
    columns = f"; columns {', '.join(facts['columns'])}" if facts["columns"] else ""
    (west, south), (east, north) = facts["from"], facts["to"]
    box = f"{west:.7g} … {east:.7g}, {south:.7g} … {north:.7g}"
    return f"{kind}, of {counted(facts['vertices'], 'vertices')}: {box}{columns}"


def plan(graph_args: GraphArgs, given: LocalOptions, *, out: Path | None, as_json: bool) -> None:
    """Print the plan and the rejected candidates; nothing is solved.

    Args:
        graph_args: the graph file.
        given: the options of the solver, from the command line.
        out: the path of the store, whose disk is checked for free space.
        as_json: whether to print one JSON object instead of text.
    """
    from engine.api.prepared_planning import beside
    from engine.api.solve import make_plan
    from engine.graph.profile import GraphProfile

    budgets_of(given)
    graph, receipt = load(graph_args)
    profile, options = GraphProfile(graph), options_of(given, graph, graph_args.snap_limit)
    try:
        with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor:
            selected = make_plan(profile, options, out=out, monitor=monitor)
    except DoesNotFit as refusal:
        show_refusal(refusal, str(graph_args.graph), receipt, as_json=as_json)
        raise
    tell(_notes(receipt, given, selected))
    prepared, measures = beside(profile, options, out), _measures(selected)
    if as_json:
        said = {"graph": str(graph_args.graph), "notes": receipt.notes}
        found = None if prepared is None else prepared.to_dict()
        also = {"prepared": found, "measures": None if measures is None else measures.to_dict()}
        emit_json({**said, "plan": selected.to_dict(), **also})
    else:
        others = [one for one in (prepared, measures) if one is not None]
        emit([*describe_plan(selected), "", *table_of((*selected.candidates, *others))])


def _measures(selected: Plan) -> Candidate | None:
    """Return the predicted cost of a table of measures without a matrix; None if no algorithm fits in memory."""
    from engine.api.measures_planning import measures_beside

    fitting = [one for one in selected.candidates if one.feasible]
    return measures_beside(fitting, selected.shape[0], max((one.memory for one in fitting), default=0) * 2)


def _notes(receipt: Receipt, given: LocalOptions, selected: Plan) -> Iterable[str]:
    """Yield the notes of the reader, and a note about an option that has no effect."""
    yield from (f"note: {note}" for note in receipt.notes)
    if given["device_memory"] is not None and selected.device == "cpu":
        yield "note: --device-memory changes nothing here, the plan is for the CPU"


def tell(lines: Iterable[str]) -> None:
    """Print lines on standard error."""
    with contextlib.suppress(OSError):  # a closed standard error must not end the job
        for line in lines:
            print(line, file=sys.stderr, flush=True)


def describe_plan(selected: Plan) -> list[str]:
    """Return the plan in a few lines."""
    rows, columns = selected.shape
    hops = f", at most {counted(selected.max_hops, 'arcs')} a path" if selected.max_hops is not None else ""
    if selected.cutoff is not None:
        hops += f", distances up to {number(selected.cutoff)}"
    threads = f"{selected.threads} thread{'s' if selected.threads != 1 else ''}"
    if selected.workers:
        threads = f"{selected.workers:,} worker{'s' if selected.workers != 1 else ''} of Dask, {threads} each"
    on_device = f", {format_bytes(selected.device_memory)} of the GPU's" if selected.device_memory else ""
    once = sum(phase.seconds for phase in selected.phases if phase.name == COMPILING)
    often = ", once on this machine" if kernels_are_kept() else ", each time"
    compiling = f", {format_seconds(once)} of them to compile kernels{often}" if once else ""
    needs = f"{format_bytes(selected.memory)} of memory{on_device}, {format_about(selected.seconds)}"
    lines = [
        f"plan: {selected.algorithm} in {selected.dtype} on {selected.device}, {threads}{hops}",
        f"  device  {selected.device_reason}",
        f"  why     {selected.reason}",
        f"  type    {selected.dtype_reason}",
        f"  matrix  {rows:,} x {columns:,}, {format_bytes(selected.disk)} on disk",
        f"  needs   {needs}{compiling}",
    ]
    if selected.statistics is not None:
        lines.insert(1, f"  graph   {_statistics_text(selected.statistics)}")
    if selected.streaming is not None:
        lines.append(f"  tier    {_stream_text(selected)}")
    return lines


def _statistics_text(graph: Statistics) -> str:
    """Return the statistics of the graph from planning, in one line."""
    degrees = f"{graph.least_degree:,} to {graph.largest_degree:,} arcs a vertex"
    spread = f"{graph.mean_degree:.3g} on average, deviation {graph.degree_deviation:.3g}"
    across = "" if graph.hops_across is None else f", at least {graph.hops_across:,} hops across"
    shape = f"{counted(graph.vertices, 'vertices')}, {degrees} ({spread}){across}"
    if graph.parts is None:
        return f"{shape}; not partitioned: {graph.no_parts}" if graph.no_parts else shape
    parts = graph.parts
    cut = counted(parts.count, "parts")
    return f"{shape}; cut into {cut} of {parts.largest:,} at most, borders of {parts.border:,} at most"


def _stream_text(selected: Plan) -> str:
    """Return a line that says how the matrix is streamed."""
    cut = selected.streaming
    if cut is None:
        return selected.tier
    n, half = selected.shape[1], ", the half above the diagonal" if cut.symmetric else ""
    ways = "two passes over {:,} panels of {:,} rows" if cut.passes else "{:,} rounds of {:,} vertices"
    text = f"{selected.tier}{half}: stripes of {cut.height:,} rows, {ways.format(cut.rounds(n), cut.width)}"
    if selected.device == "cuda":
        text += f", {cut.slots} slots"
        text += f", {cut.resident:,} stripes stay on the GPU" if cut.resident or not cut.passes else ""
    if selected.devices > 1:
        text += f", {selected.devices} GPUs take turns" if cut.passes else f", {selected.devices} GPUs"
    moved = sum(phase.bytes for phase in selected.phases if phase.name == "relax")
    place = "the store" if cut.tier == "store" else "the GPUs" if selected.devices > 1 else "the GPU"
    return f"{text}, {format_bytes(moved)} to and from {place}" if moved else text


def solve(graph_args: GraphArgs, given: LocalOptions, out: str, store: OutputOptions, *, as_json: bool) -> None:
    """Read a graph, plan, and solve it into a sealed store; the plan and the progress go to standard error.

    Args:
        graph_args: the graph file.
        given: the options of the solver, from the command line.
        out: folder or address of the store.
        store: how the store is written.
        as_json: whether to print one JSON object instead of text.
    """
    overwrite, resume = store["overwrite"], store["resume"]
    budgets_of(given)
    place, address = places.place_of(out, store["work"], overwrite=overwrite, resume=resume)
    with writing_early(place, "solve"):
        _check_checkpoint(place, resume=resume, overwrite=overwrite)
        _solve(graph_args, given, (out, place, address), store, as_json=as_json)


def _solve(
    graph_args: GraphArgs,
    given: LocalOptions,
    where: tuple[str, Path, str | None],
    store: OutputOptions,
    *,
    as_json: bool,
) -> None:
    """Solve into a store whose local path the caller has locked.

    ``where`` has three parts: the store as the user wrote it, its local path, and its address in an object store (None
    for a local folder).
    """
    from engine.api.solve import make_plan, solve_to_store, store_attributes
    from engine.graph.profile import GraphProfile

    overwrite, resume = store["overwrite"], store["resume"]
    out, place, address = where
    started = time.perf_counter()
    graph, receipt = load(graph_args)
    reading = time.perf_counter() - started
    options = options_of(given, graph, graph_args.snap_limit)
    profile = GraphProfile(graph)
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor:
        clock = PhaseClock(monitor)
        selected = make_plan(profile, options, out=place, resume=resume, monitor=clock)
    compiling = clock.so_far().get(COMPILING, 0.0)
    planning = time.perf_counter() - started - reading - compiling
    tell([*describe_plan(selected), *_notes(receipt, given, selected)])
    with _keeping(place), ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        outcome = solve_to_store(
            profile,
            options,
            place,
            plan=selected,
            overwrite=overwrite,
            resume=resume,
            compression=store["compression"],
            monitor=monitor,
            address=address,
        )
    seconds = {"read": reading, "plan": planning, **outcome.seconds}
    if compiling:
        seconds[COMPILING] = seconds.get(COMPILING, 0.0) + compiling
    if as_json:
        facts = read_facts(graph_args, graph, receipt, unit=graph.unit)
        plan = outcome.plan.to_dict()
        emit_json({"store": out, "graph": facts, "plan": plan, "seconds": seconds, "summary": outcome.summary})
        return
    measured = {"weight_column": graph.weight_column, **store_attributes(graph, outcome.plan)}
    emit_done(out, seconds, summary_lines(outcome.summary, unit_of_facts(measured)))


def _check_checkpoint(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise Conflict if ``out`` has a checkpoint that the options neither continue nor replace.

    This is called before a large graph is read.
    """
    try:
        found = find_checkpoint(out)
    except StorageFailed:
        if overwrite:
            return
        raise
    if found is not None and found.fault is not None and not overwrite:
        raise Conflict(f"{out} has a checkpoint of {found.saved}, but {found.fault}")
    if found is not None and not resume and not overwrite:
        raise Conflict(f"{out} has a checkpoint of {found.saved}: go on with --resume, or begin anew with --overwrite")
    if found is None and resume:
        tell([f"note: there is no checkpoint of {out}; the solve begins anew"])


@contextlib.contextmanager
def _keeping(out: Path) -> Iterator[None]:
    """Context manager that reports which work was kept, and how to continue, if the block ends early."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(StorageFailed):
            if (found := find_checkpoint(out)) is not None and found.fault is None:
                INTERRUPTS.left_behind = f"what was done until {found.saved} is kept; --resume continues from there"
                if not INTERRUPTS.requested():
                    tell([f"note: {INTERRUPTS.left_behind}"])
        raise
