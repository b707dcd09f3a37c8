"""Lets requests wait for the end of a job; one repeated query of the database serves all waiting requests."""

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

#: seconds between two queries of the database: in the first _SOON_SECONDS after a request began to wait, and later
_SOON, _LATER = 0.01, 0.1
#: seconds for which the shorter interval is used, from the time at which the last request began to wait
_SOON_SECONDS: Final = 1.0
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)


def asked_to_wait(prefer: str, most: int) -> int | None:
    """Return the seconds of ``Prefer: wait=N`` (RFC 7240 section 4.3), at most ``most``; None without it."""
    found = _WAIT.search(prefer)
    return None if found is None else min(int(found[1]), most)


class Waiters:
    """The requests of this process that wait for jobs; used on one event loop only."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._latest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def wait(self, job_id: str, seconds: float) -> None:
        """Wait until the job has ended, for at most ``seconds``."""
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
                log.warning(
                    "waiting requests are not notified of finished jobs, because the database failed: %s", error
                )
                still = set(asked)
            for job_id in asked:
                if job_id not in still:
                    for over in self._waiting.pop(job_id, set()):
                        over.set()
            await asyncio.sleep(_SOON if time.monotonic() - self._latest < _SOON_SECONDS else _LATER)
