"""Threads that Python does not see: each call takes part once, failures are counted, and nothing outlives the call."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np
import pytest

from engine.devices.cpu.atonce import AVAILABLE
from engine.devices.cpu.atonce.threads import MOST, run_in_threads, seconds_now
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
def _spread(threads, given):  # type: ignore[no-untyped-def]
    return run_in_threads(_body, threads, given)


@njit(nogil=True)
def _now():  # type: ignore[no-untyped-def]
    return seconds_now()


def spread(threads: int, failing: int = -1) -> tuple[int, list[int]]:
    """Return how many calls failed, and what each of the others has written."""
    numbers, seen = np.zeros(1, np.int64), np.zeros(MOST + 100, np.int64)
    failed = _spread(threads, (numbers, seen, failing))
    return failed, seen[: numbers[0]].tolist()


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_the_kernel_is_called_once_in_each_thread(threads: int) -> None:
    assert spread(threads) == (0, list(range(1, threads + 1)))


@pytest.mark.parametrize("threads", [-1, 0])
def test_the_calling_thread_always_takes_part(threads: int) -> None:
    assert spread(threads) == (0, [1])


def test_there_is_a_limit_to_the_number_of_threads() -> None:
    failed, seen = spread(MOST + 50)
    assert failed == 0
    assert 1 <= len(seen) <= MOST


def test_a_call_that_fails_is_counted_and_the_others_go_on() -> None:
    assert spread(4, failing=2) == (1, [1, 2, 0, 4])


def test_the_clock_is_that_of_python() -> None:
    before, found, after = time.perf_counter(), _now(), time.perf_counter()
    assert before - 0.001 <= found <= after + 0.001


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_outlives_the_call_and_a_child_can_call_too() -> None:
    spread(8)
    assert len(os.listdir("/proc/self/task")) <= threading.active_count() + 64  # others' libraries have threads
    before = len(os.listdir("/proc/self/task"))
    spread(8)
    assert len(os.listdir("/proc/self/task")) == before
    child = os.fork()
    if child == 0:
        os._exit(0 if spread(4) == (0, [1, 2, 3, 4]) else 1)
    assert os.waitpid(child, 0)[1] == 0
