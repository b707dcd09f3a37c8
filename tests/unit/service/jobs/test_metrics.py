"""Metrics: what is counted, what is read from the database, and that no stranger can make labels."""

from __future__ import annotations

import os
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine.model import traffic
from service.app import create_app
from service.jobs.metrics import Metrics
from service.runner.metrics import RunnerMetrics
from service.settings import Settings
from storage.jobs.store import JobRecord, RunnerRecord
from tests.unit.service.support import Bench, small_graph

ROOT = Path(__file__).resolve().parents[4]
PLAN = {"algorithm": "dijkstra", "device": "cpu"}


@pytest.fixture
def metrics(settings: Settings, bench: Bench) -> Metrics:
    found = Metrics(settings.model_copy(update={"metrics_port": 0}))
    found.start(bench.jobs)
    return found


def scraped(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Name of a sample -> values of its labels, in the order of the labels' names -> number."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def job(bench: Bench, graph: str) -> JobRecord:
    bench.jobs.create(graph, {}, PLAN)
    claimed = bench.jobs.claim("node/cpu:1")
    assert claimed is not None
    return claimed


def test_jobs_and_their_seconds(metrics: Metrics, bench: Bench):
    graph = bench.add_graph(small_graph())
    assert bench.jobs.succeed(job(bench, graph), {}, {})
    bench.jobs.fail(job(bench, graph), {"code": "solve-failed", "message": "", "details": {}})
    bench.jobs.cancel(bench.jobs.create(graph, {}, PLAN).id)
    running = job(bench, graph)
    for _ in range(2):  # however often it is asked, every job counts once
        found = scraped(metrics)
        assert found["apsp_jobs"] == {
            ("accepted",): 0, ("running",): 1, ("successful",): 1, ("failed",): 1, ("dismissed",): 1,
        }  # fmt: skip
        assert found["apsp_job_run_seconds_count"] == {
            ("dijkstra", "cpu", "successful"): 1, ("dijkstra", "cpu", "failed"): 1,
        }  # fmt: skip
        assert found["apsp_job_queue_wait_seconds_count"] == {(): 2}
        assert 0 <= found["apsp_job_queue_wait_seconds_sum"][()] < 5
        assert found["apsp_database_up"] == {(): 1}
    assert bench.jobs.succeed(running, {}, {})
    assert scraped(metrics)["apsp_job_run_seconds_count"]["dijkstra", "cpu", "successful"] == 2


def test_jobs_of_before_do_not_count_and_second_attempts_do_not_wait(settings: Settings, bench: Bench):
    graph = bench.add_graph(small_graph())
    old = job(bench, graph)
    assert bench.jobs.succeed(old, {}, {})
    with bench.jobs.database.transaction("durable") as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET finished = {time.time() - 3600} WHERE id = '{old.id}'")
    metrics = Metrics(settings)
    metrics._jobs = bench.jobs
    job(bench, graph)
    bench.jobs.recover()
    again = bench.jobs.claim("node/cpu:1")
    assert again is not None
    assert bench.jobs.succeed(again, {}, {})
    found = scraped(metrics)
    assert found["apsp_job_run_seconds_count"] == {("dijkstra", "cpu", "successful"): 1}
    assert found["apsp_job_queue_wait_seconds_count"] == {(): 0}


def test_runners_tiles_bytes_and_memory(metrics: Metrics, bench: Bench, client: TestClient):
    figures = {
        "name": "chip", "memory": {"used": 5, "limit": 9}, "phases": {"search": [4, 2.5]},
        "bytes": {"disk": {"read": 1, "write": 2}, "device": {"read": 3, "write": 4}},
    }  # fmt: skip
    bench.jobs.announce(RunnerRecord("n/cuda0", "n/cuda0:1", "cuda0", "busy", "job", time.time(), figures))
    bench.jobs.announce(RunnerRecord("n/cuda1", "n/cuda1:1", "cuda1", "sick", "hangs", time.time()))
    bench.jobs.announce(RunnerRecord("n/cuda2", "n/cuda2:1", "cuda2", "idle", None, time.time() - 900, figures))
    found = scraped(metrics)
    assert found["apsp_device_healthy"] == {("cuda0", "n/cuda0"): 1, ("cuda1", "n/cuda1"): 0}
    assert found["apsp_device_memory_used_bytes"] == {("cuda0", "n/cuda0"): 5}
    assert found["apsp_device_memory_limit_bytes"] == {("cuda0", "n/cuda0"): 9}
    assert found["apsp_tile_seconds_count"] == {("search", "n/cuda0"): 4}
    assert found["apsp_tile_seconds_sum"] == {("search", "n/cuda0"): 2.5}
    assert found["apsp_io_bytes_total"] == {
        ("read", "n/cuda0", "disk"): 1, ("write", "n/cuda0", "disk"): 2,
        ("read", "n/cuda0", "device"): 3, ("write", "n/cuda0", "device"): 4,
    }  # fmt: skip
    assert found["apsp_store_free_bytes"][()] > 0
    assert len(found["apsp_build_info"]) == 1
    shown = client.get("/v1/devices").json()["devices"]
    members = ("runner", "device", "name", "state", "reason", "memory_bytes", "memory_used_bytes")
    assert sorted(tuple(device[name] for name in members) for device in shown) == [
        ("n/cuda0", "cuda0", "chip", "busy", None, 9, 5), ("n/cuda1", "cuda1", None, "sick", "hangs", None, None),
        ("n/cuda2", "cuda2", "chip", "silent", None, 9, 5),
    ]  # fmt: skip


def test_the_age_of_checkpoints(metrics: Metrics, bench: Bench, settings: Settings):
    claimed = job(bench, bench.add_graph(small_graph()))
    assert 0 <= scraped(metrics)["apsp_checkpoint_age_seconds"]["node/cpu",] < 60
    record = settings.store(claimed.id).with_name(".matrix.zarr.working") / "record.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    os.utime(record, (time.time() - 500, time.time() - 500))
    assert 500 <= scraped(metrics)["apsp_checkpoint_age_seconds"]["node/cpu",] < 560
    bench.jobs.succeed(claimed, {}, {})
    assert "apsp_checkpoint_age_seconds" not in scraped(metrics)


def test_requests_by_route_and_no_labels_of_strangers(settings: Settings, bench: Bench):
    metrics = Metrics(settings)
    app = create_app(settings, observe=metrics.observe)
    with TestClient(app, raise_server_exceptions=False) as client:
        job_id, _ = bench.solved(small_graph(), "int32")
        for _ in range(3):
            client.get(f"/v1/jobs/{job_id}/distance?source=10&target=20")
        client.head(f"/v1/jobs/{job_id}/zarr/zarr.json")
        client.get("/v1/jobs/unknown")
        client.get("/secret/apsp_abcdefgh_" + "s" * 43)
        client.request("BREW", "/v1/jobs")
    counts = scraped(metrics)["apsp_http_request_duration_seconds_count"]
    assert counts == {
        ("GET", "/v1/jobs/{job_id}/distance", "200"): 3,
        ("HEAD", "/v1/jobs/{job_id}/zarr/{key}", "200"): 1,
        ("GET", "/v1/jobs/{job_id}", "404"): 1,
        ("GET", "none", "404"): 1,
        ("other", next(route for method, route, _ in counts if method == "other"), "405"): 1,
    }
    assert job_id not in generate_latest(metrics.registry).decode()
    app.state.service.jobs.close()


def test_without_a_database_the_rest_is_told(settings: Settings, bench: Bench):
    metrics = Metrics(settings)
    metrics._jobs = bench.jobs
    bench.jobs.close()
    path = settings.data_dir / "apsp.db"
    for name in (path, path.with_name("apsp.db-wal"), path.with_name("apsp.db-shm")):
        name.unlink(missing_ok=True)
    path.mkdir()
    found = scraped(metrics)
    assert found["apsp_database_up"] == {(): 0}
    assert "apsp_jobs" not in found
    path.rmdir()


def test_the_port_is_its_own_and_no_reason_to_fail(settings: Settings, bench: Bench, caplog: pytest.LogCaptureFixture):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = Metrics(settings.model_copy(update={"metrics_port": port}))
        busy.start(bench.jobs)
        assert "there are no metrics" in caplog.text
        busy.stop()
    metrics = Metrics(settings.model_copy(update={"metrics_port": port}))
    metrics.start(bench.jobs)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"apsp_jobs" in answer.read()
    metrics.stop()


def test_figures_of_this_process(tmp_path: Path):
    figures = RunnerMetrics("cpu")
    figures.step("search", 0.5)
    figures.step("search", 0.25)
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    found = figures.read()
    assert found["phases"] == {"search": [2, 0.75]}
    assert 0 < found["memory"]["used"] < found["memory"]["limit"]
    assert found["bytes"]["disk"]["write"] >= 0
    before = found["bytes"]["device"]["read"]
    traffic.moved("read", 7)
    assert figures.read()["bytes"]["device"]["read"] == before + 7
    assert found["name"]
    assert RunnerMetrics("cuda0").read()["memory"] == {"used": None, "limit": None}, "an idle GPU is not woken"


def test_gpus_are_called_by_their_name_where_all_have_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.runner.metrics._GPUS", tmp_path)
    assert RunnerMetrics("cuda0").read()["name"] is None
    for address, model, name in (("1", "NVIDIA A", "NVIDIA A"), ("2", "NVIDIA A", "NVIDIA A"), ("3", "NVIDIA B", None)):
        (tmp_path / address).mkdir()
        (tmp_path / address / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 3\n")
        assert RunnerMetrics("cuda1").read()["name"] == name


def test_the_metrics_are_documented(metrics: Metrics, bench: Bench):
    bench.jobs.announce(RunnerRecord("n/cpu", "n/cpu:1", "cpu", "idle", None, time.time(), RunnerMetrics("cpu").read()))
    text = (ROOT / "docs" / "operations.md").read_text()
    ours = {family.name for family in metrics.registry.collect() if family.name.startswith("apsp_")}
    documented = {name.removesuffix("_total") for name in re.findall(r"^\| `(apsp_\w+)", text, re.MULTILINE)}
    assert documented == ours
