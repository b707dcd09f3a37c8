"""The commands ``apsp betweenness`` and ``apsp assign``: their options; the bodies are in ``commands.betweenness``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.arguments import GraphFile, Json, must_open, with_options
from service.cli.passage_options import AssignOptions, BetweennessOptions, PassageOptions
from storage.options import FileReadingOptions

Table = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="FILE", help="The table: .parquet or .csv; else CSV is printed."),
]


@with_options
def betweenness(
    graph: GraphFile,
    reading: FileReadingOptions,
    counted: BetweennessOptions,
    machine: PassageOptions,
    out: Table = None,
    as_json: Json = False,
) -> None:
    """Count the shortest paths that pass through each vertex or arc: betweenness centrality, exact."""
    must_open(graph)
    from service.cli.commands import solving
    from service.cli.commands.betweenness import centrality, output

    wanted = output.PassageArgs(solving.GraphArgs(graph, reading), machine, out, machine["overwrite"], as_json)
    centrality.betweenness(wanted, counted)


@with_options
def assign(
    graph: GraphFile,
    demands: Annotated[
        Path,
        typer.Option(
            "--demands", metavar="FILE", help="CSV or Parquet: origin, destination, flow.", show_default=False
        ),
    ],
    reading: FileReadingOptions,
    assigned: AssignOptions,
    machine: PassageOptions,
    out: Table = None,
    as_json: Json = False,
) -> None:
    """Put demands between vertices on shortest paths: the flow on each arc or vertex."""
    must_open(graph)
    must_open(demands)
    from service.cli.commands import solving
    from service.cli.commands.betweenness import assigning, output

    wanted = output.PassageArgs(solving.GraphArgs(graph, reading), machine, out, machine["overwrite"], as_json)
    assigning.assign(wanted, demands, assigned)
