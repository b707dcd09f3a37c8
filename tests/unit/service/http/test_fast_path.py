"""The short way to one distance or tile answers as the usual one, and leaves to it what is not plain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from engine.api.from_tables.reweighting import reweight
from service.app import create_app
from service.http.fast_path import FastPath
from service.settings import Settings
from storage.graph.graph import build_graph
from tests.unit.service.support import Bench, small_graph

#: differ between two answers to the same question
_ITS_OWN = {"x-request-id"}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each question went the short way, as they came."""
    usual, redirect, found = FastPath._find, FastPath._redirect, list[bool]()

    async def find(self: FastPath, *arguments: Any) -> Any:
        answer = await usual(self, *arguments)
        found.append(answer is not None)
        return answer

    def to_proxy(self: FastPath, *arguments: Any) -> Any:
        answer = redirect(self, *arguments)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(FastPath, "_find", find)
    monkeypatch.setattr(FastPath, "_redirect", to_proxy)
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
@pytest.mark.parametrize("kind", ["solved", "prepared"])
def test_both_ways_answer_alike(
    client: TestClient, bench: Bench, taken: list[bool], seen: list, dtype: str, real: bool, names: bool, kind: str
):
    graph = small_graph(names, real=real)
    job, distances = getattr(bench, kind)(graph, dtype)
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
        ("source=10", 422), ("source=10&target=20&target=30", 422), ("source=10&target=20&x=1", 422),
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


@pytest.mark.parametrize("kind", ["solved", "prepared"])
def test_a_result_that_is_gone_is_gone_at_once(client: TestClient, bench: Bench, settings: Settings, kind: str):
    job, _ = getattr(bench, kind)(small_graph(), "int32")
    asked = f"/v1/jobs/{job}/distance?source=10&target=30"
    for _ in range(2):
        assert client.get(asked).status_code == 200
    bench.jobs.delete(job)  # by another process, which knows nothing of the results that this one has open
    settings.store(job).parent.rename(settings.data_dir / "trash" / "x")
    assert client.get(asked).status_code == 410


class TestPrepared:
    """A single distance of a prepared result is read by this process; no helper process is asked."""

    URL = "/v1/jobs/{}/distance?source=10&target=30"

    @pytest.fixture
    def job(self, client: TestClient, bench: Bench) -> str:
        """A result of which a distance was asked, so that the next one takes the short way."""
        job, _ = bench.prepared(small_graph(), "int32")
        assert client.get(self.URL.format(job)).json()["distance"] == 3
        return job

    def test_no_helper_process_is_asked(self, client: TestClient, job: str, taken: list[bool]):
        pairs = {"pairs": [[10, 30], [40, 10], [10, 40]] * 3}
        for _ in range(3):
            assert client.get(self.URL.format(job)).json()["distance"] == 3
            assert client.post(f"/v1/jobs/{job}/distances", json=pairs).json()["distances"] == [3, 1, None] * 3
        assert taken == [True] * 3
        assert not client.app.state.service.answering.pool._children  # type: ignore[attr-defined]

    def test_pages_that_are_not_in_memory_are_waited_for_without_a_thread(
        self, client: TestClient, job: str, taken: list[bool], monkeypatch: pytest.MonkeyPatch
    ):
        usual, misses = os.preadv, 2

        def preadv(handle: int, buffers: Any, place: int, flags: int = 0) -> int:
            nonlocal misses
            if flags and misses:
                misses -= 1
                return 0
            return usual(handle, buffers, place, flags)

        monkeypatch.setattr(os, "preadv", preadv)
        assert client.get(self.URL.format(job)).json()["distance"] == 3
        assert (taken[-1], misses) == (True, 0)
        misses = 1000
        assert client.get(self.URL.format(job)).json()["distance"] == 3
        assert not taken[-1]

    @pytest.mark.parametrize("how", ["cut", "gone"])
    def test_a_table_that_is_damaged_later_is_named(
        self, client: TestClient, job: str, settings: Settings, taken: list[bool], how: str
    ):
        table = settings.store(job) / "tables/forward/c/0"
        if how == "gone":
            table.unlink()
        else:
            os.truncate(table, 0)
        for _ in range(2):
            answer = client.get(self.URL.format(job))
            assert (answer.status_code, taken[-1]) == (500, False)
            assert "tables/forward/c/0" in answer.json()["detail"]

    def test_new_weights_are_answered_from_as_soon_as_they_are_sealed(
        self, client: TestClient, job: str, settings: Settings, taken: list[bool]
    ):
        reweight(settings.store(job), ([10, 20, 30, 40], [20, 30, 10, 10], [5, 6, 7, 8]))
        found = [client.get(self.URL.format(job)) for _ in range(3)]
        assert [answer.json()["distance"] for answer in found] == [11] * 3
        assert taken == [False, True, True]

    def test_who_has_no_seconds_left_waits(self, client: TestClient, job: str, taken: list[bool]):
        budget = client.app.state.service.answering.budget  # type: ignore[attr-defined]
        budget.charge(None, budget.limit + 30)
        answer = client.get(self.URL.format(job))
        assert (answer.status_code, answer.json()["code"], taken) == (429, "too-much-computing", [False])
        budget.charge(None, -budget.limit)
        assert client.get(self.URL.format(job)).status_code == 200

    def test_many_ask_at_once(self, client: TestClient, bench: Bench):
        n = 60
        tails = np.arange(n)
        graph, _ = build_graph(tails, (tails + 1) % n, 1 + tails % 7, n=n, directed=True)
        job, distances = bench.prepared(graph, "int32")

        def ask(pair: int) -> bool:
            source, target = divmod(pair, n)
            found = client.get(f"/v1/jobs/{job}/distance?source={source}&target={target}")
            return bool(found.json()["distance"] == distances[source, target])

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(ask, range(0, n * n, 7)))


class TestBehindAProxy:
    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return Settings(data_dir=tmp_path / "data", accel_prefix="/files/")

    @pytest.fixture
    def key(self, client: TestClient) -> str:
        """Another holder's, who owns nothing."""
        return client.app.state.service.keys.create("eve", ("read", "submit"))[1]  # type: ignore[attr-defined]

    @pytest.fixture
    def tile(self, client: TestClient, bench: Bench) -> str:
        """The path of a tile of a result that is open; the client holds the key of an administrator."""
        client.headers["Authorization"] = f"Bearer {client.app.state.service.keys.create('ann', ('admin',))[1]}"  # type: ignore[attr-defined]
        job, _ = bench.solved(small_graph(), "int32")
        assert client.get(f"/v1/jobs/{job}/results").status_code == 200
        return f"/v1/jobs/{job}/zarr/distances/c/0/0"

    def test_both_ways_send_the_proxy_to_the_tile(self, client: TestClient, tile: str, taken: list[bool], seen: list):
        short = client.get(tile)
        client.app.state.service.results.forget(tile.split("/")[3])  # type: ignore[attr-defined]
        usual = client.get(tile)
        assert taken == [True, False]
        assert (short.status_code, short.content) == (usual.status_code, usual.content) == (200, b"")
        assert _kept(short.headers) == _kept(usual.headers)
        assert short.headers["x-accel-redirect"] == f"/files/jobs/{tile.split('/')[3]}/matrix.zarr/distances/c/0/0"
        assert _kept(client.head(tile).headers) == _kept(short.headers)
        assert seen[-3:] == [(method, "/v1/jobs/{job_id}/zarr/{key}", 200) for method in ("GET", "GET", "HEAD")]

    def test_other_names_go_the_usual_way(self, client: TestClient, tile: str, taken: list[bool]):
        store = tile.removesuffix("/distances/c/0/0")
        for name, status in (
            ("distances/c/0/1", 404), ("distances/c/00/0", 404), ("distances/c/0/0/", 404), ("distances/c/0/-1", 404),
            ("distances/c/0/%2e", 404), ("distances/c/0/٠", 404), ("distances/c/0/0?x=1", 422), ("zarr.json", 200),
        ):  # fmt: skip
            assert client.get(f"{store}/{name}").status_code == status, name
        assert not any(taken)

    def test_a_lost_or_changed_tile_is_left_to_the_usual_way(
        self, client: TestClient, tile: str, taken: list[bool], settings: Settings
    ):
        path = settings.store(tile.split("/")[3]) / "distances/c/0/0"
        whole = path.read_bytes()
        for spoil in (lambda: path.write_bytes(whole[:-1]), path.unlink, path.mkdir, lambda: _link(path, whole)):
            spoil()
            answer = client.get(tile)
            assert (answer.status_code, answer.json()["code"], taken[-1]) == (500, "storage-failed", False)
            assert "x-accel-redirect" not in answer.headers

    def test_strangers_are_told_nothing(self, client: TestClient, tile: str, key: str, taken: list[bool]):
        assert client.get(tile).status_code == 200
        for header, status in ((f"Bearer {key}", 404), ("Bearer x", 401), ("", 401)):
            answer = client.get(tile, headers={"Authorization": header})
            assert answer.status_code == status
            assert "x-accel-redirect" not in answer.headers
        assert taken == [True, False]

    def test_a_deleted_result_is_gone_at_once(self, client: TestClient, tile: str, taken: list[bool]):
        assert client.get(tile).status_code == 200
        assert client.delete(tile.partition("/zarr")[0]).status_code == 204
        answer = client.get(tile)
        assert (answer.status_code, "x-accel-redirect" in answer.headers, taken) == (410, False, [True, False])


def _link(path: Path, whole: bytes) -> None:
    """A symbolic link to a file of the right size."""
    path.rmdir()
    path.with_name("elsewhere").write_bytes(whole)
    path.symlink_to("elsewhere")
