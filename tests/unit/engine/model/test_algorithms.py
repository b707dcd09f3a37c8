"""The table of algorithms is the only list of them: costs, runners and devices have the same names."""

from __future__ import annotations

import subprocess
import sys

from engine.algorithms.registry import ON_PROCESSORS
from engine.execution.in_memory_cuda import ON_DEVICE
from engine.model.algorithms import ALGORITHMS, by_rows
from engine.planning.planner import DEVICE_ESTIMATES, ESTIMATES


def test_every_algorithm_has_costs_and_a_runner_and_no_other_has() -> None:
    assert set(ESTIMATES) | set(DEVICE_ESTIMATES) == set(ALGORITHMS)
    assert set(ON_PROCESSORS) == set(ESTIMATES)
    assert set(ON_DEVICE) == set(DEVICE_ESTIMATES)
    assert all(name == algorithm.name for name, algorithm in ALGORITHMS.items())
    assert len({algorithm.title for algorithm in ALGORITHMS.values()}) == len(ALGORITHMS)


def test_what_needs_the_whole_matrix_does_not_finish_by_rows() -> None:
    assert {name for name in ALGORITHMS if not by_rows(name)} == {
        "recursive-floyd-warshall",
        "blocked-floyd-warshall",
        "repeated-squaring",
    }


def test_the_table_is_light() -> None:
    code = "import sys, engine.model.algorithms; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
