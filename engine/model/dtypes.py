"""Working types: the NumPy type of a matrix's entries, its value for *unreachable*, and the largest distance that
fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.model.problem import Problem


@dataclass(frozen=True)
class WorkType:
    """One working type.

    Attributes:
        name: NumPy's name of the type.
        unreachable: the value that stands for *no path*; +inf for floats.  For integers, twice the sentinel still
            fits the type, so a sum of two entries never wraps.
        largest: the largest distance that the type holds where no arc is negative; inf for floats, which round and do
            not overflow.
        largest_signed: the largest absolute value of a distance where some arcs are negative; below zero if the type
            does not allow negative arcs.
        itself: the value of the path without arcs, from a vertex to itself.
    """

    name: str
    unreachable: float
    largest: float
    largest_signed: float
    itself: float = 0

    @cached_property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy type."""
        return np.dtype(self.name)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an entry."""
        return self.dtype.itemsize

    @cached_property
    def integer(self) -> bool:
        """Whether entries are integers with a sentinel."""
        return self.dtype.kind in "iu"

    @property
    def exact(self) -> float:
        """The number up to which sums of whole numbers are exact; for integer types it is ``largest``."""
        return self.largest if self.integer else 2.0 ** (24 if self.itemsize == 4 else 53)

    def sentinel(self) -> np.generic:
        """``unreachable`` as a scalar of this type."""
        return self.dtype.type(self.unreachable)


#: Where some arcs are negative, intermediate sums are at most REACH times the bound on distances.  The bound holds for
#: potentials, too.  So reduced weights are at most twice the bound, and sums of two of them at most four times.
REACH: Final = 4

#: The sum of two sentinels of uint16, 32,767 + 32,767, still fits 16 bits.  In int32 with negative arcs, unreachable
#: entries may fall below the sentinel by the length of a path (at most ``largest_signed``), so every entry above half
#: of the sentinel means unreachable (see ``settle``).
WORK_TYPES: Final = MappingProxyType(
    {
        "uint16": WorkType("uint16", 2**15 - 1, 2**15 - 2, -1),
        "int32": WorkType("int32", 2**30 - 1, 2**30 - 2, 2**29 - 1),
        "float32": WorkType("float32", float("inf"), float("inf"), float("inf")),
        "float64": WorkType("float64", float("inf"), float("inf"), float("inf")),
    }
)
#: The types of sums of quantities along paths.  In uint16 no two sums are added, so the sentinel can be the largest
#: number but one; the largest marks lost tiles (``storage.matrix.format.fill_value``).
SUM_TYPES: Final = MappingProxyType(
    {
        "uint16": WorkType("uint16", 2**16 - 2, 2**16 - 3, -1),
        "int32": WORK_TYPES["int32"],
        "float64": WORK_TYPES["float64"],
    }
)
#: The type of products of probabilities, of which the greatest is wanted; they take the place of distances.
PRODUCTS: Final = WorkType("float64", 0, 1, 1, itself=1)
#: ``WORK_TYPES`` with NumPy types as keys, because finding the name of a NumPy type takes microseconds.
_BY_DTYPE: Final = {kind.dtype: kind for kind in WORK_TYPES.values()}


def work_type(dtype: npt.DTypeLike) -> WorkType:
    """Return the working type of a NumPy type.

    Raises:
        KeyError: ``dtype`` is no working type.
    """
    kind = np.dtype(dtype)
    return _BY_DTYPE.get(kind) or WORK_TYPES[kind.name]


def settle(block: npt.NDArray[np.generic]) -> None:
    """Set every integer entry that is not a distance back to exactly the sentinel, in place.

    This is needed only after relaxing with negative arcs, where *sentinel + weight* lies a little below the sentinel.
    Distances are proven to be at most ``largest_signed``, less than half of the sentinel.  So no distance is
    overwritten.
    """
    kind = work_type(block.dtype)
    if kind.integer and kind.largest_signed >= 0:
        np.putmask(block, block > np.int32(kind.largest_signed), kind.sentinel())


def adds_exactly(weights: npt.NDArray[np.generic], n: int, kind: WorkType) -> bool:
    """Return whether sums of weights are exact in a type, so that the order in which they are added does not matter.

    The answer is True for integer types: other code proves that their sums fit.  Sums of floats are exact if all
    weights are multiples of one power of two, and if the lengths of two paths of n - 1 arcs add up to a multiple that
    the type's digits can hold.

    Args:
        weights: of all arcs.
        n: the number of vertices.
        kind: the working type.
    """
    if kind.integer or len(weights) == 0:
        return True
    stored = weights.astype(kind.dtype)
    if not (np.isfinite(stored) & (stored == weights) & (stored >= 0)).all():
        return False
    mantissas, exponents = np.frexp(stored[stored > 0].astype(np.float64))
    if len(mantissas) == 0:
        return True
    digits = (mantissas * 2.0**53).astype(np.int64)
    lowest = exponents - 53 + np.frexp((digits & -digits).astype(np.float64))[1] - 1
    # rounding cannot change the result: the left side is an even multiple of 2 ** lowest.min(), and float64 holds such
    # multiples exactly up to 2 ** 54 * 2 ** lowest.min()
    return bool(2.0 * n * float(stored.max()) <= kind.exact * 2.0 ** float(lowest.min()))


def needs_potentials(kind: WorkType, *, negative: bool, integral: bool, bound: float) -> bool:
    """Return whether products relax weights reduced by potentials, not the weights themselves (decisions 006 and 088).

    With negative arcs, rounding could make the length of a cycle of length zero negative, and lengths would then fall
    without bound.  Sums are exact if the lengths of all walks that a product may add up are whole numbers that the type
    holds exactly.  Only lengths up to ``REACH`` times the bound on distances matter: no shortest path begins with a
    longer walk, because the rest of the path has a length of at least -bound.

    Args:
        kind: the working type.
        negative: whether some arc is negative.
        integral: whether all weights are whole numbers.
        bound: proven bound on the absolute value of every distance, from ``engine.graph.bound.distance_bound``.
    """
    return negative and not kind.integer and not (integral and REACH * bound <= kind.exact)


def relaxes_reduced(kind: WorkType, problem: Problem) -> bool:
    """Return whether products relax weights reduced by potentials (:func:`needs_potentials`) for a problem."""
    return needs_potentials(kind, negative=problem.negative, integral=problem.integral, bound=problem.bound)
