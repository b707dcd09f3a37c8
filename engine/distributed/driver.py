"""What the drivers of all solves over workers share: who is there, what they are sent, and what ends it all."""

from __future__ import annotations

import abc
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.distributed import sessions
from engine.distributed.dask_cluster import Cluster, TaskEnded, Ticket, WorkerJoined, WorkerLeft
from engine.distributed.messages import DistributedJob, TaskFailure, TaskRequest, TaskResult, WorkerInfo
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from engine.streaming.checkpoint import Journal
from storage.errors import ApspError, SolveFailed, StorageFailed

log = logging.getLogger("apsp.engine")

#: Workers that may be lost before one task more is done, for each worker that there was.
LOSSES: Final = 4
#: Seconds that a solve waits for a worker while it has none.
PATIENCE: Final = 120.0
#: Seconds between two questions to the monitor.
PAUSE: Final = 0.1


@dataclass(frozen=True)
class TaskPurpose:
    """What a ticket is for."""

    action: str
    request: TaskRequest


class Driver(abc.ABC):
    """One run over the workers of ``cluster``, told of those that come and go."""

    def __init__(self, cluster: Cluster, job: DistributedJob, journal: Journal, monitor: Monitor) -> None:
        self._cluster, self._job, self._journal, self._monitor = cluster, job, journal, monitor
        self._writer, self._exchange_dir = journal.writer, Path(job.exchange_dir)
        self._lonely = time.monotonic()
        self._losses = 0

    @abc.abstractmethod
    def _hand_out(self) -> None:
        """Give workers what there is to do."""

    @abc.abstractmethod
    def _join(self, name: str, info: WorkerInfo) -> None:
        """A worker that suits is there."""

    @abc.abstractmethod
    def _worker_left(self, name: str) -> None:
        """A worker is gone."""

    @abc.abstractmethod
    def _done(self, done: TaskEnded) -> None:
        """A task has ended."""

    @property
    @abc.abstractmethod
    def _present(self) -> int:
        """Workers that there are."""

    def _step(self) -> None:
        """Hand out what can be done, and take what has come."""
        self._hand_out()
        for event in self._cluster.events(PAUSE):
            if isinstance(event, WorkerJoined):
                self._came(event.worker, event.info)
            elif isinstance(event, WorkerLeft):
                self._worker_left(event.worker)
            else:
                self._done(event)
        self._monitor.step(0)
        if self._present:
            self._lonely = time.monotonic()
        elif time.monotonic() - self._lonely > PATIENCE:
            refused = [f"; {worker} is refused: {why}" for worker, why in self._cluster.refused.items()]
            raise SolveFailed(f"no worker has been left for {PATIENCE:.0f} s{''.join(refused[:1])}")

    def _came(self, name: str, info: WorkerInfo) -> None:
        if info.device == self._job.device:
            self._join(name, info)
        else:
            log.warning("worker %s has %s, and this solve is for %s: left out", name, info.device, self._job.device)

    def _lost(self, name: str) -> None:
        """Count a worker that is gone.  SolveFailed if nothing but that happens."""
        self._losses += 1
        log.warning("worker %s is lost; what it had is done again elsewhere", name)
        if self._losses > LOSSES * max(1, self._present):
            raise SolveFailed(f"{self._losses} workers were lost one after the other, and nothing was done meanwhile")

    def _submit(
        self,
        name: str,
        action: str,
        request: TaskRequest,
        *,
        device: str | None,
        share: float = 1.0,
        urgent: bool = False,
    ) -> Ticket:
        purpose, given = TaskPurpose(action, request), (self._job, action, request)
        return self._cluster.submit(purpose, name, sessions.run_task, *given, device=device, share=share, urgent=urgent)

    def _halt(self) -> None:
        """Have running tasks end."""
        (self._exchange_dir.parent / "stop").touch()

    def _end(self) -> None:
        """Nothing more is wanted of the workers."""
        self._halt()
        self._cluster.everywhere(sessions.end_run, self._job.run)


def result_of(done: TaskEnded) -> TaskResult | None:
    """What a task has brought; None if it was cancelled.  Raises what went wrong."""
    if done.error is not None:
        raise SolveFailed(f"a task on worker {done.ticket.worker} failed: {done.error!r}") from done.error
    if not isinstance(done.result, TaskFailure):
        result: TaskResult = done.result
        return result
    if done.result.error in ("Lost", "Stopped"):
        return None
    kinds: dict[str, type[ApspError]] = {"StorageFailed": StorageFailed, "BelowZero": BelowZero}
    raise kinds.get(done.result.error, SolveFailed)(done.result.message)
