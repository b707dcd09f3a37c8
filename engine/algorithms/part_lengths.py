"""Finds the lengths inside parts and to the parts above: steps 1 and 2 of ``engine.algorithms.partitioned``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms import floyd_warshall
from engine.algorithms.products import multiply
from engine.graph.partition import Lengths, Parts
from engine.model.backend import Array
from engine.model.blocks import LEAF
from engine.model.dtypes import WorkType
from engine.model.progress import Monitor
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.algorithms.elimination import SmallParts
    from engine.devices.cpu.backend import CpuBackend

Positions = npt.NDArray[np.int64] | npt.NDArray[np.int32]

#: Products of at most this number of updates do not report to the monitor, because there are many small parts.
SMALL: Final = 2**24


def find_lengths(
    backend: CpuBackend, graph: Graph, parts: Parts, kind: WorkType, *, nonnegative: bool, monitor: Monitor
) -> Lengths:
    """Find the lengths of all parts.

    Args:
        backend: relaxes and closes blocks.
        graph: the graph; negative arcs are allowed for integers, negative cycles are not.
        parts: the parts of the graph.
        kind: the working type.
        nonnegative: promises that no arc is negative.
        monitor: receives the progress, in updates.

    Raises:
        Cancelled: the monitor asked to stop.
    """
    from engine.algorithms.elimination import SmallParts, small_parts

    monitor.begin("prepare", int(sum(part.sum() for part in parts.updates())), "updates")
    sizes, widths = parts.sizes, parts.widths()
    flat: Array = np.empty(int(sizes @ widths), kind.dtype)
    begin = np.concatenate(([0], np.cumsum(sizes * widths)))
    tables = [flat[begin[i] : begin[i + 1]].reshape(sizes[i], widths[i]) for i in range(parts.count)]
    small, arcs = small_parts(parts), _Arcs(graph, parts, kind)
    compiled = SmallParts(backend, parts, small, kind, nonnegative=nonnegative, directed=graph.directed)
    for updates in compiled.eliminate(flat, arcs.sorted):
        monitor.step(updates)
    step = _Step(backend, arcs, parts, kind, nonnegative, graph.directed, monitor)
    upward, across = step.eliminate(tables, small, compiled)
    step.extend(tables, upward)
    for updates in compiled.extend(flat):
        monitor.step(updates)
    return Lengths(tables, across, flat)


@dataclass(frozen=True)
class _Step:
    """The data that steps 1 and 2 share."""

    backend: CpuBackend
    arcs: _Arcs
    parts: Parts
    kind: WorkType
    nonnegative: bool
    directed: bool
    monitor: Monitor

    def eliminate(
        self, tables: list[Array], small: npt.NDArray[np.bool_], compiled: SmallParts
    ) -> tuple[dict[int, Array], list[Array]]:
        """Run step 1 for the parts that are not small, and fill the first columns of their tables.

        Returns:
            The lengths from these parts to their borders; and, for every part, the lengths from its border to the part.
        """
        from engine.graph._elimination import join

        parts, arcs, updates = self.parts, self.arcs, self.parts.updates()[0]
        through: list[list[tuple[Positions, Array]]] = [[] for _ in range(parts.count)]
        upward: dict[int, Array] = {}
        across: list[Array] = []
        for i in range(parts.count):
            size, border, above = len(tables[i]), parts.border(i), parts.parents[i]
            if small[i]:
                across.append(compiled.across(i))
                if above >= 0 and not small[above]:
                    through[above].append((border, compiled.rest(i)))
                continue
            front = arcs.front(i)
            for other, lengths in through[i]:
                join(front, arcs.local(i, other), lengths)
            through[i] = []
            own, out, back = front[:size, :size], front[:size, size:], front[size:, :size]
            part = _OnePart(self.monitor)
            self._close(own, part)
            up = self._relaxed(out, own, out, part)
            down = self._relaxed(back, back, own, part) if self.directed else np.ascontiguousarray(up.T)
            if len(border):
                rest = self._relaxed(front[size:, size:], back, up, part)
                through[above].append((border, rest))
            tables[i][:, :size] = own
            upward[i] = up
            across.append(down)
            self.monitor.step(int(updates[i]) - part.done)
        return upward, across

    def extend(self, tables: list[Array], upward: dict[int, Array]) -> None:
        """Run step 2 in place for the parts in ``upward``: fill the columns of their tables for the parts above."""
        parts, updates = self.parts, self.parts.updates()[1]
        owner = parts.owner()
        for i in sorted(upward, reverse=True):
            size, wide = tables[i].shape
            border, part = parts.border(i), _OnePart(self.monitor)
            if len(border):
                beyond = np.full((len(border), wide - size), self.kind.sentinel(), self.kind.dtype)
                for first, last in _runs(owner[border]):
                    k = owner[border[first]]
                    known = tables[k][border[first:last] - parts.starts[k]]
                    beyond[first:last, beyond.shape[1] - known.shape[1] :] = known
                tables[i][:, size:] = self.kind.sentinel()
                self._relax(tables[i][:, size:], upward[i], beyond, part)
            self.monitor.step(int(updates[i]) - part.done)

    def _close(self, block: Array, part: Monitor) -> None:
        signs = {"nonnegative": self.nonnegative, "symmetric": not self.directed}
        if len(block) <= LEAF:
            self.backend.close(block, **signs)
        else:
            floyd_warshall.recursive(self.backend, block, **signs, monitor=part)

    def _relaxed(self, c: Array, a: Array, b: Array, part: Monitor) -> Array:
        """Return min(C, A (x) B) as a new array."""
        new = c.copy()
        self._relax(new, a, b, part)
        return new

    def _relax(self, c: Array, a: Array, b: Array, part: Monitor) -> None:
        if c.size * a.shape[1] <= SMALL:
            self.backend.relax(c, a, b, nonnegative=self.nonnegative)
        else:
            multiply(self.backend, c, a, b, nonnegative=self.nonnegative, monitor=part)


class _OnePart(Monitor):
    """Passes the progress of one part's products on to a monitor, and adds up their updates.

    A part may be most of the graph, so a request to stop is noticed between the pieces of its products, too.
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
            Cancelled: the monitor of the whole asked to stop.
        """
        self.done += amount
        self._whole.step(amount)


class _Arcs:
    """The arcs of a graph, grouped by part.

    The ends of an arc may lie in two parts; the arc belongs to the one that is eliminated first.
    """

    def __init__(self, graph: Graph, parts: Parts, kind: WorkType) -> None:
        self._parts, self._kind = parts, kind
        tails = np.repeat(parts.position, np.diff(graph.indptr))
        heads = parts.position[graph.heads]
        first = parts.owner()[np.minimum(tails, heads)]
        order = np.argsort(first, kind="stable")
        self._tails, self._heads = tails[order], heads[order]
        weights = graph.weights[order] + 0  # -0.0, whose bits sort below every number, becomes 0.0
        if kind.integer:  # an arc longer than every distance is on no shortest path, and might not fit the type
            weights = np.minimum(weights, int(kind.unreachable))
        self._weights = weights.astype(kind.dtype)
        self._begin = np.searchsorted(first[order], np.arange(parts.count + 1))

    @property
    def sorted(self) -> tuple[Array, ...]:
        """The positions of tails and heads, the weights, and where the arcs of each part begin."""
        return self._tails, self._heads, self._weights, self._begin

    def front(self, i: int) -> Array:
        """Return the weights between the vertices of part ``i`` and its border: 0 on the diagonal, else unreachable."""
        side = int(self._parts.starts[i + 1] - self._parts.starts[i]) + len(self._parts.border(i))
        front = np.full((side, side), self._kind.sentinel(), self._kind.dtype)
        front[np.arange(side), np.arange(side)] = 0
        some = slice(self._begin[i], self._begin[i + 1])
        front[self.local(i, self._tails[some]), self.local(i, self._heads[some])] = self._weights[some]
        return front

    def local(self, i: int, positions: Positions) -> npt.NDArray[np.int64]:
        """Return the rows of the front of part ``i`` that hold ``positions``."""
        start, stop = self._parts.starts[i : i + 2]
        beyond = (stop - start) + np.searchsorted(self._parts.border(i), positions)
        return np.asarray(np.where(positions < stop, positions - start, beyond), np.int64)


def _runs(values: Array) -> list[tuple[int, int]]:
    """Return the spans of equal values, as (first, last + 1)."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(itertools.pairwise(cuts))
