"""A limit on open connections, so that file descriptors remain for answers.

A connection without a request costs a file descriptor.  Thousands of them must not keep other clients out, so the
connection that has been idle for longest is closed when a new one exceeds the limit.
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

#: the most open files that this process requests from the system, and so the most connections that it can hold
_ENOUGH_FILES: Final = 1 << 16
#: file descriptors reserved for databases, results and processes
_OWN_FILES: Final = 256
#: the most connections that wait to be accepted; file descriptors are reserved for them, because all of them may be
#: accepted before the first one can be closed
_BACKLOG: Final = 2048
#: errors of accept() when there is no file descriptor or memory for another connection
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_SECONDS_BETWEEN_COMPLAINTS: Final = 10.0


class Connection(Protocol):
    """The methods of a connection that IdleConnections calls."""

    def close_now(self) -> None:
        """Close the connection at once."""


class IdleConnections:
    """The connections of one server that wait for a request, the longest idle first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._silent: OrderedDict[Connection, None] = OrderedDict()

    def wait(self, connection: Connection) -> None:
        """Record that the connection waits for a request, or for the rest of its headers."""
        self._silent.setdefault(connection)

    def speak(self, connection: Connection) -> None:
        """Record that the connection has sent a request and is not idle any more."""
        self._silent.pop(connection, None)

    def admit(self, connection: Connection, held: int) -> None:
        """If ``held`` exceeds the limit, close the longest idle connection, or ``connection`` itself if none is idle.

        Args:
            connection: the connection that was just accepted.
            held: the number of open connections, including this one.
        """
        if held > self.most:
            first = next(iter(self._silent), connection)
            self.speak(first)
            first.close_now()


def raise_open_files() -> None:
    """Raise the limit on open files of this process and its children to the hard limit, at most ``_ENOUGH_FILES``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(_ENOUGH_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limits(most: int) -> tuple[int, int]:
    """Return the number of connections to hold, at most ``most``, and the length of the accept queue."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return most, _BACKLOG
    backlog = min(_BACKLOG, files // 8)
    return max(1, min(most, files - min(_OWN_FILES, files // 4) - 2 * backlog)), backlog


class AcceptErrorHandler:
    """An exception handler of an event loop that limits the rate of messages about exhausted file descriptors."""

    def __init__(self) -> None:
        self._last, self._count = float("-inf"), 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception that no task handles."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
            return
        self._count += 1
        if time.monotonic() - self._last > _SECONDS_BETWEEN_COMPLAINTS:
            log.error("connections cannot be accepted: %s (%d times since the last message)", error, self._count)
            self._last, self._count = time.monotonic(), 0
