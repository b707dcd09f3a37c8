"""Graphs: upload and look up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.requests import ClientDisconnect

from service.parameters import known_parameters
from service.problems import documented
from service.schemas import Graph, GraphList
from service.state import Shared
from service.tasks import read_upload
from storage.errors import InvalidRequest, StorageFailed
from storage.jobs import GraphRecord

router = APIRouter(prefix="/v1/graphs", tags=["graphs"], dependencies=[Depends(known_parameters)])

#: written at once; larger writes were not faster, smaller ones cost thread switches
_BUFFER: Final = 4 << 20

_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "The file itself, in any of the formats, plain, gzip or zstd.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "",
    status_code=201,
    response_model=Graph,
    responses={200: {"model": Graph, "description": "The same graph is there already"}, **documented(413, 422, 507)},
    openapi_extra=_BODY,
)
async def upload_graph(
    *,
    request: Request,
    response: Response,
    service: Shared,
    format: Annotated[str | None, Query(description="Name of the format; found out if left out.")] = None,  # noqa: A002
    directed: Annotated[bool | None, Query(description="Direction; what the format declares if left out.")] = None,
    weight: Annotated[str | None, Query(description="Column of the weights.")] = None,
    unweighted: Annotated[bool, Query(description="Count hops instead.")] = False,
    name: Annotated[str | None, Query(max_length=200, description="A name of your own.")] = None,
    filename: Annotated[str | None, Query(max_length=255, description="Its ending hints at the format.")] = None,
) -> Graph:
    """Upload a graph file as the raw body; 201 if its content is new, 200 if it was here before.

    The receipt in the answer is that of this upload; ``GET`` shows the one of the first.
    """
    if request.headers.get("content-type", "").startswith("multipart/"):
        message = "the body is a form; send the file itself as the body, as curl --data-binary @FILE does"
        raise InvalidRequest(message, field="Content-Type")
    reading = {"format": format, "directed": directed, "weight": weight, "unweighted": unweighted}
    length = request.headers.get("content-length", "")
    path = await anyio.to_thread.run_sync(service.uploads.create, filename, int(length) if length.isdigit() else None)
    try:
        await _receive(request, path)
        found = await service.worker.run(read_upload, service.settings, path, reading)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: path.unlink(missing_ok=True))
    fresh = GraphRecord(**found, name=name, created=time.time())
    kept, new = await anyio.to_thread.run_sync(service.jobs.add_graph, fresh)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/graphs/{kept.id}"
    answer = Graph.of(kept)
    return answer.model_copy(update={"receipt": fresh.receipt})


async def _receive(request: Request, path: Path) -> None:
    """Stream the body to the file; memory stays at one buffer."""
    buffer = bytearray()

    async def flush(file: Any) -> None:
        if buffer:
            await anyio.to_thread.run_sync(file.write, bytes(buffer))
            buffer.clear()

    try:
        with path.open("wb", buffering=0) as file:
            async for chunk in request.stream():
                buffer += chunk
                if len(buffer) >= _BUFFER:
                    await flush(file)
            await flush(file)
    except OSError as error:
        raise StorageFailed(f"the upload cannot be kept: {error.strerror or error}") from error
    except ClientDisconnect:
        raise StorageFailed("the client went away during the upload") from None


@router.get("", response_model=GraphList)
def list_graphs(service: Shared, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> GraphList:
    """The newest graphs, newest first."""
    return GraphList(graphs=[Graph.of(record) for record in service.jobs.list_graphs(limit)])


@router.get("/{graph_id}", response_model=Graph, responses=documented(404))
def get_graph(graph_id: str, service: Shared) -> Graph:
    """One graph."""
    return Graph.of(service.jobs.graph(graph_id))
