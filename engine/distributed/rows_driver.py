"""The driver of a solve by rows over many workers: each task searches one batch of sources.

A batch has the size that its worker can search in a few seconds.  Towards the end batches become smaller, so that all
workers finish at about the same time.  If a worker is lost, another worker searches its batch again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.distributed.dask_cluster import Cluster, TaskEnded, Ticket
from engine.distributed.driver import Driver, result_of
from engine.distributed.messages import DistributedJob, TaskRequest, WorkerInfo
from engine.model.progress import Monitor
from engine.rows.summary import Summary
from engine.streaming.checkpoint import Journal
from storage.errors import Cancelled

#: Intended seconds of a batch.
TASK: Final = 2.0
#: The largest number of batches that a worker has at a time, running or queued.
AHEAD: Final = 2
#: A batch has at most 1 / (``SHARES`` x workers) of the rows that are not in a batch yet, so batches shrink.
SHARES: Final = 3
#: The largest number of bytes of rows in a batch.
MOST: Final = 2**30


@dataclass
class _Worker:
    """The driver's state of a worker; ``rate`` is in rows per second."""

    rate: float
    tickets: list[Ticket] = field(default_factory=list)


class RowsDriver(Driver):
    """The driver of one solve by rows.

    Args:
        cluster: the connection to the workers; workers may join and leave.
        workers: the workers that are present.
        job: the solve.
        journal: writes the records.
        summary: gathers facts of finished rows, such as the largest distance.
        monitor: receives progress, and is asked whether to stop.
        done: number of rows that are already in the store; tasks only gather the facts of these rows.
    """

    def __init__(  # noqa: PLR0917
        self,
        cluster: Cluster,
        workers: Mapping[str, WorkerInfo],
        job: DistributedJob,
        journal: Journal,
        summary: Summary,
        monitor: Monitor,
        done: int,
    ) -> None:
        super().__init__(cluster, job, monitor)
        self._job, self._journal, self._writer = job, journal, journal.writer
        self._summary, self._rows, self._band = summary, job.shape[0], job.tile[0]
        self._workers: dict[str, _Worker] = {}
        searched = sum(phase.seconds for phase in job.plan.phases if phase.name in ("search", "sweep"))
        self._rate = self._rows / max(1e-3, searched) / max(1, len(workers))
        self._todo: list[tuple[str, int, int]] = [("search", done, self._rows)] if done < self._rows else []
        if done:
            self._todo.append(("observe", 0, done))
        self._finished: dict[int, int] = {}
        self._prefix = self._kept = done
        for name, info in workers.items():
            self._admit(name, info)

    def run(self) -> None:
        """Search until all rows are in the store.

        Raises:
            Cancelled: the monitor asked to stop; the finished rows from row 0 on are committed.
            SolveFailed: the scheduler or all workers are lost; the last commit remains.
            StorageFailed: a worker or the driver could not read or write.
        """
        self._monitor.begin("search", self._rows, "rows")
        try:
            while self._todo or any(worker.tickets for worker in self._workers.values()):
                self._step()
        except Cancelled:
            if self._journal.worth() and self._prefix:
                self._commit()
            raise
        finally:
            self._end()

    @property
    def _present(self) -> int:
        return len(self._workers)

    def _join(self, name: str, info: WorkerInfo) -> None:  # noqa: ARG002
        self._workers[name] = _Worker(self._rate)

    def _worker_left(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._count_loss(name)
            self._todo += [(t.purpose.action, *t.purpose.request.rows) for t in worker.tickets]

    def _hand_out(self) -> None:
        if self._kept < self._prefix < self._rows and self._journal.due():
            self._commit()
        for queued in range(AHEAD):
            for name, worker in self._workers.items():
                if len(worker.tickets) <= queued and self._todo:
                    action, first, last = self._next(worker)
                    request = TaskRequest(rows=(first, last))
                    worker.tickets.append(self._submit(name, action, request, device=self._job.device))

    def _next(self, worker: _Worker) -> tuple[str, int, int]:
        """Return the next batch of the remaining rows for a worker: action, first row, and the row after the last."""
        action, first, last = self._todo.pop()
        left = last - first + sum(stop - start for _, start, stop in self._todo)
        size = min(TASK * worker.rate, left / (SHARES * max(1, len(self._workers))))
        size = min(size, MOST / (self._job.shape[1] * self._writer.dtype.itemsize))
        stop = min(last, first + max(1, int(size / self._band)) * self._band)
        if stop < last:
            self._todo.append((action, stop, last))
        return action, first, stop

    def _done(self, done: TaskEnded) -> None:
        worker, purpose = self._workers.get(done.ticket.worker), done.ticket.purpose
        if worker is None or done.ticket not in worker.tickets:
            return
        worker.tickets.remove(done.ticket)
        result = result_of(done)
        first, last = purpose.request.rows
        if result is None:
            self._todo.append((purpose.action, first, last))
            return
        self._losses = 0
        for files in result.files.values():
            self._writer.adopt(self._exchange_dir, files)
        for part in result.parts:
            self._summary.join(part)
        if purpose.action == "search":
            self._finished[first] = last
            while self._prefix in self._finished:
                self._prefix = self._finished.pop(self._prefix)
        self._monitor.advance(last - first)
        # a rate grows at most fourfold, because the rate of one batch may not be typical: the first batch of a worker
        # also prepares the graph
        worker.rate = min(4 * worker.rate, (last - first) / max(result.seconds, 1e-3))

    def _commit(self) -> None:
        self._journal.commit({"kind": "rows", "rows": self._prefix})
        self._kept = self._prefix
