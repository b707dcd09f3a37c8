"""Prepares the arcs of a graph for searches on a GPU: sorted by head, vertices renumbered, long rows split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from engine.graph.ordering import near_places
from engine.model.backend import Array

Ints = npt.NDArray[np.int32]

#: The largest number of arcs into a vertex.  If a vertex has more, :func:`incoming` inserts additional vertices: each
#: takes a group of the arcs.  Otherwise a single warp would work on all these arcs while the other warps wait.
SPLIT: Final = 64
#: Approximate number of arcs in a chunk, the piece of work that a warp takes at a time.
CHUNK: Final = 16


@dataclass(frozen=True)
class IncomingArcs:
    """Arcs sorted by head.  The n vertices of the graph have the numbers 0 to n - 1.  Vertices from n on are additional
    (see ``SPLIT``): each additional vertex has one outgoing arc, of weight 0.

    Attributes:
        into: int32, shape (vertices + 1,): the index of the first arc into each vertex, then the number of arcs.
        tails, heads: int32, shape (arcs,).
        weights: shape (arcs,), of the graph's type.
        place: int32, shape (n,): the new number of each vertex of the graph.
    """

    into: Ints
    tails: Ints
    heads: Ints
    weights: Array
    place: Ints

    @property
    def vertices(self) -> int:
        """The number of vertices, additional ones included."""
        return len(self.into) - 1

    def chunks(self, size: int = CHUNK) -> Ints:
        """Cut the arcs into runs of about ``size`` arcs, where all arcs into one vertex stay in one run; return the
        first arc of each run, followed by the number of arcs.
        """
        starts = np.arange(0, max(len(self.tails), 1), size)
        firsts = np.append(self.into[np.searchsorted(self.into, starts)], np.int32(len(self.tails)))
        return np.asarray(firsts[np.append(True, firsts[1:] > firsts[:-1])])

    def outgoing(self) -> tuple[Ints, Ints]:
        """Return the outgoing arcs as CSR: the index of each vertex's first arc, and the heads of all arcs."""
        order = np.argsort(self.tails, kind="stable")
        counts = np.bincount(self.tails, minlength=self.vertices)
        return _starts(counts), self.heads[order]


def incoming(
    indptr: npt.NDArray[np.int64],
    heads: Ints,
    weights: Array,
    *,
    cluster: int | None = None,
    split: int | None = SPLIT,
) -> IncomingArcs:
    """Return the arcs of a graph sorted by head.

    Args:
        indptr: int64, shape (n + 1,): where the arcs out of each vertex begin (``storage.graph.graph.Graph``).
        heads: int32, shape (arcs,).
        weights: shape (arcs,), not negative.
        cluster: the number of neighbouring vertices that are numbered one after the other as a cluster; None keeps the
            numbers of the graph.
        split: the largest number of arcs into a vertex; None for no limit.
    """
    n = len(indptr) - 1
    place = _places(indptr, heads, cluster)
    if cluster is None and (split is None or np.bincount(heads, minlength=1).max() <= split):
        by_head = csr_array((weights, heads, indptr.astype(np.int32)), shape=(n, n)).tocsc()
        into = by_head.indptr
        return IncomingArcs(into, by_head.indices, np.repeat(place, np.diff(into)), by_head.data, place)
    tails = np.repeat(place, np.diff(indptr))
    heads, total = place[heads], n
    if split is not None:
        tails, heads, weights, total = _split(tails, heads, weights, total, split)
    order = _by_head(tails, heads, total)
    into = _starts(np.bincount(heads, minlength=total))
    return IncomingArcs(into, tails[order], heads[order], weights[order], place)


def _places(indptr: npt.NDArray[np.int64], heads: Ints, cluster: int | None) -> Ints:
    n = len(indptr) - 1
    if cluster is None or n <= 1:
        return np.arange(n, dtype=np.int32)
    from engine.graph._clusters import cluster_places

    seeds = np.empty(n, np.int32)
    seeds[near_places(indptr, heads)] = np.arange(n, dtype=np.int32)
    return cluster_places(indptr, heads, seeds, cluster)


def _starts(counts: npt.NDArray[np.int64]) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def _by_head(tails: Ints, heads: Ints, n: int) -> npt.NDArray[np.int64]:
    """Return the indices of the arcs, sorted by head, then by tail."""
    if len(heads) == 0:
        return np.zeros(0, np.int64)
    numbers = np.arange(len(heads), dtype=np.int64)
    return np.asarray(coo_array((numbers, (heads, tails)), shape=(n, n)).tocsr().data)


def _split(tails: Ints, heads: Ints, weights: Array, total: int, most: int) -> tuple[Ints, Ints, Array, int]:
    """Where a vertex has more than ``most`` incoming arcs, insert additional vertices that take up to ``most`` of these
    arcs each.  Return the new tails, heads, weights and number of vertices.
    """
    while len(heads):
        counts = np.bincount(heads, minlength=total)
        many = counts > most
        if not many.any():
            break
        selected = np.flatnonzero(many[heads])
        selected = selected[np.argsort(heads[selected], kind="stable")]
        owners = heads[selected]
        begins = np.concatenate(([True], owners[1:] != owners[:-1]))
        position = np.arange(len(owners)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        piece = begins | (position % most == 0)
        fresh = total - 1 + np.cumsum(piece)
        heads = heads.copy()
        heads[selected] = fresh
        total += int(piece.sum())
        tails = np.concatenate((tails, fresh[piece].astype(np.int32)))
        heads = np.concatenate((heads, owners[piece]))
        weights = np.concatenate((weights, np.zeros(int(piece.sum()), weights.dtype)))
    return tails, heads, weights, total
