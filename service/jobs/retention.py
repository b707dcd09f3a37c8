"""Removes expired results and the leftovers of deletions and crashes, once a minute, in a thread of the API process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from service.jobs.folders import discard, redo_lost, sweep
from service.settings import Settings
from storage.errors import StorageFailed
from storage.jobs.store import JobStore

log = logging.getLogger(__name__)

_EVERY: Final = 60.0
#: seconds between two checks that all results still exist
_CHECK_EVERY: Final = 3600.0
#: seconds for which an Idempotency-Key is stored
KEY_SECONDS: Final = 86400.0
#: if the wall clock deviates from the monotonic clock by this many seconds, it was set, and ages are unknown
_JUMP: Final = 600.0


class Retention:
    """Removes results by age and by bytes.  The database row is changed first, then the files are removed."""

    def __init__(self, settings: Settings, jobs: JobStore, forget: Callable[[str], None] | None = None) -> None:
        """``forget`` is called for each job before its result is removed, so that an open store is closed."""
        self._settings, self._jobs, self._forget = settings, jobs, forget
        self._offset = time.time() - time.monotonic()
        self._checked: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Start the thread; the first check is immediate."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current check."""
        self._stopping.set()
        self._thread.join()

    def look(self, now: float, steady: float) -> list[str]:
        """Remove everything that has expired at wall-clock time ``now``; return the jobs whose result was removed.

        ``steady`` is the time of a monotonic clock; if the two clocks disagree, nothing is removed because of its age.
        """
        settings = self._settings
        trusted = abs(now - steady - self._offset) < _JUMP
        if not trusted:
            log.warning("the clock was set: no result is removed for its age until the service starts again")
        age = settings.retain_seconds
        before = now - age if age is not None and trusted else None
        removed = [job for job in self._jobs.overdue(before, settings.retain_bytes) if self._jobs.expire_result(job)]
        for job_id in removed:
            log.info("job %s: its result has expired and is removed", job_id)
            if self._forget is not None:
                self._forget(job_id)
            discard(settings, job_id)
        if trusted:
            self._jobs.purge(now - settings.tombstone_seconds, now - KEY_SECONDS)
        for path in sweep(settings, self._jobs):
            log.warning("%s belonged to no job and was removed", path)
        if self._checked is None or steady - self._checked >= _CHECK_EVERY:
            redo_lost(settings, self._jobs)
            self._checked = steady
        return removed

    def _run(self) -> None:
        while True:
            try:
                self.look(time.time(), time.monotonic())
            except (StorageFailed, OSError) as error:
                log.error("expired results could not be removed: %s", error)
            if self._stopping.wait(_EVERY):
                return
