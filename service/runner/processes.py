"""Identifies processes of this machine by number and start time, because process numbers are reused."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any, Final

_PROC: Final = Path("/proc")
#: positions of fields in /proc/PID/stat after the command: the state, and the start in ticks since the machine started
_STATE, _STARTED = 0, 19


def own() -> dict[str, Any] | None:
    """Return the identity of this process for :func:`find`; None if the system does not provide it."""
    host, fields = _host(), _fields(os.getpid())
    return None if host is None or fields is None else {"host": host, "pid": os.getpid(), "started": fields[_STARTED]}


def find(told: object) -> int | None:
    """Return the number of the process with identity ``told`` (see :func:`own`); None if this machine has none."""
    if not isinstance(told, dict) or told.get("host") != _host() or told["host"] is None:
        return None
    fields = _fields(int(told["pid"]))
    return int(told["pid"]) if fields is not None and fields[_STARTED] == told["started"] else None


def stopped(told: object) -> bool:
    """Return whether the process is suspended by a signal (SIGSTOP) or a debugger."""
    number = find(told)
    fields = None if number is None else _fields(number)
    return fields is not None and fields[_STATE] in "Tt"


def kill(told: object) -> bool:
    """Send SIGKILL to the process, never to another one that has reused its number; returns whether it was sent."""
    number = find(told)
    if number is None:
        return False
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(number)  # the descriptor refers to this process even if its number is reused
        try:
            if find(told) is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


@cache
def _host() -> str | None:
    """Return the id of the machine's boot and of the process namespace, because each container numbers its own
    processes.
    """
    try:
        return f"{(_PROC / 'sys/kernel/random/boot_id').read_text().strip()}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _fields(number: int) -> list[str] | None:
    try:
        return (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
