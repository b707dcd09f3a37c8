"""Searches on the CPU: blocks of sources in the lanes of vectors where that pays, else one by one with a heap.

Threads take blocks and sources from a counter.  ``engine.devices.cpu.arcs`` prepares what depends on the graph alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.arcs import FAR, PreparedArcs, prepare
from engine.devices.cpu.heap import search_hops, search_packed, search_wide
from engine.devices.cpu.lanes import ROW_BYTES, search_lanes
from engine.devices.cpu.team import Team, fetch_add
from engine.graph.kernels import njit
from engine.graph.selection import first_beyond, first_sum_beyond
from engine.model.backend import Arcs, Array
from engine.model.dtypes import WORK_TYPES, work_type

#: Labels of 16 bits are tried for weights up to this.
NARROW: Final = 4096
#: Fewer sources than this for each block of lanes are searched one by one.
LEAST_LANES: Final = 12


@dataclass(frozen=True)
class Goal:
    """The columns, potentials and cutoff that the searches of one call share, in the form of the kernels.

    Attributes:
        near: int32, shape (columns,): the new numbers of the columns' vertices.
        shift: shape (n,): potentials of all vertices; empty for none.
        onto: shape (columns,): potentials of the columns' vertices; empty for none.
        beyond: in the type of the results, the least distance that counts as unreachable because of the cutoff;
            *unreachable* itself without a cutoff.
        limit: the length at which searches end; infinite for no limit.
        wanted: uint8, shape (n,): 1 for the vertices (by new number) whose distances end a search once all of them
            are known; empty where all distances are wanted.
        left: how many vertices ``wanted`` marks; 0 where all distances are wanted.
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
        """Return the goal of one call, which does not depend on the kind of search.

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
            if potentials is not None:  # the limit in reduced lengths, a little higher because sums round
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
        """Return the smaller of ``far`` and the limit as an array of one label of type ``dtype``."""
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
    """Run one search per source and write its distances into a row of ``out``.

    Sums are held in float64 or in integers that cannot wrap, and rounded once into ``out``.

    Args:
        team: the threads.
        arcs: weights non-negative; reduced ones if there are potentials.
        sources: vertex indices, shape (rows,).
        out: of a working type, shape (rows, columns); row i receives the distances from ``sources[i]``.
        unit: promises that all arcs weigh 1.
        targets: vertex indices of the columns, shape (columns,); None for all vertices.
        cutoff: distances above this become unreachable; None for no cutoff.
    """
    ready = prepare(arcs)
    sources = np.ascontiguousarray(sources, dtype=np.int64)
    goal = Goal.of(ready, arcs.potentials, sources, out.dtype, targets, cutoff)
    kind = label_type(ready, arcs.potentials, out.dtype.name, goal.limit)
    # neighbouring sources share a block, since their labels fall in the same sweeps
    rows = np.argsort(ready.rank[sources], kind="stable")
    if kind == "int32" and _maybe_narrow(ready, sources):
        rows = _search_blocks(team, ready, "uint16", goal, sources, rows, out, ready.heaviest())
    if kind is not None:
        rows = _search_blocks(team, ready, kind, goal, sources, rows, out)
    if len(rows):
        _search_singly(team, ready, goal, sources, rows, out, unit and arcs.potentials is None)


def _maybe_narrow(ready: PreparedArcs, sources: npt.NDArray[np.int64]) -> bool:
    """Whether to try labels of 16 bits, twice as many a vector, although longer paths than they hold are possible."""
    enough = len(sources) >= ROW_BYTES // 2 and ready.heaviest() <= NARROW
    return enough and ready.looks_short(sources[len(sources) // 2])


def label_type(ready: PreparedArcs, potentials: Array | None, out: str, limit: float = math.inf) -> str | None:
    """Return the narrowest type in which labels in lanes are exact; None if no type is.

    Args:
        ready: the prepared arcs.
        potentials: potentials by which weights were reduced, shape (n,); None for none.
        out: name of the working type of the results.
        limit: the length at which searches end.
    """
    longest = (len(ready.rank) - 1) * ready.largest
    if ready.weights.dtype.kind == "f":
        # results are rounded to 24 bits, so exact int32 sums are as good as float64 sums, and half as wide
        exact = ready.decimal is not None and out == "float32" and potentials is None and limit == math.inf
        return "int32" if exact else "float64"
    longest = min(longest, limit - 1)
    if longest <= WORK_TYPES["uint16"].largest or (out == "uint16" and potentials is None):
        return "uint16"
    fits = longest <= WORK_TYPES["int32"].largest
    if out == "int32":
        # the caller promises that results fit; then reduced lengths fit if the potentials differ by no more than this
        spread = 0 if potentials is None else int(np.ptp(potentials))
        fits = fits or spread <= WORK_TYPES["int32"].largest_signed
    if fits:
        return "int32"
    return "float64" if longest < 2**53 else None


def _search_blocks(
    team: Team,
    ready: PreparedArcs,
    kind: str,
    goal: Goal,
    sources: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    out: Array,
    heaviest: float = 0,
) -> npt.NDArray[np.int64]:
    """Search the rows ``order`` of ``out`` by lanes; returns the rows that other searches have to do.

    Unless ``heaviest`` (the largest weight) is 0, they include the rows in which a label may not fit ``kind``.
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
    ready: PreparedArcs,
    goal: Goal,
    sources: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    out: Array,
    unit: bool,
) -> None:
    """Search each of ``rows`` with a heap, or breadth first where all arcs weigh 1."""
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
    """Copy a finished search into ``row``, in which column k is vertex ``near[k]``, and reset ``dist`` to ``far``."""
    if len(shift) == 0:
        for k in range(len(row)):
            value = dist[near[k]]
            row[k] = sentinel if value == far else value
    else:
        for k in range(len(row)):
            value = dist[near[k]]
            # potentials first: their difference is nearly exact, but value - shift[source] would lose a small distance
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
