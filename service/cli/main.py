"""The command line ``apsp``: options, exit codes, and nothing heavy until a command runs.

Exit codes: 0 done, 1 the job failed, 2 bad use or bad input, 3 it does not fit, 130 interrupted (143 terminated,
141 the reader of standard output went away).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli import prepared
from service.cli import remote as cli_remote
from service.cli.arguments import (
    BulkOutputOptions,
    GraphFile,
    Json,
    OutputOptions,
    StoreFolder,
    StoreUrl,
    with_options,
)
from service.cli.prepared import must_open
from service.options import BulkOptions, LocalOptions
from storage.options import ReadingOptions

app = typer.Typer(
    name="apsp",
    help="All-pairs shortest paths: a graph in, the matrix of all its distances out.",
    epilog="Exit codes: 0 done, 1 the job failed, 2 bad use or bad input, 3 it does not fit, 130 interrupted.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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


@app.command()
@with_options
def solve(
    graph: GraphFile,
    out: Annotated[str, typer.Option("--out", metavar="STORE.zarr", help="Where the matrix goes; s3://... too.")],
    reading: ReadingOptions,
    options: LocalOptions,
    store: OutputOptions,
    as_json: Json = False,
) -> None:
    """Compute all distances, or those from --sources to --targets, into a store."""
    must_open(graph)
    from service.cli.commands import solving

    solving.solve(solving.GraphArgs(graph, reading), options, out, store, as_json=as_json)


@app.command(name="solve-many")
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


app.command()(prepared.prepare)
app.command()(prepared.reweight)


@app.command()
@with_options
def plan(
    graph: GraphFile,
    reading: ReadingOptions,
    options: LocalOptions,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="STORE.zarr", help="Check the space on this store's disk.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how a graph would be solved, and what was rejected."""
    must_open(graph)
    from service.cli.commands import solving

    solving.plan(solving.GraphArgs(graph, reading), options, out=out, as_json=as_json)


@app.command()
@with_options
def inspect(
    graph: GraphFile,
    reading: ReadingOptions,
    as_json: Json = False,
) -> None:
    """Show size, weights and components, and what was dropped."""
    must_open(graph)
    from service.cli.commands import solving

    solving.inspect(solving.GraphArgs(graph, reading), as_json=as_json)


# A vertex may be called -5 or --x, so what looks like an unknown option is a vertex here.
@app.command(context_settings={"ignore_unknown_options": True})
def query(
    store: StoreFolder,
    question: Annotated[str, typer.Argument(metavar="distance|path|row|summary", show_default=False)],
    vertices: Annotated[
        list[str] | None, typer.Argument(metavar="[U] [V]", help="Vertices, named as in the graph.", show_default=False)
    ] = None,
    server: cli_remote.Server = None,
    as_json: Json = False,
) -> None:
    """Ask a store or a prepared graph, or with --server a job's result: distance U V, path U V, row U, or summary."""
    if server is not None or cli_remote.means_job(store):
        from service.cli.commands import remote

        remote.query(store, question, vertices or [], remote.Remote(server, as_json))
        return
    from service.cli.commands import querying

    querying.query(store, question, vertices or [], as_json=as_json)


@app.command()
def plot(
    store: StoreFolder,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The picture: .png, .svg or .pdf.")],
    order: Annotated[
        Literal["near", "label"], typer.Option(help="Rows and columns: neighbours beside each other, or as stored.")
    ] = "near",
    side: Annotated[int, typer.Option(metavar="CELLS", min=1, max=4096, help="Cells of the heat map a side.")] = 512,
    read: Annotated[
        str, typer.Option(metavar="SIZE", help="Read at most so much; of a larger store rows picked evenly.")
    ] = "2GiB",
    as_json: Json = False,
) -> None:
    """Draw a store: a heat map of the matrix, histograms of distances and eccentricities."""
    from service.cli.commands import plotting

    plotting.plot(store, out, order=order, side=side, read=read, as_json=as_json)


@app.command()
def verify(
    store: StoreFolder,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="K|all", help="Rows to search again from the graph, or all; else as many as half a second allows."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every tile of a store, and rows of it against a new search of its graph."""
    from service.cli.commands import querying

    querying.verify(store, sample, as_json=as_json)


@app.command()
def warm(
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many compile at once; else what fits."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile what solves on processors use, once a machine, ahead of the first one."""
    from service.cli.commands import warming

    warming.warm(processes, as_json=as_json)


for _command in cli_remote.COMMANDS:
    app.command()(_command)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; else APSP_HOST, or 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on, 0 for a free one; else APSP_PORT, or 8000."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where all is kept; else APSP_DATA_DIR, or apsp-data.")
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Run the service: API, runner, database and results in one folder."""
    from service.serve import serve as run_service
    from service.settings import Settings

    run_service(Settings.load(host=host, port=port, data_dir=data_dir, store_url=store))


keys = typer.Typer(help="Make, list and revoke the keys of a service.", no_args_is_help=True)
app.add_typer(keys, name="key")
KeyFolder = Annotated[
    Path | None, typer.Option("--data-dir", metavar="FOLDER", help="Of the service; else APSP_DATA_DIR, or apsp-data.")
]


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Whose key, or what for.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="What it may do, read, submit or admin; read and submit if left out."),
    ] = None,
    data_dir: KeyFolder = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it; it is shown this once."""
    from service.cli.commands import keys as commands

    commands.create(name, scope or ["read", "submit"], data_dir=data_dir, as_json=as_json)


@keys.command("list")
def list_keys(data_dir: KeyFolder = None, as_json: Json = False) -> None:
    """Show what is known about every key."""
    from service.cli.commands import keys as commands

    commands.list_keys(data_dir=data_dir, as_json=as_json)


@keys.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id, as the list shows it.", show_default=False)],
    data_dir: KeyFolder = None,
    as_json: Json = False,
) -> None:
    """Make a key invalid, for good."""
    from service.cli.commands import keys as commands

    commands.revoke(key, data_dir=data_dir, as_json=as_json)


@app.command()
def runner(
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The service's folder; else APSP_DATA_DIR, or apsp-data.")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The job database; else APSP_DATABASE_URL, or a file there.")
    ] = None,
    store: StoreUrl = None,
    devices: Annotated[
        str | None, typer.Option(help="auto, or devices such as cpu, cuda0,cuda1 or cuda0-3; else APSP_RUNNERS.")
    ] = None,
) -> None:
    """Run only runners: on any node that reaches the service's database, and its folder or object store."""
    from service.jobs.folders import keep_private
    from service.runner.supervisor import supervise
    from service.settings import Settings

    settings = Settings.load(data_dir=data_dir, database_url=database_url, store_url=store, runners=devices)
    keep_private(settings.data_dir)
    supervise(settings)


@app.command()
def worker(
    scheduler: Annotated[
        str, typer.Option("--scheduler", metavar="ADDRESS", help="Of the Dask scheduler, such as tcp://node0:8786.")
    ],
    devices: Annotated[
        str, typer.Option(help="auto: all GPUs, or the processors; or devices such as cpu or cuda0,cuda1.")
    ] = "auto",
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Workers that share the processors; else one.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads of each worker; else its share of the processors.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of each worker, the node's; else its share.")
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of this node, for scheduler and driver.")] = None,
) -> None:
    """Run the Dask workers of this node, which solve for --executor dask."""
    from engine.distributed.worker_processes import WorkerProcesses, WorkersArgs
    from service.runner.gpus import devices as devices_of
    from service.runner.gpus import singles
    from service.units import parse_size

    size = None if memory is None else parse_size(memory, field="--memory")
    each = [single for device in devices_of(devices) for single in singles(device)]
    found = WorkerProcesses(WorkersArgs(scheduler, each, workers, threads, size, host))
    names = ", ".join(slot.name for slot in found.slots)
    print(f"apsp works for {scheduler} with {names}", file=sys.stderr, flush=True)
    found.run()


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    from service.cli.commands.output import emit

    emit(f"apsp {installed('apsp')}")


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; every error becomes one message on standard error."""
    from service.cli.commands.failures import BAD_USE, FAILED, OUTPUT_CLOSED, complain, report
    from service.cli.commands.interrupts import INTERRUPTS
    from service.cli.commands.output import OutputClosedError
    from storage.errors import Cancelled

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process has closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open until the process ends
    INTERRUPTS.install()
    try:
        code = app(arguments, standalone_mode=False, prog_name="apsp")
    except typer.TyperException as error:
        complain(f"{error.format_message()} (apsp --help and apsp COMMAND --help tell more)")
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
        code = report(error)
    code = int(code or 0)
    if code and INTERRUPTS.requested():
        complain(f"interrupted; {INTERRUPTS.left_behind}")
        return INTERRUPTS.exit_code
    return code


def main() -> None:
    """Entry point of the ``apsp`` command."""
    sys.exit(run())


if __name__ == "__main__":
    main()
