"""A run of tests that is killed has told which failed, with their texts, and which were running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_TESTS = """
import pathlib, time
import pytest

@pytest.fixture
def broken():
    assert False, "in a fixture"

def test_good(): pass
def test_skipped(): pytest.skip("for a reason")
def test_bad(): assert 1 == 2, "on purpose"
def test_without_its_fixture(broken): pass
def test_endless():
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


def run(folder: Path, *given: str) -> subprocess.Popen[str]:
    (folder / "test_some.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.told", "--told", "out/told", *given, "test_some.py"]
    # without the plugins of other packages but one, which take a second to import
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}
    environment = {**os.environ, **own, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("given", [(), ("-n", "2")], ids=["alone", "side by side"])
def test_what_has_happened_is_told_though_the_run_is_killed(tmp_path: Path, given: tuple[str, ...]) -> None:
    tests, failures = tmp_path / "out" / "told" / "tests.txt", tmp_path / "out" / "told" / "failures.txt"
    with run(tmp_path, *given) as process:
        try:
            until = time.monotonic() + 300
            while time.monotonic() < until and process.poll() is None:
                lines = tests.read_text().splitlines() if tests.exists() else []
                if len([line for line in lines if line.endswith(" s")]) == 4 and lines.count(_begun("endless")):
                    break
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            (tmp_path / "go").touch()  # what runs tests beside it ends by itself
    told = {line.split()[1].partition("::")[2]: line.split()[0] for line in tests.read_text().splitlines()}
    assert told == {
        "test_good": "passed",
        "test_skipped": "skipped",
        "test_bad": "failed",
        "test_without_its_fixture": "failed",
        "test_endless": "begun",
    }
    text = failures.read_text()
    assert "==== test_some.py::test_bad (call)" in text
    assert "AssertionError: on purpose" in text
    assert "==== test_some.py::test_without_its_fixture (setup)" in text


def _begun(name: str) -> str:
    return f"begun test_some.py::test_{name}"


def test_the_end_and_what_cannot_be_imported_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    (tmp_path / "test_wrong.py").write_text("import a_module_that_is_not_there\n")
    with run(tmp_path, "test_wrong.py", "--continue-on-collection-errors") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "failed (call): test_some.py::test_bad: " in said
    assert (tmp_path / "out" / "told" / "tests.txt").read_text().splitlines()[-1] == "finished with status 1"
    assert "a_module_that_is_not_there" in (tmp_path / "out" / "told" / "failures.txt").read_text()
