"""One search per source, a batch of sources at a time; a finished batch is written while the next one is searched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.graph.selection import Rectangle
from engine.graph.transpose import reverse
from engine.model.backend import Arcs, Array, Backend, RowSearches
from engine.model.progress import Monitor
from engine.model.rows import ArraySink, Sink
from engine.planning.cost import ABREAST
from engine.rows.dense import write_rows
from engine.rows.pipeline import RowPipeline, place_of
from storage.graph.graph import Graph

#: Seconds that a batch should take: between batches progress is reported and a request to stop is noticed.
BATCH_SECONDS: Final = 0.3
#: Seconds that a batch may take if that is needed to keep all threads busy.
BUSY_SECONDS: Final = 2.0
#: Entries of the first batch, before a rate is known: all of a small matrix, so that neighbours are searched together.
FIRST_ENTRIES: Final = 2**21
#: Entries that the first batch may have so that all threads are busy.
BUSY_ENTRIES: Final = 2**25


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
    columns, busy = graph.n if targets is None else len(targets), backend.threads * ABREAST
    place, kind = place_of(sink, dtype), np.dtype(dtype)
    if place is None:
        entries = max(FIRST_ENTRIES, min(busy * columns, BUSY_ENTRIES))
        batches = RowBatches(len(sources), sink.tile[0], batch_rows, busy, entries // max(1, columns))
        buffers = [np.empty((batches.most, columns), kind) for _ in range(2 if batches.most < len(sources) else 1)]
    else:
        batches, buffers = RowBatches(len(sources), 1, len(sources), busy, len(sources)), [place]

    def begin(rows: range, block: Array) -> RowSearches:
        some = sources[rows.start : rows.stop]
        return backend.begin_search(arcs, some, block, unit=unit, targets=targets, cutoff=cutoff, dtype=kind)

    monitor.begin("search", len(sources), "rows")
    RowPipeline(begin, batches, sink, monitor, buffers, in_place=place is not None).run(backend)
