"""The short way to one distance answers as the usual one, and leaves to it what is not plain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.quick import Quick
from service.settings import Settings
from tests.unit.service.support import Bench, small_graph

#: differ between two answers to the same question
_ITS_OWN = {"x-request-id"}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each question went the short way, as they came."""
    usual, found = Quick._find, list[bool]()

    async def find(self: Quick, *arguments: Any) -> Any:
        answer = await usual(self, *arguments)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(Quick, "_find", find)
    return found


@pytest.fixture
def client(settings: Settings, seen: list[tuple[str, str, int]]) -> Iterator[TestClient]:
    app = create_app(settings, observe=lambda method, route, status, _: seen.append((method, route, status)))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
    app.state.service.jobs.close()


@pytest.fixture
def seen() -> list[tuple[str, str, int]]:
    """Method, pattern of the path and status of each request, as metrics hear of it."""
    return []


@pytest.mark.parametrize(("dtype", "real"), [("uint16", False), ("int32", False), ("float32", True), ("float64", True)])
@pytest.mark.parametrize("names", [False, True])
def test_both_ways_answer_alike(
    client: TestClient, bench: Bench, taken: list[bool], seen: list, dtype: str, real: bool, names: bool
):
    graph = small_graph(names, real=real)
    job, distances = bench.solved(graph, dtype)
    url = f"/v1/jobs/{job}/distance"
    for row, source in enumerate(graph.labels.tolist()):
        for column, target in enumerate(graph.labels.tolist()):
            asked = {"source": source, "target": target}
            client.get(url, params=asked)  # now the result is open, and the tile known to be sound
            short = client.get(url, params=asked)
            usual = client.get(url, params=asked, headers={"If-None-Match": '"another"'})
            assert taken[-2:] == [True, False]
            assert (short.status_code, short.content) == (usual.status_code, usual.content)
            assert _kept(short.headers) == _kept(usual.headers)
            want = distances[row, column]
            assert short.json()["distance"] == (None if want == float("inf") else pytest.approx(want, rel=1e-7))
            head = client.head(url, params=asked)
            assert (head.status_code, head.content, _kept(head.headers)) == (200, b"", _kept(short.headers))
    assert set(seen) == {(method, "/v1/jobs/{job_id}/distance", 200) for method in ("GET", "HEAD")}


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in _ITS_OWN}


def test_what_is_not_plain_goes_the_usual_way(client: TestClient, bench: Bench, taken: list[bool]):
    job, _ = bench.solved(small_graph(), "int32")
    url = f"/v1/jobs/{job}/distance"
    assert client.get(f"{url}?source=10&target=20").status_code == 200
    for query, status in (
        ("source=10", 422), ("source=10&target=20&target=30", 200), ("source=10&target=20&x=1", 422),
        ("source=10&target=99", 404), (f"source=10&target={'1' * 1001}", 422), ("source=10&target=", 404),
    ):  # fmt: skip
        assert client.get(f"{url}?{query}").status_code == status, query
    assert client.post(f"{url}?source=10&target=20").status_code == 405
    assert client.get("/v1/jobs/nobody/distance?source=10&target=20").status_code == 404
    assert not any(taken)
    assert client.get(f"{url}?source=10&target=20").status_code == 200
    assert taken[-1]


def test_bytes_that_are_not_in_memory_are_waited_for_without_a_thread(
    client: TestClient, bench: Bench, taken: list[bool], monkeypatch: pytest.MonkeyPatch
):
    job, _ = bench.solved(small_graph(), "int32")
    asked = f"/v1/jobs/{job}/distance?source=10&target=30"
    want = client.get(asked).json()
    usual, misses, advised = os.preadv, 2, []

    def preadv(handle: int, buffers: Any, place: int, flags: int = 0) -> int:
        nonlocal misses
        if flags and misses:
            misses -= 1
            raise BlockingIOError
        return usual(handle, buffers, place, flags)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "posix_fadvise", lambda _handle, *what: advised.append(what))
    assert client.get(asked).json() == want
    assert (taken[-1], misses) == (True, 0)
    assert advised == [(2 * 4, 4, os.POSIX_FADV_WILLNEED)] * 2
    misses = 1000  # the disk takes its time: a thread waits for it
    assert client.get(asked).json() == want
    assert not taken[-1]


def test_a_result_that_is_gone_is_gone_at_once(client: TestClient, bench: Bench, settings: Settings):
    job, _ = bench.solved(small_graph(), "int32")
    asked = f"/v1/jobs/{job}/distance?source=10&target=30"
    for _ in range(2):
        assert client.get(asked).status_code == 200
    bench.jobs.delete(job)  # by another process, which knows nothing of the results that this one has open
    settings.store(job).parent.rename(settings.data_dir / "trash" / "x")
    assert client.get(asked).status_code == 410
