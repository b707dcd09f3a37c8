"""Cuts the tree of parts into spans; one process computes a span and needs few results of other processes.

A *span* is a run of parts with adjacent numbers.  Parts are numbered children first, so the parts of a whole branch of
the tree have adjacent numbers.  Branches that are small enough make spans.  The parts above them are the *top* of the
tree, and each part of the top is a span of its own.  Eliminating a branch needs no results of other spans.  Eliminating
a part of the top needs only the lengths among the border of each child.  The tables of a span need the tables of the
parts above the span, which all lie on the path from its last part to the root.

A span is computed as a small graph with parts of its own, by the code that computes whole graphs
(``engine.algorithms.part_lengths``).  So sums are formed in the same order, and the lengths are those of the whole
graph to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from engine.algorithms.eliminated import Mask
from engine.graph.partition import Parts
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SpanLimits:
    """How large a span of several parts may be.

    Attributes:
        updates: most updates to compute the span.
        entries: most entries of the span's tables.
    """

    updates: int
    entries: int


@dataclass(frozen=True)
class OwnParts:
    """The parts that one span needs, numbered from 0, with positions that begin at 0.

    Attributes:
        parts: parts below the span, which have no vertices here; then the parts of the span; then parts above it.
        first: the number, in ``parts``, of the span's first part.
        count: the number of parts of the span.
    """

    parts: Parts
    first: int
    count: int

    @property
    def mask(self) -> Mask:
        """A mask of the parts of the span, shape (parts,)."""
        mask = np.zeros(self.parts.count, np.bool_)
        mask[self.first : self.first + self.count] = True
        return mask


class Spans:
    """All spans of the parts of a graph.

    Args:
        parts: the parts.  Their ``position`` is not used.
        cuts: the first part of each span, and the number of all parts, shape (spans + 1,).
    """

    def __init__(self, parts: Parts, cuts: Indices) -> None:
        self.parts, self.cuts = parts, cuts

    @property
    def count(self) -> int:
        """The number of spans."""
        return len(self.cuts) - 1

    def range(self, s: int) -> tuple[int, int]:
        """Return the number of the first part of a span, and the number of its last part plus 1."""
        return int(self.cuts[s]), int(self.cuts[s + 1])

    @cached_property
    def owner(self) -> Indices:
        """The span of each part, shape (parts,)."""
        return np.repeat(np.arange(self.count), np.diff(self.cuts))

    @cached_property
    def below(self) -> list[list[int]]:
        """For each span, the parts of other spans that have their parent in the span, ascending."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        parents, owner = self.parts.parents, self.owner
        for i in np.flatnonzero(parents >= 0).tolist():
            above = int(owner[parents[i]])
            if above != owner[i]:
                found[above].append(i)
        return found

    @cached_property
    def in_top(self) -> Mask:
        """A mask of the spans that have other spans below them, shape (spans,)."""
        return np.array([bool(parts) for parts in self.below], np.bool_)

    def above(self, s: int) -> list[int]:
        """Return the parts above a span, the nearest one first; each of these parts is a span of its own."""
        chain, last = [], int(self.cuts[s + 1]) - 1
        while (last := int(self.parts.parents[last])) >= 0:
            chain.append(last)
        return chain

    def sums(self, of_parts: Indices) -> Indices:
        """Return, for each span, the sum of ``of_parts`` over its parts, shape (spans,)."""
        return np.add.reduceat(of_parts, self.cuts[:-1]) if self.count else np.zeros(0, np.int64)

    def places(self, s: int, positions: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> Indices:
        """Renumber positions for a span: positions of the span from 0 on, then those of parts above, nearest first."""
        starts, (first, last) = self.parts.starts, self.range(s)
        chain = np.array(self.above(s), np.int64)
        sizes = starts[chain + 1] - starts[chain]
        begins = starts[last] - starts[first] + np.cumsum(sizes) - sizes
        found = positions - starts[first]
        beyond = np.flatnonzero(positions >= starts[last])
        if len(beyond):
            k = np.searchsorted(starts[chain], positions[beyond], side="right") - 1
            found[beyond] = positions[beyond] - starts[chain[k]] + begins[k]
        return np.asarray(found, np.int64)

    def vertices(self, s: int) -> int:
        """Return the number of positions of a span and of the parts above it."""
        chain, (first, last) = np.array(self.above(s), np.int64), self.range(s)
        starts = self.parts.starts
        return int(starts[last] - starts[first] + (starts[chain + 1] - starts[chain]).sum())

    def for_eliminating(self, s: int) -> OwnParts:
        """Return the parts that are needed to eliminate a span: its parts, and the children that they have in other
        spans.
        """
        below, (first, last) = self.below[s], self.range(s)
        inner = self.parts.parents[first:last]
        inside = np.where((inner >= 0) & (inner < last), inner - first + len(below), -1)
        over = self.parts.parents[below] - first + len(below)
        return self._own(s, [*below, *range(first, last)], len(below), np.concatenate([over, inside]))

    def for_extending(self, s: int) -> OwnParts:
        """Return the parts that are needed for the tables of a span: the parts of the span, and all parts above it."""
        (first, last), chain = self.range(s), self.above(s)
        count = last - first
        places = {part: count + k for k, part in enumerate(chain)}
        parents = [
            -1 if above < 0 else above - first if above < last else places[above]
            for above in self.parts.parents[[*range(first, last), *chain]].tolist()
        ]
        return self._own(s, [*range(first, last), *chain], 0, np.array(parents))

    def _own(self, s: int, some: Sequence[int], below: int, parents: npt.NDArray[np.generic]) -> OwnParts:
        first, last = self.range(s)
        count = last - first
        sizes = self.parts.sizes[list(some)]
        sizes[:below] = 0
        depths = self.parts.depths[list(some)]
        depths[below + count :] = 0  # parts above are not eliminated here, so they need no border
        borders = [self.parts.border(i) for i in some[: below + count]]
        flat = self.places(s, np.concatenate(borders)) if borders else np.zeros(0, np.int64)
        own = Parts(
            position=np.arange(self.vertices(s)),
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            parents=parents.astype(np.int32),
            ends=np.concatenate([[0], np.cumsum(depths)]).astype(np.int64),
            borders=flat.astype(np.int32),
        )
        return OwnParts(own, below, count)


def cut_into_spans(parts: Parts, updates: Indices, entries: Indices, limits: SpanLimits) -> Spans:
    """Group the parts of a graph into spans: runs of neighbouring parts.

    Args:
        parts: the parts.
        updates: for each part the number of updates to compute it, shape (parts,).
        entries: for each part the number of entries of its tables, shape (parts,).
        limits: how large spans may be.  If a part and all parts below it together exceed the limits, the part is a span
            of its own.
    """
    whole = [updates.copy(), entries.copy()]
    for i, above in enumerate(parts.parents.tolist()):
        if above >= 0:
            for sums in whole:
                sums[above] += sums[i]
    top = (whole[0] > limits.updates) | (whole[1] > limits.entries)
    lows = parts.lows()
    cuts, size = [0], np.zeros(2, np.int64)
    most = (limits.updates, limits.entries)
    for i, above in enumerate(parts.parents.tolist()):
        if top[i]:
            cuts += [i, i + 1]
            size[:] = 0
        elif above < 0 or top[above]:
            branch = np.array([sums[i] for sums in whole])
            if (size + branch > most).any():
                cuts.append(int(lows[i]))
                size[:] = 0
            size += branch
    return Spans(parts, np.unique(np.array([*cuts, parts.count], np.int64)))


def arcs_by_span(graph: Graph, spans: Spans) -> list[tuple[npt.NDArray[np.generic], ...]]:
    """Return the arcs of each span: positions of tails and of heads, int32, and weights.

    An arc belongs to the span of its tail or of its head, whichever is eliminated first.

    Args:
        graph: the graph.
        spans: the spans of the graph; ``spans.parts.position`` must hold the positions of the graph's vertices.
    """
    position = spans.parts.position
    tails, heads = np.repeat(position, np.diff(graph.indptr)), position[graph.heads]
    owner = spans.owner[spans.parts.owner()[np.minimum(tails, heads)]]
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(spans.count + 1))
    columns = (tails[order].astype(np.int32), heads[order].astype(np.int32), graph.weights[order])
    return [tuple(column[ends[s] : ends[s + 1]] for column in columns) for s in range(spans.count)]


def own_graph(spans: Spans, s: int, arcs: Sequence[npt.NDArray[np.generic]], *, directed: bool) -> Graph:
    """Return the arcs of a span as a graph.

    Its vertices are the positions of the span and of the parts above it, renumbered by :meth:`Spans.places`.

    Args:
        spans: the spans; ``spans.parts.position`` is not used.
        s: the number of the span.
        arcs: the arcs of the span, from :func:`arcs_by_span`.
        directed: whether the whole graph is directed.
    """
    ends = [spans.places(s, np.asarray(column, np.int64)) for column in arcs[:2]]
    order, n = np.lexsort((ends[1], ends[0])), spans.vertices(s)
    indptr = np.searchsorted(ends[0][order], np.arange(n + 1)).astype(np.int64)
    heads, weights = ends[1][order].astype(np.int32), cast("npt.NDArray[np.float64]", arcs[2][order])
    return Graph(indptr=indptr, heads=heads, weights=weights, labels=np.arange(n), directed=directed, weighted=True)
