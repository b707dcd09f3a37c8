"""A matrix from far away holds the entries that it holds from near."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from httpx2 import ASGITransport, AsyncClient

from service.jobs.results import ResultReader
from service.settings import Settings
from service.views.pictures import sampling
from service.views.pictures.sampling import eccentricities, sample, spread
from storage.graph.graph import build_graph
from tests.stores import make_store
from tests.unit.service.support import Bench, small_graph
from tests.unit.service.test_app import problem


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", auth=False, host="testserver")


def ring(n: int):
    graph, _ = build_graph(
        range(n), [(k + 1) % n for k in range(n)], [1 + k % 5 for k in range(n)], labels=list(range(n)), directed=True
    )
    return graph


@pytest.mark.parametrize(("count", "most"), [(1, 1), (1, 9), (7, 7), (7, 3), (1000, 256), (10**12, 512), (5, 4)])
def test_positions_are_in_order_apart_and_inside(count: int, most: int):
    found = spread(100, count, most)
    assert len(found) == min(count, most)
    assert found[0] >= 100
    assert found[-1] < 100 + count
    gaps = np.diff(found)
    assert not len(gaps) or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)
    # as far from one end as from the other, give or take one
    assert abs((found[0] - 100) - (100 + count - 1 - found[-1])) <= 1


@pytest.mark.parametrize("size", [1, 2, 17, 150, 151, 512])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_sample_is_of_the_matrix(bench: Bench, size: int, dtype: str):
    job_id, distances = bench.solved(ring(150), dtype)
    result = ResultReader(bench.settings.store(job_id))
    found = sample(result, row=0, rows=None, column=0, columns=None, size=size)
    picked = np.array(found["distances"], float)
    np.testing.assert_array_equal(picked, distances[np.ix_(found["rows"], found["columns"])])
    assert found["complete"] == (size >= 150)
    assert (found["sources"], found["targets"]) == (found["rows"], found["columns"])
    part = sample(result, row=60, rows=20, column=3, columns=5, size=20)
    np.testing.assert_array_equal(np.array(part["distances"], float), distances[60:80, 3:8])
    assert part["complete"]


def test_eccentricities_leave_the_source_out(bench: Bench):
    graph, _ = build_graph([0, 1], [1, 0], [-1, 4], labels=["a", "b", "c"], directed=True)
    job_id, _ = bench.solved(graph, "int32")
    found = eccentricities(ResultReader(bench.settings.store(job_id)), 10)
    assert found == {
        "sources": ["a", "b", "c"], "eccentricities": [-1, 4, None], "reached": [2, 2, 1],
        "central": [True, True, False], "of": 3, "complete": True,
    }  # fmt: skip
    job_id, distances = bench.solved(ring(150), "int32", sources=[5, 3, 140], targets=[2, 3, 4])
    found = eccentricities(ResultReader(bench.settings.store(job_id)), 2)
    assert (found["sources"], found["of"], found["complete"]) == ([5, 140], 3, False)
    assert found["eccentricities"] == [distances[0].max(), distances[2].max()]


def test_rows_are_fewer_where_tiles_are_large(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    job_id, distances = bench.solved(ring(700), "int32")
    result = ResultReader(bench.settings.store(job_id))
    monkeypatch.setattr(sampling, "BUDGET", 6 * (64 * 700 * 4 + 4))
    found = sample(result, row=0, rows=None, column=0, columns=None, size=100)
    assert (len(found["rows"]), len(found["columns"]), found["complete"]) == (6, 100, False)
    np.testing.assert_array_equal(found["distances"], distances[np.ix_(found["rows"], found["columns"])])
    near = sample(result, row=128, rows=64 * 4, column=0, columns=None, size=100)
    assert len(near["rows"]) == 100, "what lies in few bands is read whole"
    monkeypatch.setattr(sampling, "BUDGET", 1)
    assert len(eccentricities(result, 50)["sources"]) == 4


def test_a_packed_tile_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    entries = make_store(tmp_path / "m.zarr", 150, "uint16", compression="zstd")
    result, read = ResultReader(tmp_path / "m.zarr"), []
    tiles = result.matrix._tiles
    whole = tiles.whole

    def counted(i: int, j: int):
        read.append((i, j))
        return whole(i, j)

    monkeypatch.setattr(tiles, "whole", counted)
    found = sample(result, row=0, rows=None, column=0, columns=None, size=150)
    assert found["distances"] == [result.numbers(row) for row in entries]
    assert read == [(0, 0), (1, 0), (2, 0)]
    once = eccentricities(result, 150)
    assert read == [(0, 0), (1, 0), (2, 0)] * 2
    monkeypatch.setattr(sampling, "_HELD", 20 * 150 * 2)
    assert eccentricities(result, 150) == once
    assert len(read) == 6 + 4 + 4 + 2


def test_few_look_at_a_time(client: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch):
    job_id, _ = bench.solved(small_graph(), "int32")
    lock, running, most, two = threading.Lock(), 0, 0, threading.Event()

    def slow(work):
        def slowed(*arguments, **options):
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                if running == 2:
                    two.set()
            two.wait(60)
            time.sleep(0.05)  # for a third one
            with lock:
                running -= 1
            return work(*arguments, **options)

        return slowed

    monkeypatch.setattr(sampling, "sample", slow(sample))
    monkeypatch.setattr(sampling, "eccentricities", slow(eccentricities))
    asked = [f"/v1/jobs/{job_id}/sample", f"/v1/jobs/{job_id}/eccentricities", f"/jobs/{job_id}/eccentricities"]

    async def ask() -> list[int]:
        async with AsyncClient(transport=ASGITransport(client.app), base_url="http://testserver") as asking:
            return [answer.status_code for answer in await asyncio.gather(*map(asking.get, asked * 3))]

    assert asyncio.run(ask()) == [200] * 9
    assert most == 2


def test_over_http(client: TestClient, bench: Bench):
    job_id, distances = bench.solved(small_graph(True), "int32")
    base = f"/v1/jobs/{job_id}"
    found = client.get(f"{base}/sample").json()
    expected = [[None if np.isinf(d) else int(d) for d in row] for row in distances]
    assert (found["distances"], found["sources"]) == (expected, ["a", "b,c", "d", 'e"f'])
    answer = client.get(f"{base}/eccentricities")
    assert answer.json()["of"] == 4
    again = client.get(f"{base}/eccentricities", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    for query in ("row=4", "row=3&rows=2", "column=9", "columns=5", "rows=0", "size=0", "size=513", "row=-1", "x=1"):
        problem(client.get(f"{base}/sample?{query}"), 422, "invalid-request")
    problem(client.get("/v1/jobs/none/sample"), 404, "not-found")
