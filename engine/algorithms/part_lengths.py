"""Finds the lengths inside parts (step 1 of ``engine.algorithms.partitioned``) and to the parts above (step 2)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms import floyd_warshall
from engine.algorithms.eliminated import Eliminated, Mask, PartRecorder, tables_of
from engine.algorithms.products import multiply
from engine.graph.partition import Lengths, Parts
from engine.model.backend import Array, Signs
from engine.model.blocks import LEAF
from engine.model.dtypes import WorkType
from engine.model.progress import Monitor
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend

#: The table of each part, by the number of the part; a mapping may leave out tables that are not needed.
Tables = Sequence[Array] | Mapping[int, Array]
Positions = npt.NDArray[np.int64] | npt.NDArray[np.int32]

#: A product of at most this number of updates is not cut into pieces, so progress is not reported during it.
SMALL: Final = 2**24


def find_lengths(
    backend: CpuBackend, graph: Graph, parts: Parts, kind: WorkType, *, nonnegative: Signs, monitor: Monitor
) -> Lengths:
    """Find the lengths inside all parts, to and from their borders, and to the parts above.

    Args:
        backend: relaxes and closes blocks.
        graph: the graph; negative arcs are allowed for integers, negative cycles are not.
        parts: the parts of the graph.
        kind: the working type.
        nonnegative: what is known about the weights.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    work = PartWork(backend, graph, parts, kind, nonnegative, monitor)
    flat, found = work.find()
    return Lengths(tables_of(parts, flat), [found.down(i) for i in range(parts.count)], flat)


@dataclass(frozen=True)
class PartWork:
    """Computes the lengths inside parts and to the parts above; its attributes are the inputs of every step.

    Attributes:
        backend: relaxes and closes blocks.
        graph: the graph.
        parts: the parts of the graph.
        kind: the working type.
        nonnegative: what is known about the weights.
        monitor: receives the progress, in updates.
    """

    backend: CpuBackend
    graph: Graph
    parts: Parts
    kind: WorkType
    nonnegative: Signs
    monitor: Monitor

    def find(self, journal: PartRecorder | None = None) -> tuple[Array, Eliminated]:
        """Find the lengths inside all parts, to and from their borders, and to the parts above.

        Args:
            journal: restores the parts that an earlier run has computed, and records those computed here; None records
                nothing.

        Returns:
            The tables of all parts one after the other; and the lengths to, from and between the vertices of borders.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        from engine.algorithms.elimination import SmallParts, small_parts

        parts, kind, journal = self.parts, self.kind, journal or PartRecorder()
        inside, above = parts.updates()
        self.monitor.begin("prepare", int(inside.sum() + above.sum()), "updates")
        flat: Array = np.empty(int(parts.sizes @ parts.widths()), kind.dtype)
        found = Eliminated.empty(parts, kind)
        journal.begin(parts, flat, found)
        self.eliminate(flat, found, journal.todo("eliminate", parts), journal)
        todo, small = journal.todo("extend", parts), small_parts(parts)
        self.monitor.step(int(above[~todo].sum()))
        tables, owner = tables_of(parts, flat), parts.owner()
        for i in np.flatnonzero(todo & ~small)[::-1].tolist():
            self.extend(tables, i, found.up(i), owner)
            journal.add("extend", np.array([i]))
        signs: Any = {"nonnegative": self.nonnegative, "directed": self.graph.directed}
        for some in SmallParts(self.backend, found, small & todo, kind, **signs).extend(flat):
            journal.add("extend", some)
            self.monitor.step(int(above[some].sum()))
        return flat, found

    def eliminate(self, flat: Array, found: Eliminated, todo: Mask, journal: PartRecorder) -> None:
        """Eliminate some parts (step 1), and fill the first columns of their tables.

        Args:
            flat: the tables of all parts.
            found: receives the lengths to, from and between the vertices of borders; must already hold those of the
                parts below.
            todo: mask of the parts to compute, shape (parts,).
            journal: records which parts are done.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        from engine.algorithms.elimination import SmallParts, small_parts

        parts, small, updates = self.parts, small_parts(self.parts), self.parts.updates()[0]
        arcs = _Arcs(self.graph, parts, self.kind, todo)
        self.monitor.step(int(updates[~todo].sum()))
        signs: Any = {"nonnegative": self.nonnegative, "directed": self.graph.directed}
        for some in SmallParts(self.backend, found, small & todo, self.kind, **signs).eliminate(flat, arcs.sorted):
            journal.add("eliminate", some)
            self.monitor.step(int(updates[some].sum()))
        below: dict[int, list[int]] = {}
        large = todo & ~small
        for i in np.flatnonzero((parts.parents >= 0) & large[parts.parents]).tolist():
            below.setdefault(int(parts.parents[i]), []).append(i)
        tables = tables_of(parts, flat)
        for i in np.flatnonzero(large).tolist():
            self._eliminate_large(tables[i], found, arcs, i, below.get(i, []))
            journal.add("eliminate", np.array([i]))

    def _eliminate_large(self, table: Array, found: Eliminated, arcs: _Arcs, i: int, below: list[int]) -> None:
        from engine.graph._elimination import join

        size, border, front = len(table), self.parts.border(i), arcs.front(i)
        for c in below:
            if len(self.parts.border(c)):
                join(front, arcs.local(i, self.parts.border(c)), found.rest(c), self.nonnegative)
        own, out, back = front[:size, :size], front[:size, size:], front[size:, :size]
        part = _OnePart(self.monitor)
        self._close(own, part)
        table[:, :size] = own
        up = self._relaxed(out, own, out, part)
        found.up(i)[...] = up
        found.down(i)[...] = self._relaxed(back, back, own, part) if self.graph.directed else up.T
        if len(border):
            found.rest(i)[...] = self._relaxed(front[size:, size:], back, up, part)
        self.monitor.step(int(self.parts.updates()[0][i]) - part.done)

    def extend(self, tables: Tables, i: int, up: Array, owner: Array) -> None:
        """Fill those columns of a part's table that hold the lengths to the parts above (step 2).

        Args:
            tables: the tables of all parts; those of the parts above are already filled.
            i: the number of the part.
            up: lengths from the part to its border, shape (size, border).
            owner: for each position, the number of its part.

        Raises:
            Cancelled: the monitor asked to stop.
        """
        parts, (size, wide) = self.parts, tables[i].shape
        border, part = parts.border(i), _OnePart(self.monitor)
        if len(border):
            beyond = np.full((len(border), wide - size), self.kind.sentinel(), self.kind.dtype)
            for first, last in _runs(owner[border]):
                k: Any = owner[border[first]]
                known = tables[k][border[first:last] - parts.starts[k]]
                beyond[first:last, beyond.shape[1] - known.shape[1] :] = known
            tables[i][:, size:] = self.kind.sentinel()
            self._relax(tables[i][:, size:], up, beyond, part)
        self.monitor.step(size * len(border) * (wide - size) - part.done)

    def _close(self, block: Array, part: Monitor) -> None:
        signs: Any = {"nonnegative": self.nonnegative, "symmetric": not self.graph.directed}
        if len(block) <= LEAF:
            self.backend.close(block, **signs)
        else:
            floyd_warshall.recursive(self.backend, block, **signs, monitor=part)

    def _relaxed(self, c: Array, a: Array, b: Array, part: Monitor) -> Array:
        """Return min(C, A (x) B), where (x) is the min-plus product, as a new array."""
        new = c.copy()
        self._relax(new, a, b, part)
        return new

    def _relax(self, c: Array, a: Array, b: Array, part: Monitor) -> None:
        if c.size * a.shape[1] <= SMALL:
            self.backend.relax(c, a, b, nonnegative=self.nonnegative)
        else:
            multiply(self.backend, c, a, b, nonnegative=self.nonnegative, monitor=part)


class _OnePart(Monitor):
    """Passes the progress of one part's products on to a monitor, and counts their updates.

    A part may hold most of the graph.  So requests to stop are noticed during the products of a part, too.
    """

    def __init__(self, whole: Monitor) -> None:
        self._whole = whole
        self.done = 0

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Do nothing, because one phase covers all parts.

        Args:
            phase: ignored.
            total: ignored.
            unit: ignored.
        """

    def step(self, amount: int) -> None:
        """Count ``amount`` updates and pass them on.

        Raises:
            Cancelled: the monitor of the whole solve asked to stop.
        """
        self.done += amount
        self._whole.step(amount)


class _Arcs:
    """The arcs of a graph, grouped by part.

    The ends of an arc may lie in two parts; the arc belongs to the part that is eliminated first.
    """

    def __init__(self, graph: Graph, parts: Parts, kind: WorkType, todo: Mask) -> None:
        """Sort the arcs of the parts in the mask ``todo`` by part; arcs of all other parts are left out."""
        self._parts, self._kind = parts, kind
        tails = np.repeat(parts.position, np.diff(graph.indptr))
        heads = parts.position[graph.heads]
        first = parts.owner()[np.minimum(tails, heads)]
        order = np.flatnonzero(todo[first])
        order = order[np.argsort(first[order], kind="stable")]
        self._tails, self._heads = tails[order], heads[order]
        weights = graph.weights[order] + 0  # -0.0 becomes 0.0, because the bits of -0.0 sort below those of all numbers
        if kind.integer:  # an arc longer than every distance is on no shortest path, and might not fit the type
            weights = np.minimum(weights, int(kind.unreachable))
        self._weights = weights.astype(kind.dtype)
        self._begin = np.searchsorted(first[order], np.arange(parts.count + 1))

    @property
    def sorted(self) -> tuple[Array, ...]:
        """The positions of tails and heads, the weights, and the index at which the arcs of each part begin."""
        return self._tails, self._heads, self._weights, self._begin

    def front(self, i: int) -> Array:
        """Return the matrix of arc weights among the vertices of part ``i`` and its border.

        The diagonal is 0, or 1 for products; where there is no arc, the entry is *unreachable*.
        """
        side = int(self._parts.starts[i + 1] - self._parts.starts[i]) + len(self._parts.border(i))
        front = np.full((side, side), self._kind.sentinel(), self._kind.dtype)
        front[np.arange(side), np.arange(side)] = self._kind.itself
        some = slice(self._begin[i], self._begin[i + 1])
        front[self.local(i, self._tails[some]), self.local(i, self._heads[some])] = self._weights[some]
        return front

    def local(self, i: int, positions: Positions) -> npt.NDArray[np.int64]:
        """Return the row of each of ``positions`` in the front of part ``i`` (its vertices, then its border)."""
        start, stop = self._parts.starts[i : i + 2]
        beyond = (stop - start) + np.searchsorted(self._parts.border(i), positions)
        return np.asarray(np.where(positions < stop, positions - start, beyond), np.int64)


def _runs(values: Array) -> list[tuple[int, int]]:
    """Return the runs of equal adjacent values, each as (first index, last index + 1)."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(itertools.pairwise(cuts))
