"""Tasks that overlap: never at the same stripe, and ended together."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from engine.distributed.dense.assignment import AssignedWorker
from engine.distributed.locks import StripeLocks
from engine.distributed.messages import DriverStopped
from tests.spreading import worker_info


def test_no_two_tasks_are_at_a_stripe() -> None:
    locks, there, worst, lock = StripeLocks(), [0] * 5, [0], threading.Lock()

    def task(number: int) -> None:
        own = {number % 5, number * 7 % 5}
        with locks.hold(own):
            with lock:
                for stripe in own:
                    there[stripe] += 1
                    worst[0] = max(worst[0], there[stripe])
            time.sleep(0.0005)
            with lock:
                for stripe in own:
                    there[stripe] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(task, range(200)))
    assert worst == [1]


def test_the_end_waits_for_those_that_run_and_lets_no_other_begin() -> None:
    locks, begun, go, ended = StripeLocks(), threading.Event(), threading.Event(), []

    def task() -> None:
        with locks.hold([1]):
            begun.set()
            go.wait()
            ended.append("task")

    def waiting() -> None:
        with pytest.raises(DriverStopped), locks.hold([1]):
            pass
        ended.append("waiting")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(task)
        begun.wait()
        second = pool.submit(waiting)
        end = pool.submit(locks.end, 60.0)
        second.result()
        assert not end.done()
        go.set()
        end.result()
        first.result()
    assert ended == ["waiting", "task"]
    with pytest.raises(DriverStopped), locks.hold():
        pass


def test_the_end_does_not_wait_for_ever() -> None:
    locks = StripeLocks()
    with locks.hold([1]):
        began = time.monotonic()
        locks.end(0.05)
        assert 0.04 < time.monotonic() - began < 5


def test_tasks_that_overlap_count_their_own_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    locks, now = StripeLocks(), [100.0]
    monkeypatch.setattr("engine.distributed.locks.time", SimpleNamespace(monotonic=lambda: now[0]))
    now[0] = 105.0
    assert locks.own_seconds(100.0) == 5
    now[0] = 107.0
    assert locks.own_seconds(101.0) == 2, "the other task has counted what was before"
    now[0] = 120.0
    assert locks.own_seconds(110.0) == 10


def test_a_rate_is_that_of_several_tasks_whichever_ended_first() -> None:
    worker = AssignedWorker(worker_info(), 1.0, 3)
    worker.learn(50, 0.01, 0.05)
    assert worker.rate == 1.0, "too little to know"
    for _ in range(40):
        worker.learn(60, 0.11, 0.05)
        worker.learn(60, 0.01, 0.05)
    assert worker.rate == pytest.approx(1000, rel=0.2)
