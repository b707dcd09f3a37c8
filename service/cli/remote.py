"""Options of the commands of ``apsp`` that use a service; heavy modules are imported only when a command runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from service.cli.arguments import GraphFile, Json, with_options
from service.name_lists import split_names
from service.options import JobOptions
from storage.number_texts import decimal_number
from storage.options import ReadingOptions

Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Address of the service; else APSP_SERVER.  The key is APSP_KEY."),
]
JobId = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of a job, or as much of its beginning or end as is unique.",
                   show_default=False),
]  # fmt: skip
Page = Annotated[int, typer.Option("--page", metavar="N", min=1, help="Number of the page, from 1.")]

#: ``apsp jobs`` shows this many digits from the end of an id, and ``apsp query`` accepts them in place of the id.
SHOWN_DIGITS: Final = 8


def means_job(store: str) -> bool:
    """Return whether ``apsp query`` without ``--server`` takes its argument for the id of a job of APSP_SERVER."""
    if not os.environ.get("APSP_SERVER") or len(store) < SHOWN_DIGITS:
        return False
    return set(store) <= set("0123456789abcdef-") and len(store) <= 36 and not Path(store).exists()


@with_options
def submit(
    graph: GraphFile,
    reading: ReadingOptions,
    options: JobOptions,
    server: Server = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="A name for graph and job.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end of the job; Ctrl-C leaves it running.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send a graph to a service and queue a job; prints its id."""
    from service.cli.commands import remote
    from service.cli.vertex_lists import selected_names, sent_points, values_of

    given: dict[str, Any] = {**options, "name": name}
    for field in ("sources", "targets"):
        if given[field] is not None:
            points = sent_points(given[field], f"--{field}")
            given[field] = selected_names(given[field], f"--{field}") if points is None else points
    for field, kind in (("within", decimal_number), ("quantiles", decimal_number), ("measures", str), ("columns", str)):
        if given[field] is not None:
            given[field] = values_of(given[field], field, kind)
    if given["also"] is not None:
        given["also"] = split_names([given["also"]], "--also", "column")
    remote.submit(graph, {**reading, **given}, remote.Remote(server, as_json), wait=wait)


def status(job: JobId, server: Server = None, as_json: Json = False) -> None:
    """Show the state of a job of a service."""
    from service.cli.commands import remote

    remote.status(job, remote.Remote(server, as_json))


def wait(
    job: JobId,
    server: Server = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Give up after this time.")] = None,
    as_json: Json = False,
) -> None:
    """Wait until a job of a service is over; Ctrl-C leaves it running."""
    from service.cli.commands import remote

    remote.wait(job, remote.Remote(server, as_json), timeout)


def cancel(job: JobId, server: Server = None, as_json: Json = False) -> None:
    """Ask a job of a service to stop."""
    from service.cli.commands import remote

    remote.cancel(job, remote.Remote(server, as_json))


def resume(job: JobId, server: Server = None, as_json: Json = False) -> None:
    """Queue a failed or cancelled job of a service again, from its checkpoint."""
    from service.cli.commands import remote

    remote.resume(job, remote.Remote(server, as_json))


def delete(job: JobId, server: Server = None, as_json: Json = False) -> None:
    """Delete a finished job of a service, and its result, for good."""
    from service.cli.commands import remote

    remote.delete(job, remote.Remote(server, as_json))


def log(job: JobId, server: Server = None, as_json: Json = False) -> None:
    """Print what the runners have written about a job of a service."""
    from service.cli.commands import remote

    remote.log(job, remote.Remote(server, as_json))


def jobs(
    server: Server = None,
    state: Annotated[
        Literal["accepted", "running", "successful", "failed", "dismissed"] | None,
        typer.Option(help="Only jobs in this state."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Most entries to list.")] = 50,
    page: Page = 1,
    as_json: Json = False,
) -> None:
    """List your jobs on a service, newest first."""
    from service.cli.commands import remote

    remote.jobs(remote.Remote(server, as_json), remote.Window(limit, page), state=state)


def graphs(
    server: Server = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Most entries to list.")] = 50,
    page: Page = 1,
    as_json: Json = False,
) -> None:
    """List your graphs on a service, newest first."""
    from service.cli.commands import remote

    remote.graphs(remote.Remote(server, as_json), remote.Window(limit, page))


def fetch(
    job: JobId,
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="STORE.zarr", help="Where the matrix goes; a table also to .parquet, .csv."
        ),
    ],
    server: Server = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace STORE.zarr once the download is complete.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fetch the solved matrix, or the table, of a job; a second run continues a download that broke off."""
    from service.cli.commands import remote

    remote.fetch(job, out, remote.Remote(server, as_json), overwrite=overwrite)


COMMANDS = (submit, status, wait, log, cancel, resume, delete, jobs, graphs, fetch)
