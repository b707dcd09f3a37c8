"""Tests that solves with sums along paths end with the same files after any chain of kills (see ``crash_sums``).

CI runs a few chains; ``./dev test --long tests/faults/test_sums_faults.py`` runs 100 in memory and 50 on a disk,
beginning with the seed ``APSP_SUMS_FIRST``.
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
MEMORY = Path("/dev/shm")


def run_chains(kind: str, first: int, count: int, tmp_path: Path) -> dict[str, int]:
    """Run chains of kills in a folder of a kind, ``memory`` or ``disk``, and check that there were kills."""
    if kind == "memory" and not os.access(MEMORY, os.W_OK):
        pytest.skip("there is no folder in memory")
    with tempfile.TemporaryDirectory(dir=MEMORY if kind == "memory" else tmp_path) as folder:
        command = [sys.executable, "-m", "tests.faults.crash_sums", folder, kind, str(first), str(count)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    facts: dict[str, int] = json.loads(done.stdout)
    print(kind, facts)
    assert facts["chains"] >= count
    assert facts["kills"] >= count
    assert facts["kept"] >= count // 2
    assert facts.get("kernel", 0) >= (count // 2 if kind == "memory" else 0)
    return facts


@pytest.mark.parametrize(("kind", "count"), [("memory", 8), ("disk", 3)])
def test_killed_solves_with_sums_go_on_to_the_same_files(kind: str, count: int, tmp_path: Path) -> None:
    run_chains(kind, 0, count, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "count"), [("memory", 100), ("disk", 50)])
def test_many_killed_solves_with_sums_go_on_to_the_same_files(kind: str, count: int, tmp_path: Path) -> None:
    facts = run_chains(kind, int(os.environ.get("APSP_SUMS_FIRST", "1000")), count, tmp_path)
    assert facts["changed"] >= count // 4
