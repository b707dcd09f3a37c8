"""A GPU that starts beside the reading of a graph: what overlaps, and whose error is told first.  No GPU is needed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.devices.cuda import context
from engine.execution import opening, survey
from service.cli import main
from storage.errors import InvalidRequest

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """cupy seems to be there; atexit is left alone."""
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setattr(context, "load_cupy", lambda: None)
    monkeypatch.setattr(opening.atexit, "register", lambda *_: None)
    return monkeypatch


def test_the_device_opens_while_the_caller_goes_on(installed: pytest.MonkeyPatch) -> None:
    may_end, begun = threading.Event(), threading.Event()

    def slow(_budget: int | None) -> tuple[None, str]:
        begun.set()
        assert may_end.wait(10)
        return None, "a device"

    installed.setattr(survey, "find_cuda", slow)
    thread = opening.open_ahead()
    assert thread is not None
    assert begun.wait(10)
    assert thread.is_alive()
    assert thread.daemon, "nobody has to wait for it"
    may_end.set()
    thread.join(10)
    assert not thread.is_alive()


def test_without_cupy_nothing_is_opened(installed: pytest.MonkeyPatch) -> None:
    installed.setattr(opening.importlib.util, "find_spec", lambda _name: None)
    assert opening.open_ahead() is None


def test_a_cupy_that_does_not_load_is_told_by_planning(installed: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise InvalidRequest("cupy does not load", field="device")

    installed.setattr(context, "load_cupy", broken)
    assert opening.open_ahead() is None


@pytest.mark.parametrize("command", ["plan", "solve"])
@pytest.mark.parametrize("wrong", [True, False])
def test_the_error_of_the_file_is_told_before_that_of_the_device(
    installed: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, wrong: bool
) -> None:
    """The device has failed long before the file is read; another device option would not mend the file."""
    opened: list[threading.Thread | None] = []
    ahead = opening.open_ahead

    def fail(_budget: int | None) -> None:
        raise InvalidRequest("there is no such GPU", field="device")

    def wait() -> None:
        opened.append(ahead())
        opened[0].join(10)  # type: ignore[union-attr]

    installed.setattr(context, "find_device", fail)
    installed.setattr(opening, "open_ahead", wait)
    graph = tmp_path / "g.txt"
    graph.write_text("1 2 3\n1 x\n" if wrong else "1 2 3\n")
    more = ["--out", str(tmp_path / "d.zarr")] if command == "solve" else []
    assert main.run([command, str(graph), "--device", "cuda", *more]) == 2
    said = capsys.readouterr().err
    assert len(opened) == 1
    assert ("there is no such GPU" in said) != wrong
    assert ("line 2" in said) == wrong
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_gpu_that_may_not_be_used_is_not_opened(
    installed: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    installed.setattr(opening, "open_ahead", lambda: pytest.fail("opened"))
    (tmp_path / "g.txt").write_text("1 2 3\n")
    assert main.run(["plan", str(tmp_path / "g.txt"), "--device", device]) == 0
    assert "plan:" in capsys.readouterr().out


_ENDS = """
import sys, time
from engine.devices.cuda import context
from engine.execution import opening, survey
opening.importlib.util.find_spec = lambda name: object()
context.load_cupy = lambda: None
def find_cuda(budget):
    time.sleep(float(sys.argv[1]))
    print("opened", flush=True)
survey.find_cuda, opening.PATIENCE = find_cuda, 1.0
opening.open_ahead()
raise KeyboardInterrupt
"""


@pytest.mark.parametrize(("seconds", "waited"), [(0.3, True), (60, False)])
def test_a_process_that_is_interrupted_waits_a_little_for_the_driver(seconds: float, waited: bool) -> None:
    began = time.monotonic()
    command = [sys.executable, "-c", _ENDS, str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert "KeyboardInterrupt" in done.stderr
    assert ("opened" in done.stdout) == waited
    assert done.returncode != 0
    assert time.monotonic() - began < 40


def test_threads_that_ask_for_the_kernels_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Slow:
        def __init__(self, device: int) -> None:
            time.sleep(0.05)
            made.append((device, self))

    context._modules.cache_clear()
    monkeypatch.setattr(context, "Modules", Slow)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(context.modules(7))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context._modules.cache_clear()
    assert len(made) == 1
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
