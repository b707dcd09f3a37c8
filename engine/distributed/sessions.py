"""The functions that drivers call on workers.  Dask sends them by name; this module itself does not import Dask."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from engine.distributed.messages import (
    DistributedJob,
    DriverStopped,
    PreparedJob,
    TaskFailure,
    TaskRequest,
    TaskResult,
    WorkerInfo,
    WorkersJob,
    code_digest,
)
from engine.execution.survey import RELAX_RATE, find_cuda
from engine.model.system import available_memory, resident_bytes, usable_processors
from storage.errors import ApspError, SolveFailed

#: Environment variables by which ``apsp worker`` passes device, threads and memory to its workers.
DEVICE: Final = "APSP_WORKER_DEVICE"
THREADS: Final = "APSP_WORKER_THREADS"
MEMORY: Final = "APSP_WORKER_MEMORY"
#: A session that has had no task for this number of seconds is closed: its driver is gone, or does not need it.
IDLE: Final = 600.0
#: Share of the free memory that a worker offers by default.
OFFERED: Final = 0.8


class WorkerSession(Protocol):
    """The tasks and the state of a worker in one job."""

    def run(self, action: str, request: TaskRequest) -> TaskResult:
        """Run the task named ``action`` for ``request``."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


@dataclass
class _OpenSession:
    """A session, the exchange folder of its job, the number of running tasks, and the time when a task last ended."""

    exchange_dir: str
    session: WorkerSession
    busy: int = 0
    used: float = 0.0


_lock = threading.Lock()
_sessions: dict[str, _OpenSession] = {}
#: The timer that closes idle sessions; the list is empty while there are no sessions.
_timers: list[threading.Timer] = []


def worker_info() -> WorkerInfo:
    """Return this worker's description of itself."""
    device = os.environ.get(DEVICE, "cpu")
    threads = int(os.environ.get(THREADS, "0")) or usable_processors()
    offered = int(os.environ.get(MEMORY, "0"))
    name, rates = platform.machine(), {kind: rate * threads for kind, rate in RELAX_RATE.items()}
    memory = host_memory = offered or int(OFFERED * (available_memory() + resident_bytes()))
    if device == "cuda":
        found, why = find_cuda(None)
        if found is None:
            raise SolveFailed(f"this worker was started for a GPU, but {why}")
        name, memory, rates = found.name, found.memory, found.relax_rate
    host, process = socket.gethostname(), os.getpid()
    return WorkerInfo(code_digest(), device, name, host, process, threads, memory, rates, host_memory)


def run_task(job: WorkersJob, action: str, request: TaskRequest) -> TaskResult | TaskFailure:
    """Run a task of ``job`` on this worker; errors are returned as a :class:`TaskFailure`.

    Args:
        job: the job to which the task belongs.
        action: the name of the task.
        request: the request for the task.
    """
    if code_digest() != job.code:
        return TaskFailure(
            "SolveFailed", f"worker {os.getpid()} on {socket.gethostname()} runs another version of apsp"
        )
    try:
        with _session_of(job) as session:
            result: TaskResult = session.run(action, request)
    except DriverStopped as stopped:
        return TaskFailure("Stopped", str(stopped))
    except MemoryError as error:
        return TaskFailure("SolveFailed", f"worker {os.getpid()} on {socket.gethostname()} ran out of memory: {error}")
    except ApspError as error:
        return TaskFailure(type(error).__name__, str(error))
    return result


def end_run(run: str) -> None:
    """Close the session of a job that is over."""
    with _lock:
        found = _sessions.pop(run, None)
        if not _sessions:
            while _timers:
                _timers.pop().cancel()
    if found is not None:
        found.session.close()


@contextmanager
def _session_of(job: WorkersJob) -> Iterator[WorkerSession]:
    """Context manager: provide this worker's session of ``job``, which is made if there is none."""
    with _lock:
        if job.run not in _sessions:
            _close_idle(time.monotonic())
            threads = int(os.environ.get(THREADS, "0")) or usable_processors()
            _sessions[job.run] = _OpenSession(job.exchange_dir, make_session(job, threads))
            if not _timers:
                _look_later(IDLE)
        opened = _sessions[job.run]
        opened.busy += 1
    try:
        yield opened.session
    finally:
        with _lock:
            opened.busy -= 1
            opened.used = time.monotonic()


def _close_idle(now: float) -> None:
    """Close sessions whose driver is gone: the exchange folder was removed, or no task came for ``IDLE`` seconds.

    The caller holds the lock.
    """
    for run, opened in list(_sessions.items()):
        if not opened.busy and (not Path(opened.exchange_dir).is_dir() or now - opened.used > IDLE):
            del _sessions[run]
            opened.session.close()


def _close_idle_later() -> None:
    """Timer: close idle sessions; set the timer again while any session remains."""
    with _lock:
        _timers.clear()
        _close_idle(time.monotonic())
        if _sessions:
            _look_later(IDLE / 4)


def _look_later(seconds: float) -> None:
    """Set the timer that closes idle sessions to ``seconds`` from now; the caller holds the lock."""
    timer = threading.Timer(seconds, _close_idle_later)
    timer.daemon = True
    timer.start()
    _timers.append(timer)


def make_session(job: WorkersJob, threads: int) -> WorkerSession:
    """Return a new session of ``job``."""
    if isinstance(job, PreparedJob):
        from engine.distributed.prepared.worker import PreparedWorker

        return PreparedWorker(job, job.threads or threads)
    if not isinstance(job, DistributedJob):
        raise TypeError(f"{type(job).__name__} is no job of workers")
    if job.plan.streaming is not None:
        from engine.distributed.dense.worker import DenseWorker

        return DenseWorker(job, threads)
    from engine.distributed.rows_worker import RowsWorker

    return RowsWorker(job, threads)
