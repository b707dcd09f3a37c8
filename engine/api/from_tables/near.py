"""Near pairs of a prepared graph: selected from rows that its tables give, or found by searches of its graph.

The time of searches depends on the number of vertices that they reach; the time of rows does not depend on the number
of near pairs.  Both times are predicted from a few sources, and the faster way is taken.  Rows are used only if all
sums are exact (``PreparedMatrix.exact``), so both ways find the same pairs and numbers.  If sums of fractions are not
exact, rows of the tables would be rounded differently from searches, so the graph is searched.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.near import ENTRY_BYTES
from engine.api.from_tables.shares import MemoryShares, memory_shares, smaller
from engine.api.near import (
    NearSample,
    check_near,
    folder_of,
    near_pairs,
    not_searchable,
    plan_near,
    planned,
    searched_sample,
    spread_sources,
    too_many,
)
from engine.api.prepared_matrix import PreparedMatrix
from engine.execution.survey import survey
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import work_type
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor, PhaseClock, given_monitor
from storage.errors import DoesNotFit, InvalidRequest, raised
from storage.pairs.near_pairs import NearPairs
from storage.pairs.spilling import PairSpill
from storage.threads import ThreadPool

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Piece = tuple[Indices, npt.NDArray[np.int32], Array]

#: Number of sources that are searched to predict the time of searching all of them.
_SAMPLE: Final = 32
#: Number of sources whose rows are computed to predict the size of the result.
_PLANNED: Final = 256
#: Seconds of processor time for a byte of tables that is read, compared with the seal and arranged for computing rows.
_READ: Final = 0.5e-9
#: Seconds of processor time to determine whether an entry of a row is near.
_PICKED: Final = 1.5e-9
#: Seconds of processor time for a pair that is kept.
_KEPT: Final = 3e-8
#: Most entries that a thread examines at once; this limits the memory that it takes.
_TOGETHER: Final = 1 << 20


@dataclass(frozen=True)
class NearWay:
    """How the near pairs of a prepared graph are found.

    Attributes:
        swept: whether the pairs are selected from rows that the tables give; else the graph is searched.
        reason: why this way was selected, in a sentence with numbers.
        seconds: the predicted time; None if only one way was possible, so that nothing was predicted.
    """

    swept: bool
    reason: str
    seconds: float | None = None


class PreparedNear:
    """A request for near pairs of a prepared graph: the constructor checks it, :meth:`run` finds the pairs.

    Args:
        matrix: the prepared graph; it stays open.
        options: the cutoff, sources and targets; memory and threads.  Without a cutoff, that of the tables applies.
        nearest: the number of nearest targets that are kept for each source; None for all.

    Raises:
        InvalidRequest: the request makes no sense, the cutoff is beyond that of the tables, or neither searches nor
            tables give exact sums.
    """

    def __init__(self, matrix: PreparedMatrix, options: Options, *, nearest: int | None = None) -> None:
        graph, kept = matrix.graph(), matrix.attributes["cutoff"]
        check_near(graph, options, nearest)
        if kept is not None and options.cutoff is not None and options.cutoff > kept:
            raise InvalidRequest(
                f"{matrix.path} was prepared with cutoff {kept:.15g} and knows no longer distances; "
                f"{options.cutoff:.15g} was asked for",
                field="cutoff",
            )
        self._matrix, self._nearest = matrix, nearest
        cutoff, memory = kept if options.cutoff is None else options.cutoff, smaller(options.memory, matrix.memory)
        self._options = options = replace(options, cutoff=cutoff, memory=memory)
        self._profile = GraphProfile.of(graph)
        self._searchable = not_searchable(self._profile, self._options.cutoff) is None
        if not matrix.exact:
            raised(not_searchable(self._profile, self._options.cutoff))
        self._machine = survey(memory=memory, threads=options.threads)
        asked = Rectangle.of(self._options, matrix.n)
        self._rows, self._columns = asked.rows, None if asked.targets is None else np.sort(asked.targets)

    @cached_property
    def way(self) -> NearWay:
        """The way in which the pairs are found: searches or rows from the tables, whichever is predicted to be faster.

        Raises:
            DoesNotFit: searches cannot find the pairs, and the tables do not fit in memory.
        """
        matrix = self._matrix
        if not matrix.exact:
            return NearWay(swept=False, reason="sums of these fractions depend on their order: searched as in the file")
        if not self._searchable:
            _ = self._shares
            return NearWay(swept=True, reason="searches cannot answer here, so rows come from the tables")
        try:
            _ = self._shares
        except DoesNotFit as error:
            return NearWay(swept=False, reason=f"the tables need {error.needed} bytes of memory: the graph is searched")
        searched, swept = self._search_seconds(), self._sweep_seconds()
        if swept < searched:
            reason = f"rows come from the tables: {swept:.3g} s predicted, {searched:.3g} s by searches"
            return NearWay(swept=True, reason=reason, seconds=swept)
        reason = f"the graph is searched: {searched:.3g} s predicted, {swept:.3g} s by rows from the tables"
        return NearWay(swept=False, reason=reason, seconds=searched)

    @cached_property
    def _shares(self) -> MemoryShares:
        """How the memory is divided among tables, bands of rows and near pairs.

        If not all tables fit, a quarter of the memory is left for the pairs, unless the rest would then be too small.
        ``needed`` does not include this quarter.

        Raises:
            DoesNotFit: the memory does not even hold the lines of one source and one target.
        """
        matrix, memory = self._matrix, self._machine.memory
        with matrix.using(self._options.threads):
            found = memory_shares(matrix, len(self._rows), memory, 0, "near pairs")
            if found.tables == matrix.most_held:
                return found
            with contextlib.suppress(DoesNotFit):
                less = memory_shares(matrix, len(self._rows), memory, memory // 4, "near pairs")
                return replace(less, needed=less.needed - memory // 4)
        return found

    def _search_seconds(self) -> float:
        """Predict the seconds of searches from all sources, from the processor time of searches from some sources.

        First, one source is searched twice.  The first of these searches loads kernels; the second one measures the
        work that does not depend on the number of sources.
        """
        rows, taken = len(self._rows), []
        for most in (1, 1, 1 + _SAMPLE):
            began = time.process_time()
            near_pairs(self._profile, self._some(most), nearest=self._nearest)
            taken.append(time.process_time() - began)
        each = max(0.0, taken[2] - taken[1]) / max(1, min(rows, 1 + _SAMPLE) - 1)
        return each * rows / self._machine.threads

    def _sweep_seconds(self) -> float:
        """Predict the seconds that it takes to compute rows from the tables and select near entries."""
        matrix, rows = self._matrix, len(self._rows)
        across = matrix.n if self._columns is None else len(self._columns)
        reading = 0.0 if matrix.loaded else _READ * matrix.table_bytes
        with matrix.using(self._options.threads):
            return reading + (matrix.block_seconds(rows, across) + _PICKED * rows * across) / matrix.threads

    def _some(self, most: int) -> Options:
        """Return the options with at most ``most`` of the sources."""
        rows = len(self._rows)
        return replace(self._options, sources=spread_sources(self._options, rows, most)) if rows else self._options

    def make_plan(self, *, beside: int = 0, out: Path | None = None, spills: bool = False) -> Plan:
        """Return the plan; its sizes are predicted from some sources, as ``plan_near`` does for a graph.

        Args:
            beside: bytes of memory that the caller will need for each pair.
            out: the path of the result, whose disk must have space for it; None for a result in memory.
            spills: whether pairs that do not fit in memory are first written to that disk.

        Raises:
            DoesNotFit: even a low estimate of the number of pairs fits neither in memory nor on the disk.
        """
        way, options, each = self.way, self._options, ENTRY_BYTES + beside
        if not way.swept:
            plan = plan_near(self._profile, options, nearest=self._nearest, beside=beside, out=out, spills=spills)
            return replace(plan, reason=f"{plan.reason}; {way.reason}")
        machine = survey(out=out, memory=options.memory, threads=options.threads)
        sample = self._sample(each, folder_of(out) if spills else None)
        kept = _KEPT * float(sample.counts.sum()) * len(self._rows) / max(1, len(sample.counts)) / machine.threads
        sample = sample._replace(seconds=self._sweep_seconds() + kept, fixed=self._shares.needed)
        plan = planned(self._profile.graph, options, sample, machine, each, spills=spills)
        return replace(plan, reason=f"{plan.reason}; {way.reason}")

    def _sample(self, each: int, spill: Path | None) -> NearSample:
        """Estimate the pairs of all sources from some of them; each pair needs ``each`` bytes.

        If searches can find the pairs, the sample is searched: computing rows needs all tables in memory, and a process
        that only plans should not read them.
        """
        if self._searchable:
            return searched_sample(self._profile, self._options, self._nearest, spill)
        rows = Rectangle.of(self._some(_PLANNED), self._matrix.n).rows
        counts, _, lengths = self._gathered(rows, Monitor(), each, spill)
        dtype = lengths.dtype if self._profile.graph.integral else np.dtype(np.float64)
        found = f"rows of {len(rows):,} of {len(self._rows):,} sources"
        return NearSample(counts.astype(np.float64), 0.0, dtype, 0, found)

    def run(self, monitor: Monitor | None = None, *, beside: int = 0, spill: Path | None = None) -> NearPairs:
        """Find the pairs.

        Args:
            monitor: receives progress, and is asked whether to stop.
            beside: bytes of memory that the caller will need for each pair.
            spill: a folder on whose disk pairs are written if they do not fit in memory; None to refuse them.

        Raises:
            DoesNotFit: the result would need more memory than may be used, or more of the disk than is free.
            Cancelled: the monitor asked to stop.
            StorageFailed: a table is damaged, or pairs could not be written to the disk.
        """
        if not self.way.swept:
            return near_pairs(
                self._profile, self._options, nearest=self._nearest, monitor=monitor, beside=beside, spill=spill
            )
        clock = PhaseClock(given_monitor(monitor))
        clock.begin("search", len(self._rows), "rows")
        counts, indices, lengths = self._gathered(self._rows, clock, ENTRY_BYTES + beside, spill)
        clock.stop()
        indptr = np.zeros(len(self._rows) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        labels = self._matrix.labels
        return NearPairs(indptr, indices, lengths, self._rows, labels, self._options.cutoff, self._nearest)

    def _gathered(self, rows: Indices, monitor: Monitor, each: int, spill: Path | None) -> Piece:
        """Return the number of pairs of each row, their targets and their distances; a pair takes ``each`` bytes."""
        kind = np.dtype(np.int64 if self._profile.graph.integral else np.float64)
        shares = self._shares.needed
        kept = _Kept(kind, (len(rows), (self._machine.memory - shares) // each, each), spill, shares)
        with self._matrix.using(self._options.threads), self._matrix.holding(self._shares), closing(kept):
            self._gather(rows, monitor, kept)
            return kept.result()

    def _gather(self, rows: Indices, monitor: Monitor, kept: _Kept) -> None:
        columns = np.arange(self._matrix.n) if self._columns is None else self._columns
        picker = _Picker(columns.astype(np.int64), _last_near(self._options.cutoff, self._matrix.dtype), self._nearest)
        threads = self._matrix.threads
        with ThreadPool(threads) as pool, pool:
            for some, block in self._bands(rows):
                step = min(-(-len(some) // threads), max(1, _TOGETHER // max(1, len(columns))))
                cuts = [slice(first, first + step) for first in range(0, len(some), step)]
                kept.take(list(pool.map(picker.pick, (block[cut] for cut in cuts), (some[cut] for cut in cuts))))
                monitor.step(len(some))
                del block

    def _bands(self, rows: Indices) -> Iterator[tuple[Indices, Array]]:
        """Yield all rows, some at a time: their vertices, and their distances, shape (rows, columns)."""
        matrix, columns = self._matrix, self._columns
        across = matrix.n if columns is None else len(columns)
        step = max(matrix.threads, matrix.band_bytes // max(1, across * matrix.dtype.itemsize))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            block = matrix.rows(some) if columns is None else matrix.block(some, columns)
            yield some, block
            del block  # frees this block before the next one is made


class _Kept:
    """The pairs of rows, in order: in memory as long as they fit there; after that all pairs are written to a disk.

    Args:
        kind: the type of the result's distances, float64 or int64; int32 is used for int64 if it can hold all of them.
        limits: the number of sources, the number of pairs that fit in memory, and the bytes of a pair.
        folder: a folder, on whose disk pairs are written if they do not fit in memory; None to refuse such pairs.
        beside: bytes of memory that tables and rows take; an error adds them to the memory that is needed.
    """

    def __init__(self, kind: np.dtype[Any], limits: tuple[int, int, int], folder: Path | None, beside: int = 0) -> None:
        self._kind, self._limits, self._folder, self._beside = kind, limits, folder, beside
        self._counts: list[Indices] = []
        self._found: list[tuple[npt.NDArray[np.int32], Array]] = []
        self._entries = 0
        self._spill: PairSpill | None = None

    def take(self, found: list[Piece]) -> None:
        """Keep the pairs of the next rows.

        Raises:
            DoesNotFit: the pairs do not fit in memory, and there is no folder, or too little space on its disk.
            StorageFailed: the disk refused to write them.
        """
        self._counts += [counts for counts, _, _ in found]
        self._found += [(index, lengths) for _, index, lengths in found]
        self._entries += sum(len(index) for _, index, _ in found)
        rows, budget, each = self._limits
        if self._spill is None:
            if self._entries <= budget:
                return
            if self._folder is None:
                found_yet = f"already {self._entries:,} pairs were found from some"
                error = too_many(self._entries, found_yet, rows, budget, each)
                error.needed, error.available = error.needed + self._beside, error.available + self._beside
                try:
                    raise error
                finally:
                    del error  # see ``storage.errors.raised``
            done = sum(len(counts) for counts in self._counts)
            self._spill = PairSpill(self._folder, self._kind, self._entries * rows // max(1, done))
        for index, lengths in self._found:
            self._spill.append(index, lengths.astype(self._kind))
        self._found.clear()

    def result(self) -> Piece:
        """Return the number of pairs of each row, their targets and their distances."""
        kind, counts = self._kind, np.concatenate([np.empty(0, np.int64), *self._counts])
        if self._spill is not None:
            return counts, *self._spill.result()
        indices = np.concatenate([np.empty(0, np.int32), *(index for index, _ in self._found)])
        lengths = np.concatenate([np.empty(0, kind), *(lengths for _, lengths in self._found)])
        small = kind.kind == "i" and int(lengths.max(initial=0)) < 2**31
        return counts, indices, lengths.astype(np.int32 if small else kind)

    def close(self) -> None:
        """Close the files for writing; arrays of the result can still read them."""
        if self._spill is not None:
            self._spill.discard()


@dataclass(frozen=True)
class _Picker:
    """Selects the near entries of whole rows.

    Attributes:
        columns: int64, shape (columns,): the vertex of each column, ascending.
        last: the largest distance that is near, of the type of the rows; less than *unreachable*.
        nearest: the number of targets wanted in each row; None for all.
    """

    columns: Indices
    last: Any
    nearest: int | None

    def pick(self, block: Array, rows: Indices) -> Piece:
        """Return the number of pairs of each row, their targets and their distances.

        Args:
            block: shape (rows, columns).
            rows: the vertex of each row; it is no target of itself.
        """
        near = block <= self.last
        if len(self.columns):
            own = np.minimum(np.searchsorted(self.columns, rows), len(self.columns) - 1)
            (among,) = np.nonzero(self.columns[own] == rows)
            near[among, own[among]] = False
        if self.nearest is None:
            return np.count_nonzero(near, axis=1), self.columns[np.nonzero(near)[1]].astype(np.int32), block[near]
        places = [_nearest(line, np.flatnonzero(mask), self.nearest) for line, mask in zip(block, near, strict=True)]
        lengths = [line[some] for line, some in zip(block, places, strict=True)]
        index = self.columns[np.concatenate(places)].astype(np.int32)
        return np.array([len(some) for some in places], np.int64), index, np.concatenate(lengths)


def _nearest(line: Array, places: Indices, most: int) -> Indices:
    """Return the ``most`` columns among ``places`` with the least entries of ``line``, by entry, then by column."""
    lengths = line[places]
    if len(places) > most:
        kept = lengths <= np.partition(lengths, most - 1)[most - 1]
        places, lengths = places[kept], lengths[kept]
    return places[np.argsort(lengths, kind="stable")[:most]]


def _last_near(cutoff: float | None, dtype: np.dtype[Any]) -> Any:
    """Return the largest value of a working type that is a distance and not above the cutoff.

    The cutoff is rounded down to the type, because near pairs are defined by comparing it with distances in float64.
    """
    kind = work_type(dtype)
    if kind.integer:
        last = int(kind.unreachable) - 1
        return kind.dtype.type(last if cutoff is None or cutoff >= last else math.floor(cutoff))
    largest: Any = np.finfo(dtype).max
    if cutoff is None or cutoff >= largest:
        return largest
    rounded: Any = kind.dtype.type(cutoff)
    return rounded if float(rounded) <= cutoff else np.nextafter(rounded, kind.dtype.type(-np.inf))
