"""Serves result stores file by file, as Zarr clients read them: HEAD, ranges, conditions, never a hole."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from service.api.problems import documented
from service.http.file_response import CACHE, OpenFile, media_type, proxy_headers
from service.http.parameters import known_parameters
from service.state import Opened, Shared

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["store"], dependencies=[Depends(known_parameters)])

_BINARY: Final[dict[str, Any]] = {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}


@router.get(
    "/zarr/{key:path}",
    response_class=Response,
    responses={
        200: {"description": "The file", "content": {**_BINARY["content"], "application/json": {"schema": {}}}},
        206: {"description": "The ranges asked for", **_BINARY},
        304: {"description": "The client has it"},
        **documented(400, 404, 409, 410, 416),
    },
)
async def get_file(
    job_id: str,
    key: Annotated[str, Path(examples=["zarr.json", "distances/c/0/0"])],
    request: Request,
    service: Shared,
    opened: Opened,
) -> Response:
    """A file of the result store: metadata, labels, arcs, tiles.

    Args:
        job_id: id of the job.
        key: path of the file in the store.
        request: the HTTP request.
        service: what the routes of this process share.
        opened: the open result of the job in the path.
    """
    handle = await anyio.to_thread.run_sync(opened.matrix.open_file, key)
    try:
        if service.settings.accel_prefix:
            return Response(headers=proxy_headers(service.settings, job_id, key))
        return OpenFile(handle, request, media_type=media_type(key), cache=CACHE)
    finally:
        os.close(handle)
