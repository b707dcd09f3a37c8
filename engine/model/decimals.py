"""Writes float weights as whole multiples of a decimal unit such as 0.01; in most files, weights have few decimals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.model.backend import Arcs, heaviest_out
from engine.model.dtypes import WORK_TYPES

#: The units that are tried are 1, 0.1, 0.01 and so on, down to 10 ** -DECIMALS.
DECIMALS: Final = 9
#: POWERS holds the reciprocal of each unit.  The first FEWEST weights are tried with all units at once, and the first
#: FEW weights with each unit that suits the first FEWEST.  So most wrong units are ruled out before all weights are
#: read.
POWERS: Final = 10.0 ** np.arange(DECIMALS + 1)
FEWEST: Final = 16
FEW: Final = 256

Units = tuple[npt.NDArray[np.int32], float]


def units_of(arcs: Arcs) -> Units | None:
    """Return the float64 weights of ``arcs`` as multiples of a decimal unit (:func:`in_units`); None if no unit suits.

    The result is computed once and cached in ``arcs``.
    """
    return arcs.form(_units)


def _units(arcs: Arcs) -> Units | None:
    return in_units(arcs.indptr, arcs.weights, arcs.form(heaviest_out) if len(arcs.weights) else None)


def in_units(
    indptr: npt.NDArray[np.int64], weights: npt.NDArray[Any], heaviest: npt.NDArray[Any] | None = None
) -> Units | None:
    """Write non-negative floats as int32 multiples of the largest unit of 1, 0.1, 0.01, ... that divides them all.

    Args:
        indptr: int64, shape (n + 1,): the weights of the arcs out of u are those from ``indptr[u]`` up to
            ``indptr[u + 1]``.
        weights: floats of at least 0, shape (arcs,).
        heaviest: :func:`engine.model.backend.heaviest_out` of these arcs; None to find it here.

    Returns:
        The multiples, shape (arcs,), and the unit.  None if no unit divides all weights, or if the length of a path
        might exceed int32.  The bound on that length is the sum, over all vertices, of the heaviest arc out of each.
    """
    if len(weights) == 0:
        return None
    if heaviest is None:
        heaviest = np.maximum.reduceat(weights, indptr[:-1][np.diff(indptr) > 0])
    with np.errstate(over="ignore"):  # the sum may overflow to inf; no unit then suits
        powers = POWERS[float(heaviest.sum(dtype=np.float64)) * POWERS <= WORK_TYPES["int32"].largest]
    for power in powers[_wholes(weights[:FEWEST, None], powers).all(axis=0)].tolist():
        if _whole(weights[:FEW], power):
            multiples = np.rint(weights * power)
            if np.logical_and.reduce(multiples / power == weights):
                return multiples.astype(np.int32), 1 / float(power)
    return None


def limit_on_paper(limit: float, weights: npt.NDArray[Any], n: int, dtype: npt.DTypeLike = np.float64) -> float:
    """Return a limit for rounded sums of decimal weights.  It admits a rounded sum if and only if ``limit`` admits the
    exact sum.

    In binary, 0.1 + 0.2 is a little more than 0.3.  But exact sums of multiples of a unit lie on a grid.  So the limit
    0.3 is replaced by the middle between two points of the grid, 0.35, which no rounded sum crosses.

    Args:
        limit: a number of at least 0; distances up to it are wanted.
        weights: the weights of all arcs, shape (arcs,).
        n: the number of vertices; no path has as many arcs.
        dtype: the type in which weights are added.

    Returns:
        The middle between the largest wanted sum and the next larger sum; ``limit`` itself if weights are whole or
        negative, or multiples of no decimal unit, or if rounding might exceed a quarter of the unit.
    """
    if len(weights) == 0 or weights.dtype.kind != "f" or weights.min() < 0 or not math.isfinite(limit):
        return limit
    for power in range(DECIMALS + 1):
        per = 10.0**power
        if n * (limit + 1 / per) * float(np.finfo(dtype).eps) > 1 / per / 4:
            return limit
        if all(_whole(some, per) for some in (weights[:FEW], weights)):
            return float((math.floor(Fraction(repr(float(limit))) * 10**power) + Fraction(1, 2)) / 10**power)
    return limit


def _whole(weights: npt.NDArray[Any], power: float) -> bool:
    """Return whether every weight is the float nearest to a whole multiple of 1 / ``power``."""
    return bool(np.logical_and.reduce(_wholes(weights, power)))


def _wholes(weights: npt.NDArray[Any], power: npt.NDArray[np.floating] | float) -> npt.NDArray[np.bool_]:
    """Return which weights are nearest to a multiple of 1 / ``power``, as in :func:`_whole`; arrays are broadcast."""
    with np.errstate(over="ignore"):  # weights that overflow are no multiples: infinity differs from them
        whole: npt.NDArray[np.bool_] = np.rint(weights * power) / power == weights
    return whole
