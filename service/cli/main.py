"""The command line ``apsp``: options and exit codes.  Slow imports wait until a command runs.

Exit codes: 0 done, 1 the job failed, 2 bad use or bad input, 3 the job does not fit in memory or on the disk,
130 interrupted, 141 the reader of standard output has closed it, 143 terminated.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from service.cli import nodes, prepared
from service.cli import remote as cli_remote
from service.cli.arguments import (
    AnswerOptions,
    BulkOutputOptions,
    ExportOptions,
    GraphFile,
    GraphOptions,
    Json,
    MapOptions,
    OutputOptions,
    PairOptions,
    PointOptions,
    StoreFolder,
    must_open,
    start_device,
    with_options,
)
from service.cli.betweenness import assign, betweenness
from service.cli.help_pages import GroupedCommands, command, plainer, program_of
from service.cli.measure import measure
from service.options import AlsoOptions, BulkOptions, NearOptions, PlannedForm
from storage.errors import InvalidRequest
from storage.options import FileReadingOptions, ReadingOptions
from storage.remote.objects import address_of

app = typer.Typer(
    name="apsp",
    help="All-pairs shortest paths: a graph in, the matrix of all its distances out.",
    epilog="Exit codes: 0 done, 1 the job failed, 2 bad use or bad input, 3 it does not fit, 130 interrupted.",
    cls=GroupedCommands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def every_command(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """All-pairs shortest paths: a graph in, the matrix of all its distances out."""


@command(app)
@with_options
def solve(
    graph: GraphFile,
    out: Annotated[str, typer.Option("-o", "--out", metavar="STORE.zarr", help="Path of the store, or s3://....")],
    reading: GraphOptions,
    options: AlsoOptions,
    store: OutputOptions,
    as_json: Json = False,
) -> None:
    """Compute all distances, or those from --sources to --targets, into a store."""
    must_open(graph)
    start_device(options)
    from service.cli.commands import solving

    solving.solve(solving.GraphArgs.of(graph, reading, options), options, out, store, as_json=as_json)


@command(app, "solve-many")
@with_options
def solve_many(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPHS", help="Graph files, folders of them, @FILE with one a line.", show_default=False
        ),
    ],
    reading: ReadingOptions,
    options: BulkOptions,
    store: BulkOutputOptions,
    as_json: Json = False,
) -> None:
    """Solve many graphs: small ones side by side or in stacks on the GPU; finished stores are skipped."""
    from service.cli.commands import many

    raise typer.Exit(many.solve_many(many.ManyArgs(graphs, reading, options, **store), as_json=as_json))


command(app)(prepared.prepare)
command(app)(prepared.reweight)


command(app)(measure)
command(app)(betweenness)
command(app)(assign)


@command(app)
@with_options
def near(
    graph: Annotated[
        Path,
        typer.Argument(
            metavar="GRAPH", help="Graph file, or folder or s3:// address of a prepared graph.", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="FILE", help="File of the pairs: .zarr, .npz, .parquet, .csv, .geojson or .gpkg."
        ),
    ],
    reading: GraphOptions,
    options: NearOptions,
    written: PairOptions,
    as_json: Json = False,
) -> None:
    """Find the pairs up to a cutoff, or the nearest targets of each source, without a matrix."""
    if not graph.is_dir() and address_of(graph) is None:
        must_open(graph)
    from service.cli.commands import finding_near, solving

    finding_near.near(solving.GraphArgs.of(graph, reading), options, out, written, as_json=as_json)


@command(app)
@with_options
def plan(
    graph: GraphFile,
    reading: GraphOptions,
    options: AlsoOptions,
    planned: PlannedForm,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="STORE.zarr", help="Check the free space on this store's disk."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how a graph would be solved, or prepared, and what was rejected."""
    must_open(graph)
    if not planned["prepared"]:
        start_device(options)
    from service.cli.commands import preparing, solving

    given = solving.GraphArgs.of(graph, reading, options)
    if planned["prepared"]:
        preparing.plan(given, options, compact=planned["compact"], out=out, as_json=as_json)
    elif planned["compact"]:
        raise InvalidRequest(
            "--compact is a form of prepared graphs, and a matrix is planned; say --prepared, too", field="compact"
        )
    else:
        solving.plan(given, options, out=out, as_json=as_json)


@command(app)
@with_options
def inspect(
    graph: GraphFile,
    reading: FileReadingOptions,
    as_json: Json = False,
) -> None:
    """Show size, weights and components, and what was dropped."""
    must_open(graph)
    from service.cli.commands import solving

    solving.inspect(solving.GraphArgs(graph, reading), as_json=as_json)


# A vertex may be called -5 or --x, so what looks like an unknown option is a vertex here.
@command(app, context_settings={"ignore_unknown_options": True})
@with_options
def query(
    store: StoreFolder,
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION", help="distance, path, row, nearest, within, also or summary.", show_default=False
        ),
    ],
    vertices: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="U V", help="Vertices, named as in the graph; K of nearest, D of within.", show_default=False
        ),
    ] = None,
    points: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Vertices may be points of this table with lon and lat; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write a path as a line into this .geojson file.")
    ] = None,
    *,
    answer: AnswerOptions,
    server: cli_remote.Server = None,
    as_json: Json = False,
) -> None:
    """Ask a store or a prepared graph, or with --server a job's result: distance U V, path U V, row U, nearest U K,
    within U D, also U V, or summary.
    """
    if server is not None or cli_remote.means_job(store):
        if answer.get("device", "cpu") != "cpu" or answer.get("device_memory") is not None:
            raise typer.BadParameter("--device is for a folder; a service answers where APSP_ANSWER_DEVICE says")
        from service.cli.commands import remote

        remote.query(store, question, vertices or [], remote.Remote(server, as_json, out), points or [])
        return
    from service.cli.commands import querying

    querying.query(store, question, vertices or [], points or [], out=out, answer=answer, as_json=as_json)


@command(app)
@with_options
def export(
    store: StoreFolder,
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FILE", help="The file: .csv, .parquet, .npy, .omx, .geojson or .gpkg."),
    ],
    options: ExportOptions,
    points: PointOptions,
    answer: AnswerOptions,
    as_json: Json = False,
) -> None:
    """Write distances of a store or a prepared graph into a file for other programs."""
    from service.cli.commands import exporting

    args = exporting.ExportArgs(**cast(Any, {**options, **points}))
    exporting.export(store, out, args, answer, as_json=as_json)


@command(app)
@with_options
def plot(
    store: StoreFolder,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The picture: .png, .svg or .pdf.")],
    order: Annotated[
        Literal["label", "near"],
        typer.Option(help="Rows and columns of a heat map: by label, as on the page, or neighbours side by side."),
    ] = "label",
    side: Annotated[
        int, typer.Option(metavar="CELLS", min=1, max=4096, help="Cells on each side of the heat map.")
    ] = 512,
    read: Annotated[
        str, typer.Option(metavar="SIZE", help="Most bytes to read; of a larger store, evenly spaced rows.")
    ] = "2GiB",
    *,
    network: MapOptions,
    as_json: Json = False,
) -> None:
    """Draw a store or prepared graph: heat map and histograms, or with --map the network by distance from a vertex."""
    from service.cli.commands import plotting

    plotting.plot(store, out, plotting.HeatMap(order, side, read), network, as_json=as_json)


@command(app)
def verify(
    store: StoreFolder,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="K|all", help="Rows to search again in the graph, or all; else as many as take half a second."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every tile of a store, and rows of it against a new search of its graph."""
    from service.cli.commands import querying

    querying.verify(store, sample, as_json=as_json)


@command(app)
def warm(
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of processes that compile; else as many as fit."),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"], typer.Option(help="cuda: compile the kernels of the GPU, too, into cupy's cache.")
    ] = "cpu",
    as_json: Json = False,
) -> None:
    """Compile the code that solves use, once for each machine, before the first solve."""
    from service.cli.commands import warming

    warming.warm(processes, device, as_json=as_json)


for _command in cli_remote.COMMANDS:
    command(app)(_command)


nodes.add_to(app)


@command(app)
def version() -> None:
    """Print the version."""
    from service.cli.commands.output import emit
    from storage.version import VERSION

    emit(f"apsp {VERSION}")


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; every error becomes one message on standard error."""
    from service.cli.commands.failures import complain
    from service.cli.commands.interrupts import INTERRUPTS

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process has closed this stream
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open until the process ends
    try:
        INTERRUPTS.install()
        code = _exit_code(sys.argv[1:] if arguments is None else arguments)
        if code and INTERRUPTS.requested():
            complain(f"interrupted; {INTERRUPTS.left_behind}")
            return INTERRUPTS.exit_code
        return code
    except KeyboardInterrupt:  # a further interrupt came while a message was written
        return INTERRUPTS.exit_code
    finally:
        INTERRUPTS.remove()


def _exit_code(words: list[str]) -> int:
    """Run the command and return its exit code.  An error is written as a message and turned into an exit code."""
    from service.cli.commands.failures import BAD_USE, FAILED, OUTPUT_CLOSED, comes_of_interrupt, complain, report
    from service.cli.commands.interrupts import INTERRUPTS
    from service.cli.commands.output import OutputClosedError
    from storage.errors import Cancelled

    try:
        code = program_of(app)(words or ["--help"], standalone_mode=False, prog_name="apsp")
    except typer.TyperException as error:
        complain(f"{plainer(error.format_message())} (apsp --help and apsp COMMAND --help tell more)")
        code = error.exit_code
    except typer.Abort:
        code = BAD_USE
    except OutputClosedError:
        code = OUTPUT_CLOSED
    except (Cancelled, KeyboardInterrupt):
        code = INTERRUPTS.exit_code
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else FAILED
    except Exception as error:  # any other error becomes a message, never a traceback
        code = INTERRUPTS.exit_code if comes_of_interrupt(error) else report(error)
    return int(code or 0)


def main() -> None:
    """Entry point of the ``apsp`` command."""
    sys.exit(run())


if __name__ == "__main__":
    main()
