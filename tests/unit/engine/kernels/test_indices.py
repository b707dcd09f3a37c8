"""Kernels whose variables never count from the end of an array."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from engine.graph.kernels import njit
from engine.graph.kernels.indices import CHECKED

ROWS = np.arange(12).reshape(4, 3)


@njit(nogil=True, cache=True)
def from_either_end(rows: Any, i: int, k: int) -> int:
    return rows[i, k] + rows[-1][i]


@njit(nogil=True, cache=True, from_start=True)
def from_the_start(rows: Any, i: int, k: int) -> int:
    return rows[i, k] + rows[-1][i]


def test_no_test_of_the_sign_is_left_and_constants_count_from_the_end() -> None:
    assert from_either_end(ROWS, 1, 2) == from_the_start(ROWS, 1, 2) == ROWS[1, 2] + ROWS[-1, 1]
    assert from_either_end(ROWS, -2, -1) == ROWS[-2, -1] + ROWS[-1, -2]
    found = [next(iter(kernel.inspect_llvm().values())) for kernel in (from_either_end, from_the_start)]
    assert [text.count("ashr") + text.count("icmp slt") > 0 for text in found] == [True, False]


@pytest.mark.parametrize("indices", ["-1, 0", "0, -1"])
def test_a_promise_that_is_not_kept_is_told_when_it_is_checked(indices: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import *\nfrom_the_start(ROWS, {indices})"],
        env={**os.environ, CHECKED: "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "IndexError: an index in from_the_start is negative" in told.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "tests",
    [
        "tests/property/test_betweenness_small.py",
        "tests/unit/engine/devices/cpu/test_bfs_bits.py tests/unit/engine/devices/cpu/test_search.py",
    ],
)
def test_no_kernel_breaks_its_promise(tests: str) -> None:
    """Further tests may be run so, with ``APSP_CHECKED_INDICES=1``."""
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests.split()],
        env={**os.environ, CHECKED: "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-3000:]
