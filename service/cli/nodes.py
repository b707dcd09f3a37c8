"""The commands that run a service, or a part of one: ``serve``, ``runner``, ``worker`` and ``key``."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from service.cli.arguments import AnswerOptions, Json, StoreUrl, with_options
from service.cli.help_pages import command
from storage.errors import InvalidRequest

#: The modules that the extra ``service`` installs (decision 182).
SERVICE_MODULES: Final = (
    "alembic", "fastapi", "jinja2", "orjson", "prometheus_client", "psycopg", "sqlalchemy", "uvicorn",
)  # fmt: skip


def check_service() -> None:
    """Raise InvalidRequest if a package that only services need is not installed."""
    missing = [name for name in SERVICE_MODULES if find_spec(name) is None]
    if missing:
        raise InvalidRequest(
            f"a service needs packages that are not installed ({', '.join(missing)}): pip install 'apsp[service]'"
        )


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; else APSP_HOST, or 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on, 0 for a free one; else APSP_PORT, or 8000."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of all data; else APSP_DATA_DIR, or apsp-data.")
    ] = None,
    store: StoreUrl = None,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Print every setting and where it comes from; serve nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The settings as one JSON object.")] = False,
) -> None:
    """Run the service: API, runner, database and results in one folder."""
    given: dict[str, Any] = {"host": host, "port": port, "data_dir": data_dir, "store_url": store}
    if show_settings:
        from service.cli.commands import configuring

        configuring.show_settings(given, as_json=as_json)
        return
    if as_json:
        raise typer.BadParameter("--json is for --show-settings")
    check_service()
    from service.serve import serve as run_service
    from service.settings import Settings

    run_service(Settings.load(**given))


def serve_routes(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A solved matrix or a prepared graph.", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on, 0 for a free one.")] = 5000,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Unit of the distances; else the one that the store records.")
    ] = None,
    speed: Annotated[
        float | None, typer.Option(metavar="KMH", help="Kilometres an hour, by which lengths become durations.")
    ] = None,
    max_table: Annotated[int, typer.Option(metavar="ENTRIES", min=1, help="Entries of the largest table.")] = 4_000_000,
    *,
    answer: AnswerOptions,
) -> None:
    """Answer programs that speak OSRM's or Valhalla's protocol; there are no keys: whoever reaches the port may ask."""
    if speed is not None and not 0 < speed < float("inf"):
        raise typer.BadParameter(f"--speed is a number of km/h above 0, found {speed:g}")
    check_service()
    from service.cli.commands.querying import opened
    from service.routing import app
    from service.routing.network import RoutingNetwork

    with opened(store, answer) as matrix:
        app.serve(RoutingNetwork(matrix, unit=unit, speed=speed, most=max_table), host, port)


keys = typer.Typer(help="Make, list and revoke the keys of a service.", no_args_is_help=True)
KeyFolder = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="FOLDER", help="The service's folder; else APSP_DATA_DIR, or apsp-data."),
]


@command(keys, "create")
def create_key(
    name: Annotated[str, typer.Argument(help="Holder of the key, or its purpose.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Scopes: read, submit or admin; read and submit if left out."),
    ] = None,
    data_dir: KeyFolder = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it; it is shown this once."""
    check_service()
    from service.cli.commands import keys as commands

    commands.create(name, scope or ["read", "submit"], data_dir=data_dir, as_json=as_json)


@command(keys, "list")
def list_keys(data_dir: KeyFolder = None, as_json: Json = False) -> None:
    """Show what is known about every key."""
    check_service()
    from service.cli.commands import keys as commands

    commands.list_keys(data_dir=data_dir, as_json=as_json)


@command(keys, "revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id, as the list shows it.", show_default=False)],
    data_dir: KeyFolder = None,
    as_json: Json = False,
) -> None:
    """Make a key invalid, for good."""
    check_service()
    from service.cli.commands import keys as commands

    commands.revoke(key, data_dir=data_dir, as_json=as_json)


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
    check_service()
    from service.jobs.folders import keep_private
    from service.runner.supervisor import supervise
    from service.settings import Settings

    settings = Settings.load(data_dir=data_dir, database_url=database_url, store_url=store, runners=devices)
    keep_private(settings.data_dir)
    supervise(settings)


def worker(
    scheduler: Annotated[
        str,
        typer.Option("--scheduler", metavar="ADDRESS", help="Address of the Dask scheduler, such as tcp://node0:8786."),
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
        str | None, typer.Option(metavar="SIZE", help="Host memory of each worker; else its share.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of this node for scheduler and driver.")
    ] = None,
) -> None:
    """Run the Dask workers of this node, which solve for --executor dask."""
    from engine.distributed.worker_processes import WorkerProcesses, WorkersArgs
    from service.runner.gpus import SHORT, singles
    from service.runner.gpus import devices as devices_of
    from service.units import parse_size

    size = None if memory is None else parse_size(memory, field="--memory")
    each = [single for device in devices_of(devices) for single in singles(device)]
    if "cpu2" in each:
        raise InvalidRequest(
            "--devices: cpu twice; --workers N makes N workers share the processors", field="--devices"
        )
    if SHORT in each:
        raise InvalidRequest("--devices: short is a runner of jobs, no device of workers", field="--devices")
    found = WorkerProcesses(WorkersArgs(scheduler, each, workers, threads, size, host))
    names = ", ".join(slot.name for slot in found.slots)
    print(f"apsp works for {scheduler} with {names}", file=sys.stderr, flush=True)
    found.run()


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    for part in (serve, runner, worker):
        command(app)(part)
    command(app, "serve-routes")(with_options(serve_routes))
    app.add_typer(keys, name="key")
