"""Tests the service against hostile clients: floods of connections, slow requests, and wrong lengths of bodies."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from service.app import create_app
from service.http import protocol
from service.http.listening import listen
from service.serve import _run_api
from service.settings import Settings
from service.state import Service
from tests.unit.service.support import Bench, small_graph

pytestmark = pytest.mark.beside


@dataclass
class Site:
    """A service that listens, with one solved job."""

    address: tuple[str, int]
    job: str
    service: Service

    @contextlib.contextmanager
    def line(self) -> Iterator[socket.socket]:
        with socket.create_connection(self.address, timeout=20) as connection:
            yield connection

    def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes as they are; status, headers and body of what comes back until the connection is closed."""
        with self.line() as connection:
            connection.sendall(request)
            return read(connection)

    def get(self, path: bytes, *headers: bytes) -> tuple[int, dict[str, str], bytes]:
        lines = [b"GET " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers, b"", b""]
        return self.ask(b"\r\n".join(lines))

    def alive(self) -> bool:
        return self.get(b"/health/live")[0] == 200


def read(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    if not lines[0]:
        return 0, {}, b""
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, body


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 1.0)
    settings = Settings(
        data_dir=tmp_path / "data", port=0, auth=False, max_body_silence=1, min_body_rate=1000,
        max_upload_bytes=100_000,
    )  # fmt: skip
    bench = Bench(settings)
    job_id, _ = bench.solved(small_graph(), "int32")
    app = create_app(settings)
    started: list[uvicorn.Server] = []
    begin = uvicorn.Server.startup

    async def startup(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        await begin(server, sockets)
        started.append(server)

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    with listen(settings.host, settings.port) as listener:
        thread = threading.Thread(target=_run_api, args=(settings, app, listener, None))
        thread.start()
        while not started:
            time.sleep(0.02)
        yield Site(listener.getsockname(), job_id, app.state.service)
        started[0].should_exit = True
        thread.join()
    bench.jobs.close()
    app.state.service.jobs.close()


def test_an_accident_of_ours_leaves_the_connection_open(site: Site, monkeypatch: pytest.MonkeyPatch):
    def explode(*_: object) -> None:
        raise RuntimeError("an accident")

    monkeypatch.setattr(site.service.jobs, "job", explode)
    with site.line() as connection:
        for path, status in ((b"/v1/jobs/x", b"500"), (b"/health/live", b"200"), (b"/v1/jobs/x", b"500")):
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
                piece = connection.recv(65536)
                assert piece, "closed without a word"
                answer += piece
            assert answer.split(b" ", 2)[1] == status
            assert b"x-content-type-options: nosniff" in answer


def test_a_connection_waits_longer_for_the_next_request_than_clients_do(site: Site):
    """It was closed after five seconds, when clients and proxies may have a request on its way."""
    with site.line() as connection:
        for pause in (0.0, 6.5):
            time.sleep(pause)
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # The head and the body may arrive one by one.
            answer = b""
            while not answer.endswith(b"}"):
                piece = connection.recv(65536)
                assert piece, f"closed within {pause} s"
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")


def test_the_address_goes_to_the_application_as_it_is(site: Site):
    base = f"/v1/jobs/{site.job}/zarr".encode()
    for key in (
        b"/../../../apsp.db", b"/..%2f..%2f..%2fapsp.db", b"/%2e%2e/%2e%2e/%2e%2e/apsp.db", b"/%252e%252e/apsp.db",
        b"//etc/passwd", b"/distances/../../../../apsp.db", b"/zarr.json%00", b"/..\\..\\apsp.db", b"/.%00./apsp.db",
        b"/%c0%ae%c0%ae/apsp.db", b"/" + b"../" * 1000 + b"etc/passwd",
    ):  # fmt: skip
        status, headers, body = site.get(base + key)
        assert (status, headers["content-type"]) == (404, "application/problem+json"), key
        assert b"SQLite format" not in body
        assert b"root:" not in body
    assert site.get(base + b"/zarr.json")[0] == 200
    for line in (b"GET http://evil.example/v1/version HTTP/1.1", b"GET * HTTP/1.1", b"GET /v1/version?\xff HTTP/1.1"):
        status, _, _ = site.ask(line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert status in (200, 400, 404, 422), line


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\nX: a\x00b\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=lambda value: repr(value[:40]),
)
def test_what_is_no_request_ends_the_connection(site: Site, request_bytes: bytes):
    began = time.monotonic()
    with site.line() as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request_bytes.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"))
        status, _, _ = read(connection)
    assert status in (0, 400, 408, 413, 422, 431, 501, 505)
    assert time.monotonic() - began < 15
    assert site.alive()


def test_two_lengths_smuggle_no_second_request(site: Site):
    inner = b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = (
        b"POST /v1/estimates HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner
    )
    with site.line() as connection:
        connection.sendall(request)
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                data += piece
    assert data.count(b"HTTP/1.1 ") == 1
    assert b'"api"' not in data


def test_headers_that_come_too_slowly(site: Site):
    for first in (b"", b"GET /v1/version HTTP/1.1\r\nHo"):
        began = time.monotonic()
        with site.line() as connection:
            connection.sendall(first)
            status, _, _ = read(connection)
            assert status in (0, 408)
            assert 0.5 < time.monotonic() - began < 10
    with site.line() as connection:  # a byte now and then is no reason to wait for ever
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
                if time.monotonic() - began > 10:
                    break
        assert time.monotonic() - began < 10
    assert site.alive()


def test_hundreds_of_silent_lines_keep_nobody_out(site: Site):
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(site.line()).sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        assert site.alive()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("path", [b"/v1/graphs", b"/v1/estimates"])
def test_bodies_that_come_too_slowly(site: Site, path: bytes, monkeypatch: pytest.MonkeyPatch):
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    for drip in (False, True):
        with site.line() as connection:
            connection.sendall(head + b"Content-Length: 50000\r\n\r\n{")
            began = time.monotonic()
            if drip:  # a machine may well take a second to send a byte, but not three
                monkeypatch.setitem(site.service.settings.__dict__, "max_body_silence", 3)  # it is frozen
                for _ in range(12):
                    time.sleep(0.4)
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        connection.sendall(b" ")
            status, headers, body = read(connection)
        assert (status, headers["content-type"]) == (408, "application/problem+json")
        problem = json.loads(body)
        assert problem["code"] == "too-slow"
        assert problem["details"]["setting"] == ("APSP_MIN_BODY_RATE" if drip else "APSP_MAX_BODY_SILENCE")
        assert time.monotonic() - began < 10
    incoming = site.service.settings.data_dir / "incoming"
    assert list(incoming.iterdir()) == []
    assert site.alive()


def test_a_client_that_goes_away_leaves_nothing(site: Site):
    head = b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n"
    for _ in range(5):
        with site.line() as connection:
            connection.sendall(head + b"1 2 3\n" * 100)
    incoming = site.service.settings.data_dir / "incoming"
    deadline = time.monotonic() + 10
    while list(incoming.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert site.alive()


def test_a_body_longer_than_it_may_be_is_not_read_to_its_end(site: Site):
    head = b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with site.line() as connection:
        connection.sendall(head)
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            while sent < 50_000_000:
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        assert sent < 50_000_000
    head = b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    announced = head + b"Content-Length: 99999999999\r\n\r\n"
    status, _, body = site.ask(announced)
    assert (status, json.loads(body)["details"]["setting"]) == (413, "APSP_MAX_UPLOAD_BYTES")


def test_events_over_a_socket_end_with_the_client(site: Site):
    job = site.service.jobs.create(site.service.jobs.job(site.job).graph, {}, {})
    streams = site.service.watching
    with site.line() as connection:
        connection.sendall(f"GET /v1/jobs/{job.id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        data = b""
        while b"event: phase" not in data:
            data += connection.recv(65536)
        assert b"text/event-stream" in data
        assert streams._running.total() == 1
    deadline = time.monotonic() + 10
    while streams._running.total():
        assert time.monotonic() < deadline, "a stream outlived its client"
        time.sleep(0.05)


def test_answers_name_no_software(site: Site):
    for path in (b"/v1/version", b"/nothing", f"/v1/jobs/{site.job}/zarr/zarr.json".encode()):
        _, headers, _ = site.get(path)
        assert "server" not in headers
        assert headers["x-content-type-options"] == "nosniff"
