"""Threads that Python does not see: each call takes part once, failures are counted, and nothing outlives the call."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest

from engine.devices.cpu.atonce import AVAILABLE, threads
from engine.devices.cpu.atonce.pool import KeptThreads
from engine.devices.cpu.atonce.threads import (
    WORDS,
    end_pool,
    fill_pool,
    function_of,
    prepare_pool,
    seconds_now,
    share_out,
    stored,
    word_at,
)
from engine.devices.cpu.team import fetch_add
from engine.graph.kernels import njit

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="the system has no POSIX threads")


@njit(nogil=True)
def _body(given):  # type: ignore[no-untyped-def]
    numbers, seen, failing = given
    mine = fetch_add(numbers.ctypes.data, 1)
    space = np.full(1000, mine, np.int64)
    if mine == failing:
        raise ValueError("one fails")
    seen[mine] = space.sum() // 1000 + 1


@njit(nogil=True)
def _spread(threads, pool, given):  # type: ignore[no-untyped-def]
    failures = stored(given)
    share_out(pool, threads - 1, function_of(_body, given), failures)
    return word_at(failures)


@njit(nogil=True)
def _now():  # type: ignore[no-untyped-def]
    return seconds_now()


def spread(threads: int, failing: int = -1, kept: KeptThreads | None = None) -> tuple[int, list[int]]:
    """Return how many calls failed, and what each of the others has written."""
    numbers, seen, own = np.zeros(1, np.int64), np.zeros(100, np.int64), kept or KeptThreads()
    with own.borrow(threads - 1) as pool:
        failed = _spread(threads, pool, (numbers, seen, failing))
    if kept is None:
        own.end()
    return failed, seen[: numbers[0]].tolist()


def tasks() -> set[str]:
    """Return the numbers of the threads of this process; those of earlier tests may end at any time."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


def wait_for(others: set[str]) -> None:
    """Wait until the process has no threads but others: a thread ends a little after it has said so."""
    until = time.monotonic() + 60
    while not tasks() <= others and time.monotonic() < until:
        time.sleep(0.01)
    assert tasks() <= others


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_the_kernel_is_called_once_for_each_thread(threads: int) -> None:
    for _ in range(3):
        assert spread(threads) == (0, list(range(1, threads + 1)))


@pytest.mark.parametrize("threads", [-1, 0])
def test_the_calling_thread_always_takes_part(threads: int) -> None:
    assert spread(threads) == (0, [1])


def test_a_call_that_fails_is_counted_and_the_others_go_on() -> None:
    assert spread(4, failing=2) == (1, [1, 2, 0, 4])


def test_the_clock_is_that_of_python() -> None:
    before, found, after = time.perf_counter(), _now(), time.perf_counter()
    assert before - 0.001 <= found <= after + 0.001


def test_threads_are_kept_and_ended() -> None:
    kept, before = KeptThreads(), tasks()
    spread(5, kept=kept)
    sleeping = tasks() - before
    assert len(sleeping) == 4
    spread(3, kept=kept)
    assert tasks() - before == sleeping
    kept.end()
    wait_for(before)
    assert spread(5, kept=kept) == (0, [1, 2, 3, 4, 5])
    kept.end()


def test_threads_that_are_not_needed_end() -> None:
    """A pool whose threads sleep until a moment that has passed."""
    before, pool = tasks(), np.zeros(WORDS, np.int64)
    prepare_pool(pool)
    assert fill_pool(pool, 3) == 3
    assert pool[0] == 3
    assert end_pool(pool) == 3
    assert pool[0] == 0
    assert end_pool(pool) == 0
    wait_for(before)


def test_a_thread_that_is_not_needed_for_a_while_ends() -> None:
    """The loop of a kept thread, compiled once more to wait for no seconds."""
    plain = threads._sleep_and_run.py_func
    hasty = FunctionType(plain.__code__, {**plain.__globals__, "IDLE": 0}, "hasty")
    loop, pool, kernel = numba.njit(nogil=True)(hasty), np.zeros(WORDS, np.int64), threads._sleep_and_run
    prepare_pool(pool)
    pool[0] = 2
    loop(pool.ctypes.data)
    assert pool[0] == 1  # the other one sleeps on
    assert plain.__globals__["IDLE"] > 0
    # as it is, it sleeps until it is told to end
    pool[0] = 1
    sleeper = threading.Thread(target=kernel, args=(pool.ctypes.data,))
    sleeper.start()
    sleeper.join(0.05)
    assert sleeper.is_alive()
    assert end_pool(pool) == 1
    sleeper.join(10)
    assert not sleeper.is_alive()
    assert pool[0] == 0


def test_a_pool_that_is_in_use_is_left_alone() -> None:
    kept, found = KeptThreads(), []
    with kept.borrow(2) as mine:
        kept.end()
        assert mine[0] == 2
        other = threading.Thread(target=lambda: found.append(spread(3, kept=kept)))
        other.start()
        other.join(30)
        assert found == [(0, [1, 2, 3])]
        assert mine[0] == 2
    kept.end()
    assert mine[0] == 0


def test_a_child_that_was_forked_has_a_pool_of_its_own() -> None:
    from engine.devices.cpu.atonce.pool import KEPT

    spread(4, kept=KEPT)
    child = os.fork()
    if child == 0:
        os._exit(0 if spread(4, kept=KEPT) == (0, [1, 2, 3, 4]) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert spread(4, kept=KEPT) == (0, [1, 2, 3, 4])
    KEPT.end()
