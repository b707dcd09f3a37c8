"""The intermediate results of elimination; with them, some parts can be computed again without all other parts.

*Parts* are sets of vertices in a tree; the *border* of a part are the vertices of the parts above that it touches.  A
part is assembled from its arcs and from the lengths among the borders of the parts below it (``rests``).  So new
weights of some arcs change only the parts that hold these arcs, and the parts above them.  For road networks these
results take about a hundredth of the bytes of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from engine.graph.partition import Parts
from engine.model.backend import Array
from engine.model.dtypes import WorkType

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Eliminated:
    """The lengths to, from and inside the borders of parts, which elimination finds; flat, one part after the other.

    Attributes:
        parts: the parts.
        upward: for each part, shape (size, border): lengths from the part to its border, over the part and the parts
            below it.
        across: for each part, shape (border, size): lengths from the border to the part.
        rests: for each part, shape (border, border): lengths between the vertices of the border.
        at: the index at which each part begins in ``upward`` and in ``across``, shape (parts,).
        rest_at: the index at which each part begins in ``rests``, shape (parts,).
    """

    parts: Parts
    upward: Array
    across: Array
    rests: Array
    at: Indices
    rest_at: Indices

    @classmethod
    def of(cls, parts: Parts, upward: Array, across: Array, rests: Array) -> Self:
        """Make the object from three flat arrays."""
        entries, squares = parts.sizes * parts.depths, parts.depths**2
        return cls(parts, upward, across, rests, np.cumsum(entries) - entries, np.cumsum(squares) - squares)

    @classmethod
    def empty(cls, parts: Parts, kind: WorkType) -> Self:
        """Make the object with uninitialised arrays of the right sizes."""
        entries, squares = int(parts.sizes @ parts.depths), int(parts.depths @ parts.depths)
        return cls.of(parts, *(np.empty(count, kind.dtype) for count in (entries, entries, squares)))

    def up(self, i: int) -> Array:
        """Return the entries of ``upward`` that belong to a part, shape (its vertices, its border)."""
        size, depth = self._shape(i)
        return self.upward[self.at[i] : self.at[i] + size * depth].reshape(size, depth)

    def down(self, i: int) -> Array:
        """Return the entries of ``across`` that belong to a part, shape (its border, its vertices)."""
        size, depth = self._shape(i)
        return self.across[self.at[i] : self.at[i] + size * depth].reshape(depth, size)

    def rest(self, i: int) -> Array:
        """Return the entries of ``rests`` that belong to a part, shape (its border, its border)."""
        _, depth = self._shape(i)
        return self.rests[self.rest_at[i] : self.rest_at[i] + depth**2].reshape(depth, depth)

    def _shape(self, i: int) -> tuple[int, int]:
        starts, ends = self.parts.starts, self.parts.ends
        return int(starts[i + 1] - starts[i]), int(ends[i + 1] - ends[i])


def tables_of(parts: Parts, flat: Array) -> list[Array]:
    """Return the table of each part, shape (size, width), as views of ``flat``."""
    sizes, widths = parts.sizes, parts.widths()
    begins = np.cumsum(sizes * widths) - sizes * widths
    spans = zip(begins.tolist(), sizes.tolist(), widths.tolist(), strict=True)
    return [flat[begin : begin + size * wide].reshape(size, wide) for begin, size, wide in spans]


def eliminated_blocks(tables: Sequence[Array], found: Eliminated, i: int) -> list[Array]:
    """Return the blocks that elimination fills for a part: the first columns of its table, ``up``, ``down``, ``rest``.

    Args:
        tables: the tables of all parts.
        found: the lengths to, from and between the vertices of borders.
        i: the number of the part.
    """
    return [tables[i][:, : len(tables[i])], found.up(i), found.down(i), found.rest(i)]


def gathered(blocks: Sequence[Sequence[Array]]) -> list[Array]:
    """Return the blocks of some parts as flat arrays: the first array has the first block of every part, and so on.

    Args:
        blocks: the blocks of each part; every part has the same number of blocks, and there is at least one part.
    """
    return [np.concatenate([block.ravel() for block in each]) for each in zip(*blocks, strict=True)]


def scatter(values: Sequence[Array], blocks: Sequence[Sequence[Array]]) -> None:
    """Fill the blocks of some parts from ``values``, the arrays that :func:`gathered` returned for these parts."""
    for flat, each in zip(values, zip(*blocks, strict=True), strict=True):
        at = 0
        for block in each:
            block[...] = flat[at : at + block.size].reshape(block.shape)
            at += block.size


class PartRecorder:
    """Records which parts are done, and restores the parts of an earlier run; this base class does neither.

    Each part is done in the steps ``eliminate``, ``extend`` and ``backward``.
    """

    def begin(self, parts: Parts, flat: Array, eliminated: Eliminated) -> None:
        """Fill the arrays with the parts that an earlier run has recorded, and keep references to the arrays.

        Args:
            parts: the parts.
            flat: the array of all tables.
            eliminated: the arrays of the lengths to, from and between the vertices of borders.
        """

    def begin_backward(self, flat: Array) -> None:
        """Fill the tables of the reversed graph with the parts that an earlier run has recorded."""

    def todo(self, step: str, parts: Parts) -> Mask:
        """Return the mask of the parts whose step ``step`` is not done yet, shape (parts,)."""
        del step
        return np.ones(parts.count, np.bool_)

    def add(self, step: str, some: Indices) -> None:
        """Record that a step is done for some parts.

        Args:
            step: ``eliminate``, ``extend`` or ``backward``.
            some: the numbers of these parts.
        """
