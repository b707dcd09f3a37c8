"""The summary of a finished matrix, gathered from its rows while they are written to the sink."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.model.rows import BINS, NARROWEST, Array, Count, FoundFacts, RowFacts, Sink
from storage.errors import SolveFailed


def comparable(reach: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return the sources whose eccentricities are compared for radius and centre, as a mask of shape (sources,).

    A dead end that reaches one neighbour has a small eccentricity but is no centre.  So only sources that reach at
    least nine tenths of the largest reach are compared.  The largest reach itself would be too strict: a one-way
    entrance to a network reaches one vertex more than the vertices inside, and would be the only source compared.

    Args:
        reach: number of targets that each source reaches, itself included where it is a target; shape (sources,).
    """
    mask: npt.NDArray[np.bool_] = 10 * reach >= 9 * reach.max(initial=0)
    return mask


@dataclass(frozen=True)
class PartialSummary:
    """The summary of consecutive rows, to be joined to a larger summary.

    Attributes:
        row: number of the first row.
        reached: the number of pairs with a finite distance.
        sum: sum of the finite distances.
        reach: int64, shape (rows,): the number of targets that each source reaches, itself included where it is a
            target.
        eccentricity: float64, shape (rows,): the largest finite distance of each source; NaN where there is none.
        farthest: int64, shape (rows,): the column of the largest distance; -1 where there is none.
        single: whether distances are float32.
        histogram: width of a bin, number of distances below zero, and counts; None where nothing is reached.
    """

    row: int
    reached: int
    sum: int | float
    reach: npt.NDArray[np.int64]
    eccentricity: npt.NDArray[np.float64]
    farthest: npt.NDArray[np.int64]
    single: bool
    histogram: tuple[float, int, npt.NDArray[np.int64]] | None


class Summary:
    """Adds up the facts of rows.  Several threads may add different rows.

    Args:
        sources: vertex index of each row, shape (rows,).
        n: the number of vertices.
        integral: whether distances are whole numbers.
        targets: vertex index of each column; None for all ``n`` vertices.
    """

    def __init__(
        self,
        sources: Sequence[int] | npt.NDArray[np.int64],
        n: int,
        *,
        integral: bool,
        targets: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._n, self._integral, self._targets = n, integral, targets
        self._sources = np.asarray(sources, np.int64)
        self._lock = threading.Lock()
        self._single = False
        self._sums: Array | None = None
        self._joined: int | float = 0
        self._own = np.ones(len(self._sources), np.int64)
        if targets is not None:
            self._own[:] = np.isin(self._sources, targets)
        self._reach = self._own.copy()
        self._eccentricity = np.full(len(self._sources), np.nan)
        self._farthest = np.full(len(self._sources), -1, np.int64)
        self._histograms: dict[int, _Histogram] = {}

    def add(self, row: int | npt.NDArray[np.int64], facts: RowFacts, count: Count | None) -> None:
        """Add the facts of rows.

        Args:
            row: number of the first of consecutive rows, or the numbers of all rows, shape (rows,).
            facts: the facts.
            count: counts the distances of these rows in the bins of a histogram; None if no histogram is wanted.

        Raises:
            SolveFailed: the sum of some row is not finite.  Planning refuses graphs whose sums could overflow, so this
                shows a defect, and the matrix must not be stored.
        """
        many, some = len(facts.reached), facts.reached > 0
        if facts.sums.dtype.kind == "f" and not np.logical_and.reduce(finite := np.isfinite(facts.sums)):
            at, numbers = int(np.argmin(finite)), np.arange(row, row + many) if isinstance(row, int) else row
            raise SolveFailed(f"the sum of row {numbers[at]} of the matrix is {facts.sums[at]}")
        self._single = facts.largest.dtype == np.float32
        rows = row if isinstance(row, np.ndarray) else slice(row, row + many)
        self._sums_like(facts.sums)[rows] = facts.sums
        self._reach[rows] = self._own[rows] + facts.reached
        if isinstance(rows, slice):  # writing to a slice changes the array itself
            np.copyto(self._eccentricity[rows], facts.largest, where=some)
            np.copyto(self._farthest[rows], facts.farthest, where=some)
        else:
            self._eccentricity[rows[some]] = facts.largest[some]
            self._farthest[rows[some]] = facts.farthest[some]
        if count is not None and many and some[first := int(some.argmax())]:
            largest = float(facts.largest.max(where=some, initial=facts.largest[first]))
            self._own_histogram(largest).add(count, largest)

    def _sums_like(self, sums: Array) -> Array:
        """Return the array of the sums of all rows, in the type of ``sums``: sums in float64 may be too large for
        int64.
        """
        with self._lock:
            if self._sums is None:
                self._sums = np.zeros(len(self._sources), sums.dtype)
            return self._sums

    def _own_histogram(self, largest: float) -> _Histogram:
        """Return the histogram of the calling thread."""
        thread = threading.get_ident()
        found = self._histograms.get(thread)
        if found is None:
            with self._lock:
                found = _Histogram(largest, integral=self._integral)
                self._histograms[thread] = found
        return found

    def _histogram(self) -> _Histogram | None:
        """Return the histogram of all rows; None where nothing is reached."""
        with self._lock:
            every = list(self._histograms.values())
        if not every:
            return None
        whole = every[0].copy()
        for other in every[1:]:
            whole.join(other.width, other.below, other.counts)
        return whole

    @property
    def _reached(self) -> int:
        """The number of pairs with a finite distance."""
        return int((self._reach - self._own).sum())

    @property
    def _sum(self) -> int | float:
        """The sum of the finite distances."""
        found = self._sums
        if found is not None and found.dtype == np.int64 and self._integral and _adds_up(found):
            return self._joined + int(np.add.reduce(found))
        sums = [] if found is None else found.tolist()
        return self._joined + (sum(sums) if self._integral else math.fsum(sums))

    def part(self, row: int) -> PartialSummary:
        """Return the summary of the added rows, to be joined to a larger summary in which they begin at row ``row``."""
        found = self._histogram()
        bins = None if found is None else (found.width, found.below, found.counts)
        found_rows = (self._reach, self._eccentricity, self._farthest)
        return PartialSummary(row, self._reached, self._sum, *found_rows, self._single, bins)

    def join(self, part: PartialSummary) -> None:
        """Add the summary of other rows."""
        rows = slice(part.row, part.row + len(part.eccentricity))
        self._reach[rows] = part.reach
        self._eccentricity[rows], self._farthest[rows] = part.eccentricity, part.farthest
        with self._lock:
            self._single = part.single
            self._joined += part.sum
            if part.histogram is not None:
                joined = self._histograms.setdefault(0, _Histogram(0.0, integral=True))
                if not joined.counts.any() and not joined.below:
                    joined.width = part.histogram[0]
                joined.join(*part.histogram)

    def summary(self, labels: Array) -> dict[str, object]:
        """Return statistics over ordered pairs (source, target), source ≠ target, of the rectangle, in JSON types.

        The eccentricity of a source is its largest finite distance to another vertex among the targets; ``diameter`` is
        the largest eccentricity.  ``radius`` is the smallest eccentricity among the ``central_sources`` sources that
        :func:`comparable` selects, and ``center`` is a source with that eccentricity.  Every selected source reaches at
        least ``central_reach`` targets, itself included.
        """
        rows, columns = len(self._sources), self._n if self._targets is None else len(self._targets)
        itself = rows if self._targets is None else len(np.intersect1d(self._sources, self._targets))
        reached, total = self._reached, self._sum
        facts: dict[str, object] = {
            "vertices": self._n,
            "sources": rows,
            "targets": columns,
            "pairs": rows * columns - itself,
            "reached": reached,
            "sum": total,
            "mean": total / reached if reached else None,
            "diameter": None,
            "radius": None,
        }
        if reached:
            known = ~np.isnan(self._eccentricity)
            central = comparable(self._reach) & known
            top = int(np.where(known, self._eccentricity, -np.inf).argmax())
            low = int(np.where(central, self._eccentricity, np.inf).argmin())
            facts["diameter"] = self._number(self._eccentricity[top])
            facts["radius"] = self._number(self._eccentricity[low])
            far = self._farthest[top] if self._targets is None else self._targets[self._farthest[top]]
            facts["diameter_pair"] = (
                [labels[self._sources[top]].item(), labels[far].item()]
                if labels.dtype.kind in "iu"
                else [str(labels[self._sources[top]]), str(labels[far])]
            )
            center = labels[self._sources[low]]
            facts["center"] = int(center) if labels.dtype.kind in "iu" else str(center)
            facts["central_sources"] = int(np.count_nonzero(central))
            facts["central_reach"] = int(self._reach[central].min())
            histogram = self._histogram()
            if histogram is not None:
                facts["histogram"] = histogram.facts()
        return facts

    def _number(self, value: float) -> int | float:
        if self._integral:
            return int(value)
        # the fewest digits that identify the value in the stored type: 1.86, not 1.8600000143
        return float(str(np.float32(value))) if self._single else float(value)


class SummarySink:
    """Passes whole rows on to another sink and adds their facts to a summary.  Several threads may write rows.

    Args:
        sink: receives the rows.
        sources: vertex index of each row, shape (rows,).
        n: the number of vertices.
        integral: whether distances are whole numbers.
        targets: vertex index of each column; None for all ``n`` vertices.
    """

    def __init__(
        self,
        sink: Sink,
        sources: Sequence[int] | npt.NDArray[np.int64],
        n: int,
        *,
        integral: bool,
        targets: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.tile = sink.tile
        self._sink, self._columns = sink, n if targets is None else len(targets)
        self._own = np.asarray(sources, np.int64)
        self._summary = Summary(self._own, n, integral=integral, targets=targets)
        if targets is not None:
            place = np.full(n, -1, np.int64)
            place[targets] = np.arange(len(targets))
            self._own = place[self._own]
        self.summary, self.part = self._summary.summary, self._summary.part

    @property
    def place(self) -> Array | None:
        """The array into which searches may write rows directly, instead of calling :meth:`keep`; None if there is
        none.
        """
        return getattr(self._sink, "place", None)

    def write(self, row: int, column: int, block: Array) -> None:
        """Gather the facts of whole rows, then pass the rows on.

        Raises:
            ValueError: the rows are not whole.
            SolveFailed: the sum of some row is not finite.
        """
        self._check(column, block)
        self.gather(row, block)
        self._sink.write(row, column, block)

    def keep(self, row: int, block: Array) -> None:
        """Pass on whole rows, after :meth:`gather` has gathered their facts."""
        self._check(0, block)
        self._sink.write(row, 0, block)

    def gather(
        self,
        row: int,
        block: Array,
        some: npt.NDArray[np.int64] | None = None,
        found: FoundFacts | None = None,
    ) -> None:
        """Gather the facts of whole rows.

        Raises:
            SolveFailed: the sum of some row is not finite.
        """
        from engine.devices.cpu.row_facts import count_rows, row_facts

        rows = np.arange(len(block)) if some is None else some
        if found is not None:
            self._summary.add(_consecutive(row, rows), found.facts, found.count)
            return
        numbers = rows + row
        own = self._own[numbers]

        def count(width: float, counts: npt.NDArray[np.int64]) -> int:
            return count_rows(block, own, width, counts, rows)

        self._summary.add(numbers, RowFacts(*row_facts(block, own, rows)), count)

    def _check(self, column: int, block: Array) -> None:
        if column != 0 or block.shape[1] != self._columns:
            raise ValueError(f"whole rows are expected, found columns {column} to {column + block.shape[1]}")


def _adds_up(numbers: Array) -> bool:
    """Return whether the sum of some int64 numbers certainly fits int64."""
    return len(numbers) * int(np.abs(numbers).max(initial=0)) < 2**63


def _consecutive(row: int, rows: npt.NDArray[np.int64]) -> int | npt.NDArray[np.int64]:
    """Return ``row`` + ``rows``, or only its first number if the numbers are consecutive."""
    many = len(rows)
    if many and rows[-1] - rows[0] == many - 1 and (rows[1:] > rows[:-1]).all():
        return row + int(rows[0])
    return rows + row


class _Histogram:
    """Counts finite distances in at most ``BINS`` equal bins from ``low`` on.

    The width of a bin is a power of two, so that any two histograms can be joined, and the result does not depend on
    the order in which rows are added.
    """

    def __init__(self, largest: float, *, integral: bool) -> None:
        self.low = 0.0
        width = (largest + 1) / BINS if integral else (largest or 1.0) / BINS * (1 + 1e-9)
        least = 1.0 if integral else NARROWEST
        self.width = 2.0 ** math.ceil(
            math.log2(max(width, least))
        )  # ``largest``, and so ``width``, is negative if all distances so far are negative
        self.below = 0
        self.counts = np.zeros(BINS, np.int64)

    def add(self, count: Count, largest: float) -> None:
        while largest >= self.width * BINS:
            self._widen()
        self.below += count(self.width, self.counts)

    def copy(self) -> _Histogram:
        other = _Histogram(0.0, integral=True)
        other.width, other.below, other.counts = self.width, self.below, self.counts.copy()
        return other

    def join(self, width: float, below: int, counts: npt.NDArray[np.int64]) -> None:
        other = _Histogram(0.0, integral=True)
        other.width, other.counts = width, counts
        while other.width < self.width:
            other._widen()
        while self.width < other.width:
            self._widen()
        self.counts = self.counts + other.counts
        self.below += below

    def _widen(self) -> None:
        self.counts = np.concatenate([self.counts.reshape(-1, 2).sum(1), np.zeros(BINS // 2, np.int64)])
        self.width *= 2

    def facts(self) -> dict[str, object]:
        filled = self.counts.nonzero()[0]
        last = int(filled[-1]) + 1 if len(filled) else 0
        return {
            "edges": [self.width * i for i in range(last + 1)],
            "counts": self.counts[:last].tolist(),
            "below_zero": self.below,
        }
