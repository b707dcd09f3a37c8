"""The sink that reduces rows of distances to measures; no row is kept.

The thread that has computed some rows reduces them while they are in its cache, and writes only the table entries of
these rows.  So threads share no data, and neither locks nor a final merge are needed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.graph.selection import Rectangle, first_beyond
from engine.model.backend import MOST_HOPS, LevelReduction
from engine.model.dtypes import WORK_TYPES, WorkType
from engine.model.rows import Array, FoundFacts, ReducedLevels, ReducedRows, RowFacts, RowReduction
from engine.rows.asked_measures import AskedMeasures
from storage.errors import SolveFailed

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: Measures that are computed from the facts of rows (``RowFacts``), without a kernel of their own.
_OF_FACTS: Final = {"reached", "sum", "mean", "closeness", "closeness_plain", "eccentricity", "farthest"}


#: For each row, breadth-first searches find at most this number of sums of opportunities, and at most this number of
#: nearest vertices, one step at a time.  Each thread holds them for 512 rows.
MOST_BY_LEVEL: Final = 256
#: The largest number of columns of opportunities that are summed one step at a time.  Each column takes up to 17 bytes
#: of memory per vertex.  All columns together must fit into the 1,024 bytes per vertex that are counted for the rows of
#: a thread.
MOST_KINDS: Final = 32
#: Number of entries of a group of rows.  All kernels are applied to a group before the next group, so that only the
#: first kernel reads the group from memory, and all further kernels find it in a cache.
_GROUP: Final = 1 << 19


def _magnitudes(weights: Floats) -> Floats:
    """Return the sum of the magnitudes of each kind of weights; infinite where float64 does not hold the sum."""
    with np.errstate(over="ignore"):
        total: Floats = np.abs(weights).sum(1)
    return total


def _narrowed(weights: Floats) -> Array:
    """Return weights as int32, which kernels add faster, if they are whole and all their sums fit that type."""
    if not (_magnitudes(weights) < 2.0**31).all() or (weights != np.rint(weights)).any():
        return weights
    return weights.astype(np.int32)


class _Ordered(NamedTuple):
    """What kernels need to know about the columns of a block, in the order of the columns.

    Attributes:
        own: int64, shape (rows of the table,): the column of each row's source; -1 for none.
        held: int32, ascending: the columns that have opportunities.
        weights: shape (kinds, columns that have opportunities).
        vertices: int64: the vertex in each column, n for none; empty where columns are in their usual order.
    """

    own: Indices
    held: npt.NDArray[np.int32]
    weights: Array
    vertices: Indices = np.empty(0, np.int64)


class MeasureSink:
    """Receives whole rows of a rectangle, which several threads may write, and keeps their measures.

    Args:
        rectangle: the rows and columns; its targets ascend.
        kind: the working type.
        asked: the measures.
        bounds: limits that distances are compared with in place of ``asked.within`` (``limit_on_paper``); None to
            compare with ``asked.within``.
    """

    def __init__(
        self, rectangle: Rectangle, kind: WorkType, asked: AskedMeasures, bounds: Sequence[float] | None = None
    ) -> None:
        rows, columns = rectangle.rows, rectangle.columns
        self.tile = (64, max(1, len(columns)))
        self._kind, self._asked, self._columns = kind, asked, columns
        place = np.full(rectangle.n, -1, np.int64)
        place[columns] = np.arange(len(columns))
        self._own = place[rows]
        self._facts = not _OF_FACTS.isdisjoint(asked.names)
        count = len(rows)
        self._reached, self._farthest = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        self._sums: Array = np.zeros(count, np.int64 if kind.integer else np.float64)
        self._largest = np.full(count, np.nan)
        self._inverse = np.zeros(count if "harmonic" in asked.names else 0)
        self._within = np.zeros((count, len(asked.within)), np.int64)
        self._quantiles = np.zeros((count, len(asked.quantiles)))
        self._nearest = np.full((count, asked.nearest), -1, np.int64)
        self._near = np.zeros((count, asked.nearest))
        self._sum_of = np.zeros((count, len(asked.opportunities), len(asked.within)))
        within = asked.within if bounds is None else bounds
        self._limits = np.array([first_beyond(limit, kind.dtype) for limit in within], kind.dtype)
        self._shares = np.array([(q.numerator, q.denominator) for q in asked.quantiles], np.int64).reshape(-1, 2)
        given = np.array(list(asked.opportunities.values()))
        weights = given.reshape(len(asked.opportunities), rectangle.n)[:, columns]
        held = np.flatnonzero((weights != 0).any(0))
        # if at least half of the columns have weights, reading whole rows is faster than copying those columns' entries
        held = held if 2 * len(held) < len(columns) else np.arange(len(columns))
        kept = np.ascontiguousarray(weights[:, held])
        # with a decay the weights stay floats, because each is multiplied by a fraction
        self._held, self._weights = held.astype(np.int32), _narrowed(kept) if asked.decay == "step" else kept
        self._whole = len(columns) == rectangle.n
        self._ordered: _Ordered | None = None
        self._lock = threading.Lock()
        self._fading = None if asked.decay == "step" or not len(weights) else self._decay()

    @property
    def place(self) -> None:
        """None, because rows are not kept."""
        return

    def keep(self, row: int, block: Array) -> None:
        """Do nothing: :meth:`gather` has already computed the measures of these rows."""

    def write(self, row: int, column: int, block: Array) -> None:
        """Compute the measures of whole rows.

        Raises:
            ValueError: the rows are not whole.
            SolveFailed: the sum of some row is not finite.
        """
        if column != 0 or block.shape[1] != len(self._columns):
            raise ValueError(f"whole rows are expected, found columns {column} to {column + block.shape[1]}")
        self.gather(row, block)

    def gather(self, row: int, block: Array, some: Indices | None = None, found: FoundFacts | None = None) -> None:
        """Compute the measures of whole rows.

        Args:
            row: number of the first row of ``block``.
            block: of the working type, shape (rows, columns).
            some: the rows of ``block`` to look at, int64; None for all.
            found: the facts of these rows where they are known.

        Raises:
            SolveFailed: the sum of some row is not finite.
        """
        rows = np.arange(len(block)) if some is None else some
        if found is not None and self._facts:
            self._take(rows + row, found.facts)
        if found is not None and found.levels is not None:
            self._take_levels(rows + row, found.levels)
            if found.reduced is not None:
                self._take_columns(rows + row, found.reduced)
            return
        step = max(1, _GROUP // max(1, block.shape[1]))
        for first in range(0, len(rows), step):
            group = rows[first : first + step]
            self._reduce(group + row, block, group, known=found is not None)

    @property
    def any_order(self) -> bool:
        """Whether the columns of rows may come in any order, which is allowed if every vertex has a column."""
        return self._whole

    def take(self, first: int, rows: Indices, block: Array, places: npt.NDArray[np.integer]) -> None:
        """Compute the measures of whole rows whose columns are in any order.

        Args:
            first: number of the first row of the batch.
            rows: numbers of the rows within the batch, shape (rows,).
            block: of the working type, shape (rows, at least n).
            places: shape (n,), the same in all calls: the column in which each vertex is; all other columns are
                *unreachable*.

        Raises:
            SolveFailed: the sum of some row is not finite.
        """
        with self._lock:
            if self._ordered is None:
                self._ordered = self._order(places, block.shape[1])
        self._reduce(rows + first, block, np.arange(len(block)), known=False, order=self._ordered)

    @property
    def reduction(self) -> RowReduction:
        """The measures that a device is to compute from whole rows."""
        weights = self._weights.astype(np.float64)
        decay = None if self._fading is None else self._fading[0]
        asked, inverses = self._asked, len(self._inverse) > 0
        levels = self.levels_suffice and "farthest" not in asked.names
        given = (self._own, self._limits, inverses, self._shares, asked.nearest, self._held, weights, levels, decay)
        return RowReduction(*given)

    def take_reduced(self, first: int, reduced: ReducedRows) -> None:
        """Take the measures of the rows from number ``first`` on, which a device has computed.

        Raises:
            SolveFailed: the sum of some row is not finite.
        """
        numbers = np.arange(first, first + len(reduced.within))
        self._take(numbers, reduced.facts)
        if len(self._inverse):
            self._inverse[numbers] = reduced.inverses
        self._within[numbers], self._quantiles[numbers] = reduced.within, reduced.quantiles
        self._take_columns(numbers, reduced)

    def take_levels(self, first: int, levels: Counts) -> None:
        """Compute the measures of rows from their numbers of targets at each number of hops; ``farthest`` must not be
        asked for.

        Args:
            first: number of the first row.
            levels: int64, shape (rows, longest + 1): the number of targets at each number of hops, without sources.
        """
        hops, numbers = np.arange(levels.shape[1]), np.arange(first, first + len(levels))
        largest = np.where(levels > 0, hops, 0).max(axis=1)
        self._take(numbers, RowFacts(levels.sum(axis=1), levels @ hops, largest, np.full(len(levels), -1)))
        self._take_levels(numbers, levels)

    def _order(self, places: npt.NDArray[np.integer], width: int) -> _Ordered:
        """Return what kernels need to know about ``width`` columns in another order.

        ``places`` holds the column of each vertex.
        """
        vertices = np.full(width, len(places), np.int64)
        vertices[places] = np.arange(len(places))
        moved = places[self._held].astype(np.int32)
        if len(moved) == len(places):  # whole rows are read; columns without a vertex get weights of 0
            held, weights = np.arange(width, dtype=np.int32), np.zeros((len(self._weights), width), self._weights.dtype)
            weights[:, moved] = self._weights
        else:
            order = np.argsort(moved)
            held, weights = moved[order], np.ascontiguousarray(self._weights[:, order])
        own = np.where(self._own >= 0, places[self._own], -1)
        return _Ordered(own.astype(np.int64), held, weights, vertices)

    @property
    def levels_suffice(self) -> bool:
        """Whether all measures asked for follow from facts of rows and numbers of targets at each number of hops."""
        return not (len(self._weights) or self._asked.nearest)

    @cached_property
    def level_reduction(self) -> LevelReduction | None:
        """What breadth-first searches are to find besides facts and numbers of targets at each number of hops; None if
        the searches are to write whole rows instead.
        """
        asked, kind = self._asked, self._kind
        sums = len(self._weights) * len(asked.within)
        if not self._whole or max(asked.nearest, sums) > MOST_BY_LEVEL or len(self._weights) > MOST_KINDS:
            return None
        weights = np.zeros((len(self._weights), len(self._columns)))
        weights[:, self._held] = self._weights
        if not np.isfinite(_magnitudes(weights)).all():
            return None  # all weights at one distance are added before the decay is applied; their sum might overflow
        hops = np.arange(MOST_HOPS, dtype=np.uint16)
        shares = (hops.astype(kind.dtype) < self._limits[:, None]).astype(np.float64)
        if self._fading is not None:
            from engine.rows import _measures as kernels

            kernels.fade_all(hops, WORK_TYPES["uint16"].sentinel(), self._fading[0], shares)
        return LevelReduction(_narrowed(weights), shares, asked.nearest)

    def _take_columns(self, numbers: Indices, found: ReducedLevels | ReducedRows) -> None:
        """Take the nearest vertices and the sums of opportunities of some rows."""
        self._nearest[numbers], self._near[numbers] = found.nearest, found.distances
        if len(self._weights):
            self._sum_of[numbers] = found.weights

    def _take_levels(self, numbers: Indices, levels: Counts) -> None:
        """Compute the measures that follow from the number of targets at each distance.

        Args:
            numbers: the numbers of the rows whose measures are computed.
            levels: shape (rows, distances): for each of these rows, how many targets are at each distance.
        """
        lengths = np.arange(levels.shape[1])
        if len(self._inverse):
            self._inverse[numbers] = levels[:, 1:] @ (1 / lengths[1:])
        within = np.cumsum(levels, axis=1)
        if len(self._limits):
            places = np.searchsorted(lengths.astype(self._kind.dtype), self._limits)
            self._within[numbers] = np.where(places > 0, within[:, places - 1], 0)
        count = within[:, -1]
        for k, (above, below) in enumerate(self._shares):
            place = np.maximum(0, -(-above * count // below) - 1)
            found = (within <= place[:, None]).sum(axis=1)
            self._quantiles[numbers, k] = np.where(count > 0, found, np.nan)

    def _take(self, numbers: Indices, facts: RowFacts) -> None:
        wrong = np.flatnonzero(~np.isfinite(facts.sums))
        if len(wrong):
            raise SolveFailed(f"the sum of row {numbers[wrong[0]]} of the matrix is {facts.sums[wrong[0]]}")
        some = facts.reached > 0
        self._reached[numbers], self._sums[numbers] = facts.reached, facts.sums
        self._farthest[numbers[some]] = facts.farthest[some]
        self._largest[numbers[some]] = facts.largest[some]

    def _reduce(
        self, numbers: Indices, block: Array, rows: Indices, *, known: bool, order: _Ordered | None = None
    ) -> None:
        """Call the kernels of the measures that are wanted, each for all of ``rows``."""
        from engine.devices.cpu.row_facts import row_facts
        from engine.rows import _measures as kernels
        from engine.rows._quantiles import find_quantiles

        every = _Ordered(self._own, self._held, self._weights) if order is None else order
        own, far, count = every.own[numbers], self._kind.sentinel(), len(rows)
        if self._facts and not known:
            facts = RowFacts(*row_facts(block, own, rows))
            if order is not None:
                kernels.find_first(block, rows, own, facts.largest, order.vertices, facts.farthest)
            self._take(numbers, facts)
        if len(self._inverse):
            inverse = np.empty(count)
            kernels.sum_inverses(block, rows, far, inverse)
            self._inverse[numbers] = inverse
        if len(self._limits):
            within = np.empty((count, len(self._limits)), np.int64)
            kernels.count_within(block, rows, own, self._limits, within)
            self._within[numbers] = within
        if len(self._shares):
            quantiles = np.empty((count, len(self._shares)))
            find_quantiles(block, rows, own, far, self._shares, quantiles)
            self._quantiles[numbers] = quantiles
        if self._asked.nearest:
            nearest, near = np.empty((count, self._asked.nearest), np.int64), np.empty((count, self._asked.nearest))
            kernels.find_nearest(block, rows, own, far, every.vertices, nearest, near)
            self._nearest[numbers], self._near[numbers] = nearest, near
        if len(self._weights):
            self._sum_of[numbers] = self._opportunities(block, rows, every)

    def _decay(self) -> tuple[tuple[int, float, Floats], Floats | None]:
        """Return the decay in the form that kernels take, and a table of its values if the type has few distances."""
        from engine.rows import _measures as kernels

        number = {"exponential": kernels.EXPONENTIAL, "linear": kernels.LINEAR, "logistic": kernels.LOGISTIC}
        asked, kind = self._asked, self._kind
        decay = number[asked.decay], asked.decay_value, np.array(asked.within)
        if kind.itemsize > 2:
            return decay, None
        tables, distances = np.zeros((len(asked.within), 1 << 16)), np.arange(int(kind.sentinel())).astype(kind.dtype)
        kernels.fade_all(distances, kind.sentinel(), decay, tables[:, : len(distances)])
        return decay, tables

    def _opportunities(self, block: Array, rows: Indices, order: _Ordered) -> Floats:
        """Return the sums of opportunities of some rows, shape (rows, kinds, distances)."""
        from engine.rows import _measures as kernels

        out = np.empty((len(rows), len(self._weights), len(self._limits)))
        if self._fading is None:
            kernels.sum_within(block, rows, order.held, self._limits, order.weights, out)
            return out
        decay, tables = self._fading
        if tables is None:
            kernels.sum_faded(block, rows, order.held, self._kind.sentinel(), decay, order.weights, out)
        else:
            kernels.sum_looked_up(block, rows, order.held, tables, order.weights, out)
        return out

    def columns(self) -> dict[str, Array]:
        """Return the measures of all rows by the names of their columns, each of shape (rows,).

        Counts are int64, vertices are indices (-1 for none), and sums are int64 if distances are integers.  All other
        columns are float64, with NaN where a row has no such number.
        """
        found = self._of_facts()
        asked = self._asked
        columns = [found[name] for name in asked.names]
        columns += [*self._within.T, *self._quantiles.T]
        for k in range(asked.nearest):
            columns += [self._vertices(self._nearest[:, k]), self._near[:, k]]
        columns += [self._sum_of[:, i, k] for i in range(len(asked.opportunities)) for k in range(len(asked.within))]
        return {name: np.ascontiguousarray(column) for name, column in zip(asked.columns, columns, strict=True)}

    def _vertices(self, places: Indices) -> Indices:
        """Return the vertex indices of column numbers; -1 remains -1."""
        if not len(self._columns):
            return places
        vertices: Indices = np.where(places < 0, -1, self._columns[places])
        return vertices

    def _of_facts(self) -> dict[str, Array]:
        reached, sums = self._reached.astype(np.float64), self._sums.astype(np.float64)
        others = len(self._columns) - (self._own >= 0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            plain = np.where(sums > 0, reached / sums, 0.0)
            return {
                "reached": self._reached,
                "sum": self._sums,
                "mean": sums / reached,
                "closeness": np.where(plain > 0, plain * (reached / others), 0.0),
                "closeness_plain": plain,
                "harmonic": self._inverse,
                "eccentricity": self._largest,
                "farthest": self._vertices(self._farthest),
            }
