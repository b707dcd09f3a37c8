"""Threads that share a kernel: everybody takes part, failures come out, waiting is passive, sharing is judged."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from numba import njit

import storage.threads as threads_module
from engine.devices.cpu import team as team_module
from engine.devices.cpu.team import Team, fetch_add
from engine.model.system import usable_processors
from storage.errors import SolveFailed
from tests.interrupting import Interruption, by_itself


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


def test_a_run_of_one_thread_is_not_widened():
    team, seen = Team(1), []

    def work(worker: int) -> None:
        team.widen()
        seen.append(worker)

    team.run(work, most=1)
    assert seen == [0]
    team.close()


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
    monkeypatch.setattr(team_module, "PAUSE", 600)
    team, clock = Team(2), time.perf_counter
    assert team.worth_sharing()
    team.run(lambda worker: time.sleep(team_module.JUDGED))
    assert not team.worth_sharing()
    assert not team.worth_sharing()
    monkeypatch.setattr(team_module.time, "perf_counter", lambda: clock() + 601)
    assert team.worth_sharing()
    team.close()


def test_sharing_goes_on_while_processors_are_free(monkeypatch):
    """Two workers that are charged nearly all the time that passes, as on a quiet machine."""
    team, now, both = Team(2), [0.0], threading.Barrier(2)
    monkeypatch.setattr(team_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(team_module.time, "thread_time", lambda: 0.9 * now[0])

    def work(worker: int) -> None:
        both.wait(60)
        if worker == 0:
            now[0] += team_module.JUDGED
        both.wait(60)

    team.run(work)
    assert team.worth_sharing()
    team.close()


def goes_on(team: Team) -> None:
    """Runs are whole after whatever has happened: they end, all workers take part once, and none works afterwards."""
    for most in (None, 2, None):
        begun, ended = [], []

        def work(worker: int, begun: list[int] = begun, ended: list[int] = ended) -> None:
            begun.append(worker)
            time.sleep(0.0005 * worker)
            ended.append(worker)

        team.run(work, most=most)
        assert sorted(begun) == sorted(ended) == list(range(most or team.threads))


def interrupted_everywhere(steps: range) -> list[int]:
    """The steps at which a run could be interrupted; for each, the team then goes on and can be closed."""
    found = []
    for at in steps:
        team = Team(3)
        if at % 2:  # both with threads that have run before, and with new ones
            goes_on(team)
        if not Interruption(at, team_module, every=True).hits(
            lambda team=team: team.run(lambda worker: time.sleep(0.001 * worker))
        ):
            team.close()
            break
        if at % 3:
            goes_on(team)
        team.close()
        found.append(at)
    return found


def test_an_interrupt_at_any_step_of_a_run_leaves_a_team_that_goes_on_and_ends() -> None:
    found = by_itself(lambda: interrupted_everywhere(range(1, 2000)))
    assert 150 < len(found) < 1999, "every step of a run was one, and the last run had no more"


def test_an_interrupt_at_any_step_of_closing_leaves_a_team_that_can_be_closed() -> None:
    def work() -> int:
        for at in range(1, 2000):
            team = Team(3)
            goes_on(team)
            hit = Interruption(at, team_module, every=True).hits(team.close)
            team.close()
            if not hit:
                return at
        return 0

    assert by_itself(work) > 20


def ended(known: set[threading.Thread], but: int = 0) -> bool:
    """Whether all threads of teams have ended but for some, apart from those that were known; one that is lost needs a
    moment.
    """
    until = time.monotonic() + 20
    while sum(one.name.startswith("apsp") and one not in known for one in threading.enumerate()) > but:
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def test_an_interrupt_at_any_step_of_a_first_run_leaves_no_thread_behind() -> None:
    """Steps of ``threading`` count, too: a thread that has begun before the team knew of it would sleep for ever."""

    def work() -> int:
        for at in range(1, 2000):
            team, known = Team(3), set(threading.enumerate())
            hit = Interruption(at, team_module, threads_module, threading).hits(
                lambda team=team: team.run(lambda worker: None)
            )
            team.close()
            team_module.end_parked()
            assert ended(known), f"after step {at}"
            if not hit:
                return at
        return 0

    assert by_itself(work) > 20


def test_where_no_thread_can_begin_a_run_fails_and_a_later_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team(3)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(SolveFailed, match="can't start new thread"):
            team.run(lambda worker: None)
        team.close()
        with pytest.raises(SolveFailed, match="can't start new thread"):
            team.run(lambda worker: None)
    goes_on(team)
    team.close()


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def interrupted(_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_waits_for_threads_that_an_interrupted_one_has_left_at_work() -> None:
    team, working, go = Team(2), threading.Event(), threading.Event()

    def slow(worker: int) -> None:
        if worker == 1:
            working.set()
            go.wait(60)
            time.sleep(0.05)
            left.append(worker)
        else:
            working.wait(60)

    left: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team_module._Task, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            team.run(slow)
    assert left == []
    go.set()
    team.run(lambda _worker: left.append(0))
    assert left == [1, 0, 0]
    team.close()


def test_a_team_takes_the_threads_of_one_that_was_closed() -> None:
    team_module.end_parked()
    workers: list[dict[int, threading.Thread]] = []
    for threads in (4, 2, 5):
        seen: dict[int, threading.Thread] = {}
        together = threading.Barrier(threads)

        def work(worker: int, seen: dict[int, threading.Thread] = seen, together: threading.Barrier = together) -> None:
            seen[worker] = threading.current_thread()
            together.wait(60)

        team = Team(threads)
        team.run(work)
        team.run(work)
        team.close()
        workers.append(seen)
    first, second, third = ({each for worker, each in seen.items() if worker} for seen in workers)
    assert second < first < third
    assert len(third) == 4
    team_module.end_parked()
    assert not any(each.is_alive() for each in third)


def test_teams_at_the_same_time_share_no_thread() -> None:
    """Eight callers open and close teams; every run has its workers, once each, and no thread is in two runs."""
    busy: set[int] = set()
    wrong: list[object] = []
    stop = time.monotonic() + 3

    def work(worker: int, seen: list[int]) -> None:
        me = threading.get_ident()
        if me in busy:
            wrong.append("in two runs")
        busy.add(me)
        time.sleep(0.0002)
        seen.append(worker)
        busy.discard(me)

    def caller(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < stop:
            team = Team(rng.randrange(2, 6))
            for _ in range(rng.randrange(1, 3)):
                seen: list[int] = []
                team.run(work, seen)
                if sorted(seen) != list(range(team.threads)):
                    wrong.append(seen)
            team.close()

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not wrong


def test_a_parked_thread_ends_when_nobody_needs_it_and_not_while_somebody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team_module.end_parked()
    known = set(threading.enumerate())
    monkeypatch.setattr(team_module, "IDLE", 0.02)
    team = Team(3)
    for _ in range(30):  # they often wait as long as a parked thread would before it ends
        goes_on(team)
        time.sleep(0.02)
    team.close()
    assert ended(known)
    assert not any(team_module._PARKED.values())
    for _ in range(200):  # a team takes threads at the moment at which they end
        team = Team(3)
        goes_on(team)
        team.close()
        time.sleep(0.019)
    assert ended(known)


@pytest.mark.parametrize("cycle", [False, True])
def test_a_thread_that_nobody_knows_any_more_ends(cycle: bool) -> None:
    team_module.end_parked()
    known = set(threading.enumerate())
    team = Team(4)
    team.run(lambda worker: None)
    if cycle:
        held: list[object] = [team]
        held.append(held)
        del held
    del team
    gc.collect()
    assert ended(known)


def test_a_thread_that_begins_late_takes_no_task_of_the_one_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt ends the wait for its start, the next start is refused, and then it begins nevertheless."""
    team_module.end_parked()
    known = set(threading.enumerate())
    late, begin = threading.Event(), team_module._Start._start

    def slow(start: Any) -> None:
        late.wait(60)
        begin(start)

    team = Team(2)
    with monkeypatch.context() as patch:
        patch.setattr(team_module._Start, "_start", slow)
        patch.setattr(team_module.Promise, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            team.run(lambda worker: None)
    with monkeypatch.context() as patch:
        patch.setattr(team_module, "start_new_thread", refuse)
        with pytest.raises(SolveFailed, match="can't start new thread"):
            team.run(lambda worker: None)
    late.set()
    goes_on(team)
    assert ended(known, but=1)
    team.close()
    team_module.end_parked()
    assert ended(known)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no thread to processors")
@pytest.mark.skipif(usable_processors() < 2, reason="there is one processor")
def test_a_team_takes_no_thread_that_is_bound_to_other_processors() -> None:
    mine = os.sched_getaffinity(0)
    found: dict[int, set[int]] = {}

    def work(worker: int) -> None:
        found[worker] = os.sched_getaffinity(0)

    try:
        for processors in ({min(mine)}, mine, {max(mine)}):
            os.sched_setaffinity(0, processors)
            team = Team(3)
            team.run(work)
            team.close()
            assert found == dict.fromkeys(range(3), processors)
    finally:
        os.sched_setaffinity(0, mine)


def test_a_forked_child_starts_threads_of_its_own() -> None:
    team = Team(3)
    goes_on(team)
    team.close()
    assert sum(map(len, team_module._PARKED.values())) >= 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that other threads run
        child = os.fork()
    if child == 0:
        try:
            empty = not team_module._PARKED
            team = Team(3)
            goes_on(team)
            team.close()
            os._exit(0 if empty else 2)
        except BaseException:
            os._exit(3)
    until = time.monotonic() + 60
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    if found == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert found == (child, 0)
