"""A successful job whose store is gone is noticed and solved again; no message names a path of the server."""

from __future__ import annotations

import logging
import shutil
import threading
import time

import numpy as np
import pytest
from fastapi.testclient import TestClient

from service.api.fault import Fault, within, without_paths
from service.jobs.claims import place
from service.jobs.folders import redo_if_lost, redo_lost
from service.jobs.joblog import job_log, log_path
from service.jobs.retention import Retention
from service.runner.runner import Runner
from service.settings import Settings
from storage.errors import DiskFull, StorageFailed
from storage.matrix.reader import open_matrix
from tests.unit.service.support import Bench, small_graph
from tests.unit.service.test_app import problem

QUESTIONS = (
    "distance?source=10&target=20", "path?source=10&target=20", "summary", "sample", "zarr/zarr.json",
)  # fmt: skip


@pytest.fixture
def lost(bench: Bench, settings: Settings) -> str:
    """A successful job whose store is gone; its log is there."""
    job, _ = bench.solved(small_graph(), "int32")
    log_path(settings, job).write_text("done\n")
    shutil.rmtree(settings.store(job))
    return job


@pytest.mark.parametrize("question", QUESTIONS)
def test_who_asks_for_a_lost_result_is_told_that_it_is_solved_again(
    client: TestClient, bench: Bench, lost: str, question: str
):
    answer = client.get(f"/v1/jobs/{lost}/{question}")
    said = problem(answer, 409, "result-not-ready")
    assert said["detail"] == f"the store of job {lost} was lost; the job is solved again and is accepted"
    assert int(answer.headers["retry-after"]) > 0
    job = bench.jobs.job(lost)
    assert (job.state, job.summary, len(job.history)) == ("accepted", None, 1)
    problem(client.get(f"/v1/jobs/{lost}/{question}"), 409, "result-not-ready")
    assert len(bench.jobs.job(lost).history) == 1, "once"


def test_a_lost_result_is_there_again_after_the_next_attempt(client: TestClient, bench: Bench, settings: Settings):
    job, distances = bench.solved(small_graph(), "int32")
    shutil.rmtree(settings.store(job).parent)
    problem(client.get(f"/v1/jobs/{job}/summary"), 409, "result-not-ready")
    runner = Runner(settings, threading.Event())
    claimed = bench.jobs.claim("again")
    assert claimed is not None
    runner.work(claimed)
    runner._jobs.close()
    assert bench.jobs.job(job).state == "successful"
    with open_matrix(settings.store(job)) as matrix:
        found = matrix.rows(range(4)).astype(float)
        found[found == matrix.unreachable] = np.inf
        np.testing.assert_array_equal(found, distances)
    assert client.get(f"/v1/jobs/{job}/summary").status_code == 200


def test_a_result_that_is_lost_again_and_again_fails_its_job(client: TestClient, bench: Bench, lost: str):
    for _ in range(3):
        problem(client.get(f"/v1/jobs/{lost}/summary"), 409, "result-not-ready")
        claimed = bench.jobs.claim("r")
        assert claimed is not None
        assert bench.jobs.succeed(claimed, {}, {}, 1)
    said = problem(client.get(f"/v1/jobs/{lost}/summary"), 409, "no-result")
    assert "the result was lost 4 times" in said["detail"]
    shown = client.get(f"/v1/jobs/{lost}").json()
    assert (shown["state"], shown["error"]["code"]) == ("failed", "result-lost")


def test_lost_results_are_noticed_without_being_asked_for(bench: Bench, settings: Settings, lost: str):
    there, _ = bench.solved(small_graph(real=True), "float32")
    retention = Retention(settings, bench.jobs)
    (settings.data_dir / "trash").mkdir(exist_ok=True)
    now, steady = time.time(), time.monotonic()
    retention.look(now, steady)
    assert (bench.jobs.job(lost).state, bench.jobs.job(there).state) == ("accepted", "successful")
    shutil.rmtree(settings.store(there))
    retention.look(now + 60, steady + 60)
    assert bench.jobs.job(there).state == "successful", "not at every look"
    retention.look(now + 4000, steady + 4000)
    assert bench.jobs.job(there).state == "accepted"


def test_a_disk_that_is_not_mounted_queues_nothing(bench: Bench, settings: Settings):
    bench.solved(small_graph(), "int32")
    (settings.data_dir / "jobs").rename(settings.data_dir / "elsewhere")
    (settings.data_dir / "jobs").mkdir()
    assert redo_lost(settings, bench.jobs) == []


def test_what_a_later_claim_has_stored_is_not_taken_for_lost(bench: Bench, settings: Settings, lost: str):
    before = bench.jobs.job(lost)
    first = redo_if_lost(settings, bench.jobs, before)
    assert first is not None
    again = bench.jobs.claim("r")
    assert again is not None
    assert bench.jobs.succeed(again, {}, {}, 1)
    found = redo_if_lost(settings, bench.jobs, before)
    assert found is not None
    assert found.state == "successful"


def test_messages_name_files_within_the_data_directory(settings: Settings, client: TestClient, bench: Bench, lost: str):
    folder = settings.data_dir.absolute()
    text = f"cannot write {folder}/jobs/x/matrix.zarr: no room in {folder}"
    assert within(text, settings.data_dir) == "cannot write jobs/x/matrix.zarr: no room in the data directory"
    assert without_paths(Fault("disk-full", text), settings.data_dir).message == within(text, settings.data_dir)
    with job_log(settings, lost):
        logging.getLogger("apsp.test").error(text)
    assert str(folder) not in client.get(f"/v1/jobs/{lost}/log").text
    assert "jobs/x/matrix.zarr: no room" in client.get(f"/v1/jobs/{lost}/log").text


@pytest.mark.parametrize(
    ("error", "status", "code"), [(DiskFull, 507, "disk-full"), (StorageFailed, 500, "storage-failed")]
)
def test_an_answer_names_no_path_of_the_server(client, settings, bench, monkeypatch, error, status, code):
    job, _ = bench.solved(small_graph(), "int32")

    def fail(*_: object) -> None:
        raise error(f"cannot read {place(settings.store(job), 3)}: broken")

    monkeypatch.setattr(client.app.state.service.results, "get", fail)
    said = problem(client.get(f"/v1/jobs/{job}/summary"), status, code)
    assert said["detail"] == f"cannot read jobs/{job}/claim-3/matrix.zarr: broken"


def test_a_job_that_failed_for_want_of_disk_can_be_resumed_without_a_checkpoint(client: TestClient, bench: Bench):
    job = bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    claimed = bench.jobs.claim("r")
    assert claimed is not None
    bench.jobs.fail(claimed, {"code": "disk-full", "message": "no room", "details": {}})
    assert client.get(f"/v1/jobs/{job.id}").json()["links"]["resume"] == f"/v1/jobs/{job.id}/resume"
    answer = client.post(f"/v1/jobs/{job.id}/resume")
    assert (answer.status_code, answer.json()["state"]) == (202, "accepted")
