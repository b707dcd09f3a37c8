"""Sums along paths over the service: uploads with further columns, jobs that sum them, and what answers say."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from engine.algorithms import dijkstra
from engine.streaming import checkpoint
from service.http.file_response import proxy_headers
from service.jobs.checkpoints import has_checkpoint
from service.runner.runner import Runner
from service.settings import Settings
from storage.graph.graph import build_graph
from storage.matrix.reader import open_matrix
from tests.path_sums import arcs_of, expected
from tests.unit.service.support import Bench, InlinePool
from tests.unit.service.test_app import problem

ROADS = (
    "from,to,minutes,metres,toll 2.5%,distance\na,b,4,3000,0,1\nb,d,4,3500,0,2\na,c,3,4000,2.5,3\nc,d,5,3900,0,4\n"
    "d,e,1,1,0.125,5\n"
)
READ = {"source": "from", "target": "to", "weight": "minutes", "filename": "roads.csv"}
ALL = "metres,toll 2.5%,distance"


@pytest.fixture
def service(client: TestClient, settings: Settings) -> Iterator[TestClient]:
    """The service with its helpers in this process, and a runner that ``finish`` starts."""
    shared = client.app.state.service
    pool = InlinePool()
    for name in ("worker", "planner"):
        setattr(shared, name, _Pool(pool))
    yield client
    pool.stop()


class _Pool:
    def __init__(self, pool: InlinePool) -> None:
        self._pool = pool

    async def run(self, task: Any, *given: Any, owner: str | None = None, seconds: float | None = None) -> Any:
        return await self._pool.run(task, *given, owner=owner)

    def stop(self) -> None: ...


def upload(client: TestClient, text: str = ROADS, **more: Any) -> dict[str, Any]:
    asked = {name: value for name, value in {**READ, **more}.items() if value is not None}
    answer = client.post("/v1/graphs", params=asked, content=text)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def solved(client: TestClient, settings: Settings, graph: str, **options: Any) -> str:
    answer = client.post("/v1/jobs", json={"graph": graph, **options})
    assert answer.status_code == 201, answer.text
    runner = Runner(settings, threading.Event())
    try:
        record = runner._claimed()
        assert record is not None
        runner.work(record)
        found = runner._jobs.job(record.id)
        assert found.state == "successful", found.error
    finally:
        runner._jobs.close()
    return str(answer.json()["id"])


def test_an_upload_keeps_columns_and_says_which(service: TestClient):
    plain, both = upload(service), upload(service, also=ALL)
    assert plain["facts"]["quantities"] == []
    assert both["facts"]["quantities"] == [
        {"name": "metres", "integral": True, "smallest": 1, "largest": 4000},
        {"name": "toll 2.5%", "integral": False, "smallest": 0.0, "largest": 2.5},
        {"name": "distance", "integral": True, "smallest": 1, "largest": 5},
    ]
    # with and without columns, and in another order, these are three graphs; said otherwise, it is the same
    other = upload(service, also="distance,metres,toll 2.5%")
    assert len({plain["id"], both["id"], other["id"]}) == 3
    assert upload(service, also=["metres", '"toll 2.5%"', "distance"])["id"] == both["id"]
    listed = service.get("/v1/graphs").json()["graphs"]
    assert [one["name"] for one in listed[1]["facts"]["quantities"]] == ["metres", "toll 2.5%", "distance"]


def test_uploads_that_are_refused(service: TestClient):
    for also, told in (
        ("nope", "--also nope: there is no column 'nope'"),
        ("metres,metres", "names 'metres' twice"),
        (" , ", "also names no column"),
        ('"metres', "also cannot be understood"),
        (",".join(f"c{k}" for k in range(33)), "33 columns, at most 32"),
        ("from", "--also from"),
    ):
        answer = service.post("/v1/graphs", params={**READ, "also": also}, content=ROADS)
        assert told in problem(answer, 422, "invalid-request")["detail"]
    assert service.get("/v1/graphs").json()["graphs"] == []


def test_a_job_sums_what_it_asks_for(service: TestClient, settings: Settings):
    graph = upload(service, also=ALL)["id"]
    plain = solved(service, settings, graph)
    job = solved(service, settings, graph, also=["distance", "toll 2.5%"])
    assert plain != job
    url = f"/v1/jobs/{job}"
    document = service.get(url).json()
    assert document["options"]["also"] == ["distance", "toll 2.5%"]
    assert document["links"]["also"] == f"{url}/also"
    assert "distance (int32), toll 2.5% (float64) along the paths" in document["plan"]["reason"]
    manifest = service.get(f"{url}/results").json()
    assert manifest["also"] == {"distance": "int32", "toll 2.5%": "float64"}
    assert manifest["links"]["also"] == f"{url}/also"
    answer = service.get(f"{url}/also", params={"source": "a", "target": "e"})
    assert answer.json() == {
        "source": "a", "target": "e", "reachable": True, "distance": 9, "also": {"distance": 8, "toll 2.5%": 0.125},
    }  # fmt: skip
    assert list(answer.json()["also"]) == ["distance", "toll 2.5%"]
    tag = {"If-None-Match": answer.headers["etag"]}
    assert service.get(f"{url}/also", params={"source": "a", "target": "e"}, headers=tag).status_code == 304
    none = service.get(f"{url}/also", params={"source": "e", "target": "a"}).json()
    assert (none["reachable"], none["also"]) == (False, {"distance": None, "toll 2.5%": None})
    same = service.get(f"{url}/distance", params={"source": "a", "target": "e"}).json()
    assert same == {"source": "a", "target": "e", "reachable": True, "distance": 9}
    # a job that asked for none says so, and which one has them
    assert "also" not in service.get(f"/v1/jobs/{plain}").json()["links"]
    told = problem(service.get(f"/v1/jobs/{plain}/also", params={"source": "a", "target": "e"}), 409, "conflict")
    assert "has summed nothing along its paths" in told["detail"]
    assert service.get(f"/v1/jobs/{plain}/results").json()["also"] == {}
    with open_matrix(settings.store(plain)) as matrix:
        assert (dict(matrix.also), dict(matrix.graph().quantities)) == ({}, {})


def test_tables_have_a_column_for_each_quantity(service: TestClient, settings: Settings):
    job = solved(service, settings, upload(service, also=ALL)["id"], also=ALL.split(","))
    asked = {"sources": "a,e", "targets": "d,e"}
    text = service.get(f"/v1/jobs/{job}/rows", params={**asked, "format": "csv"}).text
    assert text.splitlines() == [
        "source,target,distance,metres,toll 2.5%,also distance",
        "a,d,8,6500,0.0,3", "a,e,9,6501,0.125,8", "e,d,,,,", "e,e,0,0,0.0,0",
    ]  # fmt: skip
    for kind, read in (("parquet", pl.read_parquet), ("arrow", pl.read_ipc_stream)):
        body = {"sources": ["a", "e"], "targets": ["d", "e"]}
        found = read(service.post(f"/v1/jobs/{job}/submatrix", json=body, params={"format": kind}).content)
        assert found.write_csv() == text
    # 5 entries of 4 columns are within the 64 that go in one answer, and 25 of 4 are not
    assert service.get(f"/v1/jobs/{job}/rows", params={"sources": "b", "format": "csv"}).status_code == 200
    body = {"sources": list("abcde")}
    refused = problem(
        service.post(f"/v1/jobs/{job}/submatrix", json=body, params={"format": "csv"}), 413, "limit-exceeded"
    )
    assert "100 entries" in refused["detail"]
    for kind in ("csv", "parquet", "arrow"):
        every = problem(
            service.get(f"/v1/jobs/{job}/rows", params={"all": True, "format": kind}), 413, "limit-exceeded"
        )
        assert every["detail"] == refused["detail"]
    assert len(service.get(f"/v1/jobs/{job}/rows", params={"all": True}).json()["distances"]) == 5
    assert len(service.post(f"/v1/jobs/{job}/submatrix", json=body).json()["distances"]) == 5


def test_sums_of_two_bytes_are_answered_as_numbers_and_no_path_as_ever(service: TestClient, settings: Settings):
    text = "from,to,metres,toll\na,b,16383,0\nb,c,16383,2\nc,d,16383,0\nd,e,16383,-1\n"
    graph = upload(service, text, weight=None, unweighted=True, also="metres,toll")["id"]
    asked = {"graph": graph, "also": ["metres", "toll"]}
    reason = service.post("/v1/estimates", json=asked).json()["plan"]["reason"]
    assert "; then metres (uint16), toll (int32) along the paths" in reason
    url = f"/v1/jobs/{solved(service, settings, **asked)}"
    assert service.get(f"{url}/results").json()["also"] == {"metres": "uint16", "toll": "int32"}
    stored = service.get(f"{url}/zarr/also/metres/zarr.json").json()
    assert (stored["data_type"], stored["attributes"]["unreachable"], stored["fill_value"]) == ("uint16", 65534, 65535)
    sums = [service.get(f"{url}/also", params={"source": u, "target": v}).json()["also"] for u, v in ("ae", "ea", "bb")]
    assert sums == [{"metres": 65532, "toll": 1}, {"metres": None, "toll": None}, {"metres": 0, "toll": 0}]
    some = {"sources": "a,e", "targets": "e,d"}
    answer = service.get(f"{url}/rows", params={**some, "format": "csv"}).text
    assert answer.splitlines()[1:] == ["a,e,4,65532,1", "a,d,3,49149,2", "e,e,0,0,0", "e,d,,,"]
    body = {name: ends.split(",") for name, ends in some.items()}
    for kind, read in (("parquet", pl.read_parquet), ("arrow", pl.read_ipc_stream)):
        found = read(service.post(f"{url}/submatrix", json=body, params={"format": kind}).content)
        assert found.write_csv() == answer
        assert found["metres"].dtype == pl.Int32
    given = service.get(f"{url}/rows", params={**some, "also": "metres"}).json()
    assert given["sums"] == [[65532, 49149], [0, None]]
    found = np.load(io.BytesIO(service.get(f"{url}/rows", params={**some, "also": "metres", "format": "npy"}).content))
    assert (found.dtype, found.tolist()) == (np.float64, [[65532, 49149], [0, np.inf]])


def test_arrays_have_the_sums_of_one_quantity(service: TestClient, settings: Settings):
    job = solved(service, settings, upload(service, also=ALL)["id"], also=["toll 2.5%", "metres"])
    url, inf = f"/v1/jobs/{job}", np.inf
    for path, asked, wanted in (
        ("rows", {"sources": "e,a", "also": "metres"}, [[inf, inf, inf, inf, 0], [0, 3000, 4000, 6500, 6501]]),
        ("rows", {"sources": "a", "targets": "e,c", "also": "toll 2.5%"}, [[0.125, 2.5]]),
        ("columns", {"targets": "c", "also": "toll 2.5%"}, [[2.5], [inf], [0], [inf], [inf]]),
        ("columns", {"targets": "c"}, [[3], [inf], [0], [inf], [inf]]),
    ):
        found = service.get(f"{url}/{path}", params={**asked, "format": "npy"})
        assert np.load(io.BytesIO(found.content)).tolist() == wanted
        document = service.get(f"{url}/{path}", params={**asked, "format": "json"}).json()
        member = "sums" if "also" in asked else "distances"
        assert document[member] == [[None if x == inf else x for x in row] for row in wanted]
        assert set(document) == {"sources", "targets", member} | ({"also"} & set(asked))
        assert document.get("also") == asked.get("also")
    body = {"sources": ["a"], "targets": ["d"]}
    assert service.post(f"{url}/submatrix", json=body, params={"also": "metres"}).json()["sums"] == [[6500]]
    found = service.post(f"{url}/submatrix", json=body, params={"format": "npy", "also": "metres"})
    assert np.load(io.BytesIO(found.content)).tolist() == [[6500]]
    for kind, also, told in (
        ("npy", "distance", "no sums of 'distance'; it has toll 2.5%, metres"),
        ("json", "distance", "no sums of 'distance'"),
        ("csv", "metres", "csv has every quantity anyway"),
    ):
        answer = service.get(f"{url}/rows", params={"sources": "a", "format": kind, "also": also})
        assert told in problem(answer, 422, "invalid-request")["detail"]


def test_the_pages_show_quantities_and_sums(service: TestClient, settings: Settings):
    with_none, graph = upload(service)["id"], upload(service, also=ALL)["id"]
    assert "To sum along paths" not in service.get(f"/graphs/{with_none}").text
    shown = service.get(f"/graphs/{graph}").text
    assert "<q>toll 2.5%</q> 0 to 2.5" in shown
    assert 'name="also"' in shown
    assert 'id="o-also"' not in service.get(f"/graphs/{with_none}").text
    planned = service.get(f"/graphs/{graph}", params={"plan": 1, "also": "metres, nope"}).text
    assert "no quantity &#39;nope&#39;" in planned
    job = solved(service, settings, graph, also=["metres", "toll 2.5%"])
    answer = service.get(f"/jobs/{job}", params={"source": "a", "target": "e"}).text
    assert "<dt>metres</dt><dd>6,501</dd>" in answer
    assert "<dt>toll 2.5%</dt><dd>0.125</dd>" in answer
    assert "<dt>Further columns to sum along paths</dt><dd>metres, toll 2.5%</dd>" in answer
    assert "no path" in service.get(f"/jobs/{job}", params={"source": "e", "target": "a"}).text
    plain = solved(service, settings, graph)
    assert "Sums along" not in service.get(f"/jobs/{plain}", params={"source": "a", "target": "e"}).text


@pytest.mark.parametrize("options", [{"result": "prepared"}, {"result": "measures"}, {"result": "near", "nearest": 1}])
def test_other_results_of_a_graph_with_quantities_are_those_without(
    service: TestClient, settings: Settings, options: dict[str, Any]
):
    digests = set()
    for also in (None, ALL):
        job = solved(service, settings, upload(service, also=also)["id"], **options)
        service.app.state.service.answering.pool = InlinePool()
        digests.add(service.get(f"/v1/jobs/{job}/results").json()["graph"])
    assert len(digests) == 1


def test_the_same_job_again_is_the_same_result_and_another_order_is_another(service: TestClient, settings: Settings):
    graph = upload(service, also="metres,distance")["id"]
    job = solved(service, settings, graph, also=["metres"])
    again = service.post("/v1/jobs", json={"graph": graph, "also": ["metres"]})
    assert (again.status_code, again.json()["id"]) == (200, job)
    assert service.post("/v1/jobs", json={"graph": graph}).status_code == 201
    assert service.post("/v1/jobs", json={"graph": graph, "also": ["metres", "distance"]}).status_code == 201


REFUSED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"also": ["nope"]}, "also", "the graph has no quantity 'nope'; it has metres, toll 2.5%, distance"),
    ({"also": ["metres", "metres"]}, "also", "named twice"),
    ({"also": []}, "also", "at least 1"),
    ({"also": "metres"}, "also", "valid list"),
    ({"also": ["metres"], "max_hops": 2}, "max_hops", "at most K arcs are not made"),
    ({"also": ["metres"], "device": "cuda"}, "device", "made by processors"),
    ({"also": ["metres"], "dtype": "float32"}, "dtype", "without rounding"),
    ({"also": ["metres"], "executor": "dask"}, "executor", "the service has no scheduler"),
    ({"also": ["metres"], "result": "prepared"}, "also", "also belongs to result matrix"),
    ({"also": ["metres"], "result": "measures"}, "also", "also belongs to result matrix"),
    ({"also": ["metres"], "result": "near", "nearest": 1}, "also", "also belongs to result matrix"),
    ({"also": ["metres"], "memory": 1000}, "memory", "bytes of memory"),
)


def test_jobs_that_are_refused(service: TestClient):
    graph = upload(service, also=ALL)["id"]
    for options, field, told in REFUSED:
        for path in ("jobs", "estimates"):
            answer = service.post(f"/v1/{path}", json={"graph": graph, **options})
            assert answer.status_code == (507 if field == "memory" else 422), answer.text
            assert told in answer.json()["detail"]
            assert field in str(answer.json()["details"])
    assert service.get("/v1/jobs").json()["jobs"] == []


def test_a_graph_without_quantities_says_how_to_have_them(service: TestClient):
    answer = problem(
        service.post("/v1/jobs", json={"graph": upload(service)["id"], "also": ["toll"]}), 422, "invalid-request"
    )
    assert "no quantity 'toll'; it has none, as its upload named no columns (also)" in answer["detail"]


def test_workers_and_object_stores_are_refused(bench: Bench):
    from engine.api.planning import make_plan
    from service.pool.tasks import job_options, with_asked
    from storage.errors import InvalidRequest

    graph, _ = build_graph([0], [1], [1], n=2, directed=True, quantities={"q": [1]})
    asked, workers = (
        {"also": ["q"], "executor": "dask"},
        bench.settings.model_copy(update={"scheduler": "tcp://nowhere:1"}),
    )
    with pytest.raises(InvalidRequest, match="not executor dask"):
        make_plan(with_asked(graph, asked, workers), job_options(graph, asked, workers))
    far = bench.settings.model_copy(update={"store_url": "s3://bucket/p"})
    with pytest.raises(InvalidRequest, match=r"further arrays \(q\) are written into folders only") as refused:
        with_asked(graph, asked, far)
    assert refused.value.field == "also"
    assert with_asked(graph, {}, far).quantities == {}


def test_the_proxy_is_told_names_that_it_decodes(settings: Settings):
    behind = settings.model_copy(update={"accel_prefix": "/files"})
    target = proxy_headers(behind, "0" * 8, "also/toll 2.5%/c/0/0")["X-Accel-Redirect"]
    assert target.endswith("/also/toll%202.5%25/c/0/0")
    target.encode("ascii")


def test_the_plan_counts_the_sums(service: TestClient):
    text = "a,b,w,q,r\n" + "".join(f"{k},{(7 * k + 3) % 400},{k % 9},{k},{k}.5\n" for k in range(400))
    graph = upload(service, text, source="a", target="b", weight="w", also="q,r")["id"]
    plain, both = (
        service.post("/v1/estimates", json={"graph": graph, **more}).json() for more in ({}, {"also": ["q", "r"]})
    )
    assert both["disk"] >= plain["disk"] + 400 * 400 * (4 + 8)
    assert both["memory"] > plain["memory"]
    assert [phase["name"] for phase in both["plan"]["phases"]].count("sum") == 1


class _After(threading.Event):
    """Is set once it was asked a number of times, as a cancel comes in the middle of a solve."""

    left = 10**9

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("lost", [False, True])
def test_a_stopped_job_goes_on_from_its_checkpoint(
    service: TestClient, settings: Settings, bench: Bench, monkeypatch: pytest.MonkeyPatch, lost: bool
):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    for name in ("BATCH_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(dijkstra, name, 0.0)
    for name in ("FIRST_ENTRIES", "BUSY_ENTRIES"):
        monkeypatch.setattr(dijkstra, name, 0)
    rng = np.random.default_rng(1)
    ends, weights, quantities = rng.integers(0, 700, (2, 4000)), rng.integers(0, 9, 4000), rng.integers(0, 9, (2, 4000))
    named = {"q": quantities[0], "r": quantities[1] / 4}
    graph = bench.add_graph(build_graph(*ends, weights, n=700, directed=True, quantities=named)[0])
    asked = {"also": ["r", "q"], "algorithm": "dijkstra", "threads": 1}
    whole = solved(service, settings, graph, **asked)
    job = service.post("/v1/jobs", json={"graph": graph, **asked, "fresh": True}).json()["id"]
    stopping, left = _After(), 12
    while not has_checkpoint(settings.store(job)):
        stopping.left, left = left, 2 * left
        runner = Runner(settings, stopping)
        record = bench.jobs.claim(runner._name)
        assert record is not None
        runner.work(record)
        runner._jobs.close()
        assert bench.jobs.job(job).state == "accepted", "it was stopped before its end"
    with open_matrix(settings.store(whole)) as matrix:
        wanted = [matrix.rows(matrix.sources), *(found.rows(matrix.sources) for found in matrix.also.values())]
    if lost:  # a tile of sums that a commit counted is gone: the job starts again, or says so, but sums nothing wrong
        for folder in settings.store(job).parent.rglob("also/r/c"):
            for tile in folder.rglob("0"):
                tile.is_file() and tile.unlink()
    runner = Runner(settings, threading.Event())
    record = bench.jobs.claim(runner._name)
    assert record is not None
    runner.work(record)
    runner._jobs.close()
    ended = bench.jobs.job(job)
    if lost:
        assert (ended.state, "was never written" in str(ended.error)) == ("failed", True)
        return
    assert (ended.state, ended.seconds["search"] > 0) == ("successful", True)
    with open_matrix(settings.store(job)) as matrix:
        found = [matrix.rows(matrix.sources), *(sums.rows(matrix.sources) for sums in matrix.also.values())]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("seed", range(3))
def test_sums_are_those_of_an_independent_search(service: TestClient, settings: Settings, seed: int):
    rng = np.random.default_rng(seed)
    n, m = 8, 20
    tails, heads, weights = rng.integers(0, n, m), rng.integers(0, n, m), rng.integers(0, 4, m)
    tails[:n], heads[:n] = range(n), (np.arange(n) + 1) % n  # so that every vertex is there
    quantities = {"toll": rng.integers(-3, 9, m) / 4, "metres": rng.integers(0, 99, m)}
    rows = zip(tails, heads, weights, *quantities.values(), strict=True)
    text = "tail,head,weight,toll,metres\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows)
    directed = bool(seed % 2)
    asked = {"source": "tail", "target": "head", "weight": "weight", "directed": directed, "also": "toll,metres"}
    job = solved(service, settings, upload(service, text, **asked)["id"], also=["toll", "metres"])
    distances, sums = expected(arcs_of(tails, heads, weights, quantities, directed=directed), n, 2)
    for source in range(n):
        for target in range(n):
            found = service.get(f"/v1/jobs/{job}/also", params={"source": source, "target": target}).json()
            values = found["distance"], *found["also"].values()
            assert [np.inf if one is None else one for one in values] == [
                distances[source, target], *sums[:, source, target],
            ]  # fmt: skip
