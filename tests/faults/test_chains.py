"""Tests that a solve ends with the right store after any chain of kills, stops and resumes (see ``chains``).

CI runs a few chains; ``./dev test --long tests/faults/test_chains.py`` runs 300, beginning with the seed
``APSP_CHAINS_FIRST``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_chains(first: int, count: int) -> dict[str, int]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        command = [sys.executable, "-m", "tests.faults.chains", folder, str(first), str(count)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    facts: dict[str, int] = json.loads(done.stdout)
    print(facts)
    assert facts["chains"] == count
    return facts


def test_twenty_chains_end_right():
    facts = run_chains(0, 20)
    assert facts["killed"] >= 10
    assert facts["resumed"] >= 15


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_three_hundred_chains_end_right():
    facts = run_chains(int(os.environ.get("APSP_CHAINS_FIRST", "1000")), 300)
    assert facts["killed"] >= 150
    assert facts["kept"] >= 50
    assert facts["resumed"] >= 150
    assert facts["refused"] >= 10
