"""Routes that take, show, list and forget graphs."""

from __future__ import annotations

from typing import Annotated, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response

from service.api.problems import documented
from service.api.schemas.graphs import GraphDocument, GraphList, UploadQuery
from service.http import cursors
from service.http.parameters import known_parameters
from service.http.upload import check_headers, receive
from service.jobs.reading import GraphUpload, keep_graph
from service.state import KnownAsker

router = APIRouter(prefix="/v1/graphs", tags=["graphs"], dependencies=[Depends(known_parameters)])

_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "The file itself, in any of the formats, plain, gzip or zstd.",
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": "from,to,km,toll\n1,2,3.5,0\n2,17,1,2.5\n17,1,8,0\n",
            }
        },
    }
}


@router.post(
    "",
    status_code=201,
    response_model=GraphDocument,
    responses={
        200: {"model": GraphDocument, "description": "The same graph is there already"},
        **documented(408, 413, 415, 422, 429, 507),
    },
    openapi_extra=_BODY,
)
async def upload_graph(
    *,
    request: Request,
    response: Response,
    asker: KnownAsker,
    asked: Annotated[UploadQuery, Query()],
) -> GraphDocument:
    """Upload a graph file as the raw body; 201 if its content is new to you, 200 if you had uploaded it before.

    The receipt in the answer is that of this upload; ``GET`` shows the one of your first.

    Args:
        asked: how the file is read, and what it is called.
    """
    announced, reading = check_headers(request, asker.service.settings.max_upload_bytes), asked.reading()
    with asker.service.uploading.hold(asker.caller.owner, asker.service.settings.max_uploads):
        path = await anyio.to_thread.run_sync(asker.service.uploads.create, asked.filename, announced)
        try:
            digest = await receive(request, path, announced)
            once = asker.service.settings.read_seconds + path.stat().st_size / asker.service.settings.min_read_rate
            seconds = once * (1 + len(reading["also"]))  # some formats are read again for each column
            upload = GraphUpload(path, digest, seconds, asked.title(), asked.name, reading)
            fresh, kept, new = await keep_graph(asker.service, upload, asker.caller)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: path.unlink(missing_ok=True))
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/graphs/{kept.id}"
    answer = GraphDocument.of(kept)
    return answer.model_copy(update={"receipt": fresh.receipt})


@router.get("", response_model=GraphList)
def list_graphs(
    *,
    request: Request,
    response: Response,
    asker: KnownAsker,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=300, description="Where an earlier list ended.")] = None,
) -> GraphList:
    """Your graphs, newest first; ``next`` (and Link) leads to older ones.

    Args:
        limit: the most records in the list.
        cursor: where an earlier list ended.
    """
    after = None if cursor is None else cursors.decode(cursor)
    records = asker.service.keys.list_graphs(limit + 1, asker.owner, after)
    following = None
    if len(records) > limit:
        last = records[limit - 1]
        following = cursors.following(request, cursor=cursors.encode(last.created, last.id))
        response.headers["Link"] = f'<{following}>; rel="next"'
    return GraphList(graphs=[GraphDocument.of(record) for record in records[:limit]], next=following)


@router.get("/{graph_id}", response_model=GraphDocument, responses=documented(404, 410))
def get_graph(graph_id: str, asker: KnownAsker) -> GraphDocument:
    """One graph."""
    return GraphDocument.of(asker.graph(graph_id))


@router.delete("/{graph_id}", status_code=204, response_class=Response, responses=documented(404, 409, 410))
def delete_graph(graph_id: str, asker: KnownAsker) -> None:
    """Forget a graph; refused while open jobs need it.  Results of finished jobs stay."""
    asker.service.remove_graph(graph_id, asker.caller)
