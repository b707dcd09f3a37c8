"""Tests the service and the command line with an object store: nodes share no folder, and one of them may be lost."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from service.settings import Settings
from storage.matrix.reader import open_matrix
from storage.remote.addresses import checkpoint_stat
from storage.remote.objects import Objects
from tests.commands import APSP
from tests.integration.service_process import ROOT, LiveService
from tests.integration.test_cli import ROADS, apsp, done
from tests.integration.test_lost_runner import _RUNNER, N, submitted, told
from tests.s3 import S3Server
from tests.stores import verify_matrix
from tests.unit.service.support import Bench

pytestmark = pytest.mark.beside

#: commits reach the object store before the runner is killed
_SENT = """
from storage.remote.writer import RemoteMatrix
commit = RemoteMatrix.commit
def commit_and_wait(matrix, record):
    commit(matrix, record)
    matrix._wait_for_sender()
RemoteMatrix.commit = commit_and_wait
"""


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"{s3.address}/{secrets.token_hex(4)}"


def names(url: str, below: str = "") -> list[str]:
    return sorted(Objects(url).names(below))


@pytest.fixture
def node(tmp_path: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """Runners on another node: nothing in common with the service but database and object store."""
    words = [*APSP, "runner", "--devices", "cpu", "--store", url]
    words += ["--data-dir", str(tmp_path / "node"), "--database-url", database(tmp_path)]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
    process = subprocess.Popen(
        words, cwd=ROOT, env={**inherited, "APSP_NODE": "node"}, text=True, stdout=subprocess.DEVNULL
    )
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shared.db'}"


def test_nodes_share_no_folder(tmp_path: Path, url: str, node: subprocess.Popen[str]):
    settings = {"APSP_STORE_URL": url, "APSP_RUNNERS": "none", "APSP_DATABASE_URL": database(tmp_path)}
    with LiveService(tmp_path / "api", **settings) as service:
        graph = service.upload(ROADS.encode(), name="roads")["id"]
        assert f"graphs/{graph}/graph.json" in names(url)
        job = service.wait(service.submit(graph)["id"], seconds=180)
        assert job["state"] == "successful", job
        here = f"/v1/jobs/{job['id']}"
        answer = service.http.get(f"{here}/distance", params={"source": "harbour", "target": "mill"}).json()
        assert answer["distance"] == 14.5
        route = service.http.get(f"{here}/path", params={"source": "harbour", "target": "church"}).json()
        assert route["vertices"] == ["harbour", "market", "church"]
        root = service.http.get(f"{here}/zarr/zarr.json")
        assert "seal" in root.json()["attributes"]
        again = service.http.get(f"{here}/zarr/zarr.json", headers={"If-None-Match": root.headers["etag"]})
        assert again.status_code == 304
        tile = service.http.get(f"{here}/zarr/distances/c/0/0", headers={"Range": "bytes=0-7"})
        assert (tile.status_code, len(tile.content)) == (206, 8)
        assert "attempt 1 begins on node/cpu" in service.http.get(f"{here}/log").text
        assert service.http.post("/v1/jobs", json={"graph": graph}).json()["id"] == job["id"], "it is offered again"
        for folder in (tmp_path / "api", tmp_path / "node"):
            assert not list(folder.glob("jobs/*/*.zarr")), "results are in the object store alone"
        assert service.http.delete(here).status_code == 204
        assert service.http.get(f"{here}/distance", params={"source": "harbour", "target": "mill"}).status_code == 410
        assert service.http.delete(f"/v1/graphs/{graph}").status_code == 204
    assert names(url) == []


@pytest.mark.slow
def test_a_job_goes_on_on_another_node(tmp_path: Path, url: str):
    settings = Settings(
        data_dir=tmp_path / "api", database_url=database(tmp_path), store_url=url, node="node", auth=False,
        runner_nice=0, heartbeat_seconds=1.0,
    )  # fmt: skip
    bench = Bench(settings)
    job, distances = submitted(bench)
    address = settings.address(job.id)
    begun = []
    for place, deadly in (("first", 3), ("second", N)):  # the same name, as a pod has it that is made again elsewhere
        there = settings.model_copy(update={"data_dir": tmp_path / place})
        runner = start(there, deadly)
        if deadly < N:
            begun.append(told(runner, 120))
            assert runner.returncode == -signal.SIGKILL
            assert checkpoint_stat(address) is not None
            continue
        deadline = time.monotonic() + 120
        while bench.jobs.job(job.id).open and time.monotonic() < deadline:
            time.sleep(0.05)
        runner.terminate()
        begun.append(told(runner, 30))
    done = bench.jobs.job(job.id)
    bench.jobs.close()
    assert (done.state, done.attempt) == ("successful", 2), done
    assert begun[0] == 0
    assert begun[1] >= 2
    assert checkpoint_stat(address) is None
    verify_matrix(address)
    with open_matrix(address) as matrix:
        np.testing.assert_array_equal(matrix.rows(range(N)), distances)


def start(settings: Settings, deadly: int) -> subprocess.Popen[str]:
    """A runner of the processors that commits in the middle of round ``deadly`` and is killed."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("APSP_")}
    return subprocess.Popen(
        [sys.executable, "-c", _SENT + _RUNNER.format(deadly=deadly, n=N), "cpu"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, env={**inherited, **settings.environment()},
    )  # fmt: skip


def test_a_program_in_python(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    import apsp

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graph, _ = apsp.build_graph([0, 1, 2], [1, 2, 0], [3, 4, 5], directed=True)
    right = [[0, 3, 7], [9, 0, 4], [5, 8, 0]]
    for options in ({}, {"overwrite": True, "work": tmp_path}):
        apsp.solve_to_store(graph, url, **options)
        assert apsp.verify(url, "all").searched == 3
        with apsp.open(url) as matrix:
            np.testing.assert_array_equal(matrix.rows(range(3)), right)
    with pytest.raises(apsp.errors.Conflict, match="exists already"):
        apsp.solve_to_store(graph, url)
    with pytest.raises(apsp.errors.NotFound):
        apsp.open(f"{url}-else")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "locks" not in path.parts] == []


def test_the_command_line(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    roads = tmp_path / "roads.csv"
    roads.write_text(ROADS)
    out = f"{url}/roads.zarr"
    told = json.loads(done("solve", roads, "--out", out, "--json"))
    assert told["store"] == out
    assert done("query", out, "distance", "harbour", "mill") == "14.5\n"
    route = json.loads(done("query", out, "path", "harbour", "church", "--json"))
    assert route["vertices"] == ["harbour", "market", "church"]
    assert "5 of 5 rows agree" in done("verify", out)
    assert not list((tmp_path / "cache").rglob("*.zarr"))
    refused = apsp("solve", roads, "--out", out)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    done("solve", roads, "--out", out, "--overwrite", "--work", tmp_path)
    nothing = apsp("query", f"{url}/none.zarr", "summary")
    assert nothing.returncode == 2
    assert "there is no store at s3://" in nothing.stderr
    no_bucket = apsp("solve", roads, "--out", "s3://no-such-bucket/x.zarr")
    assert no_bucket.returncode == 1
    assert "no-such-bucket" in no_bucket.stderr
    assert len(no_bucket.stderr.splitlines()) < 12


def test_prepared_graphs_on_the_command_line(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    roads, weights = tmp_path / "roads.csv", tmp_path / "weights.csv"
    roads.write_text(ROADS)
    out, folder = f"{url}/roads", tmp_path / "roads"
    told = json.loads(done("prepare", roads, "--out", out, "--json", "--work", tmp_path))
    assert told["prepared"] == out
    done("prepare", roads, "--out", folder)
    assert done("query", out, "distance", "harbour", "mill") == "14.5\n"
    assert done("query", out, "path", "harbour", "church") == done("query", folder, "path", "harbour", "church")
    for place, name in ((out, "far.csv"), (folder, "near.csv")):
        done("near", place, "--cutoff", "9", "-o", tmp_path / name)
    assert (tmp_path / "far.csv").read_text() == (tmp_path / "near.csv").read_text()
    assert done("measure", out, "--measures", "reached") == done("measure", folder, "--measures", "reached")
    assert "5 of 5 rows agree" in done("verify", out)
    refused = apsp("prepare", roads, "--out", out)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    first, second, *_ = ROADS.splitlines()[1].split(",")
    weights.write_text(f"{first},{second},1000\n")
    for place in (out, folder):
        assert f"{place}: done" in done("reweight", place, "--weights", weights, "--changed")
    assert done("query", out, "row", "harbour") == done("query", folder, "row", "harbour")
    assert "5 of 5 rows agree" in done("verify", out)
    assert apsp("near", f"{url}/none", "--cutoff", "9", "-o", tmp_path / "x.csv").returncode == 2
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_service_refuses_a_store_that_does_not_answer(tmp_path: Path, s3: S3Server):
    refused = apsp("serve", "--data-dir", tmp_path, "--port", "0", "--store", "s3://no-such-bucket/x")
    assert refused.returncode == 1
    assert "no-such-bucket" in refused.stderr
    wrong = apsp("serve", "--data-dir", tmp_path, "--port", "0", "--store", "http://bucket/x")
    assert wrong.returncode == 2
    assert "store_url" in wrong.stderr
