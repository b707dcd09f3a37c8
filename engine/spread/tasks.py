"""What workers are asked to run.  Nothing here knows Dask; these functions travel by their names."""

from __future__ import annotations

import logging
import os
import platform
import socket
import threading
from pathlib import Path
from typing import Final, Protocol

from engine.machine import RELAX_RATE, available_memory, find_cuda, resident_bytes, usable_processors
from engine.spread.job import Failure, Hello, Job, Order, Report, Stopped, code_digest
from storage.errors import ApspError, SolveFailed

#: How ``apsp worker`` tells its workers what they have.
DEVICE: Final = "APSP_WORKER_DEVICE"
THREADS: Final = "APSP_WORKER_THREADS"
MEMORY: Final = "APSP_WORKER_MEMORY"
#: Share of the memory there is that a worker offers if it was not told.
OFFERED: Final = 0.8

log = logging.getLogger("apsp.engine")


class Desk(Protocol):
    """A worker's part in one job: every verb takes an order and gives a report."""

    def close(self) -> None:
        """Give everything back."""
        ...


_lock = threading.Lock()
_desks: dict[str, tuple[str, Desk]] = {}


def hello() -> Hello:
    """Who this worker is."""
    device = os.environ.get(DEVICE, "cpu")
    threads = int(os.environ.get(THREADS, "0")) or usable_processors()
    told = int(os.environ.get(MEMORY, "0"))
    name, rates = platform.machine(), {kind: rate * threads for kind, rate in RELAX_RATE.items()}
    memory = int(OFFERED * (available_memory() + resident_bytes()))
    if device == "cuda":
        found, why = find_cuda(None)
        if found is None:
            raise SolveFailed(f"this worker was started for a GPU, but {why}")
        name, memory, rates = found.name, found.memory, found.relax_rate
    return Hello(code_digest(), device, name, socket.gethostname(), os.getpid(), threads, told or memory, rates)


def work(job: Job, verb: str, order: Order) -> Report | Failure:
    """Have this worker's part in ``job`` do something; what goes wrong comes back as a :class:`Failure`."""
    if code_digest() != job.code:
        return Failure("SolveFailed", f"worker {os.getpid()} on {socket.gethostname()} runs another version of apsp")
    try:
        report: Report = getattr(_desk(job), verb)(order)
    except Stopped as stopped:
        return Failure("Stopped", str(stopped))
    except MemoryError as error:
        return Failure("SolveFailed", f"worker {os.getpid()} on {socket.gethostname()} ran out of memory: {error}")
    except ApspError as error:
        return Failure(type(error).__name__, str(error))
    return report


def leave(run: str) -> None:
    """The job is over."""
    with _lock:
        found = _desks.pop(run, None)
    if found is not None:
        found[1].close()


def _desk(job: Job) -> Desk:
    with _lock:
        if job.run not in _desks:
            for run, (room, other) in list(_desks.items()):
                if not Path(room).is_dir():  # its driver is gone
                    del _desks[run]
                    other.close()
            threads = int(os.environ.get(THREADS, "0")) or usable_processors()
            _desks[job.run] = (job.room, made(job, threads))
        return _desks[job.run][1]


def made(job: Job, threads: int) -> Desk:
    """A fresh part in ``job``."""
    if job.plan.streaming is not None:
        from engine.spread.bench import Bench

        return Bench(job, threads)
    from engine.spread.searcher import Searcher

    return Searcher(job, threads)
