"""One search per source, a batch of sources at a time; a finished batch is written while the next one is searched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.algorithms.context import SolveContext
from engine.graph.selection import Rectangle
from engine.graph.transpose import reverse
from engine.model.backend import Arcs, Array, Backend
from engine.model.progress import Monitor
from engine.model.rows import ArraySink, Sink
from engine.planning.constants import BUSY_ROWS
from engine.rows.dense import ClosedRows, write_rows

#: Seconds that a batch should take: between batches progress is reported and a request to stop is noticed.
BATCH_SECONDS: Final = 0.3
#: Seconds that a batch may take if that is needed to keep all threads busy.
BUSY_SECONDS: Final = 2.0
#: Entries of the first batch, before a rate is known: all of a small matrix, so that neighbours are searched together.
FIRST_ENTRIES: Final = 2**21


#: Up to this number of entries, starting a thread to write a batch takes longer than writing it.
ALONE: Final = 2**18
#: Entries that are written at once, as many as a cache holds, but at least the rows of one tile.
PIECE: Final = 2**18


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
            # sizes grow at most fourfold: the first batch includes compiling and preparing, and may not be typical
            wanted = max(int(rate * BATCH_SECONDS), min(self._busy, int(rate * BUSY_SECONDS)))
            wanted = min(wanted, 4 * self._size)
            self._size = min(self.most, max(self._tile, wanted // self._tile * self._tile))
            start = stop


@dataclass(frozen=True)
class RowSearch:
    """Rows to search.

    Attributes:
        arcs: the arcs; none is negative.
        rectangle: rows and columns of the result.
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        batch: most rows of a batch, rounded down to whole tiles, at least one.
        unit: promises that all arcs weigh 1.
    """

    arcs: Arcs
    rectangle: Rectangle
    dtype: npt.DTypeLike
    sink: Sink
    monitor: Monitor
    batch: int
    unit: bool = False


def solve(context: SolveContext, backend: Backend, arcs: Arcs | None = None) -> None:
    """Search the distances of a rectangle, from its targets over the reversed arcs if the plan says so.

    Args:
        context: the solve.
        backend: makes the searches.
        arcs: arcs in place of the graph's own, for reduced weights and their potentials.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    profile, wanted, plan = context.profile, context.rectangle, context.plan
    own, dtype, monitor = arcs or profile.arcs, context.kind.dtype, context.monitor
    search = RowSearch(own, wanted, dtype, context.sink, monitor, plan.batch, profile.unit and own.potentials is None)
    if not plan.from_targets or wanted.targets is None:
        run(backend, search)
        return
    found = ArraySink((len(wanted.targets), len(wanted.rows)), dtype)
    backwards = reverse(own) if profile.graph.directed else own
    run(backend, replace(search, arcs=backwards, rectangle=wanted.transposed, sink=found))
    closed = ClosedRows(found.array.T, wanted.rows, picked=True)
    write_rows(closed, context.sink, monitor, backend.threads)


def run(backend: Backend, search: RowSearch) -> None:
    """Search the distances from some sources, of which at most two batches are held in memory.

    Args:
        backend: makes the searches.
        search: the rows, and where they go; row i of the sink holds those from the i-th source.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    wanted, sink, monitor = search.rectangle, search.sink, search.monitor
    sources, targets, cutoff = wanted.rows, wanted.targets, wanted.cutoff
    first = FIRST_ENTRIES // max(1, wanted.n)
    batches = RowBatches(len(sources), sink.tile[0], search.batch, backend.threads * BUSY_ROWS, first)
    columns = wanted.n if targets is None else len(targets)
    buffers = [np.empty((batches.most, columns), search.dtype) for _ in range(2 if batches.most < len(sources) else 1)]
    monitor.begin("search", len(sources), "rows")
    leaving = [Leaving(sink, backend.threads) for _ in buffers]
    with ThreadPoolExecutor(max(1, backend.threads // 2), "apsp-write") as pool:
        for i, rows in enumerate(batches):
            slot = i % len(buffers)
            leaving[slot].finish()
            block, some = buffers[slot][: len(rows)], sources[rows.start : rows.stop]
            backend.search(search.arcs, some, block, unit=search.unit, targets=targets, cutoff=cutoff)
            leaving[slot].begin(pool, rows.start, block, last=rows.stop == len(sources))
            monitor.step(len(rows))
        for one in leaving:
            one.finish()


class Leaving:
    """Writes a batch to the sink piece by piece, by other threads while the caller searches the next batch."""

    def __init__(self, sink: Sink, threads: int) -> None:
        self._sink, self._threads = sink, threads
        self._waiting: list[tuple[Future[None], int, Array]] = []

    def begin(self, pool: ThreadPoolExecutor, first: int, block: Array, *, last: bool) -> None:
        """Begin to write a batch.

        Args:
            pool: the threads that write.
            first: matrix row of the batch's first row.
            block: shape (rows, columns).
            last: this is the last batch; a small one is written by the caller, which has no other work.
        """
        alone = last and (self._threads == 1 or block.size < ALONE)
        tile = self._sink.tile[0]
        high = tile * max(1, PIECE // (tile * max(1, block.shape[1])))
        for k in range(0, len(block), high):
            piece = block[k : k + high]
            if alone:
                self._sink.write(first + k, 0, piece)
            else:
                self._waiting.append((pool.submit(self._sink.write, first + k, 0, piece), first + k, piece))

    def finish(self) -> None:
        """Write the pieces that no thread has begun, and wait for the others."""
        waiting, self._waiting = self._waiting, []
        for future, row, piece in waiting:
            if future.cancel():
                self._sink.write(row, 0, piece)
        for future, _, _ in waiting:
            if not future.cancelled():
                future.result()
