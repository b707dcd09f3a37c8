"""Streams an upload to the disk through a few buffers in memory; computes its digest and checks its length."""

from __future__ import annotations

import asyncio
import hashlib
import os
from base64 import b64encode
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from service.api.fault import UnsupportedMedia
from service.settings import variable
from storage.errors import InvalidRequest, LimitExceeded, StorageFailed
from storage.number_texts import is_digits

#: bytes that a thread writes at once; a larger buffer was not faster, a smaller one costs more thread switches
_BUFFER: Final = 4 << 20
_ENCODINGS: Final = ("", "identity", "gzip", "x-gzip", "zstd")


def check_headers(request: Request, most: int, setting: str = "max_upload_bytes") -> int | None:
    """Return the Content-Length, if known; refuse forms, unknown encodings, and more than ``most`` bytes.

    Args:
        request: the upload.
        most: the most bytes of the body.
        setting: the name of the setting that holds this limit, for messages.
    """
    if request.headers.get("content-type", "").startswith("multipart/"):
        message = "the body is a form; send the file itself as the body, as curl --data-binary @FILE does"
        raise InvalidRequest(message, field="Content-Type")
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        message = f"Content-Encoding: {encoding[:40]} is not supported; use gzip or zstd"
        raise UnsupportedMedia(message, field="Content-Encoding")
    length = request.headers.get("content-length", "")
    if not is_digits(length):
        return None
    announced = int(length)
    if announced > most:
        message = f"the body has {announced} bytes, {most} are allowed"
        raise LimitExceeded(message, limit=most, requested=announced, setting=variable(setting))
    return announced


async def receive(request: Request, path: Path, announced: int | None) -> str:
    """Stream the body to the file; return its SHA-256 in hexadecimal digits.

    Args:
        request: the upload; its body has not been read.
        path: an existing file, which is overwritten.
        announced: bytes according to Content-Length, if known.

    Raises:
        InvalidRequest: the body ended early, or does not have the announced length or the digest in Content-Digest.
        StorageFailed: the disk is full or fails.
    """
    waiting: list[bytes] = []
    size = 0
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        writer = _Writer(handle)
        try:
            async for chunk in request.stream():
                waiting.append(chunk)
                size += len(chunk)
                if size >= _BUFFER:
                    await writer.put(waiting)
                    waiting, size = [], 0
            await writer.put(waiting)
            await writer.settle()
        finally:
            try:
                with anyio.CancelScope(shield=True):  # wait: a thread may still write to the descriptor
                    await writer.settle()
            finally:
                os.close(handle)
    except OSError as error:
        raise StorageFailed(f"the upload cannot be kept: {error.strerror or error}") from error
    except ClientDisconnect:
        raise InvalidRequest("the client disconnected during the upload", field="body") from None
    if announced is not None and writer.total != announced:
        raise InvalidRequest(f"Content-Length is {announced} bytes, but {writer.total} arrived", field="Content-Length")
    _check_digest(request.headers.get("content-digest"), writer.digest.digest())
    return writer.digest.hexdigest()


class _Writer:
    """Writes one batch of chunks to a file, and adds it to a digest, in a thread while the next batch arrives.

    Attributes:
        digest: the digest of all bytes written; complete once ``settle`` has returned.
        total: the number of bytes written; complete once ``settle`` has returned.
    """

    def __init__(self, handle: int) -> None:
        self.digest, self.total = hashlib.sha256(), 0
        self._handle = handle
        self._running: asyncio.Task[int] | None = None

    async def put(self, chunks: list[bytes]) -> None:
        """Wait until the previous batch is written, then start to write ``chunks``.  Raises OSError."""
        await self.settle()
        write = anyio.to_thread.run_sync(_write, self._handle, self.digest, chunks)
        self._running = asyncio.ensure_future(write)

    async def settle(self) -> None:
        """Wait until all batches are written, also if an earlier wait was cancelled.  Raises OSError."""
        running = self._running
        if running is None:
            return
        try:
            # A task that is cancelled cancels the one that it waits for, but no thread.  Without the shield, the file
            # would be closed while the thread writes, and the next file that is opened could get its bytes.
            written = await asyncio.shield(running)
        finally:
            if running.done():
                self._running = None
        self.total += written


def _write(handle: int, digest: hashlib._Hash, chunks: list[bytes]) -> int:
    total = 0
    for chunk in chunks:
        digest.update(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(handle, rest) :]
        total += len(chunk)
    return total


def _check_digest(header: str | None, found: bytes) -> None:
    """Check Content-Digest (RFC 9530); algorithms other than SHA-256 are ignored, as the RFC allows."""
    for item in (header or "").split(","):
        name, _, value = item.strip().partition("=")
        if name.lower() == "sha-256" and value != f":{b64encode(found).decode()}:":
            message = f"Content-Digest says sha-256={value[:80]}, the body has :{b64encode(found).decode()}:"
            raise InvalidRequest(message, field="Content-Digest")
