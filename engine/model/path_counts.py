"""What a device counts of shortest paths in rows of distances, and what it has counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class PathCounting:
    """What a device counts in whole rows of distances, in place of sending them to the host.

    Attributes:
        sources: int64, shape (rows,): the vertex where the paths of each row begin.
        own: int64, shape (rows,): the vertex that keeps nothing of them, -1 for none.
        kept: float64, shape (n,): what each vertex keeps of every row.
        out: ``indptr``, int64, shape (n + 1,), ``heads``, int32, and weights, int32, of the arcs; no weights where each
            arc counts 1.
        into: the same by their heads: ``indptr``, tails, weights.
        ends: whether to count what begins and ends at vertices.
        over: whether to count what passes over arcs.
        most: most rows that are counted side by side, each in a work space of its own.
    """

    sources: Indices
    own: Indices
    kept: Floats
    out: tuple[Indices, npt.NDArray[np.int32], Weights]
    into: tuple[Indices, npt.NDArray[np.int32], Weights]
    ends: bool
    over: bool
    most: int

    @property
    def bytes(self) -> int:
        """Bytes of device memory that counting takes."""
        n, arcs, rows = len(self.kept), len(self.out[1]), len(self.sources)
        given = sum(array.nbytes for side in (self.out, self.into) for array in side)
        return given + 8 * n + 40 * rows + 8 * (2 * n + arcs) + self.most * bytes_a_row(n, arcs * self.over, self.ends)


def bytes_a_row(n: int, over: int, ends: bool) -> int:
    """Return the bytes of the work space in which a row is counted.

    Args:
        n: vertices.
        over: arcs, if what passes over them is counted, else 0.
        ends: whether what ends at vertices is counted.
    """
    return n * (32 + 8 * ends) + 8 * over


@dataclass(frozen=True, eq=False)
class CountedPaths:
    """What was counted in some rows.

    Attributes:
        rows: int64: their numbers.
        vertices: float64, shape (n,): what passes through each vertex, without what begins or ends there.
        ends: float64, shape (n,): what ends at each vertex; empty where it was not asked for.
        over: float64, shape (arcs,): what passes over each arc; empty where it was not asked for.
        told: float64, shape (rows, 3): what left the source of each row, what arrived, and the largest number of
            shortest paths to a vertex; -1 where not all vertices that the row reaches were found over its tight arcs.
    """

    rows: Indices
    vertices: Floats
    ends: Floats
    over: Floats
    told: Floats


@runtime_checkable
class CountingSink(Protocol):
    """A sink that needs no rows from a device that counts paths in them."""

    @property
    def counting(self) -> PathCounting:
        """What is counted."""
        ...

    def take_counted(self, counted: CountedPaths) -> None:
        """Take what was counted in some rows; several threads may."""
        ...
