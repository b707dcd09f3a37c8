"""Searches on the CPU: one per source, the sources handed out to the threads one at a time.

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
from engine.backends.team import Team, fetch_add
from engine.types import work_type

#: int64 "no path yet": no sum of a search comes near.
FAR: Final = 2**62


@dataclass(frozen=True)
class Prepared:
    """Arcs in the form that the kernels walk.

    Attributes:
        indptr, heads: CSR of the relabelled graph.
        weights: int32 (packed keys), int64 or float64 (wide keys).
        rank: int32, shape (n,): new number of each vertex.
        bits: of a packed key that hold the vertex; 0 for wide keys.
    """

    indptr: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int32]
    weights: Array
    rank: npt.NDArray[np.int32]
    bits: int


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
    degrees = np.diff(arcs.indptr)[order]
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    moved = np.repeat(arcs.indptr[:-1][order] - indptr[:-1], degrees) + np.arange(len(arcs.heads))
    weights = arcs.weights[moved]
    bits = 0
    if weights.dtype.kind == "f":
        weights = weights.astype(np.float64)
    else:
        bits = max(1, n - 1).bit_length()
        largest = int(weights.max(initial=0))
        # The key of a tentative distance, n * largest at most, must stay below 2^62, and the weight within int32.
        bits = 0 if (n * largest) >> (62 - bits) or largest >> 31 else bits
        weights = weights.astype(np.int32 if bits else np.int64)
    return Prepared(indptr, rank[arcs.heads[moved]], weights, rank, bits)


def near_order(arcs: Arcs) -> npt.NDArray[np.int32]:
    """Vertices so ordered that neighbours lie near each other (reverse Cuthill-McKee)."""
    n = len(arcs.indptr) - 1
    if n <= 1:
        return np.arange(n, dtype=np.int32)
    pattern = csr_array((np.ones(len(arcs.heads), np.int8), arcs.heads, arcs.indptr), shape=(n, n))
    return np.asarray(reverse_cuthill_mckee(pattern, symmetric_mode=False), np.int32)


def search(team: Team, arcs: Arcs, sources: npt.NDArray[np.int64], out: Array, unit: bool = False) -> None:
    """One search per source: ``out[i]``, shape (n,), becomes the row of ``sources[i]``, of ``out``'s working type.

    Sums are held in float64 or int64, and rounded once into ``out``.  ``unit`` promises that all arcs weigh 1.
    """
    ready = prepare(arcs)
    counter = np.zeros(1, np.int64)
    sources = np.ascontiguousarray(sources, dtype=np.int64)
    integral = ready.weights.dtype.kind == "i"
    shift = arcs.potentials if arcs.potentials is not None else np.empty(0, np.int64 if integral else np.float64)
    common = (ready.indptr, ready.heads, ready.rank, shift, sources, out, work_type(out.dtype).sentinel(), counter)
    if unit and arcs.potentials is None:
        team.run(_hops, *common)
    elif ready.bits:
        team.run(_packed, *common, ready.weights, ready.bits)
    else:
        team.run(_wide, *common, ready.weights, np.array([FAR if integral else np.inf], ready.weights.dtype))


def workspace_bytes(n: int, arcs: int, threads: int) -> int:
    """Bytes that ``search`` needs beside the graph and ``out``, the prepared form and what making it takes included."""
    per_thread = n * (8 + 8 + 4 + 4)
    return threads * per_thread + n * 40 + arcs * (8 + 4 + 8 + 8)


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
def _packed(worker, indptr, heads, rank, shift, sources, out, sentinel, counter, weights, bits):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    dist = np.full(n, FAR, np.int64)
    heap = np.empty(n, np.int64)
    place = np.full(n, -1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(sources):
            break
        source = sources[i]
        search_packed(indptr, heads, weights, rank[source], dist, heap, place, bits)
        _emit(dist, FAR, rank, shift, source, out[i], sentinel)


@njit(nogil=True, cache=True)
def _wide(worker, indptr, heads, rank, shift, sources, out, sentinel, counter, weights, far):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    dist = np.full(n, far[0], weights.dtype)
    keys = np.empty(n, weights.dtype)
    heap = np.empty(n, np.int32)
    place = np.full(n, -1, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(sources):
            break
        source = sources[i]
        search_wide(indptr, heads, weights, rank[source], dist, keys, heap, place)
        _emit(dist, far[0], rank, shift, source, out[i], sentinel)


@njit(nogil=True, cache=True)
def _hops(worker, indptr, heads, rank, shift, sources, out, sentinel, counter):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    dist = np.full(n, FAR, np.int64)
    queue = np.empty(n, np.int32)
    while True:
        i = fetch_add(counter.ctypes.data, 1)
        if i >= len(sources):
            break
        source = sources[i]
        search_hops(indptr, heads, rank[source], dist, queue)
        _emit(dist, FAR, rank, shift, source, out[i], sentinel)
