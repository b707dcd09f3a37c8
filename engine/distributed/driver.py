"""The common part of all drivers: it follows workers that join and leave, submits tasks, and handles failures."""

from __future__ import annotations

import abc
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.distributed import sessions
from engine.distributed.dask_cluster import Cluster, TaskEnded, Ticket, WorkerJoined, WorkerLeft
from engine.distributed.messages import TaskFailure, TaskRequest, TaskResult, WorkerInfo, WorkersJob
from engine.distributed.this_process import ThisProcess
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from storage.errors import ApspError, DatabaseFailed, DiskFull, SolveFailed, StorageFailed

log = logging.getLogger("apsp.engine")

#: The solve fails if, since the last finished task, more than LOSSES x (number of present workers) workers were lost.
LOSSES: Final = 4
#: Seconds that a solve without workers waits for a worker.
PATIENCE: Final = 120.0
#: Seconds between two calls of the monitor.
PAUSE: Final = 0.1
#: Errors of tasks that the driver raises again as errors of the same class; all others it raises as SolveFailed.
_KINDS: Final[dict[str, type[ApspError]]] = {
    kind.__name__: kind for kind in (BelowZero, StorageFailed, DiskFull, DatabaseFailed)
}


@dataclass(frozen=True)
class TaskPurpose:
    """The driver's note about a task: its action and its request."""

    action: str
    request: TaskRequest


class Driver(abc.ABC):
    """One run over the workers of a cluster; workers may join and leave during the run.

    Args:
        cluster: the connection to the workers, or an object that runs their tasks in this process.
        job: the description of the run for the workers.
        monitor: receives progress, and is asked whether to stop.
    """

    def __init__(self, cluster: Cluster | ThisProcess, job: WorkersJob, monitor: Monitor) -> None:
        self._cluster, self._monitor, self._run_job = cluster, monitor, job
        self._exchange_dir = Path(job.exchange_dir)
        self._last_present = time.monotonic()
        self._losses = 0

    @abc.abstractmethod
    def _hand_out(self) -> None:
        """Submit all tasks that can begin now."""

    @abc.abstractmethod
    def _join(self, name: str, info: WorkerInfo) -> None:
        """Add a worker that has the device on which this run computes."""

    @abc.abstractmethod
    def _worker_left(self, name: str) -> None:
        """Make the unfinished work of a worker that has left available to other workers."""

    @abc.abstractmethod
    def _done(self, done: TaskEnded) -> None:
        """Handle the end of a task."""

    @property
    @abc.abstractmethod
    def _present(self) -> int:
        """The number of workers that are present."""

    def _step(self) -> None:
        """Submit tasks, handle events, and ask the monitor whether to stop."""
        self._hand_out()
        for event in self._cluster.events(PAUSE):
            if isinstance(event, WorkerJoined):
                self._admit(event.worker, event.info)
            elif isinstance(event, WorkerLeft):
                self._worker_left(event.worker)
            else:
                self._done(event)
        self._monitor.step(0)
        if self._present:
            self._last_present = time.monotonic()
        elif time.monotonic() - self._last_present > PATIENCE:
            refused = [f"; {worker} is refused: {why}" for worker, why in self._cluster.refused.items()]
            raise SolveFailed(f"the solve has had no worker for {PATIENCE:.0f} s{''.join(refused[:1])}")

    def _admit(self, name: str, info: WorkerInfo) -> None:
        if info.device == self._run_job.device:
            self._join(name, info)
        else:
            own = self._run_job.device
            log.warning("worker %s is not used: it computes on %s, and this solve on %s", name, info.device, own)

    def _count_loss(self, name: str) -> None:
        """Count a lost worker; raise SolveFailed after too many losses without a finished task."""
        self._losses += 1
        log.warning("worker %s is lost; other workers repeat its tasks", name)
        if self._losses > LOSSES * max(1, self._present):
            raise SolveFailed(
                f"{self._losses} workers were lost one after the other, and no task was finished in between"
            )

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
        purpose, given = TaskPurpose(action, request), (self._run_job, action, request)
        return self._cluster.submit(purpose, name, sessions.run_task, *given, device=device, share=share, urgent=urgent)

    def _halt(self) -> None:
        """Ask running tasks to stop."""
        (self._exchange_dir.parent / "stop").touch()

    def _end(self) -> None:
        """Stop running tasks and close the workers' sessions."""
        self._halt()
        self._cluster.everywhere(sessions.end_run, self._run_job.run)


def result_of(done: TaskEnded) -> TaskResult | None:
    """Return the result of a task; None if it was cancelled.

    Raises:
        BelowZero, StorageFailed, DiskFull, DatabaseFailed, SolveFailed: the error of the task.
    """
    if done.error is not None:
        raise SolveFailed(f"a task on worker {done.ticket.worker} failed: {done.error!r}") from done.error
    if not isinstance(done.result, TaskFailure):
        result: TaskResult = done.result
        return result
    if done.result.error in ("Lost", "Stopped"):
        return None
    raise _KINDS.get(done.result.error, SolveFailed)(done.result.message)
