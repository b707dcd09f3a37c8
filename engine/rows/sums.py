"""Sums of further quantities along the shortest paths, taken from finished rows of distances.

The tree of shortest paths of a source follows from its row and the graph (``engine.rows._sums``), so the sums do not
depend on the algorithm that found the row.  This is true only if sums of weights are exact, and there are three cases.
Sums of whole numbers are exact.  For fractions that are whole multiples of a small unit, such as 0.001, distances are
rounded to exact multiples of the unit.  For all other fractions, rows have to come from searches that add one arc after
the other, beginning at the source.  Each entry is then the least rounded sum of any path, and an arc is tight if its
rounded sum equals the entry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from engine.graph.selection import Rectangle
from engine.model.decimals import DECIMALS
from engine.model.dtypes import REACH, SUM_TYPES, WORK_TYPES, WorkType
from engine.model.rows import Array, FactSink, FoundFacts, QuantitySink, Sink
from engine.rows.hops.hop_sums import HopSums
from engine.rows.lane_sums import KeptSpaces, LaneSums
from storage.errors import InvalidRequest, SolveFailed
from storage.graph.graph import Graph

Indices = npt.NDArray[np.int64]

#: Sums of whole numbers up to this are exact in float64.
_EXACT: Final = 2.0**53
#: Rounding a float64 distance to units gives the right number if n times the length of the longest path is at most this
#: many units: every addition is off by at most 2^-52 of the sum, so n additions are off by at most an eighth of a unit.
_FOUND_AGAIN: Final = 2.0**49
#: Sums of up to TOGETHER tiles of rows are found in one call, if they then take at most TOGETHER_BYTES.
TOGETHER: Final = 4
TOGETHER_BYTES: Final = 2**25


#: The types of sums, in the order in which there is an array for each, and their values for *no path*.
_KINDS: Final = tuple(SUM_TYPES.values())
_NONES: Final = tuple(kind.sentinel() for kind in _KINDS)
#: The values for *no path*, and the arrays that receive the sums.
_Wanted = tuple[tuple[np.generic, ...], tuple[Array, ...]]


@dataclass(frozen=True)
class Exactness:
    """How tight arcs are recognised in a graph.

    Attributes:
        per: how many units make 1, if weights are fractions and multiples of a unit; 0 if weights are compared as they
            are.
        rounded: whether sums of weights are rounded so much that only rows from searches that begin at the source can
            be used.
    """

    per: int = 0
    rounded: bool = False


def exactness(graph: Graph) -> Exactness:
    """Return how tight arcs are recognised.

    Raises:
        InvalidRequest: some arcs are negative fractions.
    """
    weights = graph.weights
    if graph.integral or graph.arcs == 0:
        return Exactness()
    if weights.min() < 0:
        raise InvalidRequest(
            "along paths of negative fractions nothing can be summed: their lengths are rounded; write the weights as "
            "whole numbers",
            field="also",
        )
    longest = _longest(graph, weights)
    for per in (*(10**power for power in range(DECIMALS + 1)), *(2**power for power in range(1, 31))):
        far = longest * per * graph.n > _FOUND_AGAIN
        # if ``far``, sums in float64 cannot be rounded to units; then a unit can be used only if all sums fit int32 as
        # multiples of the unit, which searches add without rounding (``engine.model.decimals``)
        if far and longest * per > WORK_TYPES["int32"].largest:
            continue
        if np.array_equal(np.rint(weights * per) / per, weights):
            return Exactness(per, rounded=far)
    return Exactness(rounded=True)


def units_counted(graph: Graph) -> int:
    """Return how many units make 1 if all weights are fractions and multiples of a unit, and the lengths of all paths
    fit int32 in this unit; else 0.

    Raises:
        InvalidRequest: some arcs are negative fractions.
    """
    per = exactness(graph).per
    return per if _longest(graph, graph.weights) * per <= WORK_TYPES["int32"].largest else 0


def cutoff_in_units(cutoff: float | None, per: int) -> float | None:
    """Return the largest distance within a cutoff, on paper, in the units of :func:`units_counted`, or None."""
    if cutoff is None:
        return None
    # floats hold multiples of a power of two exactly, but are written in fewer digits than some of these have
    paper = Fraction(repr(float(cutoff))) if per % 10 == 0 else Fraction(cutoff)
    return float(min(math.floor(paper * per), int(WORK_TYPES["int32"].largest)))


def adds_whole(graph: Graph) -> bool:
    """Return whether sums of whole weights are exact in float64, including all intermediate sums of either sign."""
    return REACH * _longest(graph, graph.weights) <= _EXACT


def _longest(graph: Graph, values: Array) -> float:
    """Return a bound on the absolute sum of ``values`` along any path.

    It is the sum, over all vertices, of the largest absolute value of an arc out of the vertex; infinite if float64
    does not hold it.
    """
    starts = graph.indptr[:-1][np.diff(graph.indptr) > 0]
    if len(starts) == 0:
        return 0.0
    with np.errstate(over="ignore"):
        return float(np.maximum.reduceat(np.abs(values.astype(np.float64)), starts).sum())


def sums_side_by_side(graph: Graph) -> bool:
    """Return whether many rows are summed at a time: sums of weights are exact, and the graph suits :class:`LaneSums`.

    Raises:
        InvalidRequest: some arcs are negative fractions.
    """
    return bool(graph.integral or exactness(graph).per) and LaneSums.suits(graph, graph.weights)


def rows_together(tile: int, n: int, sizes: int) -> int:
    """Return for how many rows sums are found in one call where they are summed side by side (decision 287).

    Args:
        tile: rows of a tile.
        n: number of vertices.
        sizes: bytes of the sums of one entry, of all quantities.
    """
    return tile * max(1, min(TOGETHER, TOGETHER_BYTES // max(1, tile * n * sizes)))


def counts_hops(graph: Graph) -> bool:
    """Return whether every arc weighs one unit, so that distances are numbers of arcs.

    Raises:
        InvalidRequest: some arcs are negative fractions.
    """
    found = exactness(graph)
    if found.rounded and not found.per:  # fractions that are multiples of no unit: paths need not have the fewest arcs
        return False
    return bool((np.rint(graph.weights * (found.per or 1)) == 1).all())


def sum_types(graph: Graph, names: Sequence[str], most_arcs: int | None = None) -> dict[str, WorkType]:
    """Return the type of the sums of each quantity: the narrowest of uint16, int32 and float64 that holds them all.

    Args:
        graph: the graph, with the quantities.
        names: the quantities.
        most_arcs: a proven bound on the number of arcs of all paths along which quantities are summed; None if there is
            none, so that no sums are uint16.

    Raises:
        InvalidRequest: the graph has no such quantity, or its sums may leave the exact range of float64.
    """
    found = {}
    for name in names:
        if name not in graph.quantities:
            there = ", ".join(graph.quantities) or "none"
            raise InvalidRequest(f"the graph has no quantity {name!r}; it has {there}", field="also")
        values = graph.quantities[name]
        whole, bound = values.dtype.kind == "i", _longest(graph, values)
        if not bound <= (_EXACT if whole else 1e300):
            raise InvalidRequest(f"sums of {name!r} may reach {bound:g}, which float64 does not hold", field="also")
        found[name] = SUM_TYPES["int32" if whole and bound <= SUM_TYPES["int32"].largest else "float64"]
        if most_arcs is not None and whole and graph.arcs and values.min() >= 0:
            # Python's whole numbers do not overflow
            fits = max(1, most_arcs) * int(values.max()) <= SUM_TYPES["uint16"].largest
            found[name] = SUM_TYPES["uint16"] if fits else found[name]
    return found


class PathSums:
    """Sums some quantities of one graph along shortest paths.  Several threads may call :meth:`of`.

    Args:
        graph: the graph, with the quantities.
        types: for each quantity, by name, the type of its sums, which holds them all (:func:`sum_types`).
        kind: the working type of the distances.
        limited: whether there is a cutoff.
        targets: vertex indices of the columns; None for all vertices.
    """

    def __init__(
        self, graph: Graph, types: Mapping[str, WorkType], kind: WorkType, *, limited: bool, targets: Indices | None
    ) -> None:
        self._graph, self._kind, self._limited = graph, kind, limited
        self._exactness = exactness(graph)
        self._columns = np.empty(0, np.int64) if targets is None else targets
        self._width = graph.n if targets is None else len(targets)
        self._names = [[name for name, own in types.items() if own == sums] for sums in _KINDS]
        shorts, wholes, fractions = self._names
        # the walk sums all whole numbers as int32
        own = self._stacked(shorts + wholes, np.int32), self._stacked(fractions, np.float64)
        per, weights = self._exactness.per, graph.weights
        if per:
            weights = np.rint(weights * per).astype(np.int64)
        elif kind.dtype == np.float64:
            weights = weights.astype(np.float64)
        self._arcs, self._quantities = (graph.indptr, graph.heads, weights), own
        self._leads = np.diff(graph.indptr) > 0
        self._lanes: HopSums | LaneSums | None = None
        if sums_side_by_side(graph):
            columns = (np.arange(graph.n) if targets is None else targets).astype(np.int64)
            if counts_hops(graph):
                parts = own[0][:, : len(shorts)].astype(np.uint16), own[0][:, len(shorts) :], own[1]
                self._lanes = HopSums(graph, per or 1, parts, columns)
            elif not shorts:
                self._lanes = LaneSums(graph, weights, per or 1, own, columns)

    def _stacked(self, names: list[str], dtype: npt.DTypeLike) -> Array:
        """Return some quantities side by side, shape (arcs, quantities)."""
        stacked: Array = np.empty((self._graph.arcs, len(names)), dtype)
        for k, name in enumerate(names):
            stacked[:, k] = self._graph.quantities[name]
        return stacked

    def together(self, tile: int) -> int:
        """Return how many rows :meth:`of` should be given at a time, if tiles have ``tile`` rows."""
        if self._lanes is None:
            return tile
        sizes = sum(len(names) * kind.itemsize for names, kind in zip(self._names, _KINDS, strict=True))
        return rows_together(tile, self._graph.n, sizes)

    def results(self, rows: int) -> tuple[Array, ...]:
        """Return new arrays for the sums that are uint16, int32 and float64, shape (rows, quantities, columns)."""
        kinds = zip(self._names, _KINDS, strict=True)
        return tuple(np.empty((rows, len(names), self._width), kind.dtype) for names, kind in kinds)

    def of(self, sources: Indices, rows: Array, out: tuple[Array, ...] | None = None) -> dict[str, Array]:
        """Return the sums of each quantity from some sources, shape (rows, columns).

        Args:
            sources: vertex indices, shape (rows,).
            rows: of the working type, shape (rows, n): the distances from ``sources`` to all vertices.
            out: arrays from :meth:`results`, for at least as many rows, that receive the sums; None for new ones.

        Raises:
            SolveFailed: a row does not hold the shortest distances of the graph, so nothing can be summed; this shows
                a defect.
        """
        out = self.results(len(rows)) if out is None else tuple(part[: len(rows)] for part in out)
        rows, wanted = np.ascontiguousarray(rows), (_NONES, out)
        left = np.arange(len(rows) if self._width else 0)
        first, vertex = -1, -1
        if self._lanes is not None and len(left):
            left = self._without_lone(left, sources, rows, wanted)
            given = left, (sources, rows, self._kind.sentinel()), self._limited
            if isinstance(self._lanes, HopSums):
                done, first, vertex = self._lanes.add(*given, wanted)
            else:
                done, first, vertex = self._lanes.add(*given, (*_NONES[1:], *out[1:]))
            left = left[done:]
        if first < 0 and len(left):
            first, vertex = self._walk(left, sources, rows, wanted)
        if first >= 0:
            names = self._graph.labels[sources[first]], self._graph.labels[vertex]
            raise SolveFailed(
                f"the entry from {names[0]} to {names[1]} is not the shortest distance; nothing is summed"
            )
        parts = zip(self._names, out, strict=True)
        return {name: part[:, k] for names, part in parts for k, name in enumerate(names)}

    def _without_lone(self, left: Indices, sources: Indices, rows: Array, wanted: _Wanted) -> Indices:
        """Write the sums of the rows whose sources no arc leaves; return the numbers of the other rows, and of those
        with a wrong entry.
        """
        from engine.rows._sums import sum_lone  # as in ``_walk``

        some, others = left[~self._leads[sources]], np.ones(len(left), np.bool_)
        sum_lone(rows, sources, some, self._kind.sentinel(), self._columns, wanted, others)
        return left[others]

    def _walk(self, which: Indices, sources: Indices, rows: Array, wanted: _Wanted) -> tuple[int, int]:
        """Sum along the paths of the rows ``which``, one after the other; return row and vertex of a wrong entry, or -1
        and -1.
        """
        # imported here, because planning imports this module and needs none of its kernels
        from engine.rows._sums import in_units, sum_along

        limits = self._limited, self._graph.terminals
        for part in np.split(which, np.flatnonzero(np.diff(which) > 1) + 1):
            some = slice(int(part[0]), int(part[-1]) + 1)
            lengths, none = rows[some], self._kind.sentinel()
            if self._exactness.per:
                lengths, none = np.empty(lengths.shape, np.int64), np.int64(2**62)
                in_units(rows[some], float(self._exactness.per), none, lengths)
            shorts, wholes, fractions = (out[some] for out in wanted[1])
            count = shorts.shape[1]
            both = np.empty((len(shorts), count + wholes.shape[1], self._width), np.int32) if count else wholes
            results = self._columns, *_NONES[1:], both, fractions
            given = lengths, sources[some], none, limits, self._arcs, self._quantities, results
            first, vertex = sum_along(*given)
            if first >= 0:
                return some.start + first, vertex
            if count:
                found = both[:, :count]
                shorts[:], wholes[:] = np.where(found == _NONES[1], _NONES[0], found), both[:, count:]
        return -1, -1


class SumSink:
    """A sink that takes rows of distances to all vertices, writes the sums of quantities, and passes on the columns of
    the targets.

    Rows are passed on after their sums are written, so the next sink counts no row whose sums are missing.  Several
    threads may write different rows.

    Args:
        sink: receives the rows, narrowed to the targets.
        sums: what is summed.
        wanted: rows and columns of the result.
        quantities: for each quantity, by name, the sink of its sums.
        first: the number, in the result, of the first row that this sink receives.

    Attributes:
        together: the number of rows that should come at a time, where there are so many.
    """

    def __init__(
        self, sink: Sink, sums: PathSums, wanted: Rectangle, quantities: Mapping[str, QuantitySink], first: int = 0
    ) -> None:
        self._sink, self._sums, self._wanted = sink, sums, wanted
        self._quantities, self._first = quantities, first
        self._sources = wanted.rows
        self.tile = (sink.tile[0], max(1, wanted.n))
        self.together = sums.together(sink.tile[0])
        # these serve again and again, because the system clears new memory before it is used
        self._results = KeptSpaces(lambda: sums.results(min(self.together, len(wanted.rows))))

    def write(self, row: int, column: int, block: Array) -> None:
        """Sum along the paths of whole rows, and pass the rows on.

        Args:
            row: number of the first row of ``block``, at the edge of a tile.
            column: 0.
            block: shape (rows, n).

        Raises:
            ValueError: the rows are not whole.
            SolveFailed: a row does not hold the shortest distances of the graph (:meth:`PathSums.of`).
            StorageFailed: the sums cannot be written.
        """
        self._add(row, column, block)
        targets = self._wanted.targets
        self._sink.write(row, 0, block if targets is None else np.ascontiguousarray(block[:, targets]))

    def _add(self, row: int, column: int, block: Array) -> None:
        """Write the sums of whole rows."""
        if column != 0 or block.shape[1] != self._wanted.n:
            raise ValueError(f"whole rows are expected, found columns {column} to {column + block.shape[1]}")
        for start in range(0, len(block), self.together):
            part = block[start : start + self.together]
            sources = self._sources[row + start : row + start + len(part)]
            with self._results.one() as results:
                for name, sums in self._sums.of(sources, part, results).items():
                    self._quantities[name].write(self._first + row + start, sums)


class FactSumSink(SumSink):
    """A :class:`SumSink` whose sink is a ``FactSink``, so that searches tell the facts of the rows; there are no
    targets.
    """

    def gather(self, row: int, block: Array, some: Indices | None = None, found: FoundFacts | None = None) -> None:
        """Gather the facts of whole rows, as ``FactSink`` describes."""
        cast("FactSink", self._sink).gather(row, block, some, found)

    def keep(self, row: int, block: Array) -> None:
        """Sum along the paths of whole rows, and pass the rows on, after :meth:`gather` has gathered their facts.

        Raises:
            ValueError, SolveFailed, StorageFailed: as :meth:`write`.
        """
        self._add(row, 0, block)
        cast("FactSink", self._sink).keep(row, block)
