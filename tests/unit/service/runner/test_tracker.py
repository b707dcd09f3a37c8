from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from engine.model.plan import Phase, Plan
from service.runner.tracker import JobMonitor, ProgressEstimator
from storage.errors import Cancelled, StorageFailed
from storage.jobs.store import Progress


def plan(**seconds: float) -> Plan:
    phases = tuple(Phase(name, value) for name, value in seconds.items())
    return Plan("dijkstra", "float32", "cpu", 1, (4, 4), 0, 0, sum(seconds.values()), "", "", phases=phases)


def test_phases_weigh_as_predicted_and_the_fraction_never_falls():
    gauge = ProgressEstimator(plan(ingest=10, relax=80, write=10), 0.0)
    gauge.begin("create", 1, "store", 0.0)
    assert gauge.read(0.1).fraction == 0
    gauge.begin("ingest", 100, "rows", 0.1)
    gauge.advance(50)
    assert gauge.read(1.0).fraction == pytest.approx(0.05)
    gauge.begin("relax", 10, "updates", 2.0)
    assert gauge.read(2.0).fraction == pytest.approx(0.1)
    gauge.advance(5)
    assert gauge.read(3.0).fraction == pytest.approx(0.5)
    gauge.begin("relax", 10, "updates", 4.0)
    assert gauge.read(4.0).fraction == pytest.approx(0.5)
    gauge.begin("write", 4, "rows", 5.0)
    gauge.advance(8)
    assert gauge.read(6.0).fraction == 1.0
    gauge.begin("seal", 1, "store", 6.0)
    assert gauge.read(7.0).fraction == 1.0


def test_rate_and_time_left():
    gauge = ProgressEstimator(plan(search=10, seal=5), 0.0)
    gauge.begin("search", 1000, "rows", 0.0)
    assert gauge.read(0.0) == Progress(0.0, None, "rows", 10 + 5)
    gauge.advance(100)
    found = gauge.read(1.0)
    assert found.rate == pytest.approx(100)
    assert found.eta == pytest.approx(9 + 5), "as planned until more is known"
    gauge.advance(50)
    found = gauge.read(2.0)
    assert found.rate == pytest.approx(0.8 * 100 + 0.2 * 50)
    assert found.eta == pytest.approx((1 + 0.1 * 10) / (0.05 + 0.1) * 0.85 + 5)


def test_time_left_without_a_prediction_is_that_of_the_rate():
    gauge = ProgressEstimator(None, 0.0)
    gauge.begin("solve", 1000, "graphs", 0.0)
    assert gauge.read(0.5).eta is None
    gauge.advance(100)
    assert gauge.read(1.0).eta == pytest.approx(9)


def test_time_left_does_not_jump_while_little_is_done():
    """A slow beginning of a job that was planned to take 165 s, and takes 400 s in the end."""
    gauge = ProgressEstimator(plan(relax=165), 0.0)
    gauge.begin("relax", 100_000, "updates", 0.0)
    told, done = [], 0
    for second in range(1, 400):
        wanted = second * 250 if second > 5 else second * 30
        gauge.advance(wanted - done)
        done = wanted
        told.append(gauge.read(float(second)).eta)
    assert all(abs(b - a) < 25 for a, b in pairwise(told)), told
    assert max(told) < 400
    assert told[0] == pytest.approx(165, rel=0.01)
    assert told[200] == pytest.approx(400 - 201, rel=0.2)
    assert told[-1] < 5


def test_nothing_is_said_while_a_phase_takes_longer_than_planned_before_it_moves():
    """Kernels are compiled then; and the time that took says nothing about the rest."""
    gauge = ProgressEstimator(plan(search=0.5), 0.0)
    gauge.begin("search", 100, "rows", 0.0)
    assert gauge.read(0.4).eta == pytest.approx(0.5)
    assert gauge.read(10.0).eta is None
    gauge.advance(10)
    assert gauge.read(20.0).eta == pytest.approx(0.45)


def test_searching_and_writing_are_one_phase():
    gauge = ProgressEstimator(plan(create=1, partition=1, sweep=6, write=2), 0.0)
    gauge.begin("search", 100, "rows", 0.0)
    gauge.advance(50)
    assert gauge.read(1.0).fraction == pytest.approx((2 + 4) / 10)


class FakeJobs:
    def __init__(self) -> None:
        self.reports: list[tuple[str, Progress]] = []
        self.answer: bool | None = False
        self.broken = False

    def report(self, _claimed: object, phase: str, progress: Progress) -> bool | None:
        if self.broken:
            raise StorageFailed("locked")
        self.reports.append((phase, progress))
        return self.answer


def monitor(jobs: FakeJobs) -> JobMonitor:
    return JobMonitor(jobs, SimpleNamespace(id="j", cancel=False), threading.Event())


def test_calls_are_many_and_reports_few():
    jobs = FakeJobs()
    watched = monitor(jobs)
    watched.begin("search", 10**9, "rows")
    end = time.monotonic() + 0.6
    calls = 0
    while time.monotonic() < end:
        watched.step(1)
        calls += 1
    assert calls > 1000
    assert 2 <= len(jobs.reports) <= 4
    assert jobs.reports[-1][1].rate is not None


def test_a_cancel_and_a_lost_claim_stop_the_solve():
    for answer, attribute in ((True, "asked"), (None, "lost")):
        jobs = FakeJobs()
        jobs.answer = answer
        watched = monitor(jobs)
        watched.begin("search", 10, "rows")
        with pytest.raises(Cancelled):
            watched.step(1)
        assert getattr(watched, attribute)


def test_a_stopping_runner_stops_the_solve():
    watched = monitor(FakeJobs())
    watched.stopping.set()
    assert watched.cancelled()


def test_progress_that_cannot_be_stored_is_no_reason_to_stop():
    jobs = FakeJobs()
    jobs.broken = True
    watched = monitor(jobs)
    watched.begin("search", 10, "rows")
    watched.step(1)
    assert not watched.lost


def test_seconds_of_steps_are_told_by_phase():
    told: list[tuple[str, float]] = []
    claimed = SimpleNamespace(id="j", cancel=False)
    watched = JobMonitor(FakeJobs(), claimed, threading.Event(), lambda *step: told.append(step))
    watched.begin("relax", 2, "updates")
    time.sleep(0.05)
    watched.step(1)
    watched.step(1)
    watched.begin("write", 1, "rows")
    watched.step(1)
    assert [phase for phase, _ in told] == ["relax", "relax", "write"]
    assert told[0][1] >= 0.05
    assert min(seconds for _, seconds in told) >= 0
