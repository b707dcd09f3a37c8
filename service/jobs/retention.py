"""Results whose time is over, and what deletions and crashes left: removed once a minute, beside the API."""

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
#: seconds between two looks whether all results are still there
_CHECK_EVERY: Final = 3600.0
#: how long an Idempotency-Key is remembered
KEY_SECONDS: Final = 86400.0
#: a wall clock that ran this much more or less than it should has been set: ages mean nothing then
_JUMP: Final = 600.0


class Retention:
    """Removes results by age and by bytes.  The row says so first, then the files go: never the other way round."""

    def __init__(self, settings: Settings, jobs: JobStore, forget: Callable[[str], None] | None = None) -> None:
        """``forget`` hears of each job whose result is about to go: an open one might still answer."""
        self._settings, self._jobs, self._forget = settings, jobs, forget
        self._offset = time.time() - time.monotonic()
        self._checked: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin; the first look is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after what is being done."""
        self._stopping.set()
        self._thread.join()

    def look(self, now: float, steady: float) -> list[str]:
        """Remove what is overdue at wall-clock time ``now``; returns the jobs that lost their result.

        ``steady`` is a clock that cannot be set; where both do not agree nothing is removed for its age.
        """
        settings = self._settings
        trusted = abs(now - steady - self._offset) < _JUMP
        if not trusted:
            log.warning("the clock was set: no result is removed for its age until the service starts again")
        age = settings.retain_seconds
        before = now - age if age is not None and trusted else None
        removed = [job for job in self._jobs.overdue(before, settings.retain_bytes) if self._jobs.expire_result(job)]
        for job_id in removed:
            log.info("job %s: its result is removed, its time is over", job_id)
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
                log.error("nothing could be removed: %s", error)
            if self._stopping.wait(_EVERY):
                return
