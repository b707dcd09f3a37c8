"""Requests that wait for a job: one look at the database for all of them, not one each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from typing import Final

import anyio.to_thread

from storage.errors import StorageFailed
from storage.jobs.store import JobStore

log = logging.getLogger(__name__)

#: seconds between two looks: soon after somebody began to wait, and later
_SOON, _LATER = 0.01, 0.1
#: somebody who waits for so long waits for a job that is not quick
_SOON_SECONDS: Final = 1.0
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)


def asked_to_wait(prefer: str, most: int) -> int | None:
    """The seconds of ``Prefer: wait=N`` (RFC 7240 section 4.3), at most ``most``; None if it was not said."""
    found = _WAIT.search(prefer)
    return None if found is None else min(int(found[1]), most)


class Waiters:
    """Those who wait in this process."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._latest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def wait(self, job_id: str, seconds: float) -> None:
        """Return when the job is over, or after so many seconds."""
        over = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(over)
        self._latest = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), seconds)
        finally:
            mine = self._waiting.get(job_id, set())
            mine.discard(over)
            if not mine:
                self._waiting.pop(job_id, None)

    async def _look(self) -> None:
        while self._waiting:
            asked = list(self._waiting)
            try:
                still = await anyio.to_thread.run_sync(self._jobs.still_open, asked)
            except StorageFailed as error:
                log.warning("nobody learns that a job is over: %s", error)
                still = set(asked)
            for job_id in asked:
                if job_id not in still:
                    for over in self._waiting.pop(job_id, set()):
                        over.set()
            await asyncio.sleep(_SOON if time.monotonic() - self._latest < _SOON_SECONDS else _LATER)
