"""The common interface of the objects that write the rows of a semiring, one class for each algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class RowWriter:
    """Writes rows of a semiring; several threads may write different rows.

    Attributes:
        at_once: the number of rows that are found in about the time of a single row.
        piece: the largest number of rows that one thread takes at a time; None for the usual number.
    """

    at_once = 1
    piece: int | None = None

    def together(self, sources: Indices) -> Indices:
        """Return indices into ``sources``, shape (k,), in an order in which sources whose rows are best found at the
        same time are adjacent.
        """
        return np.arange(len(sources))

    def write(self, worker: int, sources: Indices, rows: Indices, out: Array) -> None:
        """Write rows.

        Args:
            worker: number of the calling thread.
            sources: vertex indices, shape (k,).
            rows: the row of ``out`` for each source.
            out: of the type of the values, shape (rows, columns).
        """
        raise NotImplementedError
