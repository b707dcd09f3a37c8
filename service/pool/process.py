"""The helper process of :mod:`service.pool.process_pool`."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from service.api.fault import Fault, fault_of
from service.settings import variable
from storage.errors import ApspError

log = logging.getLogger(__name__)

#: limit on open files of a helper process: a reader needs a handful, object stores and GPU drivers need hundreds
_OPEN_FILES: Final = 1024
#: the fraction (numerator, denominator) of free memory that a task may use if no setting defines a limit
_FREE_PART: Final = 3, 4
_PR_SET_PDEATHSIG: Final = 1


def serve_tasks(pipe: Connection, nice: int, memory: int | None) -> None:
    """Execute tasks from the pipe until it is closed.  Sends None when the process is ready, and when it begins a task.

    Args:
        pipe: tasks are received and results are sent here.
        nice: how much the priority of this process is lowered.
        memory: bytes by which one task may grow this process; three quarters of the free memory if None.
    """
    _begin(nice)
    pipe.send(None)
    while True:
        try:
            task, args = pipe.recv()
        except EOFError:
            return
        pipe.send(None)
        most = _bound_memory(memory)
        found = guarded(task, args)
        if isinstance(found, Fault) and found.code == "out-of-memory" and most is not None:
            message = f"this needs more than the {most} bytes of memory that it may use"
            found = Fault("limit-exceeded", message, {"limit": most, "setting": variable("task_memory")})
        pipe.send(found)


def guarded(task: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run a task; return its result, or a Fault, because exceptions with constructors of their own cannot be pickled.

    BaseException is caught because a panic of Polars is not an ``Exception``.
    """
    try:
        return task(*args)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not isinstance(error, (ApspError, MemoryError)):
            log.exception("a task of a helper process failed")
        return fault_of(error)


def _begin(nice: int) -> None:
    """Lower the priority, ignore interrupts, limit open files, and end this process when the API ends."""
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        # the kernel kills this process when the parent ends; a thread that watches the parent needs the interpreter's
        # lock, which C code may hold
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # the parent ended before prctl was called
            os._exit(1)
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _bound_memory(memory: int | None) -> int | None:
    """Limit the growth of this process to ``memory`` bytes; returns the limit, None if the system provides no figures.

    Beyond the limit, a MemoryError is raised or the process ends.  The limit counts private writable memory
    (RLIMIT_DATA), not address space that libraries merely reserve.
    """
    held = _data_bytes()
    if held is None:
        return None
    if memory is None:
        from engine.model.system import available_memory

        memory = available_memory() * _FREE_PART[0] // _FREE_PART[1]
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = held + memory if hard == resource.RLIM_INFINITY else min(held + memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    return memory


def _data_bytes() -> int | None:
    """Return the bytes of private writable memory of this process; None if the system does not report them."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
    except (OSError, StopIteration):
        return None
