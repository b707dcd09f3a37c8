"""What the runner for short jobs takes, and for whom a job gives way."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from service.runner import short
from service.runner.short import FAR, ShortJobs

SETTINGS = SimpleNamespace(short_seconds=3.0, short_memory=2**30, lease_seconds=60.0)


class Jobs:
    def __init__(self, *, waiting: bool = True, runners: tuple[Any, ...] = ()) -> None:
        self.asked: list[object] = []
        self.waiting, self.runners = waiting, list(runners)

    def claim(self, name: str, **limits: object) -> None:
        self.asked.append((name, limits))

    def waits(self, **limits: object) -> bool:
        assert limits == {"cuda": False, "most": (3.0, 2**30)}
        return self.waiting

    def list_runners(self) -> list[Any]:
        return self.runners


def test_without_free_memory_it_takes_no_job(monkeypatch: pytest.MonkeyPatch):
    jobs = Jobs()
    for free in (2**30, 2**30 - 1):
        monkeypatch.setattr(short, "available_memory", lambda free=free: free)
        assert ShortJobs(SETTINGS, jobs, "r").claim() is None
    assert jobs.asked == [("r", {"cuda": False, "most": (3.0, 2**30)})]


def runner(device: str, state: str = "idle", age: float = 1.0) -> SimpleNamespace:
    return SimpleNamespace(device=device, state=state, age=age)


@pytest.mark.parametrize(
    ("worked", "waiting", "runners", "gives_way"),
    [
        (3.0 * FAR + 1, True, (runner("short"), runner("cpu", "busy")), True),
        (3.0 * FAR + 1, True, (runner("cuda0"),), True),
        (3.0 * FAR - 1, True, (runner("cpu"),), False),
        (3.0 * FAR + 1, False, (runner("cpu"),), False),
        (3.0 * FAR + 1, True, (runner("short"),), False),
        (3.0 * FAR + 1, True, (runner("cpu", age=100),), False),
        (3.0 * FAR + 1, True, (runner("cuda0", "sick"),), False),
    ],
)
def test_a_job_gives_way_if_others_wait_and_another_runner_can_take_it(
    worked: float, waiting: bool, runners: tuple[Any, ...], gives_way: bool
):
    for each in runners:
        each.heartbeat = time.time() - each.age
    assert ShortJobs(SETTINGS, Jobs(waiting=waiting, runners=runners), "r").wait_for(worked) is gives_way
