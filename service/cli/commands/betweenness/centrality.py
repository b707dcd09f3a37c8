"""Runs ``apsp betweenness``."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any, cast

from service.cli.commands.betweenness.output import PassageArgs, show, tell_plan
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.solving import load
from service.cli.passage_options import BetweennessOptions
from service.cli.progress import ProgressMonitor
from service.cli.vertex_lists import selected_vertices
from service.units import parse_size
from storage.errors import InvalidRequest
from storage.files.writing import writing_early


def betweenness(args: PassageArgs, counted: BetweennessOptions) -> None:
    """Count shortest paths, and write or print the table; the plan and the progress go to standard error.

    Args:
        args: the options of the command line about graph, machine and table.
        counted: the options that say what is counted.

    Raises:
        ApspError: whatever ``engine.api.betweenness.centrality.betweenness`` raises.  Wrong options are refused before
            any work.
    """
    args.check()
    _device(counted)
    with writing_early(args.out, "betweenness"):
        _count(args, counted)


def _count(args: PassageArgs, counted: BetweennessOptions) -> None:
    """Read the graph, count shortest paths, and write the table; the caller has locked the output file."""
    from engine.api.betweenness.centrality import Centrality

    lists = {name: text for name in ("sources", "targets") if (text := cast("str | None", counted[name])) is not None}
    if list(lists.values()) == ["-", "-"]:
        raise InvalidRequest("--sources - and --targets - cannot both read standard input", field="targets")
    started = time.perf_counter()
    graph, receipt = load(args.graph)
    sides = {name: selected_vertices(text, graph, f"--{name}") for name, text in lists.items()}
    options = replace(args.limits(), sources=sides.get("sources"), targets=sides.get("targets"), **_device(counted))
    reading = time.perf_counter() - started
    asked = Centrality(
        graph,
        options,
        arcs=counted["of"] == "arcs",
        normalized=not counted["raw"],
        endpoints=counted["endpoints"],
    )
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor:
        plan = asked.make_plan(monitor)
    planning = time.perf_counter() - started - reading
    rows = "vertices" if counted["of"] == "vertices" else "arcs" if graph.directed else "edges"
    tell_plan(plan, f"{asked.rows:,} {rows}", receipt)
    INTERRUPTS.left_behind = "no table was written"
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        found = asked.run(monitor)
    seconds = {"read": reading, "plan": planning, **found.seconds}
    show(args, (graph, receipt), found.to_polars(), {"plan": plan.to_dict(), "seconds": seconds}, "betweenness")


def _device(counted: BetweennessOptions) -> dict[str, Any]:
    """Return the engine's options ``device`` and ``device_memory`` (bytes; None for no limit)."""
    memory = counted["device_memory"]
    size = None if memory is None else parse_size(str(memory), field="--device-memory")
    return {"device": counted["device"], "device_memory": size}
