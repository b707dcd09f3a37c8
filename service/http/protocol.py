"""HTTP/1.1 with a deadline for headers, and with files that the kernel sends.

Uvicorn alone waits without limit for the headers of a connection, and copies every file through Python.  This protocol
closes connections whose headers do not arrive in time, and offers applications the scope extension ``apsp.sendfile``:
an awaitable function (file descriptor, offset, count) that sends part of a body whose start has been sent with a
Content-Length, without copying the bytes into this process.
"""

from __future__ import annotations

import asyncio
import io
import os
from typing import Any, Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.http.connections import IdleConnections
from service.http.file_response import SENDFILE

#: seconds from the start of a connection, or the first byte of a later request, to the end of the request's headers
HEADER_SECONDS: Final = 15.0
#: seconds for which an answered connection waits for the next request.  Clients and proxies must give connections up
#: first (nginx after 60 s, our client after 5 s): a request that is on its way while the service closes the connection
#: is lost, and a proxy that does not repeat requests answers 502.  IdleConnections bounds how many connections wait.
KEEP_ALIVE_SECONDS: Final = 75
#: the most bytes of the headers of a request, with its first line
HEADER_BYTES: Final = 64 << 10
#: seconds within which a client must receive one segment of a file
_SEGMENT_SECONDS: Final = 60.0
#: bytes passed to the kernel at once, while the next segment is read ahead
_SEGMENT: Final = 4 << 20


class PatientProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with a deadline for headers, a bound on connections, and ``apsp.sendfile``."""

    def __init__(self, *args: Any, crowd: IdleConnections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._crowd = crowd
        self._deadline: asyncio.TimerHandle | None = None
        self._application: ASGIApp = self.app
        self.app = self._with_sendfile

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the first headers of a client that has connected."""
        super().connection_made(transport)
        self._await_headers()
        self._crowd.admit(self, len(self.connections))

    def data_received(self, data: bytes) -> None:
        """End the deadline when the headers are complete; start it again at the first byte of the next request."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._await_headers()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Record that the connection waits for the next request, unless that request has arrived already."""
        super().on_response_complete()
        if self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self._crowd.wait(self)

    def close_now(self) -> None:
        """Close this idle connection, to make place for a new one."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a connection that was closed."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._crowd.wait(self)
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        self._crowd.speak(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def _with_sendfile(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[SENDFILE] = self._sendfile
        await self._application(scope, receive, send)

    async def _sendfile(self, handle: int, offset: int, count: int) -> None:
        """Send ``count`` bytes of an open file from ``offset`` on; close the connection if the client stops reading."""
        if self.transport.is_closing() or self.cycle.disconnected:
            return
        self.conn.send_with_data_passthrough(h11.Data(data=_Counted(count)))  # type: ignore[arg-type]
        try:
            with io.FileIO(os.dup(handle)) as file:
                for begin in range(offset, offset + count, _SEGMENT):
                    size = min(_SEGMENT, offset + count - begin)
                    os.posix_fadvise(handle, begin + size, _SEGMENT, os.POSIX_FADV_WILLNEED)
                    async with asyncio.timeout(_SEGMENT_SECONDS):
                        sent = await self.loop.sendfile(self.transport, file, begin, size)
                    if sent != size:  # the file was cut while it was sent, so its promised length cannot be kept
                        self.transport.abort()
                        return
        except (OSError, RuntimeError, TimeoutError):  # the client has disconnected or does not read
            self.transport.abort()


class _Counted:
    """Stands for bytes that the kernel sends: h11 only counts them."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size
