"""A sink that is an array of floats in memory, with +inf where there is no path."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.rows import Array


class FloatSink:
    """A sink that fills an array of floats, shape (rows, columns); the integer for *unreachable* becomes +inf."""

    def __init__(self, out: npt.NDArray[np.floating], unreachable: float) -> None:
        self._out, self._unreachable = out, unreachable
        self.tile = (64, max(1, out.shape[1]))

    @property
    def place(self) -> npt.NDArray[np.floating]:
        """The array of floats."""
        return self._out

    def write(self, row: int, column: int, block: Array) -> None:
        """Convert ``block`` to floats and write it to matrix entry (``row``, ``column``)."""
        place = self._out[row : row + block.shape[0], column : column + block.shape[1]]
        if block.dtype.kind == "f":
            place[...] = block
            return
        from engine.devices.cpu.row_facts import to_floats

        to_floats(block, block.dtype.type(self._unreachable), place)
