"""Tests the client with a killed service, broken connections, damaged bytes, and answers with ``Retry-After``."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest

from service.client import AsyncClient, Client, NoAnswer, ServiceError
from storage.errors import Conflict, StorageFailed
from storage.matrix.reader import open_matrix
from tests.integration.keyed_service import KeyedService, Solved, solve_line
from tests.integration.lossy_proxy import LossyProxy
from tests.integration.service_process import LiveService
from tests.stores import verify_matrix

pytestmark = pytest.mark.beside


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("service") / "data", APSP_RUNNER_NICE="0") as service:
        yield service


@pytest.fixture(scope="module")
def line(live: KeyedService) -> Solved:
    return solve_line(live, 20_000, 100)


@pytest.fixture
def proxy(live: KeyedService) -> Iterator[LossyProxy]:
    with LossyProxy(int(live.url.rpartition(":")[2])) as proxy:
        yield proxy


def tile_bytes(live: KeyedService, line: Solved) -> dict[str, bytes]:
    store = live.data / "jobs" / line.job / "matrix.zarr"
    return {
        p.relative_to(store).as_posix(): p.read_bytes() for p in (store / "distances" / "c").rglob("*") if p.is_file()
    }


def test_a_line_that_breaks_in_the_middle_of_tiles_costs_only_the_rest(live, line, proxy, tmp_path):
    proxy.cut_after, proxy.cuts, proxy.only = 300_000, 6, b"/distances/c/"
    with Client(proxy.url, live.key) as client:
        folder = client.result(line.job).fetch(tmp_path / "line.zarr")
    verify_matrix(folder)
    assert proxy.cuts == 0
    stored = open_matrix(folder)
    np.testing.assert_array_equal(stored.rows(stored.sources), line.distances)


def test_a_line_that_breaks_in_the_middle_of_an_answer_is_asked_again(live, line, proxy):
    proxy.cut_after, proxy.cuts, proxy.only = 400, 3, b"/submatrix"
    with Client(proxy.url, live.key) as client:
        row = client.result(line.job).row(5)
    assert proxy.cuts == 0
    assert len(row) == 20_000


def test_a_tile_that_comes_damaged_is_refused_and_what_is_whole_is_kept(live, line, proxy, tmp_path):
    last = max(tile_bytes(live, line))
    mark = tile_bytes(live, line)[last][5000:5040]
    proxy.damage, proxy.only = (mark, bytes(len(mark))), last.encode()
    target = tmp_path / "line.zarr"
    with Client(proxy.url, live.key) as client:
        result = client.result(line.job)
        with pytest.raises(StorageFailed, match=f"{last} was damaged twice on the way"):
            result.fetch(target)
        assert not target.exists()
        assert sum(last.encode() in request for request in proxy.requests) == 2
        proxy.damage, proxy.requests = None, []
        result.fetch(target)
    verify_matrix(target)
    assert list(tmp_path.iterdir()) == [target]
    asked = {
        request.split()[1].partition(b"/zarr/")[2].decode() for request in proxy.requests if b"/distances/c/" in request
    }
    assert last in asked
    assert len(asked) < len(tile_bytes(live, line)), "what was kept is not fetched again"


def test_a_tile_that_was_damaged_on_the_disk_meanwhile_is_fetched_again(live, line, proxy, tmp_path):
    target = tmp_path / "line.zarr"
    tiles = sorted(tile_bytes(live, line))
    proxy.damage, proxy.only = (tile_bytes(live, line)[tiles[-1]][5000:5040], bytes(40)), tiles[-1].encode()
    with Client(proxy.url, live.key) as client:
        result = client.result(line.job)
        with pytest.raises(StorageFailed):
            result.fetch(target)
        kept = [path for path in tmp_path.rglob("c/*/*") if path.is_file()]
        assert kept
        kept[0].write_bytes(bytes(kept[0].stat().st_size))
        proxy.damage = None
        result.fetch(target)
    verify_matrix(target)


def test_another_store_does_not_go_on_with_a_broken_fetch(live, line, proxy, tmp_path):
    target = tmp_path / "line.zarr"
    proxy.cut_after, proxy.cuts, proxy.only = 0, 10**6, b"/distances/c/"
    with Client(proxy.url, live.key, patience=3) as client:
        with pytest.raises(NoAnswer):
            client.result(line.job).fetch(target)
        proxy.cuts = 0
        other = client.solve((np.array([1, 2]), np.array([2, 3])))
        with pytest.raises(Conflict, match="begin anew"):
            other.fetch(target)
        other.fetch(target, overwrite=True)
    assert open_matrix(target).shape == (3, 3)


def test_the_async_client_through_a_bad_line(live, line, proxy, tmp_path):
    proxy.cut_after, proxy.cuts, proxy.only = 500_000, 3, b"/distances/c/"

    async def use() -> Path:
        async with AsyncClient(proxy.url, live.key) as client:
            return await (await client.result(line.job)).fetch(tmp_path / "line.zarr")

    verify_matrix(asyncio.run(use()))
    assert proxy.cuts == 0


def kill(service: LiveService) -> None:
    """The whole service, as a machine that goes down takes it."""
    tree = [service.process, *psutil.Process(service.process.pid).children(recursive=True)]
    for process in tree:
        process.kill()
    service.process.wait(30)


def test_waiting_outlasts_a_service_that_is_killed_and_started_again(tmp_path):
    ring = np.arange(3000)
    told: list[str] = []
    data = tmp_path / "data"
    first = KeyedService(data, APSP_RUNNER_NICE="0")
    with first:
        port = first.url.rpartition(":")[2]
        client = Client(first.url, first.key, tell=told.append, patience=120)
        # some seconds for one thread, so that the service goes in the middle
        long = {"algorithm": "blocked-floyd-warshall", "dtype": "float64", "threads": 1}
        job = client.submit((ring, np.roll(ring, -1)), directed=True, name="long", **long)
        threading.Thread(target=lambda: (time.sleep(1.0), kill(first))).start()
        seen: list[str] = []
        second = LiveService(data, APSP_AUTH="true", APSP_PORT=port, APSP_RUNNER_NICE="0")
        starter = threading.Thread(target=lambda: (first.process.wait(), second.__enter__()))
        starter.start()
        try:
            result = job.wait(300, lambda facts: seen.append(facts["state"])).result()
            assert result.distance(0, 2999) == 2999
            assert result.job == job.id
            assert any("no answer" in line for line in told)
            assert first.key not in "".join(told)
        finally:
            starter.join(90)
            client.close()
            assert second.stop(signal.SIGTERM) == 0
            second.http.close()


class Moody(BaseHTTPRequestHandler):
    """Answers what the test says, then a job."""

    answers: ClassVar[list[tuple[int, dict[str, str], bytes]]]
    times: ClassVar[list[float]]
    keys: ClassVar[list[str | None]]

    def do_GET(self) -> None:
        self.times.append(time.monotonic())
        self.keys.append(self.headers.get("Authorization"))
        job = {"jobs": [], "next": None}
        status, headers, body = self.answers.pop(0) if self.answers else (200, {}, json.dumps(job).encode())
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def moody(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[str]:
    Moody.answers, Moody.times, Moody.keys = list(answers), [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Moody)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_over_a_socket(status):
    busy = (
        status,
        {"Retry-After": "1", "Content-Type": "application/problem+json"},
        b'{"code": "busy", "detail": "busy"}',
    )
    with moody(busy, busy) as url, Client(url, "k") as client:
        assert client.jobs() == []
    assert len(Moody.times) == 3
    assert Moody.times[2] - Moody.times[0] >= 2.0


def test_a_body_that_is_shorter_than_it_says_is_asked_for_again():
    with moody((200, {"Content-Length": "1000"}, b"{")) as url, Client(url, "k", patience=20) as client:
        assert client.jobs() == []
    assert len(Moody.times) == 2


def test_a_redirection_is_not_followed_with_the_key():
    with (
        moody((307, {"Location": "/elsewhere"}, b"")) as url,
        Client(url, "secret") as client,
        pytest.raises(ServiceError, match="status 307"),
    ):
        client.jobs()
    assert len(Moody.keys) == 1


def test_nobody_there_is_told_with_the_address():
    with (
        Client("http://127.0.0.1:9", "k", patience=0.5) as client,
        pytest.raises(NoAnswer, match=r"http://127.0.0.1:9: "),
    ):
        client.jobs()
