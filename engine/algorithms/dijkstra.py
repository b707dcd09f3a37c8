"""One search per source, a batch of sources at a time; a finished batch is written while the next one is searched."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt

from engine.algorithms.context import SolveContext
from engine.graph.selection import Rectangle
from engine.graph.transpose import reverse
from engine.model.backend import Arcs, Array, LevelReduction, RowsWanted
from engine.model.plan import Plan
from engine.model.problem import changed
from engine.model.progress import Monitor
from engine.model.rows import AnyOrderSink, ArraySink, KnownRows, Sink
from engine.planning.constants import BUSY_BITS, BUSY_ROWS
from engine.rows.dense import ClosedRows, write_rows
from engine.rows.pipeline import RowPipeline, place_of

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend
    from engine.devices.cpu.searches import Searches

#: Seconds that a batch should take.  Between batches progress is reported and a request to stop is noticed.
BATCH_SECONDS: Final = 0.3
#: Seconds that a batch may take if a smaller batch would leave threads idle.  A thread searches a block of sources in
#: about the same time, however few of its lanes are used, so a smaller batch of a large graph takes no less time.
BUSY_SECONDS: Final = 10.0
#: Entries of the first batch, for which no rate is measured yet.  A smaller matrix is a single batch, so that
#: neighbouring sources are searched together.
FIRST_ENTRIES: Final = 2**21
#: Most entries of the first batch where it is enlarged to keep all threads busy, and no rate was predicted.
BUSY_ENTRIES: Final = 2**25

#: One thread is started for each SHARE_SECONDS of predicted searches.  On 16 processors, starting all threads instead
#: took 1.1 to 1.7 times as long for graphs of 900 to 1,600 vertices.  For 2,000 to 7,300 vertices, the two times
#: differed by less than a tenth.
SHARE_SECONDS: Final = 0.004
#: Searches that are predicted to take less than this many seconds on all threads begin in one compiled call.  For
#: matrices of 128 to 512 MB, this call took 0.45 to 0.9 times as long as threads of Python on 64 processors, and 0.7 to
#: 1.03 times as long on 16.
SHORT_SECONDS: Final = 0.5


class RowBatches:
    """Cuts rows into batches of whole tiles that take about ``BATCH_SECONDS`` each.

    Args:
        rows: rows in all.
        tile: rows of a tile.
        most: most rows of a batch.
        busy: rows that keep all threads busy; a batch of this size may take up to ``BUSY_SECONDS``.
        first: rows of the first batch.
    """

    def __init__(self, rows: int, tile: int, most: int, busy: int = 1, first: int = 1) -> None:
        self._rows, self._tile, self._busy = rows, tile, busy
        self.most = rows if most >= rows else min(rows, max(tile, most // tile * tile))
        self._size = min(max(tile, first // tile * tile), self.most)

    def __iter__(self) -> Iterator[range]:
        start = 0
        while start < self._rows:
            began = time.perf_counter()
            stop = min(start + self._size, self._rows)
            yield range(start, stop)
            rate = (stop - start) / max(time.perf_counter() - began, 1e-6)
            # a batch is at most four times as large as the previous one, because a single rate may not be typical: the
            # time of the first batch includes compiling and preparing
            wanted = max(int(rate * BATCH_SECONDS), min(self._busy, int(rate * BUSY_SECONDS)))
            wanted = min(wanted, 4 * self._size)
            self._size = min(self.most, max(self._tile, wanted // self._tile * self._tile))
            start = stop


@dataclass(frozen=True)
class RowSearch:
    """Which rows to search, over which arcs, and where to write them.

    Attributes:
        arcs: the arcs; no weight is negative.
        rectangle: rows and columns of the result.
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        batch: the largest number of rows in a batch; it is rounded down to whole tiles, but to no less than one tile.
        unit: promises that all arcs weigh 1.
        known: rows that trials during planning have computed already; None if there are none.
        seconds: predicted seconds of all searches on one thread; None if nothing was predicted.
    """

    arcs: Arcs
    rectangle: Rectangle
    dtype: npt.DTypeLike
    sink: Sink
    monitor: Monitor
    batch: int
    unit: bool = False
    known: KnownRows | None = None
    seconds: float | None = None


def seconds_alone(plan: Plan, phase: str) -> float | None:
    """Return the predicted seconds of a phase on one thread; None for a plan without it and for a GPU."""
    found = [each.seconds for each in plan.phases if each.name == phase]
    return found[0] * plan.threads if found and plan.device == "cpu" else None


def solve(context: SolveContext, backend: CpuBackend, arcs: Arcs | None = None) -> None:
    """Search the distances of a rectangle.

    If the plan says so, searches begin at the targets and follow the reversed arcs.

    Args:
        context: the solve.
        backend: makes the searches.
        arcs: arcs with reduced weights and their potentials; None for the graph's own arcs.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    profile, wanted, plan = context.profile, context.rectangle, context.plan
    own, dtype, monitor = arcs or profile.arcs, context.kind.dtype, context.monitor
    unit, alone = profile.unit and own.potentials is None, seconds_alone(plan, "search")
    search = RowSearch(own, wanted, dtype, context.sink, monitor, plan.batch, unit, seconds=alone)
    if not plan.from_targets or wanted.targets is None:
        known = profile.known if own is profile.arcs and wanted.targets is None and wanted.cutoff is None else None
        run(backend, changed(search, known=known if known is not None and known.dtype == dtype else None))
        profile.known = None  # freed here: the plan does not count this memory
        return
    found = ArraySink((len(wanted.targets), len(wanted.rows)), dtype)
    backwards = reverse(own) if profile.graph.directed else own
    run(backend, replace(search, arcs=backwards, rectangle=wanted.transposed, sink=found))
    closed = ClosedRows(found.array.T, wanted.rows, picked=True)
    write_rows(closed, context.sink, monitor, backend.threads)


def run(backend: CpuBackend, search: RowSearch) -> None:
    """Search the distances from some sources; at most two batches of rows are held in memory.

    Args:
        backend: makes the searches.
        search: the rows, and their sink; row i of the sink holds the distances from the i-th source.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    wanted, sink, kind = search.rectangle, search.sink, np.dtype(search.dtype)
    sources, targets = wanted.rows, wanted.targets
    columns = wanted.n if targets is None else len(targets)
    busy = backend.threads * (BUSY_BITS if search.unit else BUSY_ROWS)
    place = place_of(sink, kind)
    if place is None:
        first = max(FIRST_ENTRIES, min(busy * columns, BUSY_ENTRIES)) // max(1, columns)
        if search.seconds:
            rate = len(sources) * backend.threads / search.seconds
            first = max(first, min(busy, int(rate * BUSY_SECONDS)))
        batches = RowBatches(len(sources), sink.tile[0], search.batch, busy, first)
        buffers = [np.empty((batches.most, columns), kind) for _ in range(2 if batches.most < len(sources) else 1)]
    else:
        batches, buffers = RowBatches(len(sources), 1, len(sources), busy, len(sources)), [place]

    reduction: LevelReduction | None = getattr(sink, "level_reduction", None) if search.unit else None
    asked = RowsWanted(search.unit, targets, wanted.cutoff, kind, search.known, reduction)

    in_any_order = targets is None and bool(getattr(sink, "any_order", False))

    def begin(rows: range, block: Array) -> Searches:
        own = changed(asked, take=partial(cast("AnyOrderSink", sink).take, rows.start)) if in_any_order else asked
        return backend.begin_search(search.arcs, sources[rows.start : rows.stop], block, own)

    search.monitor.begin("search", len(sources), "rows")
    few = None if search.seconds is None else max(2, math.ceil(search.seconds / SHARE_SECONDS))
    few = None if few is None or few >= backend.threads else few
    short = search.seconds is not None and search.seconds / backend.threads < SHORT_SECONDS
    rows = RowPipeline(begin, batches, sink, search.monitor, buffers, in_place=place is not None, few=few)
    rows.run(backend, at_once=short)
