"""Facts that threads gather are those of the general functions, and their histograms join to the same one."""

from __future__ import annotations

import numpy as np
import pytest

from engine.devices.cpu.atonce.facts import Gathered, gather_rows, widen_bins
from engine.devices.cpu.row_facts import count_rows, row_facts
from engine.model.dtypes import work_type
from engine.model.rows import BINS, NARROWEST


def matrix(dtype: str, largest: float, rows: int = 12) -> np.ndarray:  # type: ignore[type-arg]
    """Return rows of which some entries, and one row but for its source, are unreachable."""
    draw, kind = np.random.default_rng(3), work_type(dtype)
    found = (draw.random((rows, 40)) * largest).astype(dtype)
    found[draw.random(found.shape) < 0.3] = kind.sentinel()
    found[1] = kind.sentinel()
    found[np.arange(rows), np.arange(rows)] = 0
    return found


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [("uint16", 30000), ("uint16", 5), ("int32", 10**9), ("float32", 1e-30), ("float64", 1e300), ("float64", 0.7)],
)
def test_facts_and_histogram_are_the_same_in_whatever_thread(dtype: str, largest: float) -> None:
    out, order = matrix(dtype, largest), np.random.default_rng(1).permutation(12)
    sources, none = np.arange(12), np.empty(0, np.int32)
    gathered = Gathered.of(out, 3, wanted=True)
    for worker, some in enumerate(np.array_split(order, 3)):
        gather_rows(out, sources, some, none, worker, gathered.arrays())
    wanted = row_facts(out, sources)
    found = gathered.found(sources)
    for mine, other in zip(
        (found.facts.reached, found.facts.sums, found.facts.farthest), (*wanted[:2], wanted[3]), strict=True
    ):
        assert np.array_equal(mine, other)
    some = wanted[0] > 0
    assert np.array_equal(found.facts.largest[some], wanted[2][some])
    width = 2.0 ** np.ceil(np.log2(float(wanted[2][some].max()) / BINS) + 1)
    width = max(width, 1.0) if work_type(dtype).integer else width
    counts, expected = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    assert found.count(width, counts) == count_rows(out, sources, width, expected)
    assert counts.sum() == wanted[0].sum() > 0
    assert np.array_equal(counts, expected)


def test_few_columns_are_numbered_as_all_columns() -> None:
    out = np.full((2, 40), np.inf)
    columns = np.array([3, 8, 20], np.int32)
    out[:, columns] = [[0, 4, 9], [7, 0, 5]]
    gathered = Gathered.of(out, 1, wanted=True)
    gather_rows(out, np.array([3, 8]), np.arange(2), columns, 0, gathered.arrays())
    assert gathered.reached.tolist() == [2, 2]
    assert gathered.sums.tolist() == [13, 12]
    assert gathered.farthest.tolist() == [20, 3]


@pytest.mark.parametrize("largest", [0.0, 1e-320, 1e-9, 1.0, 127.99, 128.0, 1e12, 1e300])
def test_bins_are_as_narrow_as_they_can_be(largest: float) -> None:
    for whole in (False, True):
        bins = (np.zeros(1), np.zeros(1, np.int64), np.zeros((1, BINS), np.int64))
        width, least = widen_bins(bins, 0, largest, whole), 1.0 if whole else NARROWEST
        assert largest < width * BINS
        assert width == least or largest >= width / 4 * BINS
        bins[2][0, 5:7] = 1, 2
        assert widen_bins(bins, 0, 2 * width * BINS, whole) == 4 * width
        assert bins[2][0, :3].tolist() == [0, 3, 0]
        assert bins[2].sum() == 3


@pytest.mark.parametrize("threads", [1, 16])
def test_histograms_of_any_widths_are_joined(threads: int) -> None:
    draw = np.random.default_rng(threads)
    gathered = Gathered.of(np.zeros((1, 1), np.float32), threads, wanted=True)
    gathered.width[:] = 2.0 ** draw.integers(-3, 3, threads)
    gathered.width[threads // 2 :] *= draw.random(threads - threads // 2) < 0.7  # some threads have none
    gathered.below[:] = draw.integers(0, 9, threads)
    gathered.counts[gathered.width > 0] = draw.integers(0, 1000, BINS)
    found, wanted = gathered.found(None), np.zeros(BINS, np.int64)
    for thread in range(threads):
        for k in range(BINS):
            wanted[int(k * gathered.width[thread] / 4.0)] += gathered.counts[thread, k]
    counts = np.zeros(BINS, np.int64)
    assert found.count(4.0, counts) == gathered.below.sum()
    assert np.array_equal(counts, wanted)


@pytest.mark.parametrize("exponent", [-1000, -999, -300, -7, 0, 24, 500, 1010])
@pytest.mark.parametrize("narrow", [-1000, -990, -20, 0])
def test_a_histogram_of_tiny_distances_is_joined_to_one_of_huge_distances(narrow: int, exponent: int) -> None:
    gathered = Gathered.of(np.zeros((1, 1), np.float64), 2, wanted=True)
    gathered.width[:] = 2.0**narrow, 2.0 ** max(narrow, exponent)
    gathered.counts[0], gathered.counts[1, 3] = np.arange(BINS), 5
    counts, step = np.zeros(BINS, np.int64), 2 ** min(max(narrow, exponent) - narrow, 7)
    assert gathered.found(None).count(2.0 ** max(narrow, exponent), counts) == 0
    wanted = np.bincount(np.arange(BINS) // step, np.arange(BINS), BINS).astype(np.int64)
    wanted[3] += 5
    assert np.array_equal(counts, wanted)
