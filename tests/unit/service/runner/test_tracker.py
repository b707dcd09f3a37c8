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


def test_compiling_ahead_counts_down_and_never_up():
    """The longest kernels are compiled first, so the mean of those done is more than that of those left."""
    gauge = ProgressEstimator(plan(create=0.1, compile=60, search=5, seal=1), 0.0)
    gauge.begin("compile", 10, "kernels", 0.0)
    told, now = [gauge.read(0.0).eta], 0.0
    for seconds in (20, 10, 8, 6, 5, 4, 3, 2, 1, 1):
        now += seconds
        told.append(gauge.read(now - 0.1).eta)
        gauge.advance(1)
        told.append(gauge.read(now).eta)
        assert gauge.read(now).rate is None, "kernels have no rate"
    assert told[0] == pytest.approx(66)
    assert all(b <= a for a, b in pairwise(told)), told
    assert told[-1] == pytest.approx(6)
    gauge.begin("search", 100, "rows", now)
    assert gauge.read(now).eta == pytest.approx(6)


def test_compiling_ahead_that_was_not_planned_or_is_slow():
    gauge = ProgressEstimator(None, 0.0)
    gauge.begin("compile", 4, "kernels", 0.0)
    assert gauge.read(5.0).eta is None
    gauge.advance(1)
    assert gauge.read(10.0).eta == pytest.approx(10 / 0.5 * 0.75)
    slow = ProgressEstimator(plan(compile=10, search=5), 0.0)
    slow.begin("compile", 4, "kernels", 0.0)
    assert slow.read(11.0).eta is None, "nothing is known about a machine that is this slow"
    told = []
    for now, done in ((40, 1), (50, 0), (60, 1), (70, 1), (71, 0), (75, 1)):
        slow.advance(done)
        told.append(slow.read(now).eta)
    assert told[0] == pytest.approx(40 / 0.5 * 0.75 + 5)
    assert told == sorted(told, reverse=True)
    assert told[-1] == pytest.approx(5)


def test_an_interruption_by_compiling_leaves_rate_and_time_left_of_the_work():
    """Each kernel is compiled when it is first called: 20 s of it amid a search of 10 s."""
    gauge = ProgressEstimator(plan(compile=20, search=10, seal=1), 0.0)
    gauge.begin("search", 1000, "rows", 0.0)
    assert gauge.read(0.0).eta == pytest.approx(20 + 10 + 1)
    told, now, done = [], 0.0, 0
    for _ in range(4):
        gauge.begin("compile", 1, "kernels", now)
        for _ in range(5):
            now += 1
            told.append(gauge.read(now).eta)
        gauge.advance(1)
        gauge.begin("search", 1000, "rows", now, done=done)
        told.append(gauge.read(now).eta)
        for _ in range(2):
            now += 0.5
            done += 50
            gauge.advance(50)
            found = gauge.read(now)
            told.append(found.eta)
            assert found.rate == pytest.approx(100)
    known = [each for each in told if each is not None]
    assert len(known) >= len(told) - 1
    assert all(b <= a + 1e-9 for a, b in pairwise(known)), told
    assert told[-1] == pytest.approx(6 + 1, abs=0.5)


def test_an_interruption_that_was_not_planned():
    gauge = ProgressEstimator(plan(search=10, seal=1), 0.0)
    gauge.begin("search", 1000, "rows", 0.0)
    gauge.advance(100)
    assert gauge.read(1.0).eta == pytest.approx(10)
    gauge.begin("compile", 1, "kernels", 1.0)
    assert gauge.read(30.0).eta is None, "nobody knows how long this kernel takes"
    gauge.advance(1)
    gauge.begin("search", 1000, "rows", 31.0, done=100)
    assert gauge.read(31.0).eta == pytest.approx(10), "as before the interruption"
    gauge.advance(100)
    found = gauge.read(32.0)
    assert found.eta == pytest.approx((1 + 0.1 * 10) / (0.1 + 0.1) * 0.8 + 1)
    assert found.rate == pytest.approx(100)


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
