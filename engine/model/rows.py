"""Where finished rows go, and the facts that are found about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
#: Adds the finite distances of some rows to counts, given the width of a bin; answers how many lie below zero.
Count = Callable[[float, npt.NDArray[np.int64]], int]


class Sink(Protocol):
    """Where finished parts of the matrix go; ``storage.matrix.reader.MatrixWriter`` is one."""

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the tiles that the sink likes to be given."""
        ...

    def write(self, row: int, column: int, block: Array) -> None:
        """Take ``block``, whose first entry is matrix entry (row, column); different tiles may come from threads."""
        ...


class ArraySink:
    """A sink that is an array in memory, shape (rows, columns)."""

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.array = np.empty(shape, dtype)
        self.tile = (64, max(1, shape[1]))

    def write(self, row: int, column: int, block: Array) -> None:
        """Copy ``block`` to its place."""
        self.array[row : row + block.shape[0], column : column + block.shape[1]] = block


class FloatSink:
    """A sink that fills an array of floats, shape (rows, columns); integers that mean *unreachable* become +inf."""

    def __init__(self, out: npt.NDArray[np.floating], unreachable: float) -> None:
        self._out, self._unreachable = out, unreachable
        self.tile = (64, max(1, out.shape[1]))

    def write(self, row: int, column: int, block: Array) -> None:
        """Convert ``block`` into its place."""
        place = self._out[row : row + block.shape[0], column : column + block.shape[1]]
        place[...] = block
        if block.dtype.kind in "iu":
            place[block == self._unreachable] = np.inf


@dataclass(frozen=True)
class RowFacts:
    """Facts of some rows, the sources themselves left out, one entry a row.

    Attributes:
        reached: targets reached.
        sums: sum of finite distances, int64 or float64.
        largest: the largest finite distance; farthest: the first column at it, -1 (and no ``largest``) if none.
    """

    reached: npt.NDArray[np.int64]
    sums: Array
    largest: Array
    farthest: npt.NDArray[np.int64]
