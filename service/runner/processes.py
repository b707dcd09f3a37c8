"""Which process of this machine is which.  Numbers are used again, so the time of its start belongs to a process."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any, Final

_PROC: Final = Path("/proc")
#: fields of /proc/PID/stat behind the command: the state, and the start in ticks since the machine's
_STATE, _STARTED = 0, 19


def own() -> dict[str, Any] | None:
    """This process, as another one may find it again with :func:`find`; None where the system does not tell."""
    host, fields = _host(), _fields(os.getpid())
    return None if host is None or fields is None else {"host": host, "pid": os.getpid(), "started": fields[_STARTED]}


def find(told: object) -> int | None:
    """The number of the process that said this about itself, if it is of this machine and still there."""
    if not isinstance(told, dict) or told.get("host") != _host() or told["host"] is None:
        return None
    fields = _fields(int(told["pid"]))
    return int(told["pid"]) if fields is not None and fields[_STARTED] == told["started"] else None


def stopped(told: object) -> bool:
    """Whether that process was stopped by a signal (SIGSTOP, a debugger) and waits to be continued."""
    number = find(told)
    fields = None if number is None else _fields(number)
    return fields is not None and fields[_STATE] in "Tt"


def kill(told: object) -> bool:
    """SIGKILL to that process, and to no other one that has its number by now; whether it was sent."""
    number = find(told)
    if number is None:
        return False
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(number)  # from here on it is this process, whatever becomes of its number
        try:
            if find(told) is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


@cache
def _host() -> str | None:
    """The boot of the machine, and the numbering of processes that this one is part of (containers have their own)."""
    try:
        return f"{(_PROC / 'sys/kernel/random/boot_id').read_text().strip()}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _fields(number: int) -> list[str] | None:
    try:
        return (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
