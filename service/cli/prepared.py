"""The commands ``apsp prepare`` and ``apsp reweight``; nothing heavy is imported until one of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.arguments import GraphFile, Json, must_open, with_options
from service.options import PrepareForm, ReweightOptions
from storage.options import ArcReadingOptions, FileReadingOptions


@with_options
def prepare(
    *,
    graph: GraphFile,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FOLDER", help="Folder of the prepared graph, or s3://BUCKET/PREFIX.")
    ],
    reading: FileReadingOptions,
    options: PrepareForm,
    work: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Working folder if --out is s3://...; else ~/.cache/apsp/work."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FOLDER once the new one is done.")] = False,
    as_json: Json = False,
) -> None:
    """Make tables that answer every distance without a matrix, for road networks and other graphs like them."""
    must_open(graph)
    from service.cli.commands import preparing, solving

    target = preparing.Target(out, work, overwrite)
    preparing.prepare(solving.GraphArgs(graph, reading), options, target, as_json=as_json)


@with_options
def reweight(
    *,
    prepared: Annotated[Path, typer.Argument(metavar="PREPARED", help="Folder or s3:// address of a prepared graph.")],
    weights: Annotated[
        Path,
        typer.Option(
            "--weights", metavar="FILE", help="A graph file that lists the arcs; weight infinity closes an arc."
        ),
    ],
    reading: ArcReadingOptions,
    options: ReweightOptions,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FOLDER", help="The new folder or address; else PREPARED is replaced."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FOLDER once the new one is done.")] = False,
    as_json: Json = False,
) -> None:
    """Give a prepared graph new weights: its parts stay, and its tables are computed again."""
    must_open(weights)
    from service.cli.commands import preparing

    place = preparing.Place(prepared, out, overwrite)
    preparing.reweight(place, weights, reading, options, as_json=as_json)
