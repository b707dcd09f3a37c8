"""Tests that solves killed with SIGKILL at random instants are resumed, and end with exactly the same matrix.

CI kills a few solves of each way (``crash_solve.WAYS``).  ``APSP_KILL_SOLVES=200 ./dev test
tests/faults/test_solve_faults.py`` kills 200, and ``./dev test --long tests/faults/test_solve_faults.py`` kills 100 of
each semiring.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.crash_solve import WAYS

ROOT = Path(__file__).resolve().parents[2]
COUNT = int(os.environ.get("APSP_KILL_SOLVES", "4"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_solve_goes_on_to_the_same_matrix(way):
    kill(way, COUNT)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("semiring")])
def test_many_killed_solves_of_semirings_go_on_to_the_same_matrix(way):
    kill(way, 100)


def kill(way: str, count: int) -> None:
    """Kill ``count`` solves, and check what became of them."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        command = [sys.executable, "-m", "tests.faults.crash_solve", folder, way, str(count), "1"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout)
    print(way, facts)
    assert facts["wrong"] == 0
    assert facts["kills"] >= count
    assert facts["resumed"] >= count // 4, facts
