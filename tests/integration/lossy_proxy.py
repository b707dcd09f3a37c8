"""A proxy between client and service that breaks connections in the middle of a body, and changes bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class LossyProxy:
    """Forwards to a service on the loopback.

    Attributes:
        cut_after: bytes of an answer after which its connection is broken.
        cuts: how many connections are still to be broken.
        damage: bytes in an answer that are changed, and into what.
        only: of requests that have these bytes; all if empty.
        requests: first lines of the requests that passed.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.cut_after = 0
        self.cuts = 0
        self.damage: tuple[bytes, bytes] | None = None
        self.only = b""
        self.requests: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> LossyProxy:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in list(self._open):
            self._break(each)
        for thread in self._threads:
            thread.join(10)

    def _begin(self, call: object, *arguments: object) -> None:
        thread = threading.Thread(target=call, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            service = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:
            client.close()
            return
        self._open |= {client, service}
        state = {"wanted": int(not self.only), "passed": 0}
        self._begin(self._forth, client, service, state)
        self._back(service, client, state)
        for each in (client, service):
            self._break(each)
            self._open.discard(each)
            each.close()

    def _forth(self, client: socket.socket, service: socket.socket, state: dict[str, int]) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if lines := [line for line in data.split(b"\r\n") if line.endswith(b" HTTP/1.1")]:
                    self.requests += lines
                    state["wanted"] = not self.only or self.only in lines[0]
                    state["passed"] = 0
                service.sendall(data)
            service.shutdown(socket.SHUT_WR)

    def _back(self, service: socket.socket, client: socket.socket, state: dict[str, int]) -> None:
        with contextlib.suppress(OSError):
            while data := service.recv(1 << 14):
                if state["wanted"] and self.damage is not None:
                    data = data.replace(*self.damage)
                passed = state["passed"]
                state["passed"] = passed + len(data)
                if state["wanted"] and self.cuts and passed + len(data) > self.cut_after:
                    self.cuts -= 1
                    client.sendall(data[: max(0, self.cut_after - passed)])
                    return
                client.sendall(data)

    @staticmethod
    def _break(each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
