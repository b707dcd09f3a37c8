"""Decides which jobs the runner for short jobs takes, and when it returns a job that turns out not to be short."""

from __future__ import annotations

import time
from typing import Final

from engine.model.system import available_memory
from service.runner.gpus import SHORT
from service.settings import Settings
from storage.jobs.store import JobRecord, JobStore

#: A job that has worked for this many times ``APSP_SHORT_SECONDS`` is not short, whatever was predicted.
FAR: Final = 6.0


class ShortJobs:
    """The jobs that are predicted to be short and small.

    Args:
        settings: the settings of the runner.
        jobs: the job store.
        runner: name of the runner.
    """

    def __init__(self, settings: Settings, jobs: JobStore, runner: str) -> None:
        self._settings, self._jobs, self._runner = settings, jobs, runner
        self._most = settings.short_seconds, settings.short_memory

    def claim(self) -> JobRecord | None:
        """Claim the next short job; None if there is none, or if too little memory is free.  Raises DatabaseFailed."""
        if available_memory() < self._settings.short_memory:
            return None  # another runner will take the job when it is idle
        return self._jobs.claim(self._runner, cuda=False, most=self._most)

    def wait_for(self, worked: float) -> bool:
        """Return whether the running job should go back to the queue, because short jobs wait for this runner.

        A job should go back if it has worked for far longer than the limit of short jobs, and another runner that can
        take it is alive.  Raises DatabaseFailed.

        Args:
            worked: the seconds for which the job has worked, without those of compiling.
        """
        if worked <= FAR * self._settings.short_seconds or not self._jobs.waits(cuda=False, most=self._most):
            return False
        since = time.time() - self._settings.lease_seconds
        return any(r.device != SHORT and r.state != "sick" and r.heartbeat >= since for r in self._jobs.list_runners())
