"""The threads of devices: who is told what, how they end, and that none waits for one that has ended."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext

import pytest

from engine.model.progress import Monitor
from engine.streaming.crew import Crew
from storage.errors import Cancelled, SolveFailed
from tests.interrupting import by_itself


class Device:
    def __init__(self):
        self.drained = []

    def guard(self):
        return nullcontext()

    def drain(self, *, wait):
        self.drained.append(wait)


class Told(Monitor):
    def __init__(self, most=float("inf")):
        self.done, self.most, self.threads = 0, most, set()

    def advance(self, amount):
        self.done += amount
        self.threads.add(threading.get_ident())

    def cancelled(self):
        return self.done >= self.most


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("apart", [True, False])
def test_each_device_works_and_the_caller_is_told(count, apart):
    told, threads = Told(), {}
    crew = Crew([Device() for _ in range(count)], told, apart=apart)

    def work(index):
        threads[index] = threading.get_ident()
        for _ in range(10):
            crew.advance(index + 1)
            crew.check()

    crew.run(work)
    assert told.done == 10 * count * (count + 1) // 2
    assert told.threads == {threading.get_ident()}
    assert sorted(threads) == list(range(count))
    assert (threads[0] == threading.get_ident()) == (count == 1 and not apart)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("apart", [True, False])
def test_a_stop_drains_the_devices(count, apart):
    devices = [Device() for _ in range(count)]
    crew = Crew(devices, Told(5), apart=apart)

    def work(_):
        while True:
            crew.advance(1)
            crew.check()
            time.sleep(0.001)

    def run():
        with pytest.raises(Cancelled):
            crew.run(work)

    by_itself(run)
    assert all(device.drained == [True] for device in devices)


def test_one_that_fails_ends_those_that_wait_for_it():
    devices = [Device() for _ in range(3)]
    crew = Crew(devices, Told())

    def work(index):
        if index == 1:
            raise SolveFailed("this one is gone")
        crew.wait(devices[index], lambda: False)

    def run():
        with pytest.raises(SolveFailed, match="gone"):
            crew.run(work)

    by_itself(run)
    assert devices[0].drained[-1]
    assert devices[2].drained[-1]


def test_who_waits_reports_what_others_may_need():
    """Each of two devices gives something back only while it waits for the other."""
    devices, given = [Device(), Device()], set()
    crew = Crew(devices, Told())
    for index, device in enumerate(devices):
        device.drain = lambda *, wait, index=index: given.add(index)

    def work(index):
        crew.wait(devices[index], lambda: {0, 1} <= given)

    by_itself(lambda: crew.run(work))
    assert given == {0, 1}
