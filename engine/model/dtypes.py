"""Working types: which numbers a matrix holds, how it says *unreachable*, and how large a distance may be."""

from __future__ import annotations

from dataclasses import dataclass
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
        largest: the largest distance that the type holds, none being negative; inf where it only rounds.
        largest_signed: the same for absolute values where some arcs are negative; below zero if that is not allowed.
    """

    name: str
    unreachable: float
    largest: float
    largest_signed: float

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy type."""
        return np.dtype(self.name)

    @property
    def itemsize(self) -> int:
        """Bytes an entry."""
        return self.dtype.itemsize

    @property
    def integer(self) -> bool:
        """Whether entries are integers with a sentinel."""
        return self.dtype.kind in "iu"

    @property
    def exact(self) -> float:
        """The largest whole number up to which sums of whole numbers are exact; ``largest`` for integers."""
        return self.largest if self.integer else 2.0 ** (24 if self.itemsize == 4 else 53)

    def sentinel(self) -> np.generic:
        """``unreachable`` as a scalar of this type."""
        return self.dtype.type(self.unreachable)


#: Where some arcs are negative, the sums that come up on the way are at most so many times the bound on distances:
#: twice it for reduced weights, for h lies within the bound, too, and as much again for what is added to one.
REACH: Final = 4

#: uint16: 32,767 + 32,767 still fits 16 bits.  int32 with negative arcs: entries near the sentinel may fall by the
#: length of a path (at most ``largest_signed``), so all above half of the sentinel is unreachable (see ``settle``).
WORK_TYPES: Final = MappingProxyType(
    {
        "uint16": WorkType("uint16", 2**15 - 1, 2**15 - 2, -1),
        "int32": WorkType("int32", 2**30 - 1, 2**30 - 2, 2**29 - 1),
        "float32": WorkType("float32", float("inf"), float("inf"), float("inf")),
        "float64": WorkType("float64", float("inf"), float("inf"), float("inf")),
    }
)


def work_type(dtype: npt.DTypeLike) -> WorkType:
    """The working type of a NumPy type; KeyError for any other type."""
    return WORK_TYPES[np.dtype(dtype).name]


def settle(block: npt.NDArray[np.generic]) -> None:
    """Set, in place, every integer entry that is not a distance back to exactly the sentinel.

    Needed only after relaxing with negative arcs, where *sentinel + weight* lies a little below the sentinel.
    Distances are proven to be at most ``largest_signed``, less than half of the sentinel, so the two never meet.
    """
    kind = work_type(block.dtype)
    if kind.integer and kind.largest_signed >= 0:
        np.putmask(block, block > np.int32(kind.largest_signed), kind.sentinel())


def needs_potentials(kind: WorkType, *, negative: bool, integral: bool, bound: float) -> bool:
    """Whether products relax weights reduced by potentials, not the weights themselves (decisions 006 and 088).

    With negative arcs, sums that the working type rounds would carry cycles of length zero below it, and lengths would
    run away.  Sums are exact where all walks that a product may meet are whole numbers that the type holds exactly.
    Those are at most ``REACH`` times the bound on distances: a longer one never comes back below the bound, for what
    follows it is a walk, too, and at least -bound long.

    Args:
        kind: the working type.
        negative, integral: whether some arc is negative, whether all weights are whole numbers.
        bound: proven bound on the absolute value of every distance, as ``engine.graph.analysis.distance_bound`` finds
        it.
    """
    return negative and not kind.integer and not (integral and REACH * bound <= kind.exact)


def relaxes_reduced(kind: WorkType, problem: Problem) -> bool:
    """:func:`needs_potentials` for a problem that is being planned."""
    return needs_potentials(kind, negative=problem.negative, integral=problem.integral, bound=problem.bound)
