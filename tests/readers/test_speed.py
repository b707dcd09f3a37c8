"""Speed and peak memory of reading, at a size where fixed costs no longer count."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.readers import CASES, WANTED_MEMORY, WANTED_RATE, measure


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure peak memory")
@pytest.mark.parametrize("name", ["edges.txt", "undirected.txt", "fractions.csv", "dimacs.gr"])
def test_reading_is_fast_and_lean(name: str) -> None:
    (row,) = measure(6_000_000, [name])
    assert float(row["memory"]) <= WANTED_MEMORY
    # CPU time suffers when other work shares the caches: half of the target still tells the fast way from the slow.
    assert float(row["rate"]) >= WANTED_RATE / 2


def test_the_benchmark_runs() -> None:
    (row,) = measure(2_000, ["edges.txt"])
    assert (row["case"], row["entries"], row["format"]) == ("edges.txt", 2_000, "edges")


@pytest.mark.slow
def test_the_benchmark_runs_in_every_case() -> None:
    rows = measure(2_000)
    assert [row["case"] for row in rows] == list(CASES)
    assert all(int(row["entries"]) == 2_000 for row in rows)
