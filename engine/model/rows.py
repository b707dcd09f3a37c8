"""Sinks, which receive finished rows, and the facts that are gathered about rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
#: Given the width of a bin, adds the finite distances of some rows to counts and returns how many lie below zero.
Count = Callable[[float, npt.NDArray[np.int64]], int]


class Sink(Protocol):
    """A receiver of finished blocks of the matrix, such as ``storage.matrix.writer.MatrixWriter``."""

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the blocks that suit the sink best."""
        ...

    def write(self, row: int, column: int, block: Array) -> None:
        """Take a finished block of the matrix.  Several threads may write different tiles at the same time.

        Args:
            row: matrix row of the block's first entry.
            column: matrix column of the block's first entry.
            block: shape (rows, columns), in the working type.
        """
        ...


class ArraySink:
    """A sink that is an array in memory, shape (rows, columns)."""

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.array = np.empty(shape, dtype)
        self.tile = (64, max(1, shape[1]))

    def write(self, row: int, column: int, block: Array) -> None:
        """Copy ``block``, shape (rows, columns), to matrix entry (``row``, ``column``).

        Args:
            row: row of the block's first entry.
            column: column of the block's first entry.
            block: the entries.
        """
        self.array[row : row + block.shape[0], column : column + block.shape[1]] = block


class NullSink:
    """A sink that discards the rows of a matrix of ``n`` columns."""

    def __init__(self, n: int) -> None:
        self.tile = (64, max(1, n))

    def write(self, row: int, column: int, block: Array) -> None:
        """Discard a block.

        Args:
            row: row of the block's first entry.
            column: column of the block's first entry.
            block: shape (rows, columns).
        """


@dataclass(frozen=True)
class RowFacts:
    """Facts of some rows, each of shape (rows,); the distance of a source to itself does not count.

    Attributes:
        reached: number of targets with a finite distance.
        sums: sum of the finite distances, int64 or float64.
        largest: the largest finite distance; without meaning where ``farthest`` is -1.
        farthest: the first column that holds the largest distance; -1 where no target is reached.
    """

    reached: npt.NDArray[np.int64]
    sums: Array
    largest: Array
    farthest: npt.NDArray[np.int64]
