"""Runs ``apsp near``."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from engine.model.problem import Options
from service.cli.arguments import PairOptions
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit_done, emit_json, table, unit_of_graph
from service.cli.commands.preparing import opened_prepared
from service.cli.commands.solving import GraphArgs, load, read_facts, tell
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import selected
from service.options import NearOptions
from service.units import parse_size
from service.views.near_points import PointForm
from storage.counted import counted
from storage.errors import InvalidRequest
from storage.files.writing import writing_early
from storage.graph.graph import Graph, Receipt

if TYPE_CHECKING:
    from engine.api.prepared_matrix import PreparedMatrix


def near(graph_args: GraphArgs, given: NearOptions, out: Path, written: PairOptions, *, as_json: bool) -> None:
    """Read the graph, find its near pairs and save them; progress goes to standard error.

    Args:
        graph_args: the graph file, or the folder of a prepared graph.
        given: the options of the command line.
        out: the file or Zarr group; the ending of the name decides the format.
        written: whether an existing output may be replaced, and what becomes a feature.
        as_json: whether to print one JSON object instead of text.

    Raises:
        ApspError: whatever ``engine.api.near.near_pairs`` and ``storage.pairs.saving.save_pairs`` raise; also if the
            file format cannot hold points or features.
    """
    if given["cutoff"] is None and given["nearest"] is None:
        raise InvalidRequest("apsp near needs --cutoff DISTANCE, --nearest K, or both", field="cutoff")
    lists = {name: text for name in ("sources", "targets") if (text := cast("str | None", given[name])) is not None}
    if list(lists.values()) == ["-", "-"]:
        raise InvalidRequest("--sources - and --targets - cannot both read standard input", field="targets")
    memory = None if given["memory"] is None else parse_size(str(given["memory"]), field="--memory")
    limits = Options(cutoff=given["cutoff"], memory=memory, threads=given["threads"])
    overwrite, form = written["overwrite"], PointForm(out, written["features"])
    form.check(overwrite=overwrite)
    with writing_early(out, "near"):
        _near(graph_args, (limits, given["nearest"], lists), (out, form), overwrite=overwrite, as_json=as_json)


def _near(
    graph_args: GraphArgs,
    asked: tuple[Options, int | None, dict[str, str]],
    place: tuple[Path, PointForm],
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Find near pairs and write them to ``place``, which the caller has locked.

    ``asked`` holds the limits, ``nearest``, and the texts that select vertices.  ``place`` holds the file and its form.
    """
    from engine.api.near import near_pairs

    (limits, nearest, lists), (out, form) = asked, place
    started = time.perf_counter()
    with contextlib.ExitStack() as context:
        graph, receipt, matrix = _given(graph_args, context)
        found = {name: selected(text, graph, f"--{name}", graph_args.snap_limit) for name, text in lists.items()}
        sides = {name: vertices for name, (vertices, _) in found.items()}
        form.take(graph, {name: points for name, (_, points) in found.items()})
        options = replace(limits, sources=sides.get("sources"), targets=sides.get("targets"))
        seconds = {"read": time.perf_counter() - started}
        tell(f"note: {note}" for note in receipt.notes)
        INTERRUPTS.left_behind = f"{out} is as it was"
        with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
            began = time.perf_counter()
            given = graph if matrix is None else matrix
            pairs = near_pairs(given, options, nearest=nearest, monitor=monitor, spill=form.spill)
            searched = time.perf_counter()
            entries, rows = form.save(pairs, sides.get("targets"), overwrite=overwrite)
    seconds |= {"search": searched - began, "write": time.perf_counter() - searched}
    kind = str(pairs.lengths.dtype)
    if as_json:
        said = {
            "pairs": entries,
            "sources": rows,
            "unit": graph.unit,
            "type": kind,
            "cutoff": pairs.cutoff,
            "nearest": pairs.nearest,
        }
        file = read_facts(graph_args, graph, receipt)
        emit_json({"near": str(out), "graph": file, **said, "seconds": seconds})
        return
    lines = [("pairs", f"{entries:,} of {counted(rows, 'sources')}"), ("form", f"{form.name}, {kind}")]
    lines += [("unit", unit)] if (unit := unit_of_graph(graph)) else []
    emit_done(out, seconds, table(lines, indent="  "))


def _given(graph_args: GraphArgs, context: contextlib.ExitStack) -> tuple[Graph, Receipt, PreparedMatrix | None]:
    """Read the graph file, or open the prepared graph and take the graph from it.

    The prepared graph stays open until ``context`` ends.
    """
    matrix = opened_prepared(graph_args, "apsp near")
    if matrix is None:
        return *load(graph_args), None
    graph = context.enter_context(matrix).graph()
    return graph, Receipt("prepared graph", None, graph.m, 0, 0, 0, None), matrix
