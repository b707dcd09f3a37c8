"""Serves results file by file to Zarr clients, with HEAD, ranges and conditional requests.  A lost tile is never
answered with 404, because Zarr clients would read fill values in its place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from service.api.problems import documented
from service.http.etags import made_tag
from service.http.file_response import CACHE, MadeBytes, OpenFile, media_type, proxy_headers
from service.http.parameters import known_parameters
from service.state import Opened, OpenedAny, Service, Shared
from storage.errors import NotFound

if TYPE_CHECKING:
    from service.jobs.prepared_results import AskedPrepared
    from service.jobs.results import ResultReader

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["store"], dependencies=[Depends(known_parameters)])

_BINARY: Final[dict[str, Any]] = {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}


_FILES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The file", "content": {**_BINARY["content"], "application/json": {"schema": {}}}},
    206: {"description": "The ranges asked for", **_BINARY},
    304: {"description": "The client has it"},
    **documented(400, 404, 409, 410, 416),
}


@router.get("/zarr/{key:path}", response_class=Response, responses={**_FILES, **documented(413, 507)})
async def get_file(
    job_id: str,
    key: Annotated[str, Path(examples=["zarr.json", "distances/c/0/0"])],
    request: Request,
    service: Shared,
    opened: OpenedAny,
) -> Response:
    """A file of the result store: metadata, labels, arcs, tiles; of a prepared result, tiles are computed.

    A table has ``table.parquet``, and near pairs the arrays of sparse rows beside it.

    Args:
        key: path of the file in the store.
    """
    if opened.prepared:
        return await _made(opened.matrix, key, request)
    return await _file(job_id, key, request, service, opened)


@router.get("/prepared/{key:path}", response_class=Response, responses=_FILES)
async def get_prepared_file(
    job_id: str,
    key: Annotated[str, Path(examples=["zarr.json", "tables/forward/c/0"])],
    request: Request,
    service: Shared,
    opened: Opened,
) -> Response:
    """A file of the prepared graph itself: its seal, parts and tables; 404 where the result is a matrix.

    Args:
        key: path of the file in the folder.
    """
    if not opened.prepared:
        raise NotFound(f"the result of job {job_id} is a matrix, whose files are below zarr/")
    return await _file(job_id, key, request, service, opened)


async def _file(job_id: str, key: str, request: Request, service: Service, opened: ResultReader) -> Response:
    handle = await anyio.to_thread.run_sync(opened.matrix.open_file, key)
    try:
        if service.settings.accel_prefix:
            return Response(headers=proxy_headers(service.settings, job_id, key))
        return OpenFile(handle, request, media_type=media_type(key), cache=CACHE)
    finally:
        os.close(handle)


async def _made(matrix: AskedPrepared, key: str, request: Request) -> Response:
    """Return the file that a store of the matrix would have under ``key``.  A chunk is computed only if bytes of it are
    sent.
    """
    place = matrix.chunk_at(key)
    if place is None:
        content = await anyio.to_thread.run_sync(matrix.document, key)
        size = len(content)
    else:
        size = matrix.grid.tile_bytes(matrix.dtype.itemsize)
    tag = made_tag(matrix.digest.encode(), key.encode(errors="replace"))
    found = MadeBytes(request, size, tag, media_type=media_type(key), cache=CACHE)
    if found.wanted:
        found.content = content if place is None else await matrix.chunk(*place)
    return found
