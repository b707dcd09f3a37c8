"""Uploads are written by threads, which nothing cancels."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect

from service.http import upload
from storage.errors import StorageFailed


class Body:
    """A request whose body ends with an error, or never."""

    def __init__(self, *, lost: bool) -> None:
        self.headers: dict[str, str] = {}
        self.lost = lost

    async def stream(self) -> AsyncIterator[bytes]:
        yield b"x" * upload._BUFFER
        if self.lost:
            raise ClientDisconnect
        yield b"x" * upload._BUFFER
        await asyncio.Event().wait()


@pytest.fixture
def handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the descriptor of an upload, in order."""
    (tmp_path / "upload").touch()
    seen: list[str] = []
    opened: list[int] = []
    real_open, real_close = os.open, os.close

    def opening(path: Any, *given: Any, **more: Any) -> int:
        handle = real_open(path, *given, **more)
        if str(path).endswith("upload"):
            opened.append(handle)
        return handle

    def closing(handle: int) -> None:
        if handle in opened:
            opened.remove(handle)
            seen.append("closed")
        real_close(handle)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    return seen


def test_the_file_of_an_upload_that_is_cancelled_stays_open_while_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handles: list[str]
) -> None:
    """As when the service stops; a file that was opened meanwhile could get what the thread writes."""
    begun, go, write = threading.Event(), threading.Event(), upload._write

    def slow(*given: Any) -> int:
        begun.set()
        go.wait(60)
        handles.append("written")
        return write(*given)

    async def scene() -> None:
        receiving = asyncio.create_task(upload.receive(cast(Request, Body(lost=False)), tmp_path / "upload", None))
        await asyncio.to_thread(begun.wait, 60)
        receiving.cancel()
        await asyncio.wait([receiving], timeout=0.05)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await receiving

    monkeypatch.setattr(upload, "_write", slow)
    asyncio.run(scene())
    assert handles == ["written", "closed"]


def test_a_file_that_cannot_be_written_when_its_client_is_gone_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handles: list[str]
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(upload, "_write", full)
    with pytest.raises(StorageFailed, match="No space left"):
        asyncio.run(upload.receive(cast(Request, Body(lost=True)), tmp_path / "upload", None))
    assert handles == ["closed"]
