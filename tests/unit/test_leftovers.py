"""Tests hear of interrupts wherever they are started, and leave no process behind when they fail."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.postgres import binaries

ROOT = Path(__file__).resolve().parents[2]
_TESTS = """
import subprocess, sys, time
import pytest

@pytest.fixture(scope="module")
def fixed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\\n")

def test_that_fails(fixed):
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    left = [subprocess.Popen(sleep, stdout=subprocess.PIPE, start_new_session=group) for group in (False, True)]
    for process in left:
        process.stdout.readline()
        with open("left", "a") as file:
            print(process.pid, file=file)
    assert False, "on purpose"

def test_what_a_fixture_started_is_still_there(fixed):
    assert fixed.poll() is None

def test_interrupts_reach_what_is_started():
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\\n"
"""


@pytest.mark.parametrize("ignored", [True, False], ids=["in the background", "in the foreground"])
def test_a_failed_test_leaves_no_process_and_interrupts_are_heard(tmp_path: Path, ignored: bool):
    (tmp_path / "test_some.py").write_text(_TESTS)
    said = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    before = [sys.executable, "-c", said] if ignored else []
    command = [*before, sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "tests.leftovers", "test_some.py"]
    # without the plugins of other packages, which take a second to import
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    environment = {**os.environ, **own, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "on purpose" in done.stdout
    assert "ResourceWarning" not in done.stdout + done.stderr
    for number in (tmp_path / "left").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(number), signal.SIG_DFL)


def test_a_killed_test_process_leaves_no_postgresql() -> None:
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    code = "from tests.postgres import open_postgres; print(open_postgres().folder, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        number = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(number, signal.SIG_DFL)  # it runs
        process.kill()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{number}").exists() or (folder / "data").exists():
        assert time.monotonic() < deadline, "the server runs on"
        time.sleep(0.1)
    shutil.rmtree(folder)
