"""Facts of rows, gathered by the thread that has just searched them, and one histogram for each thread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.row_facts import _count, _facts
from engine.graph.kernels import njit
from engine.model.dtypes import work_type
from engine.model.rows import BINS, NARROWEST, FoundFacts, RowFacts

Array = npt.NDArray[np.generic]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gathered:
    """The facts of the rows of a batch while they are gathered, as the arrays that the kernels take.

    Attributes:
        reached, sums, largest, farthest: for each row the number of targets reached, the sum of distances, the largest
            distance, and its column (:class:`engine.model.rows.RowFacts`), shape (rows of the batch,); empty where no
            facts are wanted.
        width: float64, shape (threads,): the width of a bin of each thread's histogram; 0 where it has none.
        below: int64, shape (threads,): the number of distances below zero that each thread has found.
        counts: int64, shape (threads, ``BINS``): the histogram of each thread.
        nowhere: the value for *unreachable*, and the lowest value of the type.
        half: shape (1,): the number that is added to an entry before its bin is computed; its type is that of the
            computation.
    """

    reached: Indices
    sums: Array
    largest: Array
    farthest: Indices
    width: npt.NDArray[np.float64]
    below: Indices
    counts: Indices
    nowhere: tuple[np.generic, np.generic]
    half: npt.NDArray[np.floating]

    @classmethod
    def of(cls, out: Array, threads: int, *, wanted: bool) -> Gathered:
        """Return arrays for the facts of the rows of ``out``; they are empty if no facts are ``wanted``."""
        kind, rows = work_type(out.dtype), len(out) if wanted else 0
        lowest = -np.inf if not kind.integer else 0 if out.dtype.kind == "u" else -(2**31)
        number = np.float32 if out.dtype.itemsize == 2 else np.float64
        return cls(
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64 if kind.integer else np.float64),
            np.zeros(rows, out.dtype),
            np.full(rows, -1, np.int64),
            np.zeros(threads),
            np.zeros(threads, np.int64),
            np.zeros((threads, BINS), np.int64),
            (kind.sentinel(), out.dtype.type(lowest)),
            np.array([0.5 if kind.integer else 0.0], number),
        )

    def arrays(self) -> tuple[Any, ...]:
        """Return the argument ``gathered`` of :func:`gather_rows`."""
        rows, bins = (self.reached, self.sums, self.largest, self.farthest), (self.width, self.below, self.counts)
        return rows, bins, self.nowhere, self.half

    def found(self, rows: Indices | None) -> FoundFacts:
        """Return the facts of the finished ``rows``; None stands for all rows in order.

        The histogram counts all rows whose facts were gathered, not only ``rows``.
        """
        some = slice(None) if rows is None else rows
        facts = RowFacts(self.reached[some], self.sums[some], self.largest[some], self.farthest[some])
        return FoundFacts(facts, self._count)

    def _count(self, width: float, counts: Indices) -> int:
        """Add the histograms of all threads to ``counts``, and return the number of distances below zero.

        The bins of ``counts`` have the width ``width``, which is at least that of every thread's histogram.  All widths
        are powers of two.
        """
        threads = self.width.nonzero()[0]
        # a bin that is narrower still has the same effect: all its histogram falls into the first bin of ``counts``
        joined = (width / np.maximum(self.width[threads], width / BINS)).astype(np.int64)
        # histograms of equal width are added first: there are few widths, even if there are many threads
        for bins in set(joined.tolist()):
            some = np.add.reduce(self.counts[threads[joined == bins]])
            counts[: BINS // bins] += np.add.reduce(some.reshape(-1, bins), axis=1)
        return int(self.below.sum())


@njit(nogil=True, cache=True)
def widen_bins(bins, worker, largest, whole):  # type: ignore[no-untyped-def]
    """Double the width of the bins of a thread's histogram until they reach beyond ``largest``; return the width.

    Args:
        bins: widths, distances below zero and counts of all threads, as in :class:`Gathered`, changed in place.
        worker: number of the thread.
        largest: a distance.
        whole: whether distances are whole numbers, whose bins are at least 1 wide.
    """
    width, _, counts = bins
    if width[worker] == 0:
        width[worker] = 1.0 if whole else NARROWEST
        if largest / BINS > width[worker]:  # one power of two less, as the logarithm may be rounded up
            width[worker] = max(width[worker], 2.0 ** (math.floor(math.log2(largest / BINS)) - 1))
    while largest >= width[worker] * BINS:
        own = counts[worker]
        for k in range(BINS):
            own[k] = own[2 * k] + own[2 * k + 1] if 2 * k < BINS else 0
        width[worker] *= 2
    return width[worker]


@njit(nogil=True, cache=True)
def _place(columns, column):  # type: ignore[no-untyped-def]
    """Return the index of ``column`` in ``columns``, which are ascending."""
    low, high = 0, len(columns)
    while low < high:
        middle = (low + high) // 2
        if columns[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def gather_rows(out, sources, some, columns, worker, gathered):  # type: ignore[no-untyped-def]
    """Gather the facts of finished rows, and count their distances.

    Args:
        out: shape (rows, columns).
        sources: int64: the vertex, and thus the column, of the source of each row.
        some: int64: the rows.
        columns: int32, ascending: the columns outside of which all entries are unreachable; empty for all columns.
        worker: number of the thread.
        gathered: the arrays that receive the facts, from :meth:`Gathered.arrays`, changed in place.
    """
    (reached, sums, largest, farthest), bins, nowhere, half = gathered
    count = len(some)
    own = np.empty(count, np.int64)
    for j in range(count):
        own[j] = sources[some[j]] if len(columns) == 0 else _place(columns, sources[some[j]])
    facts = (
        np.zeros(count, np.int64),
        np.zeros(count, sums.dtype),
        np.zeros(count, out.dtype),
        np.zeros(count, np.int64),
    )
    _facts(out, some, own, columns, nowhere, facts)
    top, reaching = 0.0, False
    for j in range(count):
        i, at = some[j], facts[3][j]
        reached[i], sums[i], largest[i] = facts[0][j], facts[1][j], facts[2][j]
        farthest[i] = columns[at] if at >= 0 and len(columns) > 0 else at
        if facts[0][j] > 0:
            length = np.float64(facts[2][j])
            top = length if not reaching or length > top else top
            reaching = True
    if reaching:
        width = widen_bins(bins, worker, top, half[0] > 0)
        scale = np.empty(2, half.dtype)
        scale[0], scale[1] = 1 / width, half[0]
        bins[1][worker] += _count(out, some, own, columns, nowhere[0], scale, bins[2][worker])
