"""An idle runner compiles in the background, at the lowest priority, and lets go of it for a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.execution import kernel_list
from service.runner import warmup


class Background:
    """What is compiled: as often as it is begun, by a process that sleeps and starts another one."""

    def __init__(self, code: str) -> None:
        self.code, self.begun = code, list[subprocess.Popen[bytes]]()

    def __call__(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self.code]
        self.begun.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
        return self.begun[-1]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The small solves; two kernels are missing until the list is emptied."""
    done: list[object] = []
    monkeypatch.setattr(warmup, "_MODULES", ("json",))
    monkeypatch.setattr(warmup, "_SOLVES", (({"algorithm": "bfs"}, True),))
    monkeypatch.setattr(warmup, "_solve", lambda *given: done.append(given))
    return done


def wait(process: subprocess.Popen[bytes]) -> None:
    process.wait(30)


def test_nothing_is_started_where_all_is_compiled(solved: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_list, "missing", lambda kernels: [])
    monkeypatch.setattr(warmup, "_compile", Background(""))
    steps = warmup.WarmUp()
    assert [steps.step() for _ in range(4)] == [True, True, False, False]
    assert len(solved) == 1
    assert warmup._compile.begun == []


def test_kernels_are_compiled_before_they_are_loaded(solved: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    missing, background = ["one"], Background("")
    monkeypatch.setattr(kernel_list, "missing", lambda kernels: missing)
    monkeypatch.setattr(warmup, "_compile", background)
    steps = warmup.WarmUp()
    assert steps.step()
    assert steps.step()
    assert (len(background.begun), solved) == (1, [])
    wait(background.begun[0])
    missing.clear()
    assert steps.step()
    assert background.begun[0].stdin.closed
    assert len(solved) == 1
    assert not steps.step()
    assert len(background.begun) == 1


def test_one_that_does_not_compile_waits_for_the_kernels_of_another(
    solved: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, looks = ["one"], []
    monkeypatch.setattr(kernel_list, "missing", lambda kernels: looks.append(1) or missing)
    monkeypatch.setattr(warmup, "_compile", Background(""))
    steps = warmup.WarmUp(compiles=False)
    assert [steps.step() for _ in range(9)] == [True] + 8 * [False]
    assert len(looks) == 1, "it looks now and then"
    missing.clear()
    monkeypatch.setattr(warmup.time, "monotonic", lambda: steps._rests_until)
    assert steps.step()
    assert (len(solved), warmup._compile.begun) == (1, [])


def test_a_job_ends_it_and_it_begins_again(
    solved: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    started = "import subprocess; started = subprocess.Popen(['sleep', '60'])"
    background = Background(f"{started}; open({str(child)!r}, 'w').write(str(started.pid)); started.wait()")
    monkeypatch.setattr(kernel_list, "missing", lambda kernels: ["one"])
    monkeypatch.setattr(warmup, "_compile", background)
    steps = warmup.WarmUp()
    steps.step()
    steps.step()
    assert not steps.step()  # nothing to do but to wait, so that the runner looks for jobs
    until = time.monotonic() + 30
    while not (child.exists() and child.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    steps.pause()
    assert background.begun[0].returncode == -signal.SIGKILL
    while _lives(int(child.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _lives(int(child.read_text()))
    assert background.begun[0].stdin.closed
    steps.pause()
    assert steps.step()
    assert len(background.begun) == 2
    steps.pause()
    assert solved == []


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_fails_is_not_begun_again(solved: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    background = Background("raise SystemExit(1)")
    monkeypatch.setattr(kernel_list, "missing", lambda kernels: ["one"])
    monkeypatch.setattr(warmup, "_compile", background)
    steps = warmup.WarmUp()
    steps.step()
    steps.step()
    wait(background.begun[0])
    assert not steps.step()
    assert not steps.step()
    assert (len(background.begun), solved) == (1, [])


def test_the_process_compiles_at_the_lowest_priority_and_ends_with_the_runner() -> None:
    process = warmup._compile()
    assert process.stdin is not None
    until = time.monotonic() + 60
    while os.getpriority(os.PRIO_PROCESS, process.pid) != warmup.LOWEST and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    process.stdin.close()
    process.wait(60)
    assert process.returncode in (0, -signal.SIGKILL)  # 0 where all kernels are compiled already
