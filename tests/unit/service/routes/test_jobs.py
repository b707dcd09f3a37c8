"""Submitting, watching, resuming and deleting jobs over HTTP; nothing is planned or solved here."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.http.file_response import OpenFile
from service.http.waiting import asked_to_wait
from service.jobs.joblog import log_path
from service.settings import Settings
from storage.jobs.store import JobRecord
from tests.unit.service.support import Bench, InlinePool, small_graph
from tests.unit.service.test_app import problem

PLAN = {
    "algorithm": "dijkstra", "dtype": "int32", "device": "cpu", "shape": [4, 4], "seconds": 0.5, "memory": 10,
    "device_memory": 0, "disk": 20,
}  # fmt: skip


@pytest.fixture
def planned(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The requests that were planned."""
    asked: list[dict] = []

    async def plan(_task: object, _settings: Settings, graph: str, request: dict) -> dict:
        asked.append({"graph": graph, **request})
        return PLAN

    monkeypatch.setattr(client.app.state.service.planner, "run", plan)
    return asked


@pytest.fixture
def graph(bench: Bench, planned: list[dict]) -> str:
    return bench.add_graph(small_graph())


def post(client: TestClient, graph: str, headers: dict[str, str] | None = None, **options: object):
    return client.post("/v1/jobs", json={"graph": graph, **options}, headers=headers)


def finish(bench: Bench, *, sealed: bool = True) -> JobRecord:
    """Claim the next job and end it well."""
    claimed = bench.jobs.claim("r")
    assert claimed is not None
    if sealed:
        bench.settings.store(claimed.id).mkdir(parents=True)
    assert bench.jobs.succeed(claimed, {}, {}, 7)
    return bench.jobs.job(claimed.id)


def test_a_submission_says_where_it_is_and_wakes_the_runners(client: TestClient, graph: str):
    woken: list[bool] = []
    client.app.state.service.wake = lambda: woken.append(True)
    response = post(client, graph, priority=3)
    body = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == body["links"]["self"]
    assert response.headers["retry-after"] == "1"
    assert (body["queue_position"], body["priority"], body["state"]) == (0, 3, "accepted")
    assert woken == [True]
    assert "priority" not in body["options"]
    assert "fresh" not in body["options"]


def test_a_key_stands_for_one_job(client: TestClient, graph: str, bench: Bench):
    key = {"Idempotency-Key": "order 66"}
    first = post(client, graph, key, name="a")
    again = post(client, graph, key, name="a")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    problem(post(client, graph, key, name="b"), 422, "idempotency-key-reused")
    for bad in ("", "x" * 256, "\u00e9"):
        response = client.post("/v1/jobs", json={"graph": graph}, headers={"Idempotency-Key": bad.encode("latin-1")})
        problem(response, 422, "invalid-request")
    assert len(bench.jobs.list_jobs(10)) == 1


def test_a_finished_result_is_offered_until_something_is_different(
    client: TestClient, graph: str, bench: Bench, planned: list[dict]
):
    first = post(client, graph, dtype="int32").json()["id"]
    assert post(client, graph, dtype="int32").json()["id"] != first, "an open job is no result"
    finish(bench)
    bench.jobs.cancel(bench.jobs.list_jobs(1)[0].id)
    count = len(planned)
    key = {"Idempotency-Key": "k"}
    for more in ({}, {"threads": 1}, {"name": "again"}, {"memory": 10**9}):
        found = post(client, graph, key if not more else None, dtype="int32", **more)
        assert (found.status_code, found.json()["id"], found.json()["state"]) == (200, first, "successful")
    assert len(planned) == count, "nothing was planned for it"
    assert post(client, graph, key, dtype="int32").json()["id"] == first
    problem(post(client, graph, key, dtype="int32", name="other"), 422, "idempotency-key-reused")
    for different in ({"dtype": "float32"}, {"dtype": "int32", "fresh": True}, {"dtype": "int32", "max_hops": 2}):
        assert post(client, graph, **different).status_code == 201


def test_a_result_that_is_gone_is_not_offered(client: TestClient, graph: str, bench: Bench, settings: Settings):
    first = post(client, graph).json()["id"]
    finish(bench)
    assert post(client, graph).json()["id"] == first
    settings.store(first).rename(settings.data_dir / "elsewhere")
    assert post(client, graph).status_code == 201
    (settings.data_dir / "elsewhere").rename(settings.store(first))
    assert client.delete(f"/v1/jobs/{first}").status_code == 204
    assert post(client, graph).status_code == 201
    problem(client.get(f"/v1/jobs/{first}"), 410, "gone")


def test_too_many_open_jobs(settings: Settings, bench: Bench):
    from service.app import create_app

    app = create_app(settings.model_copy(update={"max_open_jobs": 2, "max_open_jobs_total": 5}))

    async def plan(*_: object) -> dict:
        return PLAN

    app.state.service.planner.run = plan
    client = TestClient(app)
    graph = bench.add_graph(small_graph())
    assert [post(client, graph, fresh=True).status_code for _ in range(2)] == [201, 201]
    response = post(client, graph, fresh=True)
    details = problem(response, 429, "too-many-jobs")["details"]
    assert details == {"limit": 2, "requested": 3, "setting": "APSP_MAX_OPEN_JOBS"}
    assert response.headers["retry-after"] == "1"
    client.close()
    app.state.service.jobs.close()


def test_a_draining_service_takes_no_jobs_and_is_not_ready(client: TestClient, graph: str):
    client.app.state.service.draining = True
    response = post(client, graph)
    problem(response, 503, "draining")
    assert int(response.headers["retry-after"]) > 0
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()["checks"]["service"]) == (503, "it is shutting down")


def test_an_answer_waits_until_the_job_is_over(client: TestClient, graph: str, bench: Bench):
    def end() -> None:
        while not bench.jobs.list_jobs(1):
            time.sleep(0.02)
        time.sleep(0.2)
        finish(bench)

    with client:  # one event loop for all requests
        thread = threading.Thread(target=end)
        thread.start()
        began = time.monotonic()
        response = post(client, graph, {"Prefer": "respond-async, wait=20"})
        assert time.monotonic() - began < 10
        thread.join()
        assert response.status_code == 201
        assert response.headers["preference-applied"] == "wait=20"
        assert (response.json()["state"], "retry-after" in response.headers) == ("successful", False)
        began = time.monotonic()
        response = post(client, graph, {"Prefer": "wait=1"}, fresh=True)
        assert time.monotonic() - began >= 1
        assert response.json()["state"] == "accepted"
        again = client.get(response.headers["location"], headers={"Prefer": "wait=0"})
        assert again.headers["preference-applied"] == "wait=0"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", None), ("wait=5", 5), ("respond-async; wait = 7", 7), ("wait=99", 30), ("await=5", None), ("wait=x", None)],
)
def test_the_preference_to_wait(header: str, seconds: int | None):
    assert asked_to_wait(header, 30) == seconds


def test_an_answer_that_has_not_changed_is_not_sent_again(client: TestClient, graph: str, bench: Bench):
    url = post(client, graph).headers["location"]
    tag = client.get(url).headers["etag"]
    same = client.get(url, headers={"If-None-Match": f'"other", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    bench.jobs.claim("r")
    changed = client.get(url, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "running")
    assert changed.headers["etag"] != tag


def test_the_log_is_read_whole_and_in_parts(client: TestClient, graph: str, settings: Settings):
    job_id = post(client, graph).json()["id"]
    url = f"/v1/jobs/{job_id}/log"
    assert (client.get(url).status_code, client.get(url).text) == (200, "")
    path = log_path(settings, job_id)
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\n")
    for _ in range(2):
        response = client.get(url)
        assert (response.text, response.headers["content-type"]) == ("one\ntwo\n", "text/plain; charset=utf-8")
    part = client.get(url, headers={"Range": "bytes=4-"})
    assert (part.status_code, part.text) == (206, "two\n")
    assert client.get(url, headers={"Range": "bytes=99-"}).status_code == 416
    problem(client.get("/v1/jobs/unknown/log"), 404, "not-found")


def test_a_log_is_whole_though_it_is_deleted_meanwhile(
    client: TestClient, graph: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    job_id = post(client, graph).json()["id"]
    path = log_path(settings, job_id)
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\n")
    answer = OpenFile.__call__

    async def delete_and_answer(*args: Any) -> None:
        path.unlink()  # what the answer is made of has been found by now
        await answer(*args)

    monkeypatch.setattr(OpenFile, "__call__", delete_and_answer)
    response = client.get(f"/v1/jobs/{job_id}/log")
    assert (response.status_code, response.text) == (200, "one\ntwo\n")
    assert response.headers["content-length"] == "8"
    assert not path.exists()


def test_pages_are_linked(client: TestClient, graph: str):
    ids = [post(client, graph, fresh=True).json()["id"] for _ in range(3)]
    first = client.get("/v1/jobs?limit=2")
    assert [job["id"] for job in first.json()["jobs"]] == ids[:0:-1]
    assert first.headers["link"] == f'<{first.json()["next"]}>; rel="next"'
    rest = client.get(first.json()["next"])
    assert ([job["id"] for job in rest.json()["jobs"]], rest.json()["next"]) == (ids[:1], None)
    assert "link" not in rest.headers
    assert client.get("/v1/jobs?limit=3").json()["next"] is None
    problem(client.get("/v1/jobs?cursor=%C3%A9"), 422, "invalid-request")
    problem(client.get("/v1/jobs?limit=201"), 422, "invalid-request")


def test_a_stopped_job_goes_on_only_from_a_checkpoint(client: TestClient, graph: str, bench: Bench, settings: Settings):
    job_id = post(client, graph).json()["id"]
    url = f"/v1/jobs/{job_id}"
    problem(client.post(f"{url}/resume"), 409, "conflict")
    claimed = bench.jobs.claim("r")
    assert claimed is not None
    bench.jobs.fail(claimed, {"code": "storage-failed", "message": "the disk is full", "details": {}})
    assert "no checkpoint" in problem(client.post(f"{url}/resume"), 409, "conflict")["detail"]
    assert "resume" not in client.get(url).json()["links"]
    record = settings.store(job_id).with_name(".matrix.zarr.working") / "record.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert client.get(url).json()["links"]["resume"] == f"{url}/resume"
    response = client.post(f"{url}/resume")
    assert (response.status_code, response.json()["state"], response.json()["error"]) == (202, "accepted", None)
    problem(client.post(f"{url}/resume"), 409, "conflict")
    problem(client.post("/v1/jobs/unknown/resume"), 404, "not-found")


def test_an_estimate_is_a_plan_and_no_job(client: TestClient, graph: str, bench: Bench, planned: list[dict]):
    body = client.post("/v1/estimates", json={"graph": graph, "dtype": "int32"}).json()
    assert {name: body[name] for name in ("graph", "seconds", "disk", "shape")} == {
        "graph": graph, "seconds": 0.5, "disk": 20, "shape": [4, 4],
    }  # fmt: skip
    assert planned == [{**planned[0], "graph": graph, "dtype": "int32"}]
    assert bench.jobs.list_jobs(10) == []
    problem(client.post("/v1/estimates", json={"graph": "unknown"}), 404, "not-found")


@pytest.mark.parametrize("left", [(), ("graph.json",), ("graph.json", "indptr.npy", "heads.npy")])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_graph_that_is_deleted_while_a_job_is_planned_is_gone(
    client: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch, left: tuple[str, ...], deleted: bool
):
    """A planner that is about to read a graph finds some of its files, or none; without a deletion they are damaged."""
    service, pool = client.app.state.service, InlinePool()
    graph = bench.add_graph(small_graph())
    folder = bench.settings.data_dir / "graphs" / graph

    async def plan(*given: Any) -> dict[str, Any]:
        kept = {name: (folder / name).read_bytes() for name in left}
        if deleted:
            assert client.delete(f"/v1/graphs/{graph}").status_code == 204
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, data in kept.items():
            (folder / name).write_bytes(data)
        return await pool.run(*given)

    monkeypatch.setattr(service.planner, "run", plan)
    expected = (410, "gone") if deleted else (500, "storage-failed") if left else (404, "not-found")
    for path in ("/v1/jobs", "/v1/estimates"):
        problem(client.post(path, json={"graph": graph}), *expected)
        if deleted:
            break
    assert bench.jobs.list_jobs(10) == []


def test_an_expired_result_is_410_and_its_job_still_tells(client: TestClient, graph: str, bench: Bench):
    job_id = post(client, graph).json()["id"]
    finish(bench)
    assert bench.jobs.expire_result(job_id)
    shown = client.get(f"/v1/jobs/{job_id}").json()
    assert (shown["state"], shown["bytes"]) == ("successful", 7)
    assert shown["removed"] is not None
    assert "distance" not in shown["links"]
    for path in ("summary", "distance?source=10&target=20", "zarr/zarr.json"):
        problem(client.get(f"/v1/jobs/{job_id}/{path}"), 410, "gone")


def test_a_database_that_is_locked_is_503(settings: Settings, bench: Bench, tmp_path: Path):
    import sqlite3

    from service.app import create_app

    app = create_app(settings.model_copy(update={"database_timeout": 0.1}))

    async def plan(*_: object) -> dict:
        return PLAN

    app.state.service.planner.run = plan
    client = TestClient(app)
    graph = bench.add_graph(small_graph())
    lock = sqlite3.connect(settings.data_dir / "apsp.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    response = post(client, graph)
    problem(response, 503, "database-unavailable")
    assert int(response.headers["retry-after"]) > 0
    assert client.get("/v1/jobs").json()["jobs"] == [], "what only reads goes on"
    lock.rollback()
    lock.close()
    assert post(client, graph).status_code == 201
    client.close()
    app.state.service.jobs.close()
