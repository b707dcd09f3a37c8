"""A worker's side of a solve by rows: it searches some sources at a time and writes tiles to the exchange folder."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.algorithms import dijkstra, partitioned
from engine.algorithms.context import SolveContext
from engine.algorithms.dijkstra import RowSearch
from engine.distributed.locks import StopMonitor
from engine.distributed.messages import DistributedJob, TaskRequest, TaskResult
from engine.graph.partition import CPU_GRAIN
from engine.graph.profile import GraphProfile
from engine.graph.selection import Narrow, Rectangle
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import Sink
from engine.rows.summary import Summary, SummarySink
from storage.matrix.exchange import TileFile
from storage.matrix.grid import TileGrid
from storage.matrix.shared import GuestMatrix

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend
    from engine.devices.cpu.sweep import Sweeper


class RowsWorker:
    """The tasks of one worker in one job; it prepares the graph once, for all its tasks.

    Args:
        job: the solve.
        threads: number of processors to use.
    """

    def __init__(self, job: DistributedJob, threads: int) -> None:
        self.job, self._threads = job, threads
        self.kind, self._exchange_dir = WORK_TYPES[job.plan.dtype], Path(job.exchange_dir)
        grid = TileGrid(job.shape, job.tile)
        self.matrix = GuestMatrix(Path(job.store), self._exchange_dir, grid, job.plan.dtype, job.compression)
        self._lock = threading.Lock()
        self._profile: GraphProfile | None = None
        self._backend: CpuBackend | None = None
        self._sweeper: Sweeper | None = None
        self._parts: partitioned.PreparedParts | None = None
        # copied, because kernels are compiled ahead for writable arrays, and an array over the bytes of a message is
        # read-only
        sources, targets = (None if side is None else np.frombuffer(side, np.int64).copy() for side in job.sides)
        self._sources, self._targets = sources, targets

    def run(self, action: str, request: TaskRequest) -> TaskResult:
        """Run the task ``action`` (``search`` or ``observe``) for ``request``."""
        return {"search": self.search, "observe": self.observe}[action](request)

    def search(self, request: TaskRequest) -> TaskResult:
        """Search the rows ``request.rows`` of the result, write them, and return facts of them for the summary."""
        with self._lock:
            began, (first, last) = time.monotonic(), request.rows
            monitor = StopMonitor(self._exchange_dir)
            profile = self._prepare(monitor)
            rows = np.arange(first, last) if self._sources is None else self._sources[first:last]
            rectangle = Rectangle(profile.graph.n, rows, self._targets, self.job.plan.cutoff)
            sink = _ExchangeSink(self.matrix, first)
            search = self._on_device if self.job.device == "cuda" else self._on_cpu
            part = search(profile, rectangle, sink, monitor).part(first)
            return TaskResult(seconds=time.monotonic() - began, files={first: tuple(sink.files)}, parts=(part,))

    def observe(self, request: TaskRequest) -> TaskResult:
        """Return facts, for the summary, of rows that are already in the store."""
        with self._lock:
            began, (first, last) = time.monotonic(), request.rows
            n = self._prepare(StopMonitor(self._exchange_dir)).graph.n
            rows = np.arange(first, last) if self._sources is None else self._sources[first:last]
            found = self._collector(n, Rectangle(n, rows, self._targets, None), _ExchangeSink(self.matrix, first))
            block = np.empty((last - first, self.job.shape[1]), self.kind.dtype)
            self.matrix.read_rows(first, block)
            found.gather(0, block)
            return TaskResult(seconds=time.monotonic() - began, parts=(found.part(first),))

    def close(self) -> None:
        """Release all memory and threads."""
        with self._lock:
            for each in (self._sweeper, self._backend):
                if each is not None:
                    each.shutdown()
            self._sweeper = self._backend = None

    def _prepare(self, monitor: Monitor) -> GraphProfile:
        if self._profile is None:
            profile = GraphProfile(self.matrix.graph())
            if self.job.reduced:
                profile = profile.reduced(np.load(self._exchange_dir.parent / "potentials.npy"))
            in_parts = self.job.plan.algorithm == "partitioned"
            if self.job.device == "cuda":
                self._parts = partitioned.prepare(profile, self.kind, self._threads, monitor) if in_parts else None
            else:
                from engine.devices.cpu.backend import CpuBackend

                self._backend = CpuBackend(self._threads)
                if in_parts:
                    parts = profile.parts(CPU_GRAIN)
                    self._sweeper = partitioned.sweeper_of(self._backend, profile, parts, self.kind, monitor)
            # this is set last: if a task is stopped before this line, the next task prepares everything again
            self._profile = profile
        return self._profile

    def _collector(self, n: int, rectangle: Rectangle, sink: Sink) -> SummarySink:
        targets = rectangle.targets
        return SummarySink(sink, rectangle.rows, n, integral=self.job.integral, targets=targets)

    def _on_cpu(self, profile: GraphProfile, rectangle: Rectangle, sink: Sink, monitor: Monitor) -> SummarySink:
        found, backend = self._collector(profile.graph.n, rectangle, sink), self._backend
        assert backend is not None
        dtype, batch = self.kind.dtype, self.job.plan.batch
        search = RowSearch(profile.arcs, rectangle, dtype, found, monitor, batch, profile.unit)
        if self._sweeper is not None:
            whole = Narrow(found, rectangle) if rectangle.narrow else found
            every = Rectangle(rectangle.n, rectangle.sources, None, None)
            dijkstra.run(self._sweeper, replace(search, rectangle=every, sink=whole))
        else:
            dijkstra.run(backend, search)
        return found

    def _on_device(
        self, profile: GraphProfile, rectangle: Rectangle, sink: Sink, monitor: Monitor
    ) -> SummarySink | Summary:
        from engine.execution import search_cuda

        whole = Summary(rectangle.rows, profile.graph.n, integral=self.job.integral)
        found = self._collector(profile.graph.n, rectangle, sink) if rectangle.narrow else whole
        target = Narrow(found, rectangle) if isinstance(found, SummarySink) else sink
        if self._parts is not None:
            partitioned.rows_on_device(self._parts, rectangle.rows, target, whole, monitor, self._threads)
        else:
            plan = replace(self.job.plan, threads=self._threads)
            search_cuda.run(SolveContext(profile, plan, Options(), rectangle, target, monitor), whole)
        return found


class _ExchangeSink:
    """A sink that writes tiles to the exchange folder; its first row is row ``first`` of the matrix."""

    def __init__(self, matrix: GuestMatrix, first: int) -> None:
        self.tile, self.files = matrix.tile, list[TileFile]()
        self._matrix, self._first = matrix, first

    def write(self, row: int, column: int, block: Array) -> None:
        """Write whole tiles; called from several threads.

        Args:
            row: the first row of the block, counted from ``first``.
            column: the first column of the block.
            block: array of shape (rows, columns).
        """
        top = self._first + row
        for i, j in self._matrix.grid.covered(top, column, *block.shape):
            down, across = self._matrix.grid.slices(i, j)
            part = block[down.start - top : down.stop - top, across.start - column : across.stop - column]
            self.files.append(self._matrix.write_tile(i, j, part))
