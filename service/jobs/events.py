"""Streams of server-sent events about a job, made from the job database and the log file rather than by the runner.

One query of the database serves all streams of this process, a few times a second and only while streams are open.  A
stream keeps only the newest state and an offset in the log, so a slow reader misses no line and takes no memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

from service.api.schemas.jobs import JobItem
from service.jobs.joblog import log_path
from service.settings import Settings
from storage.errors import NotFound, StorageFailed
from storage.jobs.store import JobRecord, JobStore

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "text/event-stream"
#: seconds between two queries, about the interval of the runners' reports
_LOOK_SECONDS: Final = 0.2
#: seconds without an event after which a comment keeps the connection alive
QUIET_SECONDS: Final = 15.0
#: seconds after which a stream ends; a client that reconnects must present its key again
LONGEST_SECONDS: Final = 600.0
_RETRY_MILLISECONDS: Final = 2000
#: bytes of the log in one event, at most
_LOG_BYTES: Final = 1 << 16
_POSITION: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
_STATE: Final = {"state", "phase", "progress", "rate", "unit", "eta_seconds", "attempt"}


@dataclass(frozen=True)
class Position:
    """How far a client has read: the version of the job's record that it got last, and how many bytes of the log.

    The position is sent as the id of an event.
    """

    version: int = -1
    offset: int = 0

    @classmethod
    def of(cls, last_event_id: str) -> Position:
        """Return the position of a Last-Event-ID; an unknown format means the beginning."""
        found = _POSITION.fullmatch(last_event_id.strip())
        return cls() if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.version}.{self.offset}"


@dataclass(frozen=True)
class Snapshot:
    """A job at one moment: its record, and the size of its log in bytes."""

    record: JobRecord
    log: int

    def heard(self, at: Position) -> bool:
        """Return whether a client at this position has received everything and the job has ended."""
        return not self.record.open and at.version == self.record.version and at.offset >= self.log


class EventStreams:
    """Polls the jobs that have open streams.  Used on one event loop only."""

    def __init__(self, settings: Settings, jobs: JobStore, closing: Callable[[], bool]) -> None:
        """``closing`` returns True when the service is about to stop; then all streams end."""
        self._settings, self._jobs, self._closing = settings, jobs, closing
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, Snapshot | None] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def snapshot(self, record: JobRecord) -> Snapshot:
        """Return the job with the size of its log; reads the file system."""
        try:
            size = log_path(self._settings, record.id).stat().st_size
        except OSError:  # no runner has started the job
            size = 0
        return Snapshot(record, size)

    async def stream(self, first: Snapshot, at: Position) -> AsyncIterator[bytes]:
        """Yield the events after ``at``, until the job ends, the service stops or ``LONGEST_SECONDS`` have passed.

        Events are ``phase`` when state or phase has changed, ``progress`` when only numbers have changed, ``log`` for
        lines of the log, and ``done`` as the last one.
        """
        yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
        job_id, now, shown = first.record.id, first, ("", "")
        began = told = time.monotonic()
        self._watched[job_id] += 1
        try:
            while True:
                if now.record.version != at.version or now.log > at.offset or not now.record.open:
                    news, shown, at = await anyio.to_thread.run_sync(self._news, now, shown, at)
                    for event in news:
                        told = time.monotonic()
                        yield event
                if not now.record.open and at.version == now.record.version:
                    return
                if self._closing() or time.monotonic() - began > LONGEST_SECONDS:
                    yield b": come back with the last id\n\n"
                    return
                if time.monotonic() - told >= QUIET_SECONDS:
                    told = time.monotonic()
                    yield b": still here\n\n"
                found = await self._next(job_id, now)
                if found is None:
                    return
                now = found
        finally:
            self._watched[job_id] -= 1
            if not self._watched[job_id]:
                del self._watched[job_id]
                self._seen.pop(job_id, None)

    def _news(
        self, now: Snapshot, shown: tuple[str, str], at: Position
    ) -> tuple[list[bytes], tuple[str, str], Position]:
        """Return the events from position ``at`` to snapshot ``now``, and the state and position after them."""
        record, news = now.record, []
        if record.open and record.version != at.version:
            kind = "progress" if shown == (record.state, record.phase) else "phase"
            at, shown = Position(record.version, at.offset), (record.state, record.phase)
            news.append(_event(kind, at, JobItem.of(record).model_dump_json(include=_STATE)))
        for lines, end in self._lines(record, at.offset, now.log):
            at = Position(at.version, end)
            news.append(_event("log", at, lines))
        if not record.open:
            at = Position(record.version, max(at.offset, now.log))
            news.append(_event("done", at, JobItem.of(record).model_dump_json()))
        return news, shown, at

    def _lines(self, record: JobRecord, begin: int, end: int) -> list[tuple[str, int]]:
        """Return the log from ``begin`` on in pieces, each with the offset of its end; while the job is open, only
        whole lines."""
        found: list[tuple[str, int]] = []
        if begin >= end:
            return found
        try:
            with log_path(self._settings, record.id).open("rb") as file:
                while begin < end:
                    file.seek(begin)
                    piece = file.read(min(_LOG_BYTES, end - begin))
                    whole = piece.rfind(b"\n") + 1
                    if not whole and (not piece or (record.open and len(piece) < _LOG_BYTES)):
                        break
                    piece = piece[: whole or len(piece)]
                    begin += len(piece)
                    found.append((piece.decode("utf-8", "replace"), begin))
        except OSError as error:
            log.warning("job %s: its log cannot be read: %s", record.id, error)
        return found

    async def _next(self, job_id: str, before: Snapshot) -> Snapshot | None:
        """Return the job after the next query, or ``before`` if the database failed; None if the stream shall end,
        because the job was deleted or the query failed for another reason.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        await self._looked.wait()
        found = self._seen.get(job_id, before)
        # a query that began before this stream may have found an older version of the job than the stream has
        return before if found is not None and found.record.version < before.record.version else found

    async def _look(self) -> None:
        """Ask for news of all watched jobs, again and again.

        If the question fails for another reason than the database, the streams end; their clients come back.
        """
        while self._watched:
            await asyncio.sleep(_LOOK_SECONDS)
            asked = {job_id: self._seen.get(job_id) for job_id in self._watched}
            try:
                found = await anyio.to_thread.run_sync(self._learn, asked)
            except StorageFailed as error:
                log.warning("event streams have no news, because the database failed: %s", error)
                found = {}
            except Exception:
                log.exception("event streams end, because the question about their jobs failed")
                found = dict.fromkeys(asked)
            self._seen.update({job_id: seen for job_id, seen in found.items() if job_id in self._watched})
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()

    def _learn(self, known: dict[str, Snapshot | None]) -> dict[str, Snapshot | None]:
        versions = self._jobs.versions(list(known))
        found: dict[str, Snapshot | None] = {}
        for job_id, before in known.items():
            try:
                same = before is not None and before.record.version == versions.get(job_id)
                record = before.record if same and before else self._jobs.job(job_id)
            except NotFound:
                found[job_id] = None
            else:
                found[job_id] = self.snapshot(record)
        return found


def _event(kind: str, at: Position, data: str) -> bytes:
    lines = data.removesuffix("\n").replace("\r", "").split("\n")
    return "\n".join([f"id: {at}", f"event: {kind}", *(f"data: {line}" for line in lines), "", ""]).encode()
