"""Kernels are compiled ahead in processes of their own: all of them, each once, and stopped when that is wanted."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import engine.graph.kernels
from engine.execution import compiling
from engine.execution.kernel_list import ListedKernel, missing
from engine.model import progress
from engine.model.progress import COMPILING, Monitor, PhaseClock
from storage.errors import Cancelled

MODULE = """
from engine.graph.kernels import njit

@njit()
def add(a, b):
    return a + b

@njit()
def double(a):
    return add(a, a)

@njit()
def wrong(a):
    return a.nothing
"""


@pytest.fixture
def some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ListedKernel]:
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    # kernels of files newer than this are not kept
    monkeypatch.setattr(engine.graph.kernels, "_BEGUN", time.time() + 60)
    return [
        ListedKernel(name, kernel, types, 1.5, ("all",))
        for kernel, types in (
            ("add", '["int64", "int64"]'),
            ("add", '["float64", "float64"]'),
            ("double", '["int64"]'),
            ("double", '["float32"]'),
        )
    ]


class Told(Monitor):
    def __init__(self, stop_after: int = 99) -> None:
        self.phases: list[tuple[str, int, str]] = []
        self.done, self.stop_after = 0, stop_after

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.phases.append((phase, total, unit))

    def advance(self, amount: int) -> None:
        self.done += amount

    def cancelled(self) -> bool:
        return self.done >= self.stop_after


def test_kernels_are_compiled_and_kept(some: list[ListedKernel]) -> None:
    assert missing(some) == some
    told: list[tuple[ListedKernel, str]] = []
    compiling.compile_kernels(some, processes=2, nice=1, told=lambda kernel, error: told.append((kernel, error)))
    assert sorted(map(str, told)) == sorted(str((kernel, "")) for kernel in some)
    assert missing(some) == []


def test_a_kernel_that_cannot_be_compiled_is_told_of_and_the_others_are(some: list[ListedKernel]) -> None:
    wrong = [
        ListedKernel(some[0].module, "wrong", '["int64"]', 9.0, ()),
        ListedKernel(some[0].module, "gone", '["int64"]', 9.0, ()),
        ListedKernel("engine.gone", "gone", '["int64"]', 9.0, ()),
    ]
    told: dict[ListedKernel, str] = {}
    compiling.compile_kernels([*wrong, *some], processes=1, told=told.__setitem__)
    assert [told[one].partition(":")[0] for one in wrong] == ["TypingError", "KeyError", "ModuleNotFoundError"]
    assert {told[one] for one in some} == {""}
    assert missing(some) == []


def test_the_phase_counts_kernels(some: list[ListedKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "usable_processors", lambda: 2)
    told = Told()
    clock = PhaseClock(told)
    compiling.compile_for(some, clock)
    assert told.phases == [(COMPILING, 4, "kernels")]
    assert told.done == 4
    assert clock.seconds[COMPILING] > 0
    assert missing(some) == []


def test_few_short_kernels_are_left_to_the_calls(some: list[ListedKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "usable_processors", lambda: 2)
    told = Told()
    compiling.compile_for(some[:1], PhaseClock(told))
    monkeypatch.setattr(compiling, "usable_processors", lambda: 1)
    compiling.compile_for(some, PhaseClock(told))
    assert told.phases == []
    assert missing(some) == some


def test_where_nothing_is_kept_no_other_process_compiles(
    some: list[ListedKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it compiled would be lost, and this process would compile the same once more."""
    monkeypatch.setattr(compiling, "usable_processors", lambda: 2)
    monkeypatch.setattr(progress, "_KEPT", [False])
    told = Told()
    compiling.compile_for(some, PhaseClock(told))
    assert told.phases == []
    assert compiling.seconds_to_compile(some) == sum(one.seconds for one in some)


def test_a_wish_to_stop_ends_the_processes(some: list[ListedKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = subprocess.Popen

    def spied(*arguments: object, **options: object) -> object:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(compiling, "usable_processors", lambda: 2)
    monkeypatch.setattr(compiling.subprocess, "Popen", spied)
    with pytest.raises(Cancelled):
        compiling.compile_for(some, PhaseClock(Told(stop_after=0)))
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_process_that_dies_is_told_of(some: list[ListedKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "__name__", "engine.execution.no_such_module")
    told: dict[ListedKernel, str] = {}
    compiling.compile_kernels(some, processes=2, told=told.__setitem__)
    assert set(told.values()) == {"the process that compiled it ended"}


def test_predictions_count_work_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [ListedKernel("m", str(i), "[]", seconds, ()) for i, seconds in enumerate((4.0, 1.0, 1.0, 2.0))]
    for processors, expected in ((1, 8.0), (2, 4.0), (16, 4.0)):
        monkeypatch.setattr(compiling, "usable_processors", lambda count=processors: count)
        waited = compiling.seconds_to_compile(kernels)
        assert waited == pytest.approx(expected + (compiling.PROCESS_START if processors > 1 else 0))
    assert compiling.seconds_to_compile([]) == 0


def test_a_process_ends_with_its_input() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", compiling.__name__, "0"], input="", text=True, check=False, timeout=60)
    assert done.returncode == 0
    assert time.monotonic() - began < 60
