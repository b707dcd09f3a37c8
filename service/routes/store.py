"""Result stores over HTTP, file by file, as Zarr clients read them."""

from __future__ import annotations

import os
import re
from typing import Final

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from service.state import Service

#: what the names of a store's files are made of; nothing else is looked up on the disk
_KEY: Final = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")


class StoreFiles(StaticFiles):
    """The files of result stores below ``/v1/jobs/{job_id}/zarr/``, with HEAD, ranges and ETags."""

    def __init__(self, service: Service) -> None:
        super().__init__(directory=service.settings.data_dir / "jobs", check_dir=False)
        self._service = service

    def get_path(self, scope: Scope) -> str:
        """The key as it stands in the address: nothing is normalised away."""
        return str(scope["path"][len(scope["root_path"]) + 1 :])

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file of a key.

        Raises:
            ResultNotReady, NoResult, NotFound: as ``Service.result`` does, and NotFound for keys of no file.
            StorageFailed: the file belongs to the store and is lost.
        """
        job_id = scope["path_params"]["job_id"]
        result = await anyio.to_thread.run_sync(self._service.result, job_id)
        safe = _KEY.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))
        if not safe:
            raise HTTPException(404)
        try:
            response = await super().get_response(f"{job_id}/{self._service.settings.store(job_id).name}/{path}", scope)
        except HTTPException as error:
            if error.status_code == 404:
                await anyio.to_thread.run_sync(result.check_key, path)
            raise
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        return response

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """The file, whole or in ranges; 304 where the client has it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        return response if response.status_code == 304 else _Ranges(response)


class _Ranges(Response):
    """A file response whose refusals of ranges become exceptions, and so problem documents, instead of plain text."""

    def __init__(self, inner: Response) -> None:
        assert isinstance(inner, FileResponse)
        self._inner = inner
        self.status_code, self.raw_headers = inner.status_code, inner.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: HTTPException | None = None

        async def watched(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] in {400, 416}:
                kept = {k.decode(): v.decode() for k, v in message["headers"] if k == b"content-range"}
                asked = dict(scope["headers"]).get(b"range", b"").decode("latin-1")
                refused = HTTPException(message["status"], f"Range: {asked} cannot be answered", headers=kept)
            if refused is None:
                await send(message)

        await self._inner(scope, receive, watched)
        if refused is not None:
            raise refused
