"""Searches on the CPU: blocks of sources in the lanes of vectors where that pays, else one by one with a heap.

Blocks and sources are handed out to the threads from a counter.
What depends on the graph alone (a vertex order that keeps neighbours near each other in memory, weights in the form
the kernels want) is prepared once per ``Arcs`` and kept as long as it lives.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from engine.devices.cpu.heap import search_hops, search_packed, search_wide
from engine.devices.cpu.lanes import ROW_BYTES, search_lanes
from engine.devices.cpu.team import Team, fetch_add
from engine.graph.selection import first_beyond, first_sum_beyond
from engine.model.backend import Arcs, Array
from engine.model.decimals import Units, in_units
from engine.model.dtypes import WORK_TYPES, work_type

#: int64 "no path yet": no sum of a search comes near.
FAR: Final = 2**62


#: Neighbours that are put in order one by one.
FEW_SORTED: Final = 24
#: Weights up to which labels of 16 bits are tried.
NARROW: Final = 4096
#: Fewer sources than this for each block of lanes are searched one by one.
LEAST_LANES: Final = 12


@dataclass(frozen=True)
class Prepared:
    """Arcs in the form that the kernels walk; vertices renumbered.

    Attributes:
        indptr, heads: the arcs out of each vertex.
        weights: int32 (packed keys), int64 or float64 (wide keys).
        into, tails, back: the arcs into each vertex, and where in ``weights`` each one's weight is; of a graph whose
            arcs mirror each other ``indptr`` and ``heads`` themselves, and None.
        rank: int32, shape (n,): new number of each vertex.
        bits: of a packed key that hold the vertex; 0 for wide keys.
        largest: the largest weight.
        tally: blocks of lanes [finished, given up], int64, by label type.
        lane_weights: the weights of the arcs into each vertex, by label type, made when first used.
        decimal: ``weights`` that are floats in a decimal unit, if they have one.
        short: whether 16 bits hold the distances from one source, if that has been looked at.
    """

    indptr: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    weights: Array
    into: npt.NDArray[np.int64]
    tails: npt.NDArray[np.int32]
    back: npt.NDArray[np.int64] | None
    rank: npt.NDArray[np.int32]
    bits: int
    largest: float
    tally: dict[str, npt.NDArray[np.int64]]
    lane_weights: dict[str, Array]
    decimal: Units | None = None
    short: list[bool] = field(default_factory=list)

    def weights_into(self, kind: str) -> Array:
        """Weights of the arcs into each vertex as labels of type ``kind``, none above its *unreachable*."""
        if kind not in self.lane_weights:
            weights = self.weights if self.decimal is None or kind == "float64" else self.decimal[0]
            weights = weights if self.back is None else weights[self.back]
            self.lane_weights[kind] = np.minimum(weights, WORK_TYPES[kind].unreachable).astype(kind)
        return self.lane_weights[kind]

    def heaviest(self) -> float:
        """The largest weight as a label that is a whole number has it."""
        return self.largest if self.decimal is None else round(self.largest / self.decimal[1])

    def looks_short(self, source: np.int64) -> bool:
        """Whether 16 bits hold the distances from ``source``, or from the vertex that was asked about first."""
        if not self.short:
            n, real = len(self.rank), self.weights.dtype.kind == "f"
            dist = np.full(n, np.inf if real else FAR, self.weights.dtype if real else np.int64)
            seen, place, none = np.empty(n, np.int32), np.full(n, -1, np.int32), np.zeros(0, np.uint8)
            common = (self.indptr, self.heads, self.weights, self.rank[source], dist, seen, none, 0)
            if self.bits:
                count = search_packed(*common, np.empty(n, np.int64), place, self.bits)
            else:
                count = search_wide(*common, np.empty(n, dist.dtype), np.empty(n, np.int32), place)
            longest = dist[seen[:count]].max() / (1 if self.decimal is None else self.decimal[1])
            self.short.append(bool(longest + self.heaviest() < WORK_TYPES["uint16"].unreachable))
        return self.short[0]


_PREPARED: dict[int, Prepared] = {}


def prepare(arcs: Arcs) -> Prepared:
    """The prepared form of ``arcs``, made at the first call and dropped with ``arcs``."""
    known = _PREPARED.get(id(arcs))
    if known is None:
        known = _PREPARED[id(arcs)] = _prepare(arcs)
        weakref.finalize(arcs, _PREPARED.pop, id(arcs), None)
    return known


def _prepare(arcs: Arcs) -> Prepared:
    n = len(arcs.indptr) - 1
    order = near_order(arcs.indptr, arcs.heads)
    rank = np.empty(n, np.int32)
    rank[order] = np.arange(n, dtype=np.int32)
    # turned round twice, the arcs of each vertex are in ascending order, so that mirrored ones can be told
    into, tails, first = _turn(*_renumber(arcs.indptr, arcs.heads, order, rank))
    indptr, heads, second = _turn(into, tails, np.arange(len(tails)))
    weights = arcs.weights[first[second]]
    largest = weights.max(initial=0).item()
    bits = 0
    decimal = None
    if weights.dtype.kind == "f":
        weights = weights.astype(np.float64)
        decimal = in_units(indptr, weights)
    else:
        bits = max(1, n - 1).bit_length()
        # The key of a tentative distance, n * largest at most, must stay below 2^62, and the weight within int32.
        bits = 0 if (n * largest) >> (62 - bits) or largest >> 31 else bits
        weights = weights.astype(np.int32 if bits else np.int64)
    back = np.empty(len(second), np.int64)
    back[second] = np.arange(len(second))
    mirrored = np.array_equal(into, indptr) and np.array_equal(tails, heads) and np.array_equal(weights[back], weights)
    if mirrored:
        into, tails = indptr, heads
    return Prepared(
        *(indptr, heads, weights, into, tails, None if mirrored else back, rank),
        *(bits, largest, {}, {}, decimal),
    )


@njit(nogil=True, cache=True)
def _renumber(indptr, heads, order, rank):  # type: ignore[no-untyped-def]
    """CSR with vertex ``order[i]`` as number i, and where each arc was."""
    moved = np.empty(len(heads), np.int64)
    ends = np.zeros(len(indptr), np.int64)
    filled = 0
    for i in range(len(order)):
        for e in range(indptr[order[i]], indptr[order[i] + 1]):
            moved[filled] = e
            filled += 1
        ends[i + 1] = filled
    return ends, rank[heads[moved]], moved


@njit(nogil=True, cache=True)
def _turn(indptr, heads, carried):  # type: ignore[no-untyped-def]
    """CSR of the arcs turned round, tails ascending in each row; ``carried`` (int64, one an arc) goes with them."""
    n = len(indptr) - 1
    into = np.zeros(n + 1, np.int64)
    for v in heads:
        into[v + 1] += 1
    into = np.cumsum(into)
    free = into[:-1].copy()
    tails = np.empty(len(heads), np.int32)
    placed = np.empty(len(heads), np.int64)
    for u in range(n):
        for e in range(indptr[u], indptr[u + 1]):
            at = free[heads[e]]
            free[heads[e]] = at + 1
            tails[at] = u
            placed[at] = carried[e]
    return into, tails, placed


def near_order(indptr: npt.NDArray[np.int64], heads: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Vertices so ordered that neighbours, over arcs of either direction, lie near each other.

    Reverse Cuthill-McKee (George and Liu 1981), from a vertex of least degree in each component.
    """
    into, tails, _ = _turn(indptr, heads, np.zeros(len(heads), np.int64))
    degree = np.diff(indptr) + np.diff(into)
    order: npt.NDArray[np.int32] = _cuthill_mckee(indptr, heads, into, tails, degree, np.argsort(degree, kind="stable"))
    return order[::-1]


@njit(nogil=True, cache=True)
def _cuthill_mckee(indptr, heads, into, tails, degree, seeds):  # type: ignore[no-untyped-def]
    order = np.empty(len(seeds), np.int32)
    placed = np.zeros(len(seeds), np.uint8)
    last = looked = 0
    for seed in seeds:
        if placed[seed]:
            continue
        placed[seed] = 1
        order[last] = seed
        last += 1
        while looked < last:
            u = order[looked]
            looked += 1
            first = last
            for side in range(2):
                ends, others = (indptr, heads) if side == 0 else (into, tails)
                for e in range(ends[u], ends[u + 1]):
                    v = others[e]
                    if not placed[v]:
                        placed[v] = 1
                        order[last] = v
                        last += 1
            if last - first > FEW_SORTED:
                some = order[first:last].copy()
                order[first:last] = some[np.argsort(degree[some], kind="mergesort")]
                continue
            for i in range(first + 1, last):
                v = order[i]
                k = i
                while k > first and degree[order[k - 1]] > degree[v]:
                    order[k] = order[k - 1]
                    k -= 1
                order[k] = v
    return order


@dataclass(frozen=True)
class Goal:
    """What is wanted of the searches of one call, in the form of the kernels.

    Attributes:
        near: int32, the numbers of the columns' vertices.
        shift, onto: potentials of all vertices and of the columns'; empty for none.
        beyond: in the type of the results, what is unreachable although found; *unreachable* itself for no cutoff.
        limit: the length at which searches end; infinite for none.
        wanted: uint8, 1 for the vertices (by number) after which a search may stop, and ``left``, how many they are;
            empty and 0 where all distances are wanted.
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
        ready: Prepared,
        potentials: Array | None,
        sources: npt.NDArray[np.int64],
        dtype: np.dtype[np.generic],
        targets: npt.NDArray[np.int64] | None,
        cutoff: float | None,
    ) -> Goal:
        """Everything that does not depend on how the searches are made."""
        near = ready.rank if targets is None else ready.rank[targets]
        none: Array = np.empty(0, np.int64 if ready.weights.dtype.kind == "i" else np.float64)
        shift = none if potentials is None else potentials
        onto = shift if targets is None or potentials is None else shift[targets]
        limit = math.inf
        if cutoff is not None and len(sources) and len(near):
            limit = first_sum_beyond(cutoff, dtype)
            if potentials is not None:  # reduced lengths are wanted up to here; a little more, for sums that round
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
        """``far``, or the limit if that comes first, as an array of one label."""
        kind = np.dtype(dtype)
        limit = math.ceil(self.limit) if kind.kind in "iu" and self.limit < far else self.limit
        return np.array([min(far, limit)], kind)


def search(
    team: Team,
    arcs: Arcs,
    sources: npt.NDArray[np.int64],
    out: Array,
    unit: bool = False,
    *,
    targets: npt.NDArray[np.int64] | None = None,
    cutoff: float | None = None,
) -> None:
    """One search per source: ``out[i]``, shape (n,), becomes the row of ``sources[i]``, of ``out``'s working type.

    Sums are held in float64 or in integers that cannot wrap, and rounded once into ``out``.  ``unit`` promises that
    all arcs weigh 1.  ``targets`` and ``cutoff`` are as in :meth:`engine.model.backend.Backend.search`.
    """
    ready = prepare(arcs)
    sources = np.ascontiguousarray(sources, dtype=np.int64)
    goal = Goal.of(ready, arcs.potentials, sources, out.dtype, targets, cutoff)
    kind = label_type(ready, arcs.potentials, out.dtype.name, goal.limit)
    # neighbouring sources share a block: their labels fall in the same sweeps
    rows = np.argsort(ready.rank[sources], kind="stable")
    if kind == "int32" and _maybe_narrow(ready, sources):
        rows = _search_blocks(team, ready, "uint16", goal, sources, rows, out, ready.heaviest())
    if kind is not None:
        rows = _search_blocks(team, ready, kind, goal, sources, rows, out)
    if len(rows):
        _search_singly(team, ready, goal, sources, rows, out, unit and arcs.potentials is None)


def _maybe_narrow(ready: Prepared, sources: npt.NDArray[np.int64]) -> bool:
    """Whether to try labels of 16 bits, of which twice as many lie side by side, though longer paths are possible."""
    enough = len(sources) >= ROW_BYTES // 2 and ready.heaviest() <= NARROW
    return enough and ready.looks_short(sources[len(sources) // 2])


def label_type(ready: Prepared, potentials: Array | None, out: str, limit: float = math.inf) -> str | None:
    """The narrowest type that labels in lanes can have for results of type ``out``; None if none is exact.

    ``limit`` is the length at which searches end.
    """
    longest = (len(ready.rank) - 1) * ready.largest
    if ready.weights.dtype.kind == "f":
        # rounded to 24 bits in the end, exact sums are as good as sums of float64, and need half the lanes
        exact = ready.decimal is not None and out == "float32" and potentials is None and limit == math.inf
        return "int32" if exact else "float64"
    longest = min(longest, limit - 1)
    if longest <= WORK_TYPES["uint16"].largest or (out == "uint16" and potentials is None):
        return "uint16"
    fits = longest <= WORK_TYPES["int32"].largest
    if out == "int32":
        # results fit by promise; reduced lengths then do if the potentials are no further apart
        spread = 0 if potentials is None else int(np.ptp(potentials))
        fits = fits or spread <= WORK_TYPES["int32"].largest_signed
    if fits:
        return "int32"
    return "float64" if longest < 2**53 else None


def _search_blocks(
    team: Team,
    ready: Prepared,
    kind: str,
    goal: Goal,
    sources: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    out: Array,
    heaviest: float = 0,
) -> npt.NDArray[np.int64]:
    """Search the rows ``order`` of ``out`` by lanes; returns those that are left to other searches.

    With ``heaviest``, the largest weight, those are among them of which a label may not fit ``kind``.
    """
    lanes = ROW_BYTES // np.dtype(kind).itemsize
    blocks = (len(sources) - LEAST_LANES) // lanes + 1
    if blocks <= 0:
        return order
    taken = order[: blocks * lanes]
    undone = np.zeros(blocks, np.bool_)
    team.run(
        search_lanes,
        *(ready.indptr, ready.heads, ready.into, ready.tails, ready.weights_into(kind)),
        goal.far(WORK_TYPES[kind].unreachable, kind),
        *(ready.rank, goal.near, goal.shift, goal.onto, sources, taken),
        *(out, work_type(out.dtype).sentinel(), goal.beyond),
        *(np.zeros(1, np.int64), ready.tally.setdefault(kind, np.zeros(2, np.int64)), undone, int(heaviest)),
        ready.decimal[1] if ready.decimal is not None and kind != "float64" else None,
    )
    left = np.repeat(undone, lanes)[: len(taken)]
    return np.concatenate((taken[left], order[len(taken) :]))


def _search_singly(
    team: Team,
    ready: Prepared,
    goal: Goal,
    sources: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    out: Array,
    unit: bool,
) -> None:
    """One search with a heap, or breadth first where all arcs weigh 1, for each of ``rows``."""
    real = ready.weights.dtype.kind == "f"
    common = (
        *(ready.indptr, ready.heads, ready.rank, goal.near, goal.shift, goal.onto, goal.wanted, goal.left),
        *(sources, rows, out, work_type(out.dtype).sentinel(), goal.beyond, np.zeros(1, np.int64)),
        goal.far(math.inf, np.float64) if real else goal.far(FAR, np.int64),
    )
    if unit and not real:
        team.run(_hops, *common)
    elif ready.bits:
        team.run(_packed, *common, ready.weights, ready.bits)
    else:
        team.run(_wide, *common, ready.weights)


@njit(nogil=True, cache=True)
def _emit(dist, far, near, shift, onto, source, row, sentinel, beyond, seen):  # type: ignore[no-untyped-def]
    """Copy a finished search into its row, column k being vertex number ``near[k]``, and clean ``dist``."""
    if len(shift) == 0:
        for k in range(len(row)):
            value = dist[near[k]]
            row[k] = sentinel if value == far else value
    else:
        for k in range(len(row)):
            value = dist[near[k]]
            # potentials first: their difference is nearly exact, and value - shift[source] would lose a small distance
            row[k] = sentinel if value == far else value + (onto[k] - shift[source])
            if row[k] >= beyond:
                row[k] = sentinel
    if 4 * len(seen) > len(dist):
        dist[:] = far
    else:
        for v in seen:
            dist[v] = far


@njit(nogil=True, cache=True)
def _packed(  # type: ignore[no-untyped-def]
    worker, indptr, heads, rank, near, shift, onto, wanted, left, sources, rows, out, sentinel, beyond, counter, far,
    weights, bits
):  # fmt: skip
    n = len(indptr) - 1
    dist = np.full(n, far[0], np.int64)
    seen = np.empty(n, np.int32)
    heap = np.empty(n, np.int64)
    place = np.full(n, -1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(rows):
            break
        source = sources[rows[i]]
        count = search_packed(indptr, heads, weights, rank[source], dist, seen, wanted, left, heap, place, bits)
        _emit(dist, far[0], near, shift, onto, source, out[rows[i]], sentinel, beyond, seen[:count])


@njit(nogil=True, cache=True)
def _wide(  # type: ignore[no-untyped-def]
    worker, indptr, heads, rank, near, shift, onto, wanted, left, sources, rows, out, sentinel, beyond, counter, far,
    weights
):  # fmt: skip
    n = len(indptr) - 1
    dist = np.full(n, far[0], weights.dtype)
    seen = np.empty(n, np.int32)
    keys = np.empty(n, weights.dtype)
    heap = np.empty(n, np.int32)
    place = np.full(n, -1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(rows):
            break
        source = sources[rows[i]]
        count = search_wide(indptr, heads, weights, rank[source], dist, seen, wanted, left, keys, heap, place)
        _emit(dist, far[0], near, shift, onto, source, out[rows[i]], sentinel, beyond, seen[:count])


@njit(nogil=True, cache=True)
def _hops(  # type: ignore[no-untyped-def]
    worker, indptr, heads, rank, near, shift, onto, wanted, left, sources, rows, out, sentinel, beyond, counter, far
):
    n = len(indptr) - 1
    dist = np.full(n, far[0], np.int64)
    seen = np.empty(n, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(rows):
            break
        source = sources[rows[i]]
        count = search_hops(indptr, heads, rank[source], dist, seen, wanted, left)
        _emit(dist, far[0], near, shift, onto, source, out[rows[i]], sentinel, beyond, seen[:count])
