"""The options of the command ``apsp measure``; its body is in ``service.cli.commands.measuring``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.arguments import GraphOptions, Json, must_open, with_options
from service.options import MeasureOptions, SolveOptions
from storage.remote.objects import address_of


@with_options
def measure(
    graph: Annotated[
        Path,
        typer.Argument(
            metavar="GRAPH", help="Graph file, or folder or s3:// address of a prepared graph.", show_default=False
        ),
    ],
    reading: GraphOptions,
    measures: MeasureOptions,
    options: SolveOptions,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="The table: .parquet or .csv; else CSV is printed."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE once the new one is done.")] = False,
    as_json: Json = False,
) -> None:
    """Make a table of closeness, eccentricity, opportunities within reach and others, without any matrix."""
    if not graph.is_dir() and address_of(graph) is None:
        must_open(graph)
    from service.cli.commands import measuring, solving

    wanted = measuring.MeasureArgs(solving.GraphArgs.of(graph, reading), measures, options, out, overwrite)
    measuring.measure(wanted, as_json=as_json)
