"""Counts the shortest paths between all pairs of vertices of a small graph, with few calls from Python.

The steps are those of larger graphs, which take milliseconds here.  The many objects and arrays by which those share
work among threads, follow the progress and limit memory would take as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness import folding
from engine.algorithms.betweenness.numbering import ALONE
from engine.algorithms.betweenness.rows import HELD_ROWS, KEYS, NEAR_HOPS, RowPasses, aligned
from engine.devices.cpu.arcs import FAR
from engine.devices.cpu.atonce.lane_blocks import lane_space
from engine.devices.cpu.betweenness.accumulating import DONE, pass_hops, pass_packed
from engine.devices.cpu.betweenness.levels import DISTANCES
from engine.devices.cpu.betweenness.small import join_small, prepare_small
from engine.devices.cpu.betweenness.together import pass_together
from engine.devices.cpu.betweenness.vectors import LANES, Mask
from engine.devices.cpu.bfs_bits import bit_space, search_bits
from engine.devices.cpu.bit_facts import PLANES
from engine.devices.cpu.lanes import search_lanes
from engine.graph.ordering import fixed
from engine.model.decimals import in_units
from engine.model.dtypes import WORK_TYPES, WorkType
from storage.graph.graph import Graph

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Steps = npt.NDArray[np.int32]

#: A graph is small if it has at most this number of vertices and arcs, and if searches visit at most VISITED of them.
SIZE: Final = 16_384
VISITED: Final = 5_000_000
#: Least number of sources for which simultaneous searches are faster than one search after the other.
FEW_ROWS: Final = 32
#: A graph is split into blocks if searches in these visit at most this share of what searches in the graph visit, and
#: if the product of its vertices with its vertices and arcs is at least SPLIT.  helsinki, where the share is 0.86, and
#: krems, with 1.09 million and 0.76, take about as long whether they are split or not, because splitting takes 0.2 ms.
MOST_VISITS: Final = 0.8
SPLIT: Final = 1_250_000
#: Least number of different keys when vertices are sorted by distance; it limits the distances of entries by distance.
LEAST_KEYS: Final = 2048
_NONE: Final = np.zeros(0, np.int64)
_NO_STEPS: Final = np.zeros(0, np.int32)
_NO_FLOW: Final = np.zeros(0)
#: Searches side by side are never given up, and no length is too large for its type.
_WHOLE: Final = (2**62, 0)
#: There are no arcs into sinks, because sinks are vertices as all others here.
_NO_SINKS: Final = (np.zeros(1, np.int64), _NO_STEPS, _NO_STEPS, _NONE, _NONE, _NO_STEPS, _NO_FLOW, np.zeros(0, Mask))


class SmallSearches:
    """The searches from all vertices of a small graph.

    Args:
        graph: the graph; it has arcs, and no terminals.
        lengths: int32, shape (arcs,): the length of each arc, at least 1; empty if all are 1.
        largest: the largest of these lengths.

    Attributes:
        visits: bounds on the number of vertices and arcs that searches together visit, and that searches alone visit.
        sources: the number of vertices that are left after trees are folded.
        folded: the number of vertices of trees that are folded.
        split: whether what is left is split into blocks.
        bytes: an estimate of the bytes of memory that all of this takes.
    """

    def __init__(self, graph: Graph, lengths: Steps, largest: int) -> None:
        self._graph, self._unit, self._largest = (fixed(graph.indptr), fixed(graph.heads)), len(lengths) == 0, largest
        self._directed = graph.directed
        longest = (graph.n - 1) * largest
        self._kind: WorkType = WORK_TYPES["uint16" if longest <= WORK_TYPES["uint16"].largest else "int32"]
        worth = graph.n * (graph.n + graph.arcs) >= folding.LEAST_VISITS
        self._folded, self._core, self._part, self._merged, told = prepare_small(
            *self._graph,
            lengths,
            graph.directed,
            (folding.LEAST_SHARE if worth else math.inf, ALONE, MOST_VISITS),
            (FEW_ROWS, NEAR_HOPS, WORK_TYPES["int32"].largest, SPLIT),
        )
        self.visits, self._ends = (int(told[0]), int(told[1])), int(told[2])
        self._size, self.sources = len(self._core[3]), len(self._folded[2][0])
        self.folded, self.split = len(self._folded[0][0]), bool(told[3])
        width, arcs = self._kind.dtype.itemsize, len(self._core[1])
        self.bytes = self._size * (1024 + (HELD_ROWS + 2 * LANES) * width) + 96 * (graph.n + graph.arcs) + 64 * arcs

    def run(self) -> tuple[int, Floats]:
        """Search from all vertices.

        Returns:
            ``DONE``, or the code of the fault that a search found; and the flow through each vertex of the graph over
            all ordered pairs, shape (n,).
        """
        alone, together = self._sums(self._size, self._ends), self._sums(len(self._part[0]), self._ends)
        if len(self._merged[1][1]):
            together = together[0], np.zeros(len(together[0])), *together[2:]
        said = self._search_alone(alone)
        if said == DONE and len(self._merged[0][0]):
            said = self._search_together(together)
        graph = *self._graph, self._directed
        return said, join_small(graph, self._folded, self._core, self._part, self._merged, alone[:3], together[:3])

    def _sums(self, n: int, ends: int) -> tuple[Floats, ...]:
        few = n if ends else 0
        return np.zeros(n), np.zeros(few), np.zeros(few), _NO_FLOW

    def _search_alone(self, sums: tuple[Floats, ...]) -> int:
        """Search from those vertices that reach little, one after the other; add their flows to ``sums``."""
        indptr, heads, lengths, kept, times, rows = self._core
        n = self._size
        if len(rows) == 0:
            return DONE
        own = np.arange(n)
        listed = own, own, _NONE, _NO_STEPS, _NO_FLOW, times
        space = np.zeros(n), np.zeros(n), np.empty(n, np.int32), kept.copy()
        if self._unit:
            return int(
                pass_hops((indptr, heads), listed, rows, kept, (np.full(n, -1, np.int32), *space), (*sums, _NO_FLOW))
            )
        far = np.int64(FAR)
        heap = np.empty(n, np.int64), np.full(n, -1, np.int32), max(1, (n - 1).bit_length())
        arcs = indptr, heads, lengths, far
        return int(pass_packed(arcs, listed, rows, kept, (np.full(n, far), *space), (*sums, _NO_FLOW), heap))

    def _search_together(self, sums: tuple[Floats, ...]) -> int:
        """Search from all other vertices together, in the part that they can reach; add their flows to ``sums``."""
        part, indptr, heads, _, ends, tails, lengths, places, lone, kept, _ = self._part
        (rows, times), members, _ = self._merged
        n, kind = len(part), self._kind
        block = np.empty((min(len(rows), HELD_ROWS) + LANES, n), kind.dtype)
        search, space = self._searcher(block), self._space(n, len(heads))
        place = np.empty(n, np.int32)
        given = ((ends, tails, lengths, places, lone), _NO_SINKS), (rows, rows, times, *members)
        for first in range(0, len(rows), HELD_ROWS):
            some = np.arange(first, min(len(rows), first + HELD_ROWS))
            sources = rows[some]
            search(sources)
            place[sources] = some - first
            found = block, kind.sentinel(), (indptr, heads), place
            said = int(pass_together(*given, some, found, kept, space, sums))
            if said != DONE:
                return said
        return DONE

    def _searcher(self, block: npt.NDArray[Any]) -> Callable[[Indices], None]:
        """Return a function that searches from up to ``HELD_ROWS`` vertices of the part that searches together visit,
        and writes their distances to the first rows of ``block``.
        """
        _, indptr, heads, into, _, tails, lengths, *_ = self._part
        n, kind = block.shape[1], self._kind
        near, far = np.arange(n, dtype=np.int32), kind.sentinel()
        bits = bit_space(n) if self._unit else None
        steps, labels = lengths, lane_space(n, far) if bits is None else None

        def search(sources: Indices) -> None:
            nonlocal labels, steps
            rows = np.arange(len(sources))
            if bits is not None and search_bits(
                (indptr, heads, into, tails), bits, (near, near, far), sources, rows, block, (2**PLANES, False)
            ):
                return
            labels, steps = labels or lane_space(n, far), steps.astype(kind.dtype, copy=False)
            width, ends = labels[0].shape[1], (far, far, far, None)
            for first in range(0, len(rows), width):
                some = sources, rows[first : first + width]
                search_lanes(
                    (indptr, heads, into, tails, steps), labels, ends, (near, near, _NONE, _NONE), some, block, _WHOLE
                )

        return search

    def _space(self, n: int, arcs: int) -> tuple[Any, ...]:
        """Return the work space of :func:`engine.devices.cpu.betweenness.together.pass_together`."""
        lines, listed = aligned(3 * n, np.dtype(np.float64)), LANES * n + 1
        spare = np.empty((3, (DISTANCES if self._unit else LANES) * n), np.int32)
        return (
            aligned(n, self._kind.dtype),
            np.empty(n, np.int32),
            np.empty(1 + max(LEAST_KEYS, min(KEYS, 1 << n.bit_length())), np.int32),
            (np.zeros(n + 1, np.int64), np.empty(arcs + 1, np.int32), np.empty(arcs + 1, Mask)),
            _NONE,
            np.empty(n, np.int32),
            (np.empty(n, np.uint32), np.empty(n, np.int64), *np.empty((4, n), np.int32)),
            (np.empty(listed, np.int32), np.empty(listed, Mask)),
            (RowPasses.PASSES, RowPasses.MANY if self._unit else n + 1),
            np.zeros(n, np.uint32),
            spare,
            (lines[:n], lines[n : 2 * n], lines[2 * n :], np.zeros((4, LANES))),
        )


def whole_lengths(graph: Graph, *, decimal: bool) -> tuple[Steps, int, float] | None:
    """Return the lengths of arcs as whole numbers of at least 1 whose sums along any path fit int32.

    Args:
        graph: the graph; it has arcs.
        decimal: whether floats of few decimals are taken as whole multiples of a decimal unit.

    Returns:
        The lengths, empty if all are the same; the largest of them, 1 if all are the same; and the number by which they
        are divided to get the graph's own weights, 1 if all are the same.  None if weights are not like that.
    """
    if not graph.weighted:
        return _NO_STEPS, 1, 1.0
    weights = graph.weights
    least, largest = weights.min().item(), weights.max().item()
    if not least > 0 or not graph.n * largest <= WORK_TYPES["int32"].largest:
        return None
    if least == largest:
        return _NO_STEPS, 1, 1.0
    if graph.integral:
        return weights.astype(np.int32), largest, 1.0
    found = in_units(graph.indptr, weights) if decimal else None
    if found is None:
        return None
    multiples, power = found[0], round(1 / found[1])
    most = int(multiples.max())
    return (multiples, most, float(power)) if graph.n * most <= WORK_TYPES["int32"].largest else None
