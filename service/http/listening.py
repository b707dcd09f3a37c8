"""The socket on which a server of this program listens."""

from __future__ import annotations

import socket

from storage.errors import InvalidRequest


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; port 0 selects a free port.  Raises InvalidRequest if binding fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # The socket names its protocol, because asyncio sets TCP_NODELAY on accepted connections only then.  Without
        # TCP_NODELAY, every answer on a reused connection waits 40 ms for the client's delayed acknowledgement.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
        return listener
    except OSError as error:
        message = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise InvalidRequest(message, field="port") from error


def address_of(host: str, listener: socket.socket) -> str:
    """Return the URL of a server that listens on ``host``."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"
