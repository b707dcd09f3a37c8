"""Code that ``apsp betweenness`` and ``apsp assign`` share: arguments, printing the plan, writing the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.commands.output import emit, emit_done, emit_json, table
from service.cli.commands.solving import GraphArgs, read_facts, tell
from service.cli.passage_options import PassageOptions
from service.units import format_about, format_bytes, parse_size
from storage.counted import counted
from storage.graph.graph import Graph, Receipt
from storage.graph.vertex_table import check_table, write_table

if TYPE_CHECKING:
    import polars

    from engine.api.betweenness.passage import PathPlan
    from engine.model.problem import Options


@dataclass(frozen=True)
class PassageArgs:
    """The common arguments of both commands: graph, memory and threads, the file of the table (None prints it)."""

    graph: GraphArgs
    machine: PassageOptions
    out: Path | None
    overwrite: bool
    as_json: bool

    def check(self) -> None:
        """Refuse an impossible output or size before anything is read."""
        if self.out is not None:
            check_table(self.out, overwrite=self.overwrite)
        self.limits()

    def limits(self) -> Options:
        """Return the options that limit memory and threads."""
        from engine.model.problem import Options

        memory, threads = self.machine["memory"], self.machine["threads"]
        return Options(memory=None if memory is None else parse_size(str(memory), field="--memory"), threads=threads)


def tell_plan(plan: PathPlan, what: str, receipt: Receipt) -> None:
    """Print on standard error what will be done, and the notes of the reader of the graph.

    Args:
        plan: the plan.
        what: the rows of the table, such as ``1,200 vertices``.
        receipt: the receipt of the graph.
    """
    threads = f"{plan.threads} thread{'s' if plan.threads != 1 else ''}"
    tried = f", by a trial of {plan.tried}" if plan.tried else ""
    there = f", {format_bytes(plan.device_memory)} of the GPU's" if plan.device_memory else ""
    tell(
        [
            f"plan: {plan.search}; {threads}",
            f"  table   {what}; no matrix",
            f"  needs   {format_bytes(plan.memory)} of memory{there}, {format_about(plan.seconds)} for "
            f"{counted(plan.sources, 'sources')}{tried}",
            *(f"note: {note}" for note in receipt.notes),
        ]
    )


def show(
    args: PassageArgs, read: tuple[Graph, Receipt], frame: polars.DataFrame, said: Mapping[str, Any], key: str
) -> None:
    """Write the table and print what was found; without ``--out`` print the table itself.

    Args:
        args: the arguments of the command.
        read: the graph and its receipt.
        frame: the table.
        said: what else to print: ``plan``, ``seconds``, and facts by name.
        key: the member of the JSON object that holds the rows.
    """
    if args.out is not None:
        unit = read[0].unit if "weight" in frame.columns else None
        write_table(frame, args.out, overwrite=args.overwrite, unit=unit)
    graph, receipt = read
    if args.as_json:
        about = {"graph": read_facts(args.graph, graph, receipt)}
        shown = {"table": str(args.out)} if args.out is not None else {key: frame.to_dicts()}
        emit_json({**about, **said, "columns": frame.columns, **shown})
    elif args.out is None:
        emit(frame.write_csv().removesuffix("\n"))
    else:
        lines = [("rows", f"{len(frame):,}"), ("columns", ", ".join(frame.columns))]
        emit_done(args.out, said["seconds"], table(lines, indent="  "))
