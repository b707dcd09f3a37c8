"""Reads uploaded graphs, and records them once their files are in place."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from service.auth.callers import Caller
from service.pool.tasks import read_upload
from storage.jobs.store import GraphRecord

if TYPE_CHECKING:
    from service.state import Service


@dataclass(frozen=True)
class GraphUpload:
    """A graph file that was uploaded.

    Attributes:
        path: the file.
        digest: the SHA-256 of the file.
        seconds: the most seconds that reading may take.
        title: the name that the graph gets if it is new to the caller.
        name: the name that the caller gave; None for none.
        reading: arguments of ``read_graph`` by name.
    """

    path: Path
    digest: str
    seconds: float
    title: str | None
    name: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)


async def keep_graph(service: Service, upload: GraphUpload, caller: Caller) -> tuple[GraphRecord, GraphRecord, bool]:
    """Read a graph file, and record its graph.

    A graph of the same content may be deleted after its files were found in place, and before it is recorded; the file
    is then read again, so that no graph is recorded without files.

    Args:
        service: the objects that the routes of this process share.
        upload: the file.
        caller: who uploads it.

    Returns:
        The record of this upload, the graph as the caller sees it, and whether it is new to the caller.
    """
    new = False
    while True:
        found = await service.worker.run(
            read_upload, service.settings, upload.path, upload.reading, owner=caller.owner, seconds=upload.seconds
        )
        found["receipt"]["sha256"] = upload.digest
        fresh = GraphRecord(**found, name=upload.title, created=time.time())
        kept, first = await anyio.to_thread.run_sync(service.add_graph, fresh, caller, upload.name)
        new = new or first
        if await anyio.to_thread.run_sync((service.settings.data_dir / "graphs" / kept.id).exists):
            return fresh, kept, new
