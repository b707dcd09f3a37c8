"""A few spawned processes beside the API that read uploads, or plan jobs.

Parsing and planning use all of a core for a while and may need gigabytes; in processes of their own they hold neither
the event loop nor the API's memory, and if the system kills that process for its memory, the API answers so.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, ParamSpec, TypeVar

from service.fault import Fault, Refused, fault_of
from service.tasks import warm_up
from storage.errors import ApspError

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class Worker:
    """Runs functions in up to ``most`` processes beside; starts new ones when one died."""

    def __init__(self, nice: int, most: int = 1) -> None:
        self._nice, self._most = nice, most
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start the process and let it import what it will need."""
        self._submit(warm_up)

    async def run(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``task(*args)`` in the process beside; its errors are raised here as ``Refused``."""
        try:
            found = await asyncio.wrap_future(self._submit(_guarded, task, args, kwargs))
        except BrokenProcessPool:
            message = "the process that reads graphs and plans jobs died, probably for want of memory"
            raise Refused(Fault("worker-lost", message)) from None
        if isinstance(found, Fault):
            raise Refused(found)
        return found  # type: ignore[no-any-return]

    def stop(self) -> None:
        """End the process without waiting for what it does."""
        pool, self._pool = self._pool, None
        if pool is not None:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()

    def _submit(self, *call: Any) -> Future[Any]:
        if self._pool is not None:
            try:
                return self._pool.submit(*call)
            except BrokenProcessPool:  # it died since the last task
                self.stop()
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self._most, context, initializer=_begin, initargs=(self._nice,))
        return self._pool.submit(*call)


def _begin(nice: int) -> None:
    """In the new process: step back behind the API, leave interrupts to it, and die with it."""
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _guarded(task: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T | Fault:
    """Errors cross the border as faults: exceptions with own constructors do not survive pickling."""
    try:
        return task(*args, **kwargs)
    except Exception as error:
        if not isinstance(error, ApspError):
            log.exception("a task of the reading process failed")
        return fault_of(error)
