"""Tests Ctrl-C at any moment of any command.

Unless it has finished already, the command ends by the signal or with exit code 130, prints no traceback, and leaves
its output complete or absent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from service.cli import main
from tests.stores import verify_matrix

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "examples" / "helsinki_drive.csv"
#: What installers write for an entry point, after a line that says that the interpreter has started.
SCRIPT = """
import os; os.write({told}, b'.'); os.close({told})
import sys
from {module} import {function}
sys.exit({function}())
"""
COMMANDS = {
    "help": ["--help"],
    "plan": ["plan", str(GRAPH), "--json"],
    "solve": ["solve", str(GRAPH), "--out", "{out}", "--json"],
    "query": ["query", "{store}", "distance", "1483296617", "760466577", "--json"],
    "verify": ["verify", "{store}", "--json"],
    "verify prepared": ["verify", "{prepared}", "--json"],
}
#: Seconds after the first line of the program.
FEW, MANY = (0.0, 0.25), tuple(k / 50 for k in range(75))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("results")
    found = {"store": folder / "s.zarr", "prepared": folder / "p"}
    assert main.run(["solve", str(GRAPH), "--out", str(found["store"])]) == 0
    assert main.run(["prepare", str(GRAPH), "--out", str(found["prepared"])]) == 0
    return found


def start(words: list[str]) -> subprocess.Popen[str]:
    """Start the command as its script does; it has begun to watch for interrupts when this returns."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, function = project["scripts"]["apsp"].split(":")
    heard, told = os.pipe()
    script = SCRIPT.format(told=told, module=module, function=function)
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        pass_fds=[told], start_new_session=True,
    )  # fmt: skip
    os.close(told)
    with os.fdopen(heard, "rb") as pipe:
        pipe.read()  # until the interpreter has started: an interrupt before that is answered by Python alone
    while process.poll() is None and catches(process.pid):
        time.sleep(0.0001)
    return process


def catches(pid: int) -> bool:
    """Whether the process has a handler for SIGINT."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def interrupted(words: list[str], moment: float) -> tuple[int, str, str]:
    """Exit status, output and messages of a command whose whole group is interrupted, as by a terminal."""
    process = start(words)
    time.sleep(moment)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        output, said = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, output, said


@pytest.mark.parametrize("moments", [FEW, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
                         ids=["few", "many"])  # fmt: skip
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_ends_a_command_quietly(
    name: str, moments: tuple[float, ...], results: dict[str, Path], tmp_path: Path
) -> None:
    ends, again = set(), 20  # on a busy machine the interrupt for the first moment may come too late
    for at, moment in enumerate([*moments, *[0.0] * again]):
        if at >= len(moments) and -signal.SIGINT in ends:
            break
        folder = tmp_path / str(at)
        folder.mkdir()
        out = folder / "out.zarr"
        words = [word.format(out=out, **results) for word in COMMANDS[name]]
        status, output, said = interrupted(words, moment)
        ends.add(status)
        assert status in (0, 130, -signal.SIGINT), (moment, said)
        for never in ("Traceback", "Exception ignored", "KeyboardInterrupt", "a fault in apsp"):
            assert never not in said, (moment, said)
        assert output or status, moment
        if output and name != "help":
            assert json.loads(output), (moment, "whole or absent")
        assert not output or name != "help" or output.rstrip().endswith("130 interrupted."), output
        # the file of a lock that was being taken stays; the next writer takes it over
        assert {path.name for path in folder.iterdir()} <= {"out.zarr", ".out.zarr.writing"}, (moment, "left behind")
        if out.exists():
            verify_matrix(out)
    assert -signal.SIGINT in ends, "the first moment is before the command has begun"


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, (0,)), (signal.SIGTERM, (-signal.SIGTERM, 143))])
def test_what_the_parent_ignores_stays_ignored_and_a_termination_ends_it(number: int, ends: tuple[int, ...]) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(["plan", str(GRAPH), "--json"])
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(number)
    output, said = process.communicate(timeout=120)
    assert process.returncode in ends, said
    assert "Traceback" not in said
    assert bool(output) == (process.returncode == 0)
