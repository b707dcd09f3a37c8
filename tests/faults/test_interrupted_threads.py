"""Tests that KeyboardInterrupt at any step of a streamed solve or of ``verify`` leaves no thread and no partial result.

CI tests steps drawn at random; ``pytest -m long tests/faults/test_interrupted_threads.py`` tests all steps.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from engine.api import solve as solving
from engine.api.prepared import prepare
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.devices.cpu.team import end_parked
from engine.execution import streamed
from engine.model.problem import Options
from engine.model.tiling import Tiling
from engine.streaming.checkpoint import StoredSolve
from tests.interrupting import Interruption, by_itself
from tests.several import several
from tests.stores import verify_matrix
from tests.unit.engine.execution.test_streamed import plan_for, sample

#: All that starts, feeds, waits for or ends threads, and what is called on the way.
MODULES = [
    *("storage.threads", "threading", "contextlib", "storage.prepared.reader", "storage.quantities.reading"),
    *("storage.files.writing", "storage.files.locks", "storage.files.atomic", "storage.matrix.working_dir"),
    *("engine.execution.streamed", "engine.rows.dense", "engine.model.tier", "engine.api.verify"),
    *(f"engine.streaming.{name}" for name in ("store_tier", "host_tier", "finishing_tier", "schedule", "passes")),
    *(f"engine.streaming.{name}" for name in ("mirror", "checkpoint", "cpu_device", "cpu_panels", "crew")),
]
FEW = 8
MOST = 10**9


def modules() -> list[ModuleType]:
    return [importlib.import_module(name) for name in MODULES]


def at_work(known: set[threading.Thread]) -> list[str]:
    """Names of the program's threads that are none of the known ones, which other tests may have left to end idle.

    A thread that was told to end has a moment for it: the interrupt may have come while its end was waited for.
    """
    until = time.monotonic() + 10
    while True:
        end_parked()  # those that wait for another solve
        found = [one.name for one in threading.enumerate() if one.name.startswith("apsp") and one not in known]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.001)


def steps_of(work: Callable[[], object], few: int | None) -> list[int]:
    """Some or all numbers of the steps of ``work``."""
    counted = Interruption(MOST, *modules())
    assert not counted.hits(work)
    steps = range(1, MOST - counted._left + 1)
    return list(steps) if few is None else sorted(random.Random(172).sample(steps, few))


def interrupted(at: int, work: Callable[[], object]) -> None:
    """Interrupt; while a condition takes its lock again, the interrupt is an error about that lock (decision 166)."""
    with contextlib.suppress(RuntimeError):
        Interruption(at, *modules()).hits(work)


ALL = pytest.param(None, marks=[pytest.mark.long, pytest.mark.timeout(3700)])
ALL_OR_SOME = pytest.mark.parametrize("few", [FEW, ALL])


# an interrupt while the lock file is opened leaves it to Python to close
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@ALL_OR_SOME
@pytest.mark.parametrize("tier", ["store", "host"])
@pytest.mark.parametrize(("directed", "devices"), [(True, 1), (True, 2), (False, 1)])
def test_streamed_solves_end_their_threads(
    tier: str, directed: bool, devices: int, few: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = sample(150, directed=directed)
    plan = plan_for(graph, tier, 64, 64) if devices > 1 else plan_for(graph, tier)
    if devices > 1:
        monkeypatch.setattr(streamed, "_devices", several(devices))

    def solve(name: str) -> None:
        solve_to_store(graph, Options(), tmp_path / name, plan=plan)

    known = set(threading.enumerate())

    def work() -> int:
        solve("first")
        steps = steps_of(lambda: solve("second"), few)
        for at in steps:
            interrupted(at, lambda at=at: solve(f"{at}"))
            assert (at_work(known), list(tmp_path.glob(".*.writing"))) == ([], []), f"after step {at}"
            if (tmp_path / f"{at}").exists():
                verify_matrix(tmp_path / f"{at}")
        return len(steps)

    assert by_itself(work, 120 if few else 3600) >= FEW


def test_an_interrupt_at_the_end_of_a_solve_ends_the_thread_that_unlocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step of ``contextlib`` after the devices have finished, among them those of the stack of contexts."""
    graph = sample(150)
    plan, known = plan_for(graph, "host"), set(threading.enumerate())
    follow = solving.EXECUTORS["streamed"]
    assert plan.execution == "streamed"
    assert cast(Tiling, plan.streaming).passes

    def hit(at: int) -> bool:
        armed = Interruption(MOST, contextlib)

        def run(context: StoredSolve) -> dict[str, object]:
            summary = follow(context)
            armed._left = at
            return summary

        monkeypatch.setitem(solving.EXECUTORS, "streamed", run)
        return armed.hits(lambda: solve_to_store(graph, Options(), tmp_path / f"{at}", plan=plan))

    def work() -> int:
        at = 1
        while hit(at):
            assert at_work(known) == [], f"after step {at}"
            at += 1
        return at

    assert by_itself(work, 120) > FEW


@ALL_OR_SOME
def test_verify_of_a_prepared_result_ends_its_threads(few: int | None, tmp_path: Path) -> None:
    prepare(sample(300), tmp_path / "p")

    known = set(threading.enumerate())

    def work() -> int:
        steps = steps_of(lambda: verify_store(tmp_path / "p", 2), few)
        for at in steps:
            interrupted(at, lambda: verify_store(tmp_path / "p", 2))
            assert at_work(known) == [], f"after step {at}"
        return len(steps)

    assert by_itself(work, 120 if few else 3600) >= FEW
