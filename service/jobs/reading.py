"""Reads uploaded graphs, and records them once their files are in place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from service.auth.callers import Caller
from service.pool.tasks import read_upload
from storage.jobs.store import GraphRecord

if TYPE_CHECKING:
    from service.state import Service


async def keep_graph(
    service: Service,
    path: Path,
    reading: dict[str, Any],
    caller: Caller,
    *,
    seconds: float,
    digest: str,
    title: str | None,
    name: str | None = None,
) -> tuple[GraphRecord, GraphRecord, bool]:
    """Read a graph file, and record its graph.

    A graph of the same content may be deleted after its files were found in place, and before it is recorded; the file
    is then read again, so that no graph is recorded without files.

    Args:
        service: the objects that the routes of this process share.
        path: the file.
        reading: arguments of ``read_graph`` by name.
        caller: who uploads it.
        seconds: the most seconds that reading may take.
        digest: the SHA-256 of the file.
        title: the name that the graph gets if it is new to the caller.
        name: the name that the caller gave; None for none.

    Returns:
        The record of this upload, the graph as the caller sees it, and whether it is new to the caller.
    """
    new = False
    while True:
        found = await service.worker.run(
            read_upload, service.settings, path, reading, owner=caller.owner, seconds=seconds
        )
        found["receipt"]["sha256"] = digest
        fresh = GraphRecord(**found, name=title, created=time.time())
        kept, first = await anyio.to_thread.run_sync(service.add_graph, fresh, caller, name)
        new = new or first
        if await anyio.to_thread.run_sync((service.settings.data_dir / "graphs" / kept.id).exists):
            return fresh, kept, new
