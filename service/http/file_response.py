"""Answers whose body is a file, or bytes in memory, with HEAD, byte ranges and conditional requests.

The kernel sends files where possible, so that their bytes are not copied into this process.
"""

from __future__ import annotations

import os
import secrets
import weakref
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio.to_thread
from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.problems import HTTPProblem
from service.http.ranges import ByteRange, Refusal, http_date, matches, parse_ranges, unchanged

if TYPE_CHECKING:
    from service.settings import Settings

#: name of the scope extension: an awaitable function (file descriptor, offset, count); see ``service.http.protocol``
SENDFILE: Final = "apsp.sendfile"
#: value of Cache-Control for files of a sealed store, which never change
CACHE: Final = "private, max-age=31536000, immutable"
#: bytes of a file that this process reads at once, if the kernel cannot send the file
_CHUNK: Final = 1 << 20


class RangedAnswer(Response):
    """An answer with bytes that never change; it obeys HEAD, ranges and conditions of the request.

    Raises HTTPProblem if the ranges are invalid.

    Attributes:
        wanted: whether any of the bytes are sent.
    """

    def __init__(
        self, request: Request, size: int, etag: str, *, media_type: str, cache: str, modified: str = ""
    ) -> None:
        headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": cache}
        if modified:
            headers["Last-Modified"] = modified
        self._parts: tuple[ByteRange, ...] = (ByteRange(0, size),)
        self._heads: list[bytes] = []
        self._tail = b""
        code = 200
        if matches(request.headers.get("if-none-match", ""), etag):
            code, self._parts = 304, ()
        elif unchanged(request.headers.get("if-range"), etag, modified or etag):
            found = parse_ranges(request.headers.get("range"), size)
            if isinstance(found, Refusal):
                kept = {**headers, "Content-Range": f"bytes */{size}"} if found.status == 416 else None
                raise HTTPProblem(found.fault, status=found.status, headers=kept)
            if found is not None:
                code, self._parts = 206, found
        kind = media_type
        if len(self._parts) > 1:
            kind = self._begin_parts(kind, size)
        elif code == 206:
            headers["Content-Range"] = self._parts[0].of(size)
        super().__init__(status_code=code, headers=headers, media_type=None if code == 304 else kind)
        if code != 304:
            length = sum(part.size for part in self._parts) + sum(map(len, self._heads)) + len(self._tail)
            self.headers["Content-Length"] = str(length)
        self.wanted = bool(self._parts) and not request.scope["state"].get("head")

    def _begin_parts(self, kind: str, size: int) -> str:
        """Make the header of each part and the closing boundary of a multipart answer; return its media type."""
        mark = secrets.token_hex(12)
        for part in self._parts:
            head = f"\r\n--{mark}\r\nContent-Type: {kind}\r\nContent-Range: {part.of(size)}\r\n\r\n"
            self._heads.append(head.encode())
        self._tail = f"\r\n--{mark}--\r\n".encode()
        return f"multipart/byteranges; boundary={mark}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the headers and, unless the request is HEAD, the parts of the body (ASGI)."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if not scope["state"].get("head"):
            for k, part in enumerate(self._parts):
                if self._heads:
                    await send({"type": "http.response.body", "body": self._heads[k], "more_body": True})
                await self._send_part(part, scope, send)
        await send({"type": "http.response.body", "body": self._tail, "more_body": False})

    async def _send_part(self, part: ByteRange, scope: Scope, send: Send) -> None:
        raise NotImplementedError


class OpenFile(RangedAnswer):
    """The answer for one open file; it holds its own file descriptor until it has been sent.

    If the file grows or is deleted meanwhile, its content at the time of the request is sent.  Raises HTTPProblem if
    the ranges are invalid.
    """

    def __init__(self, handle: int, request: Request, *, media_type: str, cache: str) -> None:
        status = os.fstat(handle)
        etag, modified = f'"{status.st_mtime_ns:x}-{status.st_size:x}"', http_date(status.st_mtime)
        super().__init__(request, status.st_size, etag, media_type=media_type, cache=cache, modified=modified)
        self._handle = os.dup(handle)
        self._release = weakref.finalize(self, os.close, self._handle)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer as the base class does, then close the file descriptor (ASGI)."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()

    async def _send_part(self, part: ByteRange, scope: Scope, send: Send) -> None:
        sendfile = scope.get("extensions", {}).get(SENDFILE)
        if sendfile is not None and part.size >= _CHUNK // 16:
            await sendfile(self._handle, part.begin, part.size)
            return
        for begin in range(part.begin, part.end, _CHUNK):
            size = min(_CHUNK, part.end - begin)
            chunk = await anyio.to_thread.run_sync(os.pread, self._handle, size, begin)
            if len(chunk) != size:
                raise OSError("the file became shorter while it was sent")
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


class MadeBytes(RangedAnswer):
    """The answer for bytes of known size.  If any are ``wanted``, the caller assigns them to ``content``."""

    content = b""

    async def _send_part(self, part: ByteRange, scope: Scope, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.body", "body": self.content[part.begin : part.end], "more_body": True})


def media_type(key: str) -> str:
    """Return the media type of a file of a store."""
    if key.endswith(".parquet"):
        return "application/vnd.apache.parquet"
    return "application/json" if key.endswith(".json") else "application/octet-stream"


def proxy_headers(settings: Settings, job_id: str, key: str) -> dict[str, str]:
    """Return the headers of an answer that lets the reverse proxy send a file, with ranges and conditions
    (X-Accel-Redirect).

    Args:
        settings: the service's settings.
        job_id: id of the job.
        key: path of the file in the job's store.
    """
    folder = settings.store(job_id).relative_to(settings.data_dir).as_posix()
    # encoded, because the proxy decodes the path, and names of quantities may contain blanks and percent signs
    target = f"{settings.accel_prefix.rstrip('/')}/{folder}/{quote(key)}"
    return {"X-Accel-Redirect": target, "Cache-Control": CACHE, "Content-Type": media_type(key)}
