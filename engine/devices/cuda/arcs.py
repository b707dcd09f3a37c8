"""The arcs of a graph in the form that a GPU's searches walk: by head, vertices renumbered, long rows split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from engine.graph.ordering import near_places
from engine.model.backend import Array

Ints = npt.NDArray[np.int32]

#: Most arcs into a vertex: of more, groups go through vertices of their own, so that no warp works for long alone.
SPLIT: Final = 64
#: Arcs of a chunk, more or less: what a warp looks at between two glances at the list of its chunks.
CHUNK: Final = 16


@dataclass(frozen=True)
class Incoming:
    """Arcs sorted by head.  Vertices from n on only gather: each hands on to one head, at weight 0.

    Attributes:
        into: int32, shape (vertices + 1,): where the arcs into each vertex begin.
        tails, heads: int32, shape (arcs,).
        weights: shape (arcs,), of the graph's type.
        place: int32, shape (n,): number here of each vertex of the graph.
    """

    into: Ints
    tails: Ints
    heads: Ints
    weights: Array
    place: Ints

    @property
    def vertices(self) -> int:
        """Vertices, those that only gather included."""
        return len(self.into) - 1

    def chunks(self, size: int = CHUNK) -> Ints:
        """First arcs of runs of whole vertices with about ``size`` arcs each, and the end."""
        starts = np.arange(0, max(len(self.tails), 1), size)
        firsts = np.append(self.into[np.searchsorted(self.into, starts)], np.int32(len(self.tails)))
        return np.asarray(firsts[np.append(True, firsts[1:] > firsts[:-1])])

    def outgoing(self) -> tuple[Ints, Ints]:
        """CSR of the arcs out of each vertex: where they begin, and their heads."""
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
) -> Incoming:
    """Arcs by head from a graph's CSR (``storage.graph.graph.Graph``).

    Args:
        indptr, heads, weights: the arcs out of each vertex.
        cluster: renumber vertices in clusters of so many that lie near each other; None keeps their numbers.
        split: most arcs into a vertex; None for any number.
    """
    n = len(indptr) - 1
    place = _places(indptr, heads, cluster)
    if cluster is None and (split is None or np.bincount(heads, minlength=1).max() <= split):
        by_head = csr_array((weights, heads, indptr.astype(np.int32)), shape=(n, n)).tocsc()
        into = by_head.indptr
        return Incoming(into, by_head.indices, np.repeat(place, np.diff(into)), by_head.data, place)
    tails = np.repeat(place, np.diff(indptr))
    heads, total = place[heads], n
    if split is not None:
        tails, heads, weights, total = _split(tails, heads, weights, total, split)
    order = _by_head(tails, heads, total)
    into = _starts(np.bincount(heads, minlength=total))
    return Incoming(into, tails[order], heads[order], weights[order], place)


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
    """The order of the arcs by head, then tail."""
    if len(heads) == 0:
        return np.zeros(0, np.int64)
    numbers = np.arange(len(heads), dtype=np.int64)
    return np.asarray(coo_array((numbers, (heads, tails)), shape=(n, n)).tocsr().data)


def _split(tails: Ints, heads: Ints, weights: Array, total: int, most: int) -> tuple[Ints, Ints, Array, int]:
    """Let every vertex of more than ``most`` in-arcs take them through new vertices of at most ``most`` each."""
    while len(heads):
        counts = np.bincount(heads, minlength=total)
        many = counts > most
        if not many.any():
            break
        chosen = np.flatnonzero(many[heads])
        chosen = chosen[np.argsort(heads[chosen], kind="stable")]
        owners = heads[chosen]
        begins = np.concatenate(([True], owners[1:] != owners[:-1]))
        position = np.arange(len(owners)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        piece = begins | (position % most == 0)
        fresh = total - 1 + np.cumsum(piece)
        heads = heads.copy()
        heads[chosen] = fresh
        total += int(piece.sum())
        tails = np.concatenate((tails, fresh[piece].astype(np.int32)))
        heads = np.concatenate((heads, owners[piece]))
        weights = np.concatenate((weights, np.zeros(int(piece.sum()), weights.dtype)))
    return tails, heads, weights, total
