"""Searches on the CPU: blocks of sources in the lanes of vectors where that pays, else one by one with a heap.

Blocks and sources are handed out to the threads from a counter.
What depends on the graph alone (a vertex order that keeps neighbours near each other in memory, weights in the form
the kernels want) is prepared once per ``Arcs`` and kept as long as it lives.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from engine.backends.base import Arcs, Array
from engine.backends.cpu_heap import search_hops, search_packed, search_wide
from engine.backends.cpu_lanes import ROW_BYTES, search_lanes
from engine.backends.team import Team, fetch_add
from engine.types import WORK_TYPES, work_type

#: int64 "no path yet": no sum of a search comes near.
FAR: Final = 2**62


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
        tally: blocks of lanes [finished, given up], int64.
        lane_weights: the weights of the arcs into each vertex, by label type, made when first used.
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
    tally: npt.NDArray[np.int64]
    lane_weights: dict[str, Array]

    def weights_into(self, kind: str) -> Array:
        """Weights of the arcs into each vertex as labels of type ``kind``, none above its *unreachable*."""
        if kind not in self.lane_weights:
            weights = self.weights if self.back is None else self.weights[self.back]
            self.lane_weights[kind] = np.minimum(weights, WORK_TYPES[kind].unreachable).astype(kind)
        return self.lane_weights[kind]


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
    order = near_order(arcs)
    rank = np.empty(n, np.int32)
    rank[order] = np.arange(n, dtype=np.int32)
    # turned round twice, the arcs of each vertex are in ascending order, so that mirrored ones can be told
    into, tails, first = _turn(*_renumber(arcs.indptr, arcs.heads, order, rank))
    indptr, heads, second = _turn(into, tails, np.arange(len(tails)))
    weights = arcs.weights[first[second]]
    largest = weights.max(initial=0).item()
    bits = 0
    if weights.dtype.kind == "f":
        weights = weights.astype(np.float64)
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
    tally = np.zeros(2, np.int64)
    return Prepared(
        indptr, heads, weights, into, tails, None if mirrored else back, rank, bits, largest, tally, lane_weights={}
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


def near_order(arcs: Arcs) -> npt.NDArray[np.int32]:
    """Vertices so ordered that neighbours lie near each other (reverse Cuthill-McKee)."""
    n = len(arcs.indptr) - 1
    if n <= 1:
        return np.arange(n, dtype=np.int32)
    pattern = csr_array((np.ones(len(arcs.heads), np.int8), arcs.heads, arcs.indptr), shape=(n, n))
    return np.asarray(reverse_cuthill_mckee(pattern, symmetric_mode=False), np.int32)


def search(team: Team, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, unit: bool = False) -> None:
    """One search per source: ``out[i]``, shape (n,), becomes the row of ``sources[i]``, of ``out``'s working type.

    Sums are held in float64 or in integers that cannot wrap, and rounded once into ``out``.  ``unit`` promises that
    all arcs weigh 1.
    """
    ready = prepare(arcs)
    sources = np.ascontiguousarray(sources, dtype=np.int64)
    kind = label_type(ready, arcs.potentials, out.dtype.name)
    rows = np.arange(len(sources))
    if kind is not None:
        rows = _search_blocks(team, ready, kind, arcs.potentials, sources, out)
    if len(rows):
        _search_singly(team, ready, arcs.potentials, sources, rows, out, unit)


def label_type(ready: Prepared, potentials: Array | None, out: str) -> str | None:
    """The narrowest type that labels in lanes can have for results of type ``out``; None if none is exact."""
    longest = (len(ready.rank) - 1) * ready.largest
    if ready.weights.dtype.kind == "f":
        return "float64"
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
    team: Team, ready: Prepared, kind: str, potentials: Array | None, sources: npt.NDArray[np.int64], out: Array
) -> npt.NDArray[np.int64]:
    """Search by lanes; returns the rows of ``out`` that are left to be searched singly."""
    lanes = ROW_BYTES // np.dtype(kind).itemsize
    # neighbouring sources share a block: their labels fall in the same sweeps
    order = np.argsort(ready.rank[sources], kind="stable")
    blocks = (len(sources) - LEAST_LANES) // lanes + 1
    if blocks <= 0:
        return order
    taken = order[: blocks * lanes]
    undone = np.zeros(blocks, np.bool_)
    weights = ready.weights_into(kind)
    team.run(
        search_lanes,
        *(ready.indptr, ready.heads, ready.into, ready.tails, weights),
        np.array([WORK_TYPES[kind].unreachable], kind),
        *(ready.rank, _shift(ready, potentials), sources, taken, out, work_type(out.dtype).sentinel()),
        *(np.zeros(1, np.int64), ready.tally, undone),
    )
    left = np.repeat(undone, lanes)[: len(taken)]
    return np.concatenate((taken[left], order[len(taken) :]))


def _search_singly(
    team: Team,
    ready: Prepared,
    potentials: Array | None,
    sources: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    out: Array,
    unit: bool,
) -> None:
    """One search with a heap, or breadth first, for each of ``rows``."""
    common = (
        *(ready.indptr, ready.heads, ready.rank, _shift(ready, potentials)),
        *(sources, rows, out, work_type(out.dtype).sentinel(), np.zeros(1, np.int64)),
    )
    if unit and potentials is None:
        team.run(_hops, *common)
    elif ready.bits:
        team.run(_packed, *common, ready.weights, ready.bits)
    else:
        far = FAR if ready.weights.dtype.kind == "i" else np.inf
        team.run(_wide, *common, ready.weights, np.array([far], ready.weights.dtype))


def _shift(ready: Prepared, potentials: Array | None) -> Array:
    """The potentials, or an empty array for none, as the kernels want them."""
    if potentials is not None:
        return potentials
    return np.empty(0, np.int64 if ready.weights.dtype.kind == "i" else np.float64)


@njit(nogil=True, cache=True)
def _emit(dist, far, rank, shift, source, row, sentinel):  # type: ignore[no-untyped-def]
    """Copy a finished search into its row, in the caller's vertex order, and clean ``dist``."""
    if len(shift) == 0:
        for v in range(len(row)):
            value = dist[rank[v]]
            row[v] = sentinel if value == far else value
    else:
        for v in range(len(row)):
            value = dist[rank[v]]
            row[v] = sentinel if value == far else value - shift[source] + shift[v]
    dist[:] = far


@njit(nogil=True, cache=True)
def _packed(worker, indptr, heads, rank, shift, sources, rows, out, sentinel, counter, weights, bits):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    dist = np.full(n, FAR, np.int64)
    heap = np.empty(n, np.int64)
    place = np.full(n, -1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(rows):
            break
        source = sources[rows[i]]
        search_packed(indptr, heads, weights, rank[source], dist, heap, place, bits)
        _emit(dist, FAR, rank, shift, source, out[rows[i]], sentinel)


@njit(nogil=True, cache=True)
def _wide(worker, indptr, heads, rank, shift, sources, rows, out, sentinel, counter, weights, far):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    dist = np.full(n, far[0], weights.dtype)
    keys = np.empty(n, weights.dtype)
    heap = np.empty(n, np.int32)
    place = np.full(n, -1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(rows):
            break
        source = sources[rows[i]]
        search_wide(indptr, heads, weights, rank[source], dist, keys, heap, place)
        _emit(dist, far[0], rank, shift, source, out[rows[i]], sentinel)


@njit(nogil=True, cache=True)
def _hops(worker, indptr, heads, rank, shift, sources, rows, out, sentinel, counter):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    dist = np.full(n, FAR, np.int64)
    queue = np.empty(n, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(rows):
            break
        source = sources[rows[i]]
        search_hops(indptr, heads, rank[source], dist, queue)
        _emit(dist, FAR, rank, shift, source, out[rows[i]], sentinel)
