"""How many connections one process holds: never so many that it has no file left to answer with.

Who connects and says nothing costs a file descriptor.  Thousands of such connections must not keep out those who ask
something, so the one that has been silent for longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import time
from collections import OrderedDict
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

#: open files that are asked for; more than these connections are never held
_ENOUGH_FILES: Final = 1 << 16
#: kept for databases, results and processes
_OWN_FILES: Final = 256
#: connections that wait to be accepted at most; as many may be accepted before one can be closed
_BACKLOG: Final = 2048
#: what the system says when it has no file or memory for another connection
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_SECONDS_BETWEEN_COMPLAINTS: Final = 10.0


class Connection(Protocol):
    """What a crowd needs of a connection."""

    def leave(self) -> None:
        """Close it at once."""


class IdleConnections:
    """The connections of one server that wait for a request, the longest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._silent: OrderedDict[Connection, None] = OrderedDict()

    def wait(self, connection: Connection) -> None:
        """The connection waits for a request, or for the rest of its headers."""
        self._silent.setdefault(connection)

    def speak(self, connection: Connection) -> None:
        """It waits no longer."""
        self._silent.pop(connection, None)

    def admit(self, connection: Connection, held: int) -> None:
        """A connection has come, and now ``held`` are there: one too many sends the longest silent one away."""
        if held > self.most:
            first = next(iter(self._silent), connection)
            self.speak(first)
            first.leave()


def raise_open_files() -> None:
    """Let this process and its children open as many files as the system allows, up to what is ever of use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(_ENOUGH_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limits(most: int) -> tuple[int, int]:
    """How many connections are held, at most ``most``, and how many wait to be accepted."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return most, _BACKLOG
    backlog = min(_BACKLOG, files // 8)
    return max(1, min(most, files - min(_OWN_FILES, files // 4) - 2 * backlog)), backlog


class AcceptErrorHandler:
    """An event loop's handler of exceptions that tells of exhausted files once in a while, not each time."""

    def __init__(self) -> None:
        self._last, self._count = float("-inf"), 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell of an exception that nobody waits for."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
            return
        self._count += 1
        if time.monotonic() - self._last > _SECONDS_BETWEEN_COMPLAINTS:
            log.error("connections cannot be accepted: %s (%d times since it was last said)", error, self._count)
            self._last, self._count = time.monotonic(), 0
