"""Counts numbers in equal bins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def in_bins(numbers: Floats, bins: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return how many numbers lie in each of equal bins from the least to the greatest, and the edges of the bins.

    There is a single bin if all numbers are equal, or if they lie so near together that float64 cannot tell the edges
    apart: then ``np.histogram`` would raise an error.

    Args:
        numbers: finite numbers, at least one.
        bins: number of bins.

    Returns:
        Counts, shape (bins,), and edges, shape (bins + 1,); the last bin includes its upper edge.
    """
    low, high = float(numbers.min()), float(numbers.max())
    with np.errstate(over="ignore", invalid="ignore"):  # the span of large numbers of both signs may be no float64
        between = bool(np.all(np.diff(np.linspace(low, high, bins + 1)) > 0))
    if not between or not np.isfinite(high - low):
        return np.array([len(numbers)]), np.array([low, high])
    counts, edges = np.histogram(numbers, bins, (low, high))
    return counts, edges
