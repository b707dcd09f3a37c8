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
from engine.algorithms.betweenness.rows import HELD_ROWS, KEYS, NEAR_HOPS, RowPasses
from engine.devices.cpu.atonce.lane_blocks import lane_space
from engine.devices.cpu.betweenness.accumulating import DONE
from engine.devices.cpu.betweenness.levels import DISTANCES
from engine.devices.cpu.betweenness.small import (
    add_together,
    finish_small,
    prepare_small,
    prepare_together,
    together_space,
    whole_multiples,
)
from engine.devices.cpu.betweenness.together import pass_together
from engine.devices.cpu.betweenness.vectors import LANES, Mask
from engine.devices.cpu.bfs_bits import bit_space, search_bits
from engine.devices.cpu.bit_facts import PLANES
from engine.devices.cpu.lanes import search_lanes
from engine.graph.ordering import fixed
from engine.model.decimals import POWERS
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
#: An array of each type of distances.
_LIKE: Final = {name: np.zeros(0, WORK_TYPES[name].dtype) for name in ("uint16", "int32")}
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
        self._graph = fixed(graph.indptr), fixed(graph.heads), graph.directed
        self._unit = len(lengths) == 0
        longest = (graph.n - 1) * largest
        self._kind: WorkType = WORK_TYPES["uint16" if longest <= WORK_TYPES["uint16"].largest else "int32"]
        worth = graph.n * (graph.n + graph.arcs) >= folding.LEAST_VISITS
        self._folded, self._core, facts, told = prepare_small(
            *self._graph[:2],
            lengths,
            graph.directed,
            (folding.LEAST_SHARE if worth else math.inf, ALONE, MOST_VISITS),
            (FEW_ROWS, SPLIT),
        )
        alone, ends, split = told
        self._size, self._ends, self.split, together = len(self._core[3]), ends > 0, split > 0, 0
        self._part: Any = None  # of searches together, and the sources of these; None without such searches
        self._merged: Any = None
        if len(facts[2]):
            self._part, self._merged = prepare_together(self._core, facts, (NEAR_HOPS, WORK_TYPES["int32"].largest))
            together = len(self._merged[0][0]) * (len(self._part[0]) + len(self._part[2]))
        self.visits, self.sources, self.folded = (together, alone), len(self._folded[2][0]), len(self._folded[0][0])
        width, arcs = self._kind.dtype.itemsize, len(self._core[1])
        self.bytes = self._size * (1024 + (HELD_ROWS + 2 * LANES) * width) + 96 * (graph.n + graph.arcs) + 64 * arcs

    def run(self) -> tuple[int, Floats]:
        """Search from all vertices.

        Returns:
            ``DONE``, or the code of the fault that a search found; and the flow through each vertex of the graph over
            all ordered pairs, shape (n,).
        """
        sums = self._sums(self._size)
        if self._part is not None:
            part, merged = len(self._part[0]), len(self._merged[1][1]) > 0
            apart = merged or part < self._size  # otherwise the part is the core
            together = self._sums(part) if apart else sums
            if merged:
                together = together[0], np.zeros(part), together[2]
            said = self._search_together((*together, _NO_FLOW))
            if said != DONE:
                return said, sums[0]
            if apart:
                add_together(self._part, self._merged, together, sums)
        said, values = finish_small(self._graph, self._folded, self._core, sums)
        return said, values

    def _sums(self, n: int) -> tuple[Floats, Floats, Floats]:
        return np.zeros(n), np.zeros(n) if self._ends else _NO_FLOW, np.zeros(n) if self._ends else _NO_FLOW

    def _search_together(self, sums: tuple[Floats, ...]) -> int:
        """Search from all other vertices together, in the part that they can reach; add their flows to ``sums``."""
        _, indptr, heads, _, ends, tails, lengths, places, lone, kept, _ = self._part
        (rows, times), members, _ = self._merged
        (block, near, every, place), space = self._space()
        search, far = self._searcher(block, near), self._kind.sentinel()
        given = ((ends, tails, lengths, places, lone), _NO_SINKS), (rows, rows, times, *members)
        for done in range(0, len(rows), HELD_ROWS):
            some = every[done : done + HELD_ROWS]
            sources = rows[done : done + HELD_ROWS]
            search(sources, every[: len(some)])
            if done:
                place[sources] = every[: len(some)]
            said = int(pass_together(*given, some, (block, far, (indptr, heads), place), kept, space, sums))
            if said != DONE:
                return said
        return DONE

    def _space(self) -> tuple[tuple[npt.NDArray[Any], Steps, Indices, Steps], tuple[Any, ...]]:
        """Return the arrays for searches together, and the work space of
        :func:`engine.devices.cpu.betweenness.together.pass_together`.
        """
        n, arcs, unit = len(self._part[0]), len(self._part[2]), self._unit
        sizes = HELD_ROWS, DISTANCES if unit else LANES, 1 + max(LEAST_KEYS, min(KEYS, 1 << n.bit_length()))
        made, first, second, before, order, taken, lines = together_space(
            n, arcs, self._merged[0][0], _LIKE[self._kind.name], sizes
        )
        limits = RowPasses.PASSES, RowPasses.MANY if unit else n + 1
        return made, (*first[:3], before, first[3], second[0], order, taken, limits, *second[1:], lines)

    def _searcher(self, block: npt.NDArray[Any], near: Steps) -> Callable[[Indices, Indices], None]:
        """Return a function that searches from up to ``HELD_ROWS`` vertices of the part that searches together visit,
        and writes their distances to the first rows of ``block``.  It takes the vertices and the numbers of these rows.

        ``near`` has the numbers of all vertices of the part.
        """
        _, indptr, heads, into, _, tails, lengths, *_ = self._part
        n, kind = block.shape[1], self._kind
        far = kind.sentinel()
        bits = bit_space(n) if self._unit else None
        steps, labels = lengths, lane_space(n, far) if bits is None else None

        def search(sources: Indices, rows: Indices) -> None:
            nonlocal labels, steps
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
    most = WORK_TYPES["int32"].largest
    if not graph.integral and decimal:
        multiples, power = whole_multiples(fixed(graph.weights), POWERS, most // graph.n)
        if len(multiples):
            return multiples, int(multiples.max()), power
        return (_NO_STEPS, 1, 1.0) if power else None
    least, largest = graph.weights.min().item(), graph.weights.max().item()
    if not least > 0 or not graph.n * largest <= most:
        return None
    if least == largest:
        return _NO_STEPS, 1, 1.0
    return (graph.weights.astype(np.int32), largest, 1.0) if graph.integral else None
