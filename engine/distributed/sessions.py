"""What workers are asked to run.  Nothing here knows Dask; these functions travel by their names."""

from __future__ import annotations

import logging
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

from engine.distributed.messages import Failure, Hello, Job, Order, Report, Stopped, code_digest
from engine.execution.survey import RELAX_RATE, find_cuda
from engine.model.system import available_memory, resident_bytes, usable_processors
from storage.errors import ApspError, SolveFailed

#: How ``apsp worker`` tells its workers what they have.
DEVICE: Final = "APSP_WORKER_DEVICE"
THREADS: Final = "APSP_WORKER_THREADS"
MEMORY: Final = "APSP_WORKER_MEMORY"
#: Seconds without a task after which a worker gives up what it holds: its driver is gone, or has no use for it.
IDLE: Final = 600.0
#: Share of the memory there is that a worker offers if it was not told.
OFFERED: Final = 0.8

log = logging.getLogger("apsp.engine")


class Desk(Protocol):
    """A worker's part in one job: every verb takes an order and gives a report."""

    def close(self) -> None:
        """Give everything back."""
        ...


@dataclass
class _Kept:
    """A desk, the room of its job, how many tasks are at it, and when the last one came or went."""

    room: str
    desk: Desk
    busy: int = 0
    used: float = 0.0


_lock = threading.Lock()
_desks: dict[str, _Kept] = {}


def hello() -> Hello:
    """Who this worker is."""
    device = os.environ.get(DEVICE, "cpu")
    threads = int(os.environ.get(THREADS, "0")) or usable_processors()
    told = int(os.environ.get(MEMORY, "0"))
    name, rates = platform.machine(), {kind: rate * threads for kind, rate in RELAX_RATE.items()}
    memory = host_memory = told or int(OFFERED * (available_memory() + resident_bytes()))
    if device == "cuda":
        found, why = find_cuda(None)
        if found is None:
            raise SolveFailed(f"this worker was started for a GPU, but {why}")
        name, memory, rates = found.name, found.memory, found.relax_rate
    host, process = socket.gethostname(), os.getpid()
    return Hello(code_digest(), device, name, host, process, threads, memory, rates, host_memory)


def work(job: Job, verb: str, order: Order) -> Report | Failure:
    """Have this worker's part in ``job`` do something; what goes wrong comes back as a :class:`Failure`."""
    if code_digest() != job.code:
        return Failure("SolveFailed", f"worker {os.getpid()} on {socket.gethostname()} runs another version of apsp")
    try:
        with _at_desk(job) as desk:
            report: Report = getattr(desk, verb)(order)
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
        found.desk.close()


@contextmanager
def _at_desk(job: Job) -> Iterator[Desk]:
    """This worker's part in ``job``, begun if need be."""
    with _lock:
        if job.run not in _desks:
            _clear(time.monotonic())
            threads = int(os.environ.get(THREADS, "0")) or usable_processors()
            _desks[job.run] = _Kept(job.room, made(job, threads))
            timer = threading.Timer(IDLE, _look)
            timer.daemon = True
            timer.start()
        kept = _desks[job.run]
        kept.busy += 1
    try:
        yield kept.desk
    finally:
        with _lock:
            kept.busy -= 1
            kept.used = time.monotonic()


def _clear(now: float) -> None:
    """Give up desks whose driver is gone, with its room or without a word.  The lock is held."""
    for run, kept in list(_desks.items()):
        if not kept.busy and (not Path(kept.room).is_dir() or now - kept.used > IDLE):
            del _desks[run]
            kept.desk.close()


def _look() -> None:
    """Every now and then, as long as there are desks."""
    with _lock:
        _clear(time.monotonic())
        if _desks:
            timer = threading.Timer(IDLE / 4, _look)
            timer.daemon = True
            timer.start()


def made(job: Job, threads: int) -> Desk:
    """A fresh part in ``job``."""
    if job.plan.streaming is not None:
        from engine.distributed.dense_worker import Bench

        return Bench(job, threads)
    from engine.distributed.rows_worker import Searcher

    return Searcher(job, threads)
