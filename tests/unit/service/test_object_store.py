"""What the service asks the object store, and what it removes there."""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from fastapi.testclient import TestClient

from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.progress import Monitor
from service.auth.callers import ANYBODY
from service.jobs import claims
from service.jobs.checkpoints import checkpoint_time, fetch, has_checkpoint
from service.jobs.folders import check_store, discard, has_result, result_bytes, result_place
from service.jobs.joblog import fetch_log, job_log
from service.jobs.retention import Retention
from service.pool.tabled import TableTask
from service.pool.tasks import job_options
from service.runner.making import Task
from service.runner.runner import Runner
from service.settings import Settings
from storage.errors import Conflict, InvalidRequest, StorageFailed
from storage.matrix.frame import MatrixSpec
from storage.matrix.working import find_checkpoint, open_working
from storage.remote.generation import Generation
from storage.remote.objects import Objects
from storage.tables import reader as table_reader
from storage.tables.reader import open_table
from storage.tables.writer import write_result_table
from tests.s3 import S3Server
from tests.stores import entries_of, line_graph
from tests.unit.service.support import Bench, InlinePool
from tests.unit.service.test_app import problem

N = 70


@pytest.fixture
def settings(tmp_path: Path, s3: S3Server) -> Settings:
    address = f"{s3.address}/{secrets.token_hex(4)}/"
    return Settings(data_dir=tmp_path / "data", store_url=address, auth=False, host="testserver")


def solve(settings: Settings, job: str, *, seal: bool) -> None:
    store = settings.store(job)
    store.parent.mkdir(parents=True, exist_ok=True)
    entries = entries_of(N, N, "float32", 1)
    with open_working(
        store, line_graph(N), MatrixSpec("float32", float("inf")), address=settings.address(job), resume=True
    ) as writer:
        writer.write(0, 0, entries)
        writer.commit({"rows": N})
        if seal:
            writer.seal({})


def test_checkpoints_are_looked_for_where_all_nodes_see_them(settings: Settings, tmp_path: Path):
    store, address = settings.store("j"), settings.address("j")
    assert not has_checkpoint(store, address)
    assert checkpoint_time(store, address) is None
    solve(settings, "j", seal=False)
    elsewhere = tmp_path / "elsewhere" / "matrix.zarr"
    elsewhere.parent.mkdir()
    assert has_checkpoint(elsewhere, address)
    assert abs(checkpoint_time(elsewhere, address) - time.time()) < 60
    assert not has_checkpoint(elsewhere)
    fetch(elsewhere, address)
    assert find_checkpoint(elsewhere).record == {"rows": N}
    solve(settings, "j", seal=True)
    assert not has_checkpoint(store, address)


def test_results_are_where_the_settings_say(settings: Settings, tmp_path: Path):
    assert not has_result(settings, "j")
    solve(settings, "j", seal=True)
    assert has_result(settings, "j")
    assert result_place(settings, "j") == settings.address("j")
    there = Objects(settings.address("j"))
    assert result_bytes(settings, "j") == sum(len(there.read(name)) for name in there.names()) > N * N * 4
    local = settings.model_copy(update={"store_url": None})
    assert (result_place(local, "j"), local.address("j")) == (local.store("j"), None)
    assert not has_result(local, "j"), "nothing stays on the disk"


def test_a_job_is_removed_with_its_log(settings: Settings):
    solve(settings, "j", seal=True)
    solve(settings, "other", seal=True)
    with job_log(settings, "j"):
        pass
    assert fetch_log(settings, "j") == b""
    discard(settings, "j")
    assert not has_result(settings, "j")
    assert has_result(settings, "other")
    assert fetch_log(settings, "j") is None
    assert list(Objects(settings.store_url.rstrip("/")).names("jobs/j/")) == []


def test_the_log_of_the_highest_claim_is_read_whoever_writes_last(settings: Settings, tmp_path: Path):
    for node, claim in (("a", 10), ("b", 9)):
        of_node = settings.model_copy(update={"data_dir": tmp_path / node})
        with job_log(of_node, "j", claim):
            logging.getLogger("apsp.test").error("claim %d", claim)
    assert b"claim 10" in fetch_log(settings, "j")
    Objects(settings.store_url.rstrip("/")).write("jobs/old/log.txt", b"of a release before claims had logs")
    assert fetch_log(settings, "old") == b"of a release before claims had logs"


@pytest.fixture
def bench(settings: Settings, client: TestClient) -> Iterator[Bench]:
    bench = Bench(settings)
    yield bench
    bench.jobs.close()


@pytest.fixture
def job(settings: Settings, bench: Bench) -> str:
    """A job that is over; what became of it lies in the object store only."""
    record = bench.jobs.create(bench.add_graph(line_graph(N)), {}, {})
    claimed = bench.jobs.claim("r")
    assert claimed is not None
    with job_log(settings, record.id):
        logging.getLogger("apsp.test").error("the attempt on another node")
    return record.id


def test_pages_know_what_other_nodes_left(settings: Settings, client: TestClient, bench: Bench, job: str):
    solve(settings, job, seal=False)
    shutil.rmtree(settings.store(job).parent)
    assert bench.jobs.fail(bench.jobs.job(job), {"code": "internal", "message": "lost"})
    text = client.get(f"/jobs/{job}").text
    assert "the attempt on another node" in text
    assert 'data-offset="0"' in text
    assert f'action="/jobs/{job}/resume"' in text
    ours = {"sec-fetch-site": "same-origin"}
    answer = client.post(f"/jobs/{job}/resume", headers=ours, follow_redirects=False)
    assert answer.status_code == 303
    assert bench.jobs.job(job).open


def test_a_log_that_cannot_be_fetched_is_said_to_be_so(
    client: TestClient, settings: Settings, job: str, monkeypatch: pytest.MonkeyPatch
):
    shutil.rmtree(settings.store(job).parent)

    def away(*_):
        raise StorageFailed("the store is away")

    monkeypatch.setattr("service.dashboard.page_data.fetch_log", away)
    answer = client.get(f"/jobs/{job}")
    assert (answer.status_code, "The log cannot be read: the store is away" in answer.text) == (200, True)


def test_a_result_whose_time_is_over_answers_nothing_from_memory(
    settings: Settings, client: TestClient, bench: Bench, job: str
):
    solve(settings, job, seal=True)
    assert bench.jobs.succeed(bench.jobs.job(job), {}, {})
    results = client.app.state.service.results
    labels = [str(label) for label in line_graph(N).labels[:2]]
    address = f"/v1/jobs/{job}/distance?source={labels[0]}&target={labels[1]}"
    assert client.get(address).status_code == 200
    held = results.peek(job, ANYBODY)
    results._open[job].looked -= 11.0
    assert results.peek(job, ANYBODY) is None
    assert client.get(address).status_code == 200
    assert results.peek(job, ANYBODY) is held, "its tiles are not fetched again"
    assert bench.jobs.expire_result(job)  # another process does that, and does not tell
    discard(settings, job)
    results._open[job].looked -= 11.0
    problem(client.get(address), 410, "gone")


def test_retention_closes_what_it_removes(settings: Settings, client: TestClient, bench: Bench, job: str):
    solve(settings, job, seal=True)
    assert bench.jobs.succeed(bench.jobs.job(job), {}, {})
    service = client.app.state.service
    assert client.get(f"/v1/jobs/{job}/sample").status_code == 200
    retention = Retention(settings.model_copy(update={"retain_seconds": 60.0}), bench.jobs, service.results.forget)
    assert retention.look(time.time() + 100, time.monotonic() + 100) == [job]
    problem(client.get(f"/v1/jobs/{job}/sample"), 410, "gone")


def test_what_does_not_go_together_is_refused(s3: S3Server):
    with pytest.raises(InvalidRequest, match="APSP_STORE_URL"):
        Settings.load({"APSP_STORE_URL": s3.address, "APSP_ACCEL_PREFIX": "/x"})
    with pytest.raises(InvalidRequest, match="APSP_STORE_URL"):
        Settings.load({"APSP_STORE_URL": "/a/folder"})
    check_store(Settings(store_url=f"{s3.address}/new"))
    with pytest.raises(StorageFailed, match="no-such-bucket"):
        check_store(Settings(store_url="s3://no-such-bucket/x"))


def test_a_store_that_is_away_is_a_failure_of_the_storage(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    away = settings.model_copy(update={"store_url": f"s3://away-{secrets.token_hex(4)}/x"})  # a client of its own
    monkeypatch.setattr("storage.remote.objects._RETRIES", 0)
    with pytest.raises(StorageFailed, match="cannot look at s3://away"):
        has_result(away, "j")
    assert checkpoint_time(away.store("j"), away.address("j")) is None


def test_a_prepared_result_is_made_answered_and_removed_there(
    settings: Settings, client: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """As a result in a folder; a claim that was overtaken sends nothing that counts."""
    graph = line_graph(N)
    graph_id, runner = bench.add_graph(graph), Runner(settings, threading.Event())
    service = client.app.state.service
    monkeypatch.setattr(service, "planner", InlinePool())
    monkeypatch.setattr(service.answering, "pool", InlinePool())
    job = client.post("/v1/jobs", json={"graph": graph_id, "result": "prepared"}).json()["id"]
    claimed = bench.jobs.claim(f"{settings.slot('cpu')}:1")
    assert claimed is not None
    runner.work(claimed)
    done = bench.jobs.job(job)
    assert (done.state, done.error) == ("successful", None)
    assert not settings.store(job).exists(), "nothing stays on the disk"
    first, last = (str(graph.labels[k]) for k in (0, N - 1))
    with open_result(result_place(settings, job)) as matrix:
        assert isinstance(matrix, PreparedMatrix)
        wanted = float(matrix.entries([0], [N - 1])[0])
        files = {name: matrix.file(name) for name in matrix.files() if name.startswith("tables/")}
    assert done.bytes == Objects(settings.address(job)).total() > sum(map(len, files.values()))
    answer = client.get(f"/v1/jobs/{job}/distance", params={"source": first, "target": last})
    assert (answer.status_code, answer.json()["distance"]) == (200, wanted)
    assert client.get(f"/v1/jobs/{job}/zarr/distances/c/0/0").status_code == 200
    for name, content in files.items():
        assert client.get(f"/v1/jobs/{job}/prepared/{name}").content == content
    again = client.post("/v1/jobs", json={"graph": graph_id, "result": "prepared"})
    assert (again.status_code, again.json()["id"]) == (200, job)
    far = client.post("/v1/jobs", json={"graph": graph_id, "result": "near", "cutoff": 30, "prepared": job})
    claimed = bench.jobs.claim(f"{settings.slot('cpu')}:1")
    assert claimed is not None
    runner.work(claimed)
    assert bench.jobs.job(far.json()["id"]).state == "successful"
    with open_table(result_place(settings, far.json()["id"])) as near:
        assert near.rows > N
    assert client.delete(f"/v1/jobs/{job}").status_code == 204
    assert list(Objects(settings.store_url.rstrip("/")).names(f"jobs/{job}/")) == []
    problem(client.get(f"/v1/jobs/{job}/distance?source={first}&target={last}"), 410, "gone")
    service.answering.pool.stop()
    runner._jobs.close()


TABLES = [
    {"result": "near", "cutoff": 30},
    {"result": "measures", "measures": ["mean", "reached"], "within": [20]},
    {"result": "betweenness"},
    {"result": "flows", "demands": {"origins": ["v0"], "destinations": ["v1"], "flows": [2]}},
]


@pytest.mark.parametrize("asked", TABLES, ids=lambda asked: asked["result"])
def test_a_table_is_made_read_and_removed_there(
    settings: Settings, client: TestClient, bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: dict[str, object]
):
    """With the pages, columns and files of the same job of a service that keeps results in folders."""
    graph, kept = line_graph(9), table_reader.KEPT
    names = [str(label) for label in graph.labels]
    if "demands" in asked:
        asked = {**asked, "demands": {"origins": names[:1], "destinations": names[-1:], "flows": [2]}}
    graph_id, runner = bench.add_graph(graph), Runner(settings, threading.Event())
    monkeypatch.setattr(client.app.state.service, "planner", InlinePool())
    answer = client.post("/v1/jobs", json={"graph": graph_id, **asked})
    assert answer.status_code == 201, answer.text
    job = answer.json()["id"]
    claimed = bench.jobs.claim(f"{settings.slot('cpu')}:1")
    assert claimed is not None
    runner.work(claimed)
    done = bench.jobs.job(job)
    assert (done.state, done.error) == ("successful", None)
    assert not settings.store(job).exists(), "nothing stays on the disk"
    assert done.bytes == Objects(settings.address(job)).total()
    place = settings.data_dir / "here"
    local = settings.model_copy(update={"store_url": None})
    with TableTask(GraphProfile(graph), done.options, job_options(graph, done.options, local), local) as task:
        task.make(place, task.plan(place), Monitor())
    with open_table(result_place(settings, job)) as there, open_table(place) as here:
        assert there.summary == here.summary
        assert there.digest == here.digest
        columns = list(here.columns)
        monkeypatch.setattr(table_reader, "KEPT", 0)  # the file is fetched again
        for _ in range(2):
            assert there.page(columns, 1, 5, f"-{columns[-1]}").equals(here.page(columns, 1, 5, f"-{columns[-1]}"))
            monkeypatch.setattr(table_reader, "KEPT", kept)
        there.check()
    page = client.get(f"/v1/jobs/{job}/table", params={"limit": 3})
    assert (page.status_code, page.json()["columns"]) == (200, columns)
    (generation,) = {name.split("/")[0] for name in Objects(settings.address(job)).names()} - {"zarr.json"}
    assert generation.startswith(f"g{claimed.fence:020d}-")
    damaged = Objects(settings.address(job)).below(generation)
    damaged.write("table.parquet", damaged.read("table.parquet")[:-1] + b"x")
    with open_table(result_place(settings, job)) as there, pytest.raises(StorageFailed, match="does not agree"):
        there.values(columns[0])
    assert client.delete(f"/v1/jobs/{job}").status_code == 204
    assert list(Objects(settings.store_url.rstrip("/")).names(f"jobs/{job}/")) == []
    runner._jobs.close()


def test_a_table_that_cannot_be_sent_leaves_nothing_there(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frame, about = pl.DataFrame({"vertex": [1, 2]}), {"result": "near", "shape": [2, 2], "directed": True}
    sent = Generation.at(settings.address("j"), overwrite=False, claim=2)
    late = Generation.at(settings.address("j"), overwrite=False, claim=1)
    write_result_table(tmp_path / "a", frame, about, remote=sent)
    with pytest.raises(Conflict):
        write_result_table(tmp_path / "b", frame, about, remote=late)
    assert {name.split("/")[0] for name in Objects(settings.address("j")).names()} == {"zarr.json", sent.name}
    monkeypatch.setattr(Objects, "send", lambda *_: (_ for _ in ()).throw(StorageFailed("away")))
    with pytest.raises(StorageFailed, match="away"):
        write_result_table(tmp_path / "c", frame, about, remote=Generation.at(settings.address("k"), overwrite=False))
    assert list(Objects(settings.address("k")).names()) == []
    assert [path.name for path in tmp_path.iterdir() if path.name in "abc"] == []


@pytest.mark.parametrize("asked", [{"result": "prepared"}, TABLES[0]], ids=["prepared", "near"])
def test_of_two_claims_that_make_the_first_one_counts(settings: Settings, bench: Bench, asked: dict[str, object]):
    """The second finds that there is a result, and leaves it as it is."""
    record = bench.jobs.create(bench.add_graph(line_graph(N)), asked, {})
    tasks = []
    for _ in range(2):
        claimed = bench.jobs.claim(f"{settings.slot('cpu')}:1")
        assert claimed is not None
        place = claims.place(settings.store(record.id), claimed.fence)
        place.parent.mkdir(parents=True)
        task = Task(settings, claimed, GraphProfile(line_graph(N)), Options(cutoff=asked.get("cutoff")))
        tasks.append((task, task.plan(Monitor()), task._generation()))
        bench.jobs.release(claimed)
    for (task, plan, sent), counts in zip(tasks, (True, False), strict=True):
        task._generation = lambda sent=sent: sent
        assert (task.make(plan, Monitor()) is not None) == counts
    objects = list(Objects(settings.address(record.id)).names())
    assert {name.split("/")[0] for name in objects} == {"zarr.json", tasks[0][2].name}
    opened = open_result if asked["result"] == "prepared" else open_table
    with opened(result_place(settings, record.id)) as result:
        result.check()
