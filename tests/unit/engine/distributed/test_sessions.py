"""What workers are asked to run: tasks, errors as values, and sessions that are closed when they idle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numba import typeof

from engine.api.solve import make_plan
from engine.distributed import sessions
from engine.distributed.messages import DistributedJob, TaskFailure, TaskRequest, TaskResult, code_digest
from engine.distributed.rows_worker import RowsWorker
from engine.model.problem import Options
from storage.graph.graph import build_graph


class WorkerSession:
    closed = False

    def run(self, action: str, request: TaskRequest) -> TaskResult:
        if request.level == 7:
            raise MemoryError("no room")
        return TaskResult(updates=request.level)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> WorkerSession:
    session = WorkerSession()
    monkeypatch.setattr(sessions, "make_session", lambda job, threads: session)
    monkeypatch.setattr(sessions, "_sessions", {})
    return session


@pytest.fixture
def job(tmp_path: Path) -> DistributedJob:
    plan = make_plan(build_graph([0], [1], [1], n=2, directed=True)[0], Options())
    exchange_dir = tmp_path / "exchange"
    exchange_dir.mkdir()
    return DistributedJob(
        run="run",
        code=code_digest(),
        exchange_dir=str(exchange_dir),
        device="cpu",
        store="",
        plan=plan,
        sides=(None, None),
        compression="none",
        nonnegative=True,
        reduced=False,
        integral=True,
        tile=(2, 2),
        shape=(2, 2),
    )


def test_sides_of_a_job_by_rows_suit_the_kernels_that_are_compiled_ahead(job: DistributedJob) -> None:
    side = np.arange(2)
    worker = RowsWorker(replace(job, sides=(side.tobytes(), side.tobytes())), 1)
    for given in (worker._sources, worker._targets):
        np.testing.assert_array_equal(given, side)
        assert typeof(given) == typeof(side)


def test_what_goes_wrong_comes_back_as_a_value(session: WorkerSession, job: DistributedJob) -> None:
    assert sessions.run_task(job, "relax", TaskRequest(level=3)) == TaskResult(updates=3)
    failed = sessions.run_task(job, "relax", TaskRequest(level=7))
    assert isinstance(failed, TaskFailure)
    assert "ran out of memory: no room" in failed.message


def test_orders_of_another_version_are_refused(session: WorkerSession, job: DistributedJob) -> None:
    failed = sessions.run_task(replace(job, code="another"), "relax", TaskRequest(level=3))
    assert isinstance(failed, TaskFailure)
    assert "another version" in failed.message


def test_what_a_lost_driver_had_is_given_up(
    session: WorkerSession, job: DistributedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.run_task(job, "relax", TaskRequest(level=3))
    sessions._close_idle_later()
    assert not session.closed
    monkeypatch.setattr(sessions, "IDLE", 0.0)
    sessions._close_idle_later()
    assert session.closed


def test_a_worker_says_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sessions.THREADS, "3")
    monkeypatch.setenv(sessions.MEMORY, "1000")
    told = sessions.worker_info()
    assert (told.code, told.device, told.threads, told.memory) == (code_digest(), "cpu", 3, 1000)
