"""Gathers facts of whole rows (reach, sum, largest distance) on a worker, for the driver's summary."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.rows import RowFacts
from engine.rows.summary import Summary


def observe(summary: Summary, row: int, rows: Array, own: npt.NDArray[np.int64]) -> None:
    """Add the facts of whole rows to ``summary``.

    Args:
        summary: gathers the facts.
        row: the number that ``rows[0]`` has in ``summary``.
        rows: distances, shape (rows, n).
        own: vertex index of each row of ``summary``, shape (rows of ``summary``,).
    """
    from engine.devices.cpu.row_facts import count_rows, row_facts

    mine = own[row : row + len(rows)]

    def count(width: float, counts: npt.NDArray[np.int64]) -> int:
        return count_rows(rows, mine, width, counts)

    summary.add(row, RowFacts(*row_facts(rows, mine)), count)
