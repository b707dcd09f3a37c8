"""Runs ``apsp assign``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from service.cli.commands.betweenness.output import PassageArgs, show, tell_plan
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import number
from service.cli.commands.solving import load, tell
from service.cli.passage_options import AssignOptions
from service.cli.progress import ProgressMonitor
from storage.counted import counted
from storage.errors import InvalidRequest
from storage.files.writing import writing_early
from storage.graph.demand_table import read_demands
from storage.graph.vertex_table import check_table, write_table

if TYPE_CHECKING:
    from engine.api.betweenness.assignment import Assignment

#: Most demands without a path that the warning names.
NAMED: Final = 5


def assign(args: PassageArgs, demands: Path, assigned: AssignOptions) -> None:
    """Assign the demands to shortest paths, and write or print the table of flows.

    The plan, the sums and the progress go to standard error.

    Args:
        args: the options of the command line about graph, machine and table.
        demands: the table of demands.
        assigned: the options of the assignment.

    Raises:
        ApspError: whatever ``engine.api.betweenness.assignment.assign`` and
            ``storage.graph.demand_table.read_demands`` raise.
    """
    args.check()
    aside = assigned["unreachable"]
    if aside is not None:
        check_table(aside, overwrite=args.overwrite)
        if args.out is not None and aside.absolute() == args.out.absolute():
            raise InvalidRequest(f"--out and --unreachable both name {aside}", field="unreachable")
    with writing_early(args.out, "assign"), writing_early(aside, "assign"):
        _assign(args, demands, assigned)


def _assign(args: PassageArgs, demands: Path, assigned: AssignOptions) -> None:
    """Read graph and demands, assign, and write the table; the caller has locked the output files."""
    from engine.api.betweenness.assignment import Assigning

    aside = assigned["unreachable"]
    started = time.perf_counter()
    graph, receipt = load(args.graph)
    asked = Assigning(graph, read_demands(demands, graph.labels, assigned["flow"]), args.limits())
    reading = time.perf_counter() - started
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor:
        plan = asked.make_plan(monitor)
    planning = time.perf_counter() - started - reading
    rows = counted(graph.n, "vertices") if assigned["of"] == "vertices" else counted(graph.arcs, "arcs")
    tell_plan(plan, rows, receipt)
    INTERRUPTS.left_behind = "no table was written"
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested) as monitor, INTERRUPTS.politely():
        found = asked.run(monitor)
    if aside is not None:
        write_table(found.unreachable_table(), aside, overwrite=args.overwrite)
    tell(_sums(found))
    frame = found.vertex_table() if assigned["of"] == "vertices" else found.arc_table()
    sums = {
        "demands": len(found.demands),
        "assigned": found.assigned,
        "inside": found.inside,
        "lost": found.lost,
        "cost": found.cost,
        "unreachable": found.unreachable_table().to_dicts(),
    }
    seconds = {"read": reading, "plan": planning, **found.seconds}
    show(args, (graph, receipt), frame, {"plan": plan.to_dict(), "seconds": seconds, **sums}, "flows")


def _sums(found: Assignment) -> list[str]:
    """Return a few lines that say how much was assigned, and how much was not."""
    lines = [f"assigned {number(found.assigned)} of {number(float(found.demands.flows.sum()))}, flow times length "
             f"{number(found.cost)}"]  # fmt: skip
    if found.inside:
        lines.append(f"note: {number(found.inside)} goes from vertices to themselves, and uses no arc")
    lost = found.unreachable
    if len(lost):
        labels, demands = found.graph.labels, found.demands
        names = [f"{labels[demands.origins[k]]} to {labels[demands.destinations[k]]}" for k in lost[:NAMED]]
        more = f" and {len(lost) - NAMED:,} more" if len(lost) > NAMED else ""
        lines.append(
            f"warning: {number(found.lost)} is not assigned, as there is no path: {', '.join(names)}{more}; "
            "--unreachable FILE lists them"
        )
    return lines
