"""Counts the shortest paths of a graph without cycles, sixteen sources at a time; no rows of distances are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.numbering import PathArcs
from engine.algorithms.betweenness.rows import NO_MEMBERS, aligned, cut_evenly, near_each_other, with_arcs
from engine.devices.cpu.betweenness.forward import BLOCK, STEP, pass_forward
from engine.devices.cpu.betweenness.gathering import order_by_pivots
from engine.devices.cpu.betweenness.vectors import LANES, Mask
from engine.graph.transpose import transposed
from engine.model.dtypes import WORK_TYPES

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: The most sources that a thread takes at once.
PIECE: Final = 64
#: Sources are ordered by their distances to pivots if at least this share of the pairs of a source and a pivot are less
#: than ``FAR_HOPS`` apart.  The share is 0.46 on facebook_combined, read as directed, where counting then takes 16 %
#: less time, and 0.07 on 3elt, read as directed, where it would take 9 % more (decision 270).
NEAR_PIVOTS: Final = 0.25


class ForwardPasses:
    """Counts paths in a graph whose arcs lead to larger vertex numbers; several threads may use it at the same time.

    Args:
        arcs: the arcs; distances over them are whole numbers that fit int32.
        sources: three arrays of shape (sources,): the sources, int64; for each source the vertex at which none of its
            flow ends, -1 for none, int64; and the factor by which all flow of the source is multiplied, float64.
        kept: float64, shape (n,): the flow that ends at each vertex, the same for every source.
    """

    def __init__(self, arcs: PathArcs, sources: tuple[Indices, Indices, Floats], kept: Floats) -> None:
        self._sources, self._kept = sources, kept
        n = len(kept)
        self._kind = WORK_TYPES["uint16" if arcs.longest <= WORK_TYPES["uint16"].largest else "int32"]
        self._blocks = -(-n >> BLOCK) + 1
        into, tails, places = transposed(arcs.indptr, arcs.heads)
        weights = arcs.weights[places] if len(arcs.weights) else np.ones(len(places), np.int32)
        # an arc longer than any distance is never tight; its weight is limited, so that sums with distances fit int32
        lengths = np.minimum(weights, WORK_TYPES["int32"].largest).astype(np.int32)
        self._sides = (arcs.indptr, arcs.heads), (into, tails)
        self._both = (
            _filled(arcs.indptr, (arcs.heads >> BLOCK, self._blocks - 1)),
            _filled(into, (tails, n), (lengths, 1), (places, 0)),
        )

    def pieces(self, rows: Indices, threads: int) -> list[Indices]:
        """Cut the positions ``rows`` into pieces, each of which a thread takes at once."""
        return cut_evenly(rows, min(PIECE, -(-len(rows) // threads)))

    def near(self) -> Indices:
        """Return the positions of the sources that have outgoing arcs, ordered so that sources equally far from most
        vertices, or near each other in the graph, are adjacent; one position if no source has such arcs.
        """
        indptr = self._sides[0][0]
        inner = int(np.searchsorted(indptr, indptr[-1]))
        some = with_arcs(self._sources[0], inner)
        order, share = order_by_pivots(self._sides[0], self._sides[1][0], self._sources[0][some])
        if share >= NEAR_PIVOTS:
            found: Indices = some[order]
            return found
        return near_each_other(self._sources[0], inner, *self._sides)

    def worker(self, sums: tuple[Floats, ...]) -> Callable[[Indices], int]:
        """Return a function that counts the paths from some sources in one thread; its arguments and result are those
        of the function from :meth:`engine.algorithms.betweenness.rows.RowPasses.worker`.
        """
        far, space = np.int32(self._kind.unreachable), self._space(flows=len(sums[3]) > 0)

        def search(rows: Indices) -> int:
            return int(pass_forward(self._both, far, (*self._sources, *NO_MEMBERS), rows, self._kept, space, sums))

        return search

    def _space(self, *, flows: bool) -> tuple[Any, ...]:
        """Return the work space of a thread; ``flows`` says whether the flow over arcs is counted."""
        n, arcs, lines = len(self._kept), len(self._both[1][1]) + 1, np.dtype(np.float64)
        columns = aligned(n + 1, self._kind.dtype)
        columns[:] = self._kind.unreachable
        return (
            columns,
            (np.zeros(n + 1, np.int64), np.empty(arcs, np.int32), np.empty(arcs, Mask)),
            np.empty(arcs if flows else 0, np.int64),
            np.zeros(self._blocks, np.uint8),
            np.zeros(n, np.uint32),
            (np.empty(n, np.int32), np.empty(n, Mask)),
            aligned(n + 1, lines),
            aligned(n, lines),
            np.zeros((4, LANES)),
        )


def _filled(indptr: Indices, *facts: tuple[npt.NDArray[Any], int]) -> tuple[npt.NDArray[Any], ...]:
    """Return arcs in compressed sparse rows, padded so that each vertex has a multiple of ``STEP`` arcs.

    Args:
        indptr: the index at which the arcs of each vertex begin.
        facts: for each array to return, its values for the arcs, and the value for all padding arcs.
    """
    counts = np.diff(indptr)
    wide = np.zeros(len(indptr), np.int64)
    np.cumsum(-(-counts // STEP) * STEP, out=wide[1:])
    at = np.arange(indptr[-1]) + np.repeat(wide[:-1] - indptr[:-1], counts)
    filled = []
    for values, further in facts:
        found = np.full(wide[-1], further, values.dtype)
        found[at] = values
        filled.append(found)
    return wide, *filled
