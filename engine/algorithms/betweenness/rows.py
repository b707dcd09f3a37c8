"""Finds rows of distances by simultaneous searches from several sources, then counts shortest paths from these rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.betweenness.numbering import PathArcs
from engine.devices.cpu.arcs import prepare
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.betweenness.accumulating import DONE
from engine.devices.cpu.betweenness.gathering import choose_searched, gather_near, order_by_pivots
from engine.devices.cpu.betweenness.levels import DISTANCES
from engine.devices.cpu.betweenness.preparing import reverse_arcs
from engine.devices.cpu.betweenness.together import pass_together
from engine.devices.cpu.betweenness.vectors import LANES, Mask
from engine.devices.cpu.bfs_bits import BreadthFirst
from engine.graph.ordering import hop_radius
from engine.graph.transpose import keep_incoming
from engine.model.backend import Arcs, RowsWanted
from engine.model.dtypes import WORK_TYPES

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Most rows of distances that a thread holds: the number that the widest search finds at once.
HELD_ROWS: Final = 512
#: Most bytes of the rows of distances that a thread holds; it holds at least one row, even if that row is larger.
HELD_BYTES: Final = 64 << 20
#: Number of different keys when vertices are sorted by distance; larger distances are sorted by their leading bits.
KEYS: Final = 1 << 16
#: Number of vertices that a search from a source visits to find other sources near it.
LOOKS: Final = (64,)
#: What follows the sources of a task if each of them stands only for itself; see ``pass_together``.
NO_MEMBERS: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
#: If no vertex is farther than this number of hops from one with most arcs, all sources are near each other, and no
#: search for near sources is made (decision 266).  With hops, sources that are equally far from most vertices are then
#: taken together (decision 270).
NEAR_HOPS: Final = 10


class RowPasses:
    """Counts paths in rows of distances; several threads may use it at the same time, for different sources.

    Args:
        arcs: the arcs; distances over them are whole numbers up to ``LONGEST``.
        sources: three arrays of shape (sources,): the sources, int64; for each source the vertex at which none of its
            flow ends, -1 for none, int64; and the factor by which all flow of the source is multiplied, float64.
        kept: float64, shape (n,): the flow that ends at each vertex, the same for every source; see
            :class:`engine.algorithms.betweenness.passing.PassingTask`.
    """

    #: The largest distance that a row may hold.
    LONGEST: ClassVar[float] = WORK_TYPES["int32"].largest
    #: The arcs that are tight for any of sixteen sources can form cycles.  The vertices of a cycle are visited at most
    #: this number of times, forwards and backwards, to find their order; vertices that remain are sorted by distance.
    PASSES: ClassVar[int] = 16
    #: If all arcs have the length 1, vertices on cycles through each other are taken by distance if there are at least
    #: this many: on p2p-Gnutella08, with 1,425 in each group of sources, this saves 8 % of the time (decision 255).
    MANY: ClassVar[int] = 64

    def __init__(self, arcs: PathArcs, sources: tuple[Indices, Indices, Floats], kept: Floats) -> None:
        self._sources, self._kept, self._unit = sources, kept, len(arcs.weights) == 0
        self._kind = WORK_TYPES["uint16" if arcs.longest <= WORK_TYPES["uint16"].largest else "int32"]
        inner = self._inner = int(np.searchsorted(arcs.indptr, arcs.indptr[-1]))  # vertices that have outgoing arcs
        incoming, lone, (indptr, heads, moved, numbers) = reverse_arcs(
            arcs.indptr, arcs.heads, arcs.weights, inner, WORK_TYPES["int32"].largest
        )
        into, last = incoming[0][: inner + 1], incoming[0][inner]
        ends, tails, lengths, places = (each[:last] for each in incoming[1:])
        self._into = ends, tails, lengths, places, lone
        self._sinks = incoming[0][inner:] - last, *(each[last:] for each in incoming[2:])
        weights = np.ones(len(heads), np.int32) if self._unit else arcs.weights[moved]
        # searches by weights gain 3 to 12 % from a second order of the vertices, breadth-first searches nothing
        self._arcs = Arcs(indptr, heads, weights, ordered=self._unit)
        keep_incoming(self._arcs, (into, tails, numbers))
        prepare(self._arcs)  # called once here, before several threads need the result, which is cached
        # arcs in the other direction lead to no further neighbours if each arc has a reverse
        self._sides = (indptr, heads), (np.zeros(inner + 1, np.int64), tails[:0]) if arcs.mirrored else (into, tails)
        held = max(1, min(HELD_ROWS, HELD_BYTES // max(1, inner * self._kind.dtype.itemsize)))
        self._held = held - held % LANES if held > LANES else held

    def pieces(self, rows: Indices, threads: int) -> list[Indices]:
        """Cut the positions ``rows`` into pieces, each of which a thread takes at once; leave out the sources without
        outgoing arcs, unless there are no others.
        """
        some = rows[self._sources[0][rows] < self._inner]
        if len(some) == 0:
            return [rows]
        rows, share = some, -(-len(some) // threads)
        if not self._unit or share <= self._held:
            return cut_evenly(rows, min(self._held, share))
        # up to half of the sources need no search; if it is fewer, each thread has more pieces
        each, found, space = -(-share // (2 * self._held)), list[Indices](), self._choosing()
        for _ in range(2):
            most, at, found = whole_groups(-(-share // each)), 0, []
            while at < len(rows):
                size = len(self._searched(rows[at:], most, space))
                found.append(rows[at : at + size])
                at += size
            each = -(-len(found) // threads)
        return found

    def _choosing(self) -> tuple[Any, ...]:
        """Return the work space of :meth:`_searched`."""
        return np.zeros(self._inner, np.uint8), np.empty(self._inner, np.int32)

    def _searched(self, rows: Indices, most: int, space: tuple[Any, ...]) -> npt.NDArray[np.bool_]:
        """Return for each source of the first piece of ``rows``, of at most ``most`` sources, whether to search from
        it.
        """
        limits = most, self._held, min(LANES, self._held)
        found: npt.NDArray[np.bool_] = choose_searched(self._sides[0], self._sources[0][rows], limits, space)
        return found

    def near(self) -> Indices:
        """Return the positions of the sources, ordered so that sources near each other in the graph, or equally far
        from most vertices, are adjacent.

        Sources without outgoing arcs reach nothing, so they are left out; but if there are no others, one is returned.
        """
        if hop_radius(*self._sides[0])[0] <= NEAR_HOPS:
            some = with_arcs(self._sources[0], self._inner)
            if not self._unit or not np.any(self._sources[0][some] < self._inner):
                return some
            out, into = self._sides
            entering = into[0] if len(into[1]) else out[0]
            found: Indices = some[order_by_pivots(out, entering, self._sources[0][some])[0]]
            return found
        return near_each_other(self._sources[0], self._inner, *self._sides)

    def worker(self, sums: tuple[Floats, ...]) -> Callable[[Indices], int]:
        """Return a function that counts the paths from some sources in one thread.

        Args:
            sums: the sums of this thread, as :class:`engine.algorithms.betweenness.passing.PassingTask` makes them.

        Returns:
            A function of positions in ``sources``, which returns ``DONE`` or the code of the fault that it found.
        """
        arcs, kept = self._arcs, self._kept
        backend = (BreadthFirst if self._unit else CpuBackend)(1)
        block = np.empty((self._held + LANES, self._inner), self._kind.dtype)
        places, choosing = np.empty(self._inner, np.int32), self._choosing()
        space = self._space(flows=len(sums[3]) > 0)
        own = self._sources[1][self._sources[0] < self._inner]  # a source among the sinks reaches nothing
        sinks = self._sinks_of(each=len(sums[2]) > 0 or len(sums[3]) > 0 or bool((own >= self._inner).any()))

        def search(rows: Indices) -> int:
            rows = rows[self._sources[0][rows] < self._inner]
            if len(rows) == 0:
                return DONE
            sources = self._sources[0][rows]
            searched = sources[self._searched(rows, len(rows), choosing)] if self._unit else sources
            places[sources] = -1
            places[searched] = np.arange(len(searched))
            searches = backend.begin_search(arcs, searched, block[: len(searched)], RowsWanted(self._unit))
            while searches.waiting:
                searches.take(0)
            found = block, self._kind.sentinel(), self._sides[0], places
            return int(
                pass_together((self._into, sinks), (*self._sources, *NO_MEMBERS), rows, found, kept, space, sums)
            )

        return search

    def _sinks_of(self, *, each: bool) -> tuple[Any, ...]:
        """Return the sinks as :func:`engine.devices.cpu.betweenness.sinks.add_sinks` takes them.

        Args:
            each: whether to visit every sink, because the flow over arcs or the flow that ends at each vertex is
                wanted, or because some source sends nothing to a sink.  Otherwise sinks with a single incoming arc are
                not visited: the tail of that arc stands for the sink.
        """
        indptr, tails, *_ = self._sinks
        none = np.zeros(0, np.int64)
        if len(indptr) == 1:
            return *self._sinks, none, tails, none.astype(np.float64), np.empty(0, Mask)
        counts = np.diff(indptr)
        alone = np.zeros(len(counts), np.bool_) if each else counts == 1
        single = np.flatnonzero(alone)
        before, place = np.unique(tails[indptr[single]], return_inverse=True)
        # ``astype``, because ``bincount`` returns int64 if there is no such sink
        sent = np.bincount(place, self._kept[self._inner + single], len(before)).astype(np.float64)
        return *self._sinks, np.flatnonzero(~alone), before, sent, np.empty(int(counts.max(initial=0)), Mask)

    def _space(self, *, flows: bool) -> tuple[Any, ...]:
        """Return the work space of a thread; ``flows`` says whether the flow over arcs is counted."""
        n, arcs = self._inner, len(self._arcs.heads) + 1
        tight = np.zeros(n + 1, np.int64), np.empty(arcs, np.int32), np.empty(arcs, Mask)
        space = np.empty(n, np.uint32), np.empty(n, np.int64), *(np.empty(n, np.int32) for _ in range(4))
        taken = np.empty(LANES * n + 1, np.int32), np.empty(LANES * n + 1, Mask)
        shares = aligned(n if self._unit else 0, np.dtype(np.float64))
        spare = shares.reshape(-1).view(np.int32)[: 3 * DISTANCES * len(shares)].reshape(3, -1)
        return (
            aligned(n, self._kind.dtype),
            np.empty(n, np.int32),
            np.empty(1 + min(KEYS, 1 << n.bit_length()), np.int32),
            tight,
            np.empty(arcs if flows else 0, np.int64),
            np.empty(n, np.int32),
            space,
            taken,
            (self.PASSES, self.MANY if self._unit else n + 1),
            np.zeros(len(self._kept), np.uint32),
            spare,
            (aligned(n, np.dtype(np.float64)), aligned(n, np.dtype(np.float64)), shares, np.zeros((4, LANES))),
        )


def whole_groups(share: int) -> int:
    """Return ``share``, at least 1; if it is more than ``LANES``, it is rounded up to a multiple of ``LANES``."""
    return -(-share // LANES) * LANES if share > LANES else max(1, share)


def cut_evenly(rows: Indices, share: int) -> list[Indices]:
    """Cut ``rows`` into pieces of ``share``, rounded up to a multiple of ``LANES`` if it is more than ``LANES``."""
    size = whole_groups(share)
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def near_each_other(sources: Indices, inner: int, out: tuple[Any, ...], into: tuple[Any, ...]) -> Indices:
    """Return the positions of the sources with outgoing arcs, ordered so that sources near each other are adjacent.

    If no source has outgoing arcs, the first position is returned alone.

    Args:
        sources: the sources.
        inner: the number of vertices that have outgoing arcs; these vertices have the least numbers.
        out: outgoing arcs: the index at which those of each vertex begin, and their heads.
        into: incoming arcs: the index at which those of each vertex begin, and their tails.
    """
    some = with_arcs(sources, inner)
    if not np.any(sources[some] < inner):
        return some
    found: Indices = some[gather_near(out, into, sources[some], LANES, np.array(LOOKS))]
    return found


def with_arcs(sources: Indices, inner: int) -> Indices:
    """Return the positions of the sources with outgoing arcs; if there are none, the first position.

    Args:
        sources, inner: as in :func:`near_each_other`.
    """
    some = np.flatnonzero(sources < inner)
    return some if len(some) else np.arange(min(1, len(sources)))


def aligned(n: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array of zeros of shape (n, LANES) that begins at the start of a cache line of 64 bytes."""
    size = n * LANES * kind.itemsize
    memory = np.zeros(size + 64, np.uint8)
    skip = -memory.__array_interface__["data"][0] % 64
    found: npt.NDArray[Any] = memory[skip : skip + size].view(kind).reshape(n, LANES)
    return found
