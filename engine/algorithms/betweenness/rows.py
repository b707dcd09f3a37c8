"""Finds rows of distances from several sources by simultaneous searches, and counts the shortest paths in each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.numbering import PathArcs
from engine.devices.cpu.arcs import prepare
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.betweenness.levels import TAKEN, pass_levels
from engine.devices.cpu.betweenness.tracing import DIGIT, pass_rows
from engine.devices.cpu.betweenness.vectors import LANES
from engine.devices.cpu.bfs_bits import BreadthFirst
from engine.graph.transpose import transposed
from engine.model.backend import Arcs, RowsWanted
from engine.model.dtypes import WORK_TYPES

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Most rows of distances that a thread holds: the number that the widest search finds at once.
HELD_ROWS: Final = 512
#: Most bytes of the rows of distances that a thread holds; it holds at least one row, even if that row is larger.
HELD_BYTES: Final = 64 << 20


class RowPasses:
    """Counts paths in rows of distances; several threads may use it at the same time, for different sources.

    Args:
        arcs: the arcs; distances over them are whole numbers up to ``LONGEST``.
        sources: the sources, int64; for each source the vertex at which none of its flow ends, or -1; and by which
            number all flow of the source is multiplied, float64.
        kept: float64, shape (n,): the flow from every source that ends at each vertex, see
            :class:`engine.algorithms.betweenness.passing.PassingTask`.
    """

    #: The largest distance that a row may hold.
    LONGEST: ClassVar[float] = WORK_TYPES["int32"].largest

    def __init__(self, arcs: PathArcs, sources: tuple[Indices, Indices, Floats], kept: Floats) -> None:
        self._sources, self._kept, self._unit = sources, kept, len(arcs.weights) == 0
        self._kind = WORK_TYPES["uint16" if arcs.longest <= WORK_TYPES["uint16"].largest else "int32"]
        weights = np.ones(len(arcs.heads), np.int32) if self._unit else arcs.weights
        self._arcs = Arcs(arcs.indptr, arcs.heads, weights)
        prepare(self._arcs)  # called once here, before several threads need the result, which is cached
        into, tails, places = transposed(arcs.indptr, arcs.heads)
        self._into = into, tails, arcs.weights if self._unit else arcs.weights[places], places
        self.height = max(1, min(HELD_ROWS, HELD_BYTES // max(1, len(kept) * self._kind.dtype.itemsize)))

    def worker(self, sums: tuple[Floats, ...]) -> Callable[[Indices], int]:
        """Return the function with which a thread counts the paths from some sources.

        Args:
            sums: the sums of this thread, as :class:`engine.algorithms.betweenness.passing.PassingTask` makes them.

        Returns:
            A function that takes positions in ``sources`` and returns ``DONE``, or the code of the fault that it met.
        """
        n, arcs = len(self._kept), self._arcs
        backend = (BreadthFirst if self._unit else CpuBackend)(1)
        block = np.empty((self.height, n), self._kind.dtype)
        moved = np.empty(len(arcs.heads) + 1 if len(sums[3]) else 0, np.int64)
        space = (
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(2**DIGIT + 1, np.int64),
            np.zeros((n, 2)),
            np.empty(len(arcs.heads) + 1, np.int32),
            moved,
            np.empty(n, np.int64),
            self._kept.copy(),
        )

        out, lanes = (arcs.indptr, arcs.heads), self._lanes() if self._unit else ()

        def search(rows: Indices) -> int:
            found = block[: len(rows)]
            searches = backend.begin_search(arcs, self._sources[0][rows], found, RowsWanted(self._unit))
            while searches.waiting:
                searches.take(0)
            given = self._sources, rows, (found, self._kind.sentinel()), self._kept
            if self._unit:
                return int(pass_levels((self._into, out), *given, (space, *lanes), sums))
            return int(pass_rows(self._into, *given, space, sums))

        return search

    def _lanes(self) -> tuple[Any, ...]:
        """Return the work space of a thread that takes LANES sources at once, each in one entry of every vector."""
        n = len(self._kept)
        vectors = (_aligned(n) for _ in range(3))
        return np.empty((n, LANES), np.int32), *vectors, *(np.empty(k * n, np.int32) for k in (1, 1, TAKEN))


def _aligned(n: int) -> Floats:
    """Return zeros of shape (n, LANES), each row in a cache line of its own."""
    memory = np.zeros(8 * n * LANES + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    found: Floats = memory[skip : skip + 8 * n * LANES].view(np.float64).reshape(n, LANES)
    return found
