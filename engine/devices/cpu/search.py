"""Searches on the CPU: blocks of sources in the lanes of vectors if that is faster, else one by one with a heap.

A batch of searches is cut into pieces for ``engine.devices.cpu.searches``.  ``engine.devices.cpu.arcs`` prepares what
depends on the graph alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import FAR, PreparedArcs, prepare
from engine.devices.cpu.atonce.lane_blocks import LaneBlocks
from engine.devices.cpu.heap import search_hops, search_packed, search_wide
from engine.devices.cpu.lanes import ROW_BYTES
from engine.devices.cpu.searches import BlockRun, Done, Piece, Spaces, split_evenly
from engine.graph.kernels import njit
from engine.graph.ordering import ascending
from engine.graph.selection import first_beyond, first_sum_beyond
from engine.model.backend import Arcs, Array, RowsWanted
from engine.model.dtypes import WORK_TYPES, work_type
from engine.model.rows import KnownRows

#: Labels (tentative distances) of 16 bits are tried if no weight is larger than this.
NARROW: Final = 4096
#: The largest number of rows in a piece of work that copies known rows.
COPIED: Final = 64
#: The largest number of rows in a piece of work that searches its rows one by one; the piece allocates its work space
#: once for all these rows.
SINGLE: Final = 16

#: If a block of lanes would have fewer sources than this, the sources are searched one by one.
LEAST_LANES: Final = 12
#: A block may use few of its lanes, so that all threads have work, but at least 1 / LANES_USED of them.
LANES_USED: Final = 4

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Goal:
    """The columns, potentials and cutoff that the searches of one call share, as the arrays that the kernels take.

    Attributes:
        near: int32, shape (columns,): the numbers of the columns' vertices after renumbering (``PreparedArcs.rank``).
        shift: shape (n,): potentials of all vertices; empty for none.
        onto: shape (columns,): potentials of the columns' vertices; empty for none.
        beyond: in the type of the results, the least distance that counts as unreachable because of the cutoff;
            *unreachable* itself without a cutoff.
        limit: the length at which searches end; infinite for no limit.
        wanted: uint8, shape (n,): 1 for the vertices (by new number) whose distances end a search once all of them
            are known; empty where all distances are wanted.
        left: number of vertices that ``wanted`` marks; 0 if all distances are wanted.
    """

    near: npt.NDArray[np.int32]
    shift: Array
    onto: Array
    beyond: np.generic
    limit: float
    wanted: npt.NDArray[np.uint8]
    left: int

    @classmethod
    def of(
        cls,
        ready: PreparedArcs,
        potentials: Array | None,
        sources: npt.NDArray[np.int64],
        dtype: np.dtype[np.generic],
        targets: npt.NDArray[np.int64] | None,
        cutoff: float | None,
    ) -> Goal:
        """Return the goal of one call; it is the same for all kinds of searches.

        Args:
            ready: the prepared arcs.
            potentials: potentials by which weights were reduced, shape (n,); None for none.
            sources: vertex indices, shape (rows,).
            dtype: working type of the results.
            targets: vertex indices of the columns, shape (columns,); None for all vertices.
            cutoff: largest distance that is wanted; None for all.
        """
        near = ready.rank if targets is None else ready.rank[targets]
        none: Array = np.empty(0, np.int64 if ready.weights.dtype.kind == "i" else np.float64)
        shift = none if potentials is None else potentials
        onto = shift if targets is None or potentials is None else shift[targets]
        limit = math.inf
        if cutoff is not None and len(sources) and len(near):
            limit = first_sum_beyond(cutoff, dtype)
            if potentials is not None:  # convert the limit to reduced lengths, a little higher because sums are rounded
                limit += float(shift[sources].max()) - float(onto.min())
                limit += 1 if ready.weights.dtype.kind == "i" else 1e-9 * (abs(limit) + float(np.ptp(shift))) + 1e-300
        beyond = work_type(dtype).sentinel() if cutoff is None else first_beyond(cutoff, dtype)
        wanted, left = np.zeros(0, np.uint8), 0
        if targets is not None:
            wanted = np.zeros(len(ready.rank), np.uint8)
            wanted[near] = 1
            left = int(np.count_nonzero(wanted))
        return cls(near, shift, onto, beyond, limit, wanted, left)

    def far(self, far: float, dtype: npt.DTypeLike) -> Array:
        """Return the smaller of ``far`` and the limit, as an array of one entry of type ``dtype``."""
        kind = np.dtype(dtype)
        limit = math.ceil(self.limit) if kind.kind in "iu" and self.limit < far else self.limit
        return np.array([min(far, limit)], kind)


@dataclass(frozen=True)
class SearchBatch:
    """The searches of one batch of sources.

    Attributes:
        ready: the prepared arcs.
        goal: columns, potentials and cutoff.
        potentials: whether distances are shifted by potentials.
        sources: int64, shape (rows,): vertex indices.
        out: shape (rows, columns); row i receives the distances from ``sources[i]``.
        sentinel: *unreachable* in the type of ``out``.
        kind: the narrowest type in which tentative distances in lanes are exact; None if no type is.
        unit: whether all arcs weigh 1.
    """

    ready: PreparedArcs
    goal: Goal
    potentials: bool
    sources: Indices
    out: Array
    sentinel: np.generic
    kind: str | None
    unit: bool

    @classmethod
    def of(
        cls,
        arcs: Arcs,
        sources: Indices,
        out: Array,
        wanted: RowsWanted,
    ) -> SearchBatch:
        """Return the batch of one call of :meth:`engine.devices.cpu.backend.CpuBackend.begin_search`."""
        ready = prepare(arcs)
        sources = np.ascontiguousarray(sources, dtype=np.int64)
        kind = out.dtype if wanted.dtype is None else np.dtype(wanted.dtype)
        goal = Goal.of(ready, arcs.potentials, sources, kind, wanted.targets, wanted.cutoff)
        if kind != out.dtype:  # whole numbers are written into floats, which represent them exactly
            none = np.isposinf(work_type(out.dtype).unreachable) and goal.beyond == work_type(kind).sentinel()
            goal = replace(goal, beyond=out.dtype.type(np.inf if none else goal.beyond))
        label = label_type(ready, arcs.potentials, work_type(kind).name, goal.limit)
        shifted = arcs.potentials is not None
        sentinel = work_type(out.dtype).sentinel()
        return cls(ready, goal, shifted, sources, out, sentinel, label, wanted.unit and not shifted)

    def without(self, known: KnownRows | None) -> tuple[Indices, list[Piece]]:
        """Return the rows that have to be searched, and pieces of work that copy all other rows."""
        rows = np.arange(len(self.sources))
        if known is None:
            return rows, []
        there = known.knows(self.sources)
        pieces = max(1, -(-int(there.sum()) // COPIED))
        return rows[~there], [partial(self._copy, known, part) for part in split_evenly(rows[there], pieces)]

    def _copy(self, known: KnownRows, rows: Indices, worker: int) -> Done:  # noqa: ARG002 - all pieces take it
        for block, places, which in known.parts(self.sources[rows]):
            if block.dtype == self.out.dtype:
                _copy_rows(block, places, self.out, rows[which])
            else:
                _rows_to_floats(block, places, work_type(block.dtype).sentinel(), self.out, rows[which])
        return Done(rows)

    def pieces(self, rows: Indices, threads: int, spaces: Spaces) -> list[Piece | BlockRun]:
        """Return the searches of ``rows`` as pieces for ``threads`` threads."""
        ready = self.ready
        # neighbouring sources share a block, because their labels fall in the same sweeps
        rows = rows[ascending(ready.rank[self.sources[rows]], len(ready.rank))]
        if self.kind == "int32" and self._maybe_narrow():
            return self.cut(rows, LaneBlocks(self, "uint16", ready.heaviest(), threads, spaces))
        return self.blocks(rows, threads, spaces)

    def blocks(self, rows: Indices, threads: int, spaces: Spaces) -> list[Piece | BlockRun]:
        """Return the searches of ``rows`` as pieces, in lanes if that is faster."""
        if self.kind is None:
            return [*self.single(rows, threads)]
        return self.cut(rows, LaneBlocks(self, self.kind, 0, threads, spaces))

    def _maybe_narrow(self) -> bool:
        """Return whether to try labels of 16 bits, twice as many per vector, although some lengths may not fit."""
        enough = len(self.sources) >= ROW_BYTES // 2 and self.ready.heaviest() <= NARROW
        return enough and self.ready.looks_short(self.sources[len(self.sources) // 2])

    def cut(self, rows: Indices, group: LaneBlocks) -> list[Piece | BlockRun]:
        """Return blocks of lanes that ``group`` searches, and single searches of the rows that are left over."""
        lanes = ROW_BYTES // np.dtype(group.kind).itemsize
        blocks = even_blocks(max(0, (len(rows) - LEAST_LANES) // lanes + 1), len(rows), lanes, group.threads)
        if blocks == 0:
            return [*self.single(rows, group.threads)]
        end = min(blocks * lanes, len(rows))
        starts = np.arange(blocks + 1) * end // blocks
        return [BlockRun(group, rows[:end], starts), *self.single(rows[end:], group.threads)]

    def single(self, rows: Indices, threads: int) -> list[Piece]:
        """Return pieces that search ``rows`` one by one, with a heap, or breadth first where all arcs weigh 1."""
        if len(rows) == 0:
            return []
        ready, goal = self.ready, self.goal
        real = ready.weights.dtype.kind == "f"
        far = (goal.far(math.inf, np.float64) if real else goal.far(FAR, np.int64))[0]
        arcs, ends = (ready.indptr, ready.heads, ready.rank), (far, self.sentinel, goal.beyond)
        columns = (goal.near, goal.shift, goal.onto, goal.wanted, goal.left)

        def search(some: Indices, worker: int) -> Done:
            given = (arcs, columns, ends, self.sources, some, self.out)
            if self.unit and not real:
                _hops(*given)
            elif ready.bits:
                _packed(*given, ready.weights, ready.bits)
            else:
                _wide(*given, ready.weights)
            return Done(some)

        pieces = max(1, min(len(rows), max(2 * threads, -(-len(rows) // SINGLE))))
        return [partial(search, some) for some in split_evenly(rows, pieces)]


def even_blocks(least: int, rows: int, lanes: int, threads: int) -> int:
    """Return the number of blocks into which rows are cut: equally many for each thread, so that all end together.

    The time that a block takes for its labels depends little on how many of its lanes are used, but the time to write
    and read its rows grows with their number.  So if some threads would have to wait for others, blocks have fewer
    rows.

    Args:
        least: the least number of blocks.
        rows: the number of all rows.
        lanes: the largest number of rows of a block.
        threads: the number of threads.
    """
    if least == 0:
        return 0
    most = max(least, LANES_USED * rows // lanes)
    return min(-(-least // threads) * threads, most)


@njit(nogil=True, cache=True)
def _copy_rows(block, places, out, rows):  # type: ignore[no-untyped-def]
    """Copy rows ``places`` of ``block`` to rows ``rows`` of ``out``, which has the same type."""
    for i in range(len(rows)):
        out[rows[i]] = block[places[i]]


@njit(nogil=True, cache=True)
def _rows_to_floats(block, places, unreachable, out, rows):  # type: ignore[no-untyped-def]
    """Copy rows of integers to rows of floats, +inf where they mean *unreachable*."""
    for i in range(len(rows)):
        for j in range(block.shape[1]):
            x = block[places[i], j]
            out[rows[i], j] = np.inf if x == unreachable else x


def label_type(ready: PreparedArcs, potentials: Array | None, out: str, limit: float = math.inf) -> str | None:
    """Return the narrowest type in which tentative distances in lanes are exact; None if no type is.

    Args:
        ready: the prepared arcs.
        potentials: potentials by which weights were reduced, shape (n,); None for none.
        out: name of the working type of the results.
        limit: the length at which searches end.
    """
    longest = (len(ready.rank) - 1) * ready.largest
    if ready.weights.dtype.kind == "f":
        # results are rounded to 24 bits, so exact int32 sums serve as well as float64 sums, with half the bytes
        exact = ready.decimal is not None and out == "float32" and potentials is None and limit == math.inf
        return "int32" if exact else "float64"
    longest = min(longest, limit - 1)
    if longest <= WORK_TYPES["uint16"].largest or (out == "uint16" and potentials is None):
        return "uint16"
    fits = longest <= WORK_TYPES["int32"].largest
    if out == "int32":
        # the caller promises that distances fit; reduced lengths are larger by at most the spread of the potentials
        spread = 0 if potentials is None else int(np.ptp(potentials))
        fits = fits or spread <= WORK_TYPES["int32"].largest_signed
    if fits:
        return "int32"
    return "float64" if longest < 2**53 else None


@njit(nogil=True, cache=True)
def _emit(dist, far, near, shift, onto, source, row, sentinel, beyond, seen):  # type: ignore[no-untyped-def]
    """Copy a finished search into ``row``, in which column k is vertex ``near[k]``, and reset ``dist`` to ``far``."""
    if len(shift) == 0:
        for k in range(len(row)):
            value = dist[near[k]]
            row[k] = sentinel if value == far else value
    else:
        for k in range(len(row)):
            value = dist[near[k]]
            # the potentials' difference is computed first: it is nearly exact; value - shift[source] would lose digits
            row[k] = sentinel if value == far else value + (onto[k] - shift[source])
            if row[k] >= beyond:
                row[k] = sentinel
    if 4 * len(seen) > len(dist):
        dist[:] = far
    else:
        for v in seen:
            dist[v] = far


@njit(nogil=True, cache=True)
def _packed(arcs, columns, ends, sources, rows, out, weights, bits):  # type: ignore[no-untyped-def]
    indptr, heads, rank = arcs
    near, shift, onto, wanted, left = columns
    far, sentinel, beyond = ends
    n = len(indptr) - 1
    dist = np.full(n, far, np.int64)
    seen = np.empty(n, np.int32)
    heap = np.empty(n, np.int64)
    place = np.full(n, -1, np.int32)
    for i in rows:
        source = sources[i]
        count = search_packed(indptr, heads, weights, rank[source], dist, seen, wanted, left, heap, place, bits)
        _emit(dist, far, near, shift, onto, source, out[i], sentinel, beyond, seen[:count])


@njit(nogil=True, cache=True)
def _wide(arcs, columns, ends, sources, rows, out, weights):  # type: ignore[no-untyped-def]
    indptr, heads, rank = arcs
    near, shift, onto, wanted, left = columns
    far, sentinel, beyond = ends
    n = len(indptr) - 1
    dist = np.full(n, far, weights.dtype)
    seen = np.empty(n, np.int32)
    keys = np.empty(n, weights.dtype)
    heap = np.empty(n, np.int32)
    place = np.full(n, -1, np.int32)
    for i in rows:
        source = sources[i]
        count = search_wide(indptr, heads, weights, rank[source], dist, seen, wanted, left, keys, heap, place)
        _emit(dist, far, near, shift, onto, source, out[i], sentinel, beyond, seen[:count])


@njit(nogil=True, cache=True)
def _hops(arcs, columns, ends, sources, rows, out):  # type: ignore[no-untyped-def]
    indptr, heads, rank = arcs
    near, shift, onto, wanted, left = columns
    far, sentinel, beyond = ends
    n = len(indptr) - 1
    dist = np.full(n, far, np.int64)
    seen = np.empty(n, np.int32)
    for i in rows:
        source = sources[i]
        count = search_hops(indptr, heads, rank[source], dist, seen, wanted, left)
        _emit(dist, far, near, shift, onto, source, out[i], sentinel, beyond, seen[:count])
