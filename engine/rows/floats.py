"""Sinks that make floats of whole numbers, with +inf where there is no path."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.dtypes import WorkType
from engine.model.rows import Array, Sink
from engine.rows.lane_sums import KeptSpaces


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


class UnitsToFloats:
    """A sink that takes distances in whole units, and passes them on as floats.  Several threads may write.

    Args:
        sink: receives the distances.
        per: the number of units that make 1.
        kind: the type of the distances that are written.
        floats: the type of the distances that are passed on.
        columns: the number of columns.
    """

    def __init__(self, sink: Sink, per: int, kind: WorkType, floats: WorkType, columns: int) -> None:
        self._sink, self._per, self._none = sink, float(per), kind.sentinel()
        self.tile = sink.tile
        # these serve again and again, because the system clears new memory before it is used
        self._places = KeptSpaces(lambda: (np.empty((self.tile[0], columns), floats.dtype),))

    def write(self, row: int, column: int, block: Array) -> None:
        """Convert whole rows, shape (rows, columns), and pass them on; ``row`` is the number of the first one."""
        from engine.rows._sums import from_units

        with self._places.one() as (place,):
            for start in range(0, len(block), len(place)):
                part = block[start : start + len(place)]
                from_units(part, self._per, self._none, place[: len(part)])
                self._sink.write(row + start, column, place[: len(part)])
