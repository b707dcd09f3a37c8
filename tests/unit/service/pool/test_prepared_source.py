"""Tables of jobs that come from a prepared result: the same answers, bit for bit, and never those of another graph."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from engine.api.from_tables.near import NearWay, PreparedNear
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.progress import Monitor
from service.app import create_app
from service.pool.tabled import TableTask
from service.pool.tasks import job_options
from service.runner.runner import Runner
from service.settings import Settings
from storage.errors import Conflict, Gone, InvalidRequest, StorageFailed
from storage.graph.graph import Graph, build_graph
from storage.jobs.keys import KeyStore
from storage.jobs.store import JobRecord
from storage.tables.reader import open_table
from tests.unit.service.support import Bench, InlinePool, small_graph
from tests.unit.service.test_app import problem

INLINE = {"vertices": [0, 5, 8], "columns": {"jobs": [3, 1, 2]}}
REQUESTS: list[dict[str, Any]] = [
    {"result": "near", "cutoff": 9},
    {"result": "near", "nearest": 3, "targets": [2, 14, 7, 21]},
    {"result": "near", "cutoff": 12, "nearest": 2, "sources": [4, 1, 30]},
    {"result": "measures", "within": [4.0, 9.0], "quantiles": [0.5], "nearest": 2, "opportunities": INLINE,
     "measures": ["reached", "sum", "mean", "closeness", "eccentricity", "farthest"]},
    {"result": "measures", "direction": "in", "measures": ["reached", "sum"], "sources": [3, 9], "cutoff": 11},
]  # fmt: skip
KINDS = {"whole": 1.0, "halves": 0.5, "quarters": 0.25}


def graph_of(kind: str, directed: bool) -> Graph:
    rng = np.random.default_rng([7, len(kind), directed])
    tails, heads = rng.integers(0, 36, (2, 110))
    weights: Any = rng.integers(0, 15, 110) * (KINDS[kind] if kind != "whole" else 1)
    return build_graph(tails, heads, weights, n=36, directed=directed)[0]


def rows_of(bench: Bench, job: str) -> tuple[pl.DataFrame, dict[str, Any]]:
    with open_table(bench.settings.store(job)) as table:
        return table.page(list(table.columns), 0, table.rows), dict(table.attributes)


@pytest.fixture(params=[True, False], ids=["tables", "searches"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreparedNear, "way", property(lambda self: NearWay(request.param, "the test says so")))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_the_one_that_searches_make(bench: Bench, kind: str, directed: bool):
    graph = graph_of(kind, directed)
    source = bench.prepared(graph, "auto")[0]
    for asked in REQUESTS:
        (found, about), (wanted, usual) = (
            rows_of(bench, bench.tabled(graph, **asked, **more)) for more in ({"prepared": source}, {})
        )
        assert found.equals(wanted)
        assert found.schema == wanted.schema
        assert about["asked"].pop("prepared") == source
        assert usual["asked"].pop("prepared") is None
        names = (
            "result",
            "shape",
            "unit",
            "graph",
            "cutoff",
            "asked",
            *(["dtype"] if asked["result"] == "near" else []),
        )
        assert [about[name] for name in names] == [usual[name] for name in names]


def test_the_cutoff_of_the_tables_holds_and_is_told(bench: Bench):
    graph = graph_of("whole", True)
    source = bench.prepared(graph, "auto")[0]
    path = bench.settings.store(source)
    prepare(graph, path, Options(cutoff=10.0), overwrite=True)
    found, about = rows_of(bench, bench.tabled(graph, result="near", nearest=9, prepared=source))
    wanted, usual = rows_of(bench, bench.tabled(graph, result="near", nearest=9, cutoff=10.0))
    assert found.equals(wanted)
    assert about["cutoff"] == usual["cutoff"] == 10.0
    for asked in ({"result": "near", "cutoff": 11.0}, {"result": "measures", "within": [11.0]}):
        with pytest.raises(InvalidRequest, match="prepared with cutoff 10"):
            bench.tabled(graph, **asked, prepared=source)


def test_only_tables_answer_negative_arcs(bench: Bench):
    below, _ = build_graph([0, 1, 2], [1, 2, 3], [3, -1, 4], n=4, directed=True)
    source = bench.prepared(below, "auto")[0]
    with pytest.raises(InvalidRequest, match="not negative"):
        bench.tabled(below, result="near", cutoff=2.0)
    frame, _ = rows_of(bench, bench.tabled(below, result="near", cutoff=2.0, prepared=source))
    assert frame.rows() == [(0, 2, 2), (1, 2, -1)]


@pytest.fixture
def asked(bench: Bench) -> Iterator[tuple[Graph, str, TableTask]]:
    graph = graph_of("whole", True)
    source = bench.prepared(graph, "auto")[0]
    request = {"result": "measures", "within": [5.0], "prepared": source}
    with TableTask(GraphProfile(graph), request, job_options(graph, request, bench.settings), bench.settings) as task:
        yield graph, source, task


def rid(bench: Bench, source: str) -> None:
    shutil.rmtree(bench.settings.store(source).parent)


def new_weights(bench: Bench, source: str, graph: Graph) -> None:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    reweight(bench.settings.store(source), (tails, graph.heads, graph.weights + 1))


def test_a_source_that_is_deleted_before_its_tables_are_read_is_missed(bench: Bench, asked, monkeypatch):
    graph, source, task = asked
    place = bench.settings.data_dir / "t"
    plan = task.plan(place)
    rid(bench, source)
    with pytest.raises(Gone, match=f"the result of job {source} was deleted"):
        task.make(place, plan, Monitor())
    assert not place.exists()
    with pytest.raises(Gone, match="leave out prepared"):
        bench.tabled(graph, result="near", cutoff=3.0, prepared=source)


def test_new_weights_of_the_source_never_reach_the_table(bench: Bench, asked):
    """Replaced while the job has it open, old tables or none are used; replaced before, it is refused."""
    graph, source, task = asked
    place = bench.settings.data_dir / "t"
    plan = task.plan(place)
    new_weights(bench, source, graph)
    with pytest.raises(Gone, match="replaced"):
        task.make(place, plan, Monitor())
    for request in ({"result": "near", "cutoff": 3.0}, {"result": "measures", "within": [3.0]}):
        with pytest.raises(Conflict, match="its weights were replaced"):
            bench.tabled(graph, **request, prepared=source)


def test_tables_that_were_read_stay_right_whatever_happens_to_the_source(bench: Bench, asked):
    graph, source, task = asked
    wanted = rows_of(bench, bench.tabled(graph, result="measures", within=[5.0]))[0]
    place = bench.settings.data_dir / "t"
    plan = task.plan(place)

    class Removing(Monitor):
        def step(self, amount: int) -> None:
            if bench.settings.store(source).exists():
                rid(bench, source)

    task.make(place, plan, Removing())
    with open_table(place) as table:
        assert table.page(list(table.columns), 0, table.rows).equals(wanted)


def test_a_damaged_table_is_named_and_nothing_is_made(bench: Bench, asked):
    _, source, task = asked
    place = bench.settings.data_dir / "t"
    plan = task.plan(place)
    chunk = bench.settings.store(source) / "tables/forward/c/0"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(StorageFailed, match="tables/forward/c/0 does not agree with the seal"):
        task.make(place, plan, Monitor())
    assert not place.exists()


def test_a_runner_makes_it_and_says_why_it_cannot(settings: Settings, bench: Bench):
    graph = graph_of("whole", True)
    source, runner = bench.prepared(graph, "auto")[0], Runner(settings, threading.Event())
    graph_id = bench.add_graph(graph)

    def worked(**request: Any) -> JobRecord:
        bench.jobs.create(graph_id, {**request, "prepared": source}, {})
        claimed = bench.jobs.claim(f"{settings.slot('cpu')}:1")
        assert claimed is not None
        runner.work(claimed)
        return bench.jobs.job(claimed.id)

    job = worked(result="measures", within=[4.0])
    assert (job.state, job.plan["algorithm"], job.progress.fraction) == ("successful", "prepared", 1.0)
    assert {"measure", "write"} <= set(job.seconds or {})
    assert worked(result="near", nearest=2).state == "successful"
    rid(bench, source)
    job = worked(result="near", cutoff=3.0)
    assert job.error is not None
    assert (job.state, job.error["code"]) == ("failed", "gone")
    assert source in job.error["message"]
    assert str(settings.data_dir) not in job.error["message"]
    runner._jobs.close()


def test_the_door_names_what_is_no_prepared_result_of_this_graph(client: TestClient, bench: Bench, monkeypatch):
    graph = small_graph()
    source, matrix = bench.prepared(graph, "int32")[0], bench.solved(graph, "int32")[0]
    other = bench.prepared(small_graph(real=True), "auto")[0]
    monkeypatch.setattr(client.app.state.service, "planner", InlinePool())
    asked = {"graph": bench.add_graph(graph), "result": "near", "cutoff": 4}
    for prepared, status, code, words in (
        ("nope", 404, "not-found", "no job"), (matrix, 422, "invalid-request", "is matrix, not prepared"),
        (other, 422, "invalid-request", "has prepared graph"),
    ):  # fmt: skip
        for path in ("/v1/jobs", "/v1/estimates"):
            assert words in problem(client.post(path, json={**asked, "prepared": prepared}), status, code)["detail"]
    body = problem(client.post("/v1/jobs", json={"graph": asked["graph"], "prepared": source}), 422, "invalid-request")
    assert "prepared belongs to result measures or near" in body["detail"]
    open_job = bench.jobs.create(asked["graph"], {"result": "prepared"}, {}).id
    problem(client.post("/v1/jobs", json={**asked, "prepared": open_job}), 409, "result-not-ready")
    found = client.post("/v1/jobs", json={**asked, "prepared": source})
    assert (found.status_code, found.json()["options"]["prepared"]) == (201, source)
    assert client.delete(f"/v1/jobs/{source}").status_code == 204
    problem(client.post("/v1/jobs", json={**asked, "prepared": source, "fresh": True}), 410, "gone")


def test_the_result_of_another_key_is_not_there(settings: Settings):
    app = create_app(settings.model_copy(update={"auth": True}))
    app.state.service.worker = app.state.service.planner = InlinePool()
    client, keys = TestClient(app), KeyStore(app.state.service.jobs.database)
    mine, theirs = ({"Authorization": f"Bearer {keys.create(name, ('read', 'submit'))[1]}"} for name in "ab")
    graph, _ = (client.post("/v1/graphs", content=b"10 20 1\n", headers=key).json()["id"] for key in (mine, theirs))
    source = client.post("/v1/jobs", json={"graph": graph, "result": "prepared"}, headers=mine).json()["id"]
    body = {"graph": graph, "result": "near", "cutoff": 4, "prepared": source}
    problem(client.post("/v1/jobs", json=body, headers=mine), 409, "result-not-ready")
    problem(client.post("/v1/jobs", json=body, headers=theirs), 404, "not-found")
    client.close()
    app.state.service.jobs.close()


def test_a_graph_that_is_deleted_while_it_is_uploaded_again_has_its_files(settings: Settings):
    """One key deletes a graph after the upload of another has found its files in place."""
    app = create_app(settings.model_copy(update={"auth": True}))
    service, keys = app.state.service, KeyStore(app.state.service.jobs.database)
    client = TestClient(app)
    mine, theirs = ({"Authorization": f"Bearer {keys.create(name, ('read', 'submit'))[1]}"} for name in "ab")

    class Overtaken(InlinePool):
        taken = False

        def wait(self, task: Callable[..., Any], *given: Any, owner: str | None = None) -> Any:
            found = super().wait(task, *given, owner=owner)
            if not self.taken:
                self.taken = True
                assert client.delete(f"/v1/graphs/{found['id']}", headers=mine).status_code == 204
            return found

    service.worker = service.planner = InlinePool()
    graph = client.post("/v1/graphs", content=b"10 20 1\n", headers=mine).json()["id"]
    service.worker = Overtaken()
    found = client.post("/v1/graphs?name=theirs", content=b"10 20 1\n", headers=theirs)
    assert (found.status_code, found.json()["id"], found.json()["name"]) == (201, graph, "theirs")
    assert client.post("/v1/jobs", json={"graph": graph}, headers=theirs).status_code == 201
    assert client.get(f"/v1/graphs/{graph}", headers=mine).status_code == 404
    client.close()
    service.jobs.close()
