"""Weights of few decimals, as most files have them: whole numbers of a small unit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.model.dtypes import WORK_TYPES

#: Most decimals that are looked for.
DECIMALS: Final = 9
#: Weights that are looked at first: few tell, mostly.
FEW: Final = 256

Units = tuple[npt.NDArray[np.int32], float]


def in_units(indptr: npt.NDArray[np.int64], weights: npt.NDArray[Any]) -> Units | None:
    """Non-negative floats as multiples of 1, 0.1, 0.01, ..., the largest that divides them all, and that unit.

    None if there is none, or if int32 might not hold the length of a path: it leaves each vertex at most once, by its
    heaviest arc at most.  ``indptr`` says which weights belong to one vertex (CSR).
    """
    if len(weights) == 0:
        return None
    starts = indptr[:-1][np.diff(indptr) > 0]
    with np.errstate(over="ignore"):  # an infinite sum is in no unit
        longest = float(np.maximum.reduceat(weights, starts).sum(dtype=np.float64))
    for power in (10.0 ** np.arange(DECIMALS + 1)).tolist():
        if not longest * power <= WORK_TYPES["int32"].largest:
            return None
        if all(_whole(some, power) for some in (weights[:FEW], weights)):
            return np.rint(weights * power).astype(np.int32), 1 / float(power)
    return None


def _whole(weights: npt.NDArray[Any], power: float) -> bool:
    """Whether every weight is the float nearest to a whole number of ``power``-ths."""
    return np.array_equal(np.rint(weights * power) / power, weights)
