"""Threads that share a kernel: everybody takes part, failures come out, waiting is passive, sharing is judged."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numba import njit

from engine.devices.cpu import team as team_module
from engine.devices.cpu.team import Team, fetch_add
from engine.model.system import usable_processors


@njit(nogil=True)
def _take(worker, counter, owner):  # type: ignore[no-untyped-def]
    while True:
        item = fetch_add(counter.ctypes.data, 1)
        if item >= len(owner):
            break
        owner[item] += worker + 1


@pytest.fixture(params=[1, 2, 5])
def team(request):
    made = Team(request.param)
    yield made
    made.close()


def test_every_item_is_taken_once(team):
    for _ in range(20):
        owner = np.zeros(10_000, np.int64)
        team.run(_take, np.zeros(1, np.int64), owner)
        assert np.all((owner >= 1) & (owner <= team.threads))


def test_each_worker_is_called_once_and_the_caller_is_the_first(team):
    seen = {}
    team.run(lambda worker: seen.setdefault(worker, threading.get_ident()))
    assert sorted(seen) == list(range(team.threads))
    assert seen[0] == threading.get_ident()


@pytest.mark.parametrize("most", [1, 2, 4])
def test_all_may_join_a_run_that_some_have_begun(most: int):
    team, seen = Team(4), set()
    joined = threading.Event()

    def work(worker: int) -> None:
        seen.add(worker)
        if worker == 0:
            assert seen <= set(range(most))
            team.widen()
            team.widen()
            joined.set()
        assert joined.wait(60)

    for _ in range(3):
        seen.clear()
        joined.clear()
        team.run(work, most=most)
        assert seen == set(range(4))
    team.run(seen.discard, most=most)
    assert seen == set(range(most, 4)), "the next run has only those that it asks for"
    team.close()


def test_a_failure_of_one_that_joined_comes_out():
    team = Team(3)

    def work(worker: int) -> None:
        if worker == 0:
            team.widen()
        if worker == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        team.run(work, most=1)
    team.close()


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_failure_comes_out_after_all_have_ended(culprit):
    team, ended = Team(2), []

    def fail(worker: int) -> None:
        if worker == culprit:
            raise ZeroDivisionError
        time.sleep(0.05)
        ended.append(worker)

    with pytest.raises(ZeroDivisionError):
        team.run(fail)
    assert ended == [1 - culprit]
    team.close()


def test_waiting_takes_no_processor_time():
    team = Team(2)
    before = time.process_time()
    team.run(lambda worker: time.sleep(0.3 * worker))
    assert time.process_time() - before < 0.15
    team.close()


def test_as_many_threads_as_processors():
    team = Team()
    assert team.threads == usable_processors() >= 1
    team.close()


def test_one_thread_has_nobody_to_share_with():
    assert not Team(1).worth_sharing()


def test_sharing_is_given_up_for_a_while_where_it_gains_nothing(monkeypatch):
    monkeypatch.setattr(team_module, "PAUSE", 0.1)
    team = Team(2)
    assert team.worth_sharing()
    team.run(lambda worker: time.sleep(team_module.JUDGED))
    assert not team.worth_sharing()
    assert not team.worth_sharing()
    time.sleep(0.11)
    assert team.worth_sharing()
    team.close()


def test_sharing_goes_on_while_processors_are_free(monkeypatch):
    """Two workers that are charged nearly all the time that passes, as on a quiet machine."""
    team = Team(2)
    clock = time.perf_counter
    monkeypatch.setattr(team_module.time, "thread_time", lambda: 0.9 * clock())
    team.run(lambda worker: time.sleep(team_module.JUDGED))
    assert team.worth_sharing()
    team.close()
