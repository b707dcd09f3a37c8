"""Kernels whose variables never count from the end of an array."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from engine.graph.kernels.indices import CHECKED

#: Two kernels in a file of their own, because numba shows the code only of those that it has compiled itself.
KERNELS = """
import sys
import numpy as np
from engine.graph.kernels import njit

@njit(nogil=True, cache=True)
def from_either_end(rows, i, k):
    return rows[i, k] + rows[-1][i]

@njit(nogil=True, cache=True, from_start=True)
def from_the_start(rows, i, k):
    return rows[i, k] + rows[-1][i]

if __name__ == "__main__":
    from_the_start(np.arange(12).reshape(4, 3), int(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "two_kernels.py"
    file.write_text(KERNELS)
    return file


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_test_of_the_sign_is_left_and_constants_count_from_the_end(written: Path) -> None:
    rows, kernels = np.arange(12).reshape(4, 3), loaded(written)
    both = kernels.from_either_end, kernels.from_the_start
    assert [kernel(rows, 1, 2) for kernel in both] == [rows[1, 2] + rows[-1, 1]] * 2
    assert both[0](rows, -2, -1) == rows[-2, -1] + rows[-1, -2]
    found = [next(iter(kernel.inspect_llvm().values())) for kernel in both]
    assert [text.count("ashr") + text.count("icmp slt") > 0 for text in found] == [True, False]


@pytest.mark.parametrize("indices", [("-1", "0"), ("0", "-1")])
def test_a_promise_that_is_not_kept_is_told_when_it_is_checked(indices: tuple[str, str], written: Path) -> None:
    told = subprocess.run(
        [sys.executable, written, *indices],
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
