"""Bins of a histogram, wherever numbers lie."""

from __future__ import annotations

import numpy as np
import pytest

from service.dashboard.charts import counted
from service.views.binning import in_bins

TINY = 5e-324


@pytest.mark.parametrize("bins", [1, 3, 64, 10_000])
@pytest.mark.parametrize(
    "numbers",
    [
        [7.0], [0.0, 0.0], [1.5e17], [9e299], [0.3, 0.1 + 0.2], [1e17, np.nextafter(1e17, 2e17)], [0.0, TINY],
        [-1.7e308, 1.7e308], [-1.7e308, 0.0], [1.0, 2.0, 4.0], [-3.0, 0.5, 9e15],
    ],
)  # fmt: skip
def test_every_number_is_in_a_bin(numbers: list[float], bins: int):
    counts, edges = in_bins(np.array(numbers), bins)
    assert counts.sum() == len(numbers)
    assert (edges[0], edges[-1]) == (min(numbers), max(numbers))
    assert len(counts) in (1, bins)
    assert len(edges) == len(counts) + 1
    assert len(counts) == 1 or np.all(np.diff(edges) > 0)
    if len(counts) > 1:
        assert counts.tolist() == np.histogram(numbers, bins)[0].tolist()


@pytest.mark.parametrize("numbers", [[7.0], [0.3, 0.1 + 0.2], [0.0, TINY], [1e17, np.nextafter(1e17, 2e17)]])
def test_numbers_near_together_have_one_bin_on_the_page(numbers: list[float]):
    assert counted(numbers, 48) == ([numbers[0], numbers[-1]], [len(numbers)])
