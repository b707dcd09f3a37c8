"""Ports for the servers of tests."""

from __future__ import annotations

import secrets
import socket
from typing import Final

#: Below the ports that a system gives to whoever asks for any, which begin at 32768 with Linux, at 49152 with macOS.
#: Another test could be given one of those, for a connection, before the server for which it was chosen begins.
_PORTS: Final = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def free_port() -> int:
    """A port on which nobody listens."""
    return free_ports(1)[0]
