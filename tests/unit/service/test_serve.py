"""Starting and stopping; the rest needs real processes: tests/integration/test_service.py."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service import serve as serve_module
from service.serve import RunnerProcess, serve
from service.settings import Settings
from storage.errors import Conflict, InvalidRequest
from storage.locks import FileLock


def test_a_taken_port_is_named(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest, match=str(port)):
            serve(Settings(data_dir=tmp_path, port=port))


def test_a_taken_data_directory_is_named(tmp_path: Path):
    lock = FileLock(tmp_path / "serve.lock")
    lock.acquire()
    with pytest.raises(Conflict, match="locked by process"):
        serve(Settings(data_dir=tmp_path, port=0))
    lock.release()


@pytest.fixture
def fake_runner(monkeypatch: pytest.MonkeyPatch):
    """Runner processes that run a line of Python instead."""
    born: list[subprocess.Popen[bytes]] = []

    def install(code: str) -> list[subprocess.Popen[bytes]]:
        def spawn(_self: RunnerProcess) -> subprocess.Popen[bytes]:
            born.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
            return born[-1]

        monkeypatch.setattr(RunnerProcess, "_spawn", spawn)
        monkeypatch.setattr(serve_module, "_FIRST_PAUSE", 0.02)
        return born

    return install


def test_a_dying_runner_is_started_again_and_again_more_slowly(tmp_path: Path, fake_runner):
    born = fake_runner("raise SystemExit(3)")
    watched = RunnerProcess(Settings(data_dir=tmp_path))
    watched.start()
    deadline = time.monotonic() + 20
    while len(born) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    watched.stop()
    assert len(born) >= 3
    count = len(born)
    time.sleep(0.3)
    assert len(born) == count


def test_a_runner_that_will_not_stop_is_killed(tmp_path: Path, fake_runner):
    code = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    born = fake_runner(code)
    watched = RunnerProcess(Settings(data_dir=tmp_path, stop_seconds=0.3))
    watched.start()
    time.sleep(1.0)
    watched.stop()
    assert [p.returncode for p in born] == [-9]
