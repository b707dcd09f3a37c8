"""One search per source, a batch of sources at a time; a finished batch is written while the next one is searched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.graph.selection import Rectangle
from engine.graph.transpose import reverse
from engine.model.backend import Arcs, Array, Backend
from engine.model.progress import Monitor
from engine.model.rows import ArraySink, Sink
from engine.planning.constants import BUSY_ROWS
from engine.rows.dense import write_rows
from storage.graph.graph import Graph

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


def solve(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    rectangle: Rectangle,
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
    *,
    arcs: Arcs | None = None,
    unit: bool = False,
    from_targets: bool = False,
) -> None:
    """Search the distances of a rectangle.

    Args:
        backend: makes the searches.
        graph: the graph.
        rectangle: rows and columns of the result.
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        batch_rows: most rows of a batch.
        arcs: arcs in place of the graph's own, for reduced weights and their potentials.
        unit: promises that all arcs weigh 1.
        from_targets: search from the targets over the reversed arcs.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    arcs = arcs or Arcs(graph.indptr, graph.heads, graph.weights)
    rows, targets = rectangle.rows, rectangle.targets
    if not from_targets or targets is None:
        run(
            *(backend, graph, rows, dtype, sink, monitor, batch_rows),
            arcs=arcs, unit=unit, targets=targets, cutoff=rectangle.cutoff,
        )  # fmt: skip
        return
    found = ArraySink((len(targets), len(rows)), dtype)
    run(
        *(backend, graph, targets, dtype, found, monitor, batch_rows),
        arcs=reverse(arcs) if graph.directed else arcs, unit=unit, targets=rectangle.sources, cutoff=rectangle.cutoff,
    )  # fmt: skip
    write_rows(found.array.T, rows, sink, monitor, backend.threads, picked=True)


def run(  # noqa: PLR0917 - the signature that all searching algorithms share
    backend: Backend,
    graph: Graph,
    sources: npt.NDArray[np.int64],
    dtype: npt.DTypeLike,
    sink: Sink,
    monitor: Monitor,
    batch_rows: int,
    *,
    arcs: Arcs | None = None,
    unit: bool = False,
    targets: npt.NDArray[np.int64] | None = None,
    cutoff: float | None = None,
) -> None:
    """Search the distances from some sources; row i of the sink holds those from ``sources[i]``.

    At most two batches are held in memory.

    Args:
        backend: makes the searches.
        graph: the graph; no weight is negative.
        sources: vertex indices, shape (rows,).
        dtype: the working type.
        sink: receives the rows.
        monitor: receives the progress, in rows.
        batch_rows: most rows of a batch, rounded down to whole tiles, at least one.
        arcs: arcs in place of the graph's own, for reduced weights and their potentials.
        unit: promises that all arcs weigh 1.
        targets: vertex indices of the columns; None for all vertices.
        cutoff: entries beyond this distance become unreachable; None for no limit.

    Raises:
        Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
    """
    arcs = arcs or Arcs(graph.indptr, graph.heads, graph.weights)
    first = FIRST_ENTRIES // max(1, graph.n)
    batches = RowBatches(len(sources), sink.tile[0], batch_rows, backend.threads * BUSY_ROWS, first)
    columns = graph.n if targets is None else len(targets)
    buffers = [np.empty((batches.most, columns), dtype) for _ in range(2 if batches.most < len(sources) else 1)]
    monitor.begin("search", len(sources), "rows")
    leaving = [Leaving(sink, backend.threads) for _ in buffers]
    with ThreadPoolExecutor(max(1, backend.threads // 2), "apsp-write") as pool:
        for i, rows in enumerate(batches):
            slot = i % len(buffers)
            leaving[slot].finish()
            block = buffers[slot][: len(rows)]
            backend.search(arcs, sources[rows.start : rows.stop], block, unit=unit, targets=targets, cutoff=cutoff)
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
