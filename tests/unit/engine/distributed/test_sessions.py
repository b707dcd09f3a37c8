"""What workers are asked to run: at the door, at the desk, and when nobody comes any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.solve import make_plan
from engine.distributed import sessions
from engine.distributed.messages import Failure, Job, Order, Report, code_digest
from engine.model.problem import Options
from storage.graph.graph import build_graph


class Desk:
    closed = False

    def relax(self, order: Order) -> Report:
        if order.level == 7:
            raise MemoryError("no room")
        return Report(updates=order.level)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk()
    monkeypatch.setattr(sessions, "made", lambda job, threads: desk)
    monkeypatch.setattr(sessions, "_desks", {})
    return desk


@pytest.fixture
def job(tmp_path: Path) -> Job:
    plan = make_plan(build_graph([0], [1], [1], n=2, directed=True)[0], Options())
    room = tmp_path / "room"
    room.mkdir()
    return Job(
        "run", code_digest(), "", str(room), plan, (None, None), "none", True, False, True, (2, 2), (2, 2), "cpu"
    )


def test_what_goes_wrong_comes_back_as_a_value(desk: Desk, job: Job) -> None:
    assert sessions.work(job, "relax", Order(level=3)) == Report(updates=3)
    failed = sessions.work(job, "relax", Order(level=7))
    assert isinstance(failed, Failure)
    assert "ran out of memory: no room" in failed.message


def test_orders_of_another_version_are_refused(desk: Desk, job: Job) -> None:
    failed = sessions.work(replace(job, code="another"), "relax", Order(level=3))
    assert isinstance(failed, Failure)
    assert "another version" in failed.message


def test_what_a_lost_driver_had_is_given_up(desk: Desk, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.work(job, "relax", Order(level=3))
    sessions._look()
    assert not desk.closed
    monkeypatch.setattr(sessions, "IDLE", 0.0)
    sessions._look()
    assert desk.closed


def test_a_worker_says_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sessions.THREADS, "3")
    monkeypatch.setenv(sessions.MEMORY, "1000")
    told = sessions.hello()
    assert (told.code, told.device, told.threads, told.memory) == (code_digest(), "cpu", 3, 1000)
