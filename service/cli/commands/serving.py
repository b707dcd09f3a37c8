"""``apsp serve`` and ``apsp runner``."""

from __future__ import annotations

from pathlib import Path

from service.jobs.folders import keep_private
from service.runner.supervisor import supervise
from service.serve import serve as run_service
from service.settings import Settings


def serve(*, host: str | None, port: int | None, data_dir: Path | None, store_url: str | None) -> None:
    """Run the service until it is told to stop; what is None comes from the environment or the defaults.

    Args:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        data_dir: folder of database, graphs and results.
        store_url: ``s3://`` address of graphs and results.
    """
    run_service(Settings.load(host=host, port=port, data_dir=data_dir, store_url=store_url))


def runner(*, data_dir: Path | None, database_url: str | None, store_url: str | None, devices: str | None) -> None:
    """Run the runners of this node until told to stop; what is None comes from the environment or the defaults.

    Args:
        data_dir: the service's folder.
        database_url: the job database.
        store_url: ``s3://`` address of graphs and results.
        devices: ``auto``, or device names separated by commas.
    """
    settings = Settings.load(data_dir=data_dir, database_url=database_url, store_url=store_url, runners=devices)
    keep_private(settings.data_dir)
    supervise(settings)
