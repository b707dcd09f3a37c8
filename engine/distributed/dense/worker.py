"""A worker's side of a solve in rounds: the stripes that it holds, the panels in its cache, and its tasks.

Every task relaxes stripes up to a given round.  If the worker does not hold a stripe, it reads the stripe from the
store or makes it from the arcs.  A task may run twice, on this worker or on another worker, over old or new entries,
with the same result; the files that the task writes count only after the driver has adopted them.  Tasks on different
stripes may run at the same time; on a GPU their products are queued one after the other.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.distributed.dense.panels import PanelCache
from engine.distributed.dense.stripe_device import WorkerDevice, make_device
from engine.distributed.locks import StripeLocks
from engine.distributed.messages import DistributedJob, DriverStopped, StoredStripe, TaskRequest, TaskResult
from engine.distributed.row_facts import observe
from engine.graph.profile import GraphProfile
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES
from engine.model.tiling import round_updates
from engine.rows.dense import fill_weights
from engine.rows.summary import PartialSummary, Summary
from storage.errors import StorageFailed
from storage.graph.graph import Graph
from storage.matrix.exchange import TileFile, read_panel, write_panel
from storage.matrix.grid import TileGrid
from storage.matrix.shared import GuestMatrix

#: Least and most threads that read and write files: a disk is fastest with several requests in flight.
IO_THREADS: Final = (4, 8)
#: Time limit in seconds of the wait for running tasks when the session is closed.
PATIENCE: Final = 20.0
#: Seconds between two checks whether to stop.
LOOK: Final = 0.2


class DenseWorker:
    """The tasks of one worker in one job.

    Args:
        job: the solve.
        threads: number of processors to use.
    """

    def __init__(self, job: DistributedJob, threads: int) -> None:
        self.job, self._threads = job, threads
        self.kind, self._tiling = WORK_TYPES[job.plan.dtype], job.tiling
        self._exchange_dir = Path(job.exchange_dir)
        self._grid = TileGrid(job.shape, job.tile)
        self.matrix = self._guest()
        # _lock is held during calls of the device's methods from `use` to `mark`, _reading while shared data are loaded
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._hands = min(max(IO_THREADS[0], threads // 2), IO_THREADS[1])
        self._pool = ThreadPoolExecutor(self._hands, "apsp-guest")
        self._graph: Graph | None = None
        self._potentials: npt.NDArray[np.float64] | None = None
        self._device: WorkerDevice | None = None
        self._levels: dict[int, int] = {}
        self._lives: Counter[int] = Counter()  # how often each stripe was dropped
        self._panels = PanelCache(job.pace.early + 1)  # the panel in use, and panels that were closed early
        self._making, self._locks = threading.Lock(), StripeLocks()
        self._looked, self._stopped = 0.0, False
        self._tasks: dict[str, Callable[[TaskRequest], TaskResult]] = {
            "relax": self.relax,
            "lead": self.lead,
            "publish": self.publish,
            "fetch": self.fetch,
            "save": self.save,
            "finish": self.finish,
            "forget": self.forget,
        }

    def run(self, action: str, request: TaskRequest) -> TaskResult:
        """Run the task named ``action`` for ``request``."""
        return self._tasks[action](request)

    # ---- tasks ------------------------------------------------------------------------------------------------------

    def relax(self, request: TaskRequest) -> TaskResult:
        """Relax stripes up to round ``request.level``; write and drop the stripes in ``request.release``."""
        with self._locks.hold(request.stripes):
            began = time.monotonic()
            missing = self._bring(request)
            here = [s for s in request.stripes if s not in missing]
            updates = self._catch_up(here, request)
            seconds = self._locks.own_seconds(began)
            files = {s: self._save(s) for s in here if s in request.release}
            levels = {s: self._levels[s] for s in here}
            for s in files:
                self._forget(s)
            return TaskResult(levels, tuple(missing), updates, seconds, files)

    def lead(self, request: TaskRequest) -> TaskResult:
        """Close panel ``request.level`` from the stripe of that number, after relaxing it by all earlier panels."""
        with self._locks.hold(request.stripes):
            began, k = time.monotonic(), request.level
            missing = self._bring(request)
            if missing:
                return TaskResult(missing=tuple(missing))
            needed = range(self._levels[k] + 1, k)
            if any(j not in request.panels and j not in self._panels for j in needed):
                if k in request.stored:  # drop the stripe: in the driver's state this worker does not hold it
                    self._forget(k)
                return TaskResult()  # a needed panel is lost: an earlier session here closed it, but did not write it
            updates = self._catch_up([k], replace(request, level=k - 1), urgent=True)
            if k not in self._panels:  # a panel that is closed already need not be closed again
                self._close(k)
                updates += self._updates(k, k)
            level, seconds = self._levels[k], self._locks.own_seconds(began)
            files = {k: self._save(k)} if k in request.release else {}
            if files:
                self._forget(k)
            return TaskResult({k: level}, (), updates, seconds, files)

    def publish(self, request: TaskRequest) -> TaskResult:
        """Write a panel from the cache to the exchange folder for the other workers; do nothing if it is not cached."""
        with self._locks.hold():
            panel = self._panels.get(request.level)
            if panel is None:
                return TaskResult()
            name = request.panels[request.level]
            write_panel(self._exchange_dir / name, panel, self._pool)
            return TaskResult(panel=name)

    def fetch(self, request: TaskRequest) -> TaskResult:
        """Read a panel into the cache before it is needed."""
        # ignore errors: a commit may have removed the file, and a task that still needs the panel raises its own error
        with self._locks.hold(), suppress(StorageFailed):
            self._panel(request.level, request)
        return TaskResult()

    def save(self, request: TaskRequest) -> TaskResult:
        """Write stripes while other tasks may relax them; all written entries have reached the reported round."""
        levels, files = {}, {}
        with self._locks.hold():
            for s in request.stripes:
                with suppress(KeyError):  # a computing task may drop the stripe at any time
                    life, level = self._lives[s], self._levels[s]
                    found = self._save(s)
                    if self._lives[s] == life:  # else the stripe was dropped meanwhile, and its copy may be older
                        files[s], levels[s] = found, level
        return TaskResult(levels, tuple(s for s in request.stripes if s not in levels), files=files)

    def finish(self, request: TaskRequest) -> TaskResult:
        """Write the finished rows of stripes, return facts of these rows for the summary, and drop the stripes."""
        with self._locks.hold(request.stripes):
            began = time.monotonic()
            missing = self._bring(request)
            here = [s for s in request.stripes if s not in missing]
            updates = self._catch_up(here, request)
            levels, files, parts = {}, {}, []
            for s in here:
                part, files[s] = self._finish(s)
                parts.append(part)
                levels[s] = request.level
                self._forget(s)
            return TaskResult(levels, tuple(missing), updates, time.monotonic() - began, files, parts=tuple(parts))

    def forget(self, request: TaskRequest) -> TaskResult:
        """Drop stripes that now have other owners."""
        with self._locks.hold(request.stripes):
            for s in request.stripes:
                self._forget(s)
            return TaskResult()

    def close(self) -> None:
        """End all tasks and release all memory and threads."""
        self._stopped = True
        self._locks.end(PATIENCE)
        with self._lock:
            device, self._device = self._device, None
            self._levels.clear()
            self._panels.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)
            if device is not None:
                device.release()

    # ---- stripes ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check whether to stop, at most once in ``LOOK`` seconds.

        Raises:
            DriverStopped: the driver has asked tasks to stop, or its exchange folder is gone.
        """
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            self._stopped |= not self._exchange_dir.is_dir() or (self._exchange_dir.parent / "stop").exists()
        if self._stopped:  # stays set, so that all tasks of this worker end
            raise DriverStopped("the driver has stopped")

    def _get_device(self) -> WorkerDevice:
        with self._making:
            if self._device is None:
                self._device = make_device(self.job, self._threads, self.check)
            return self._device

    def _bring(self, request: TaskRequest) -> list[int]:
        """Load the stripes of a request that the worker does not hold; return the numbers of those it cannot load.

        A stripe cannot be loaded if the request does not say its state in the store.
        """
        self.check()
        missing = []
        for s in request.stripes:
            stored = request.stored.get(s)
            if s in self._levels and (stored is None or self._levels[s] >= stored.level):
                continue
            if stored is None:
                missing.append(s)
                continue
            self._forget(s)  # drop an outdated copy, if this worker owned the stripe before
            self._get_device().hold(s, self._read(s, stored))
            self._levels[s] = stored.level
        return missing

    def _read(self, stripe: int, stored: StoredStripe) -> Array:
        first, last = self._tiling.rows(stripe, self.job.n)
        rows = self._get_device().buffer(last - first)
        if stored.level < 0:
            cuts = range(first, last, max(1, -(-(last - first) // self._hands)))
            height = cuts.step
            self._all(
                self._pool.submit(fill_weights, self.graph, self.kind, at, rows[at - first : at - first + height])
                for at in cuts
            )
            return rows
        self.matrix.believe(stored.marks)
        self._all(
            self._pool.submit(self.matrix.read_tile, i, j, rows[down.start - first : down.stop - first, across])
            for i, j, down, across in self._tiles(first, last)
            if not stored.upper or across.stop > first
        )
        if stored.upper:
            self._put_together(first, last, rows)
        return rows

    def _guest(self) -> GuestMatrix:
        job = self.job
        return GuestMatrix(Path(job.store), self._exchange_dir, self._grid, job.plan.dtype, job.compression)

    def _put_together(self, first: int, last: int, rows: Array) -> None:
        """Fill the entries left of the diagonal in ``rows``, which are rows ``first`` to ``last`` of the matrix, with
        transposed entries of the stripes above.
        """
        band, width = self._grid.tile
        others = self._guest()  # this object has its own table of tiles: other tasks may change that of ``self.matrix``

        def transpose_tile(i: int, j: int) -> None:
            down, across = self._grid.slices(i, j)
            tile = np.empty((down.stop - down.start, across.stop - across.start), rows.dtype)
            others.read_tile(i, j, tile)
            begin, stop, bottom = max(first, across.start), min(last, across.stop), min(down.stop, first)
            part = tile[: bottom - down.start, begin - across.start : stop - across.start]
            rows[begin - first : stop - first, down.start : bottom] = part.T

        columns = range(first // width, -(-last // width))
        self._all(self._pool.submit(transpose_tile, i, j) for i in range(-(-first // band)) for j in columns)
        block = rows[:, first:last]
        np.copyto(block, block.T.copy(), where=np.tri(len(block), k=-1, dtype=np.bool_))

    def _catch_up(self, stripes: Sequence[int], request: TaskRequest, *, urgent: bool = False) -> int:
        """Relax each stripe by the panels that it lacks up to round ``request.level``; return the number of updates."""
        behind = [s for s in stripes if self._levels[s] < request.level]
        if not behind:
            return 0
        device, updates = self._get_device(), 0
        for k in range(min(self._levels[s] for s in behind) + 1, request.level + 1):
            panel = self._panel(k, request)
            now = [s for s in behind if self._levels[s] < k]
            with self._lock:
                if any(s != k for s in now):
                    device.use(k, panel)
                for s in now:
                    self.check()
                    if s == k:
                        device.become(k, panel)
                    else:
                        device.relax_by(k, s, urgent=urgent)
                    updates += self._updates(k, s)
                wait = device.mark(urgent=urgent)
            wait()
            for s in now:
                self._levels[s] = k
        return updates

    def _close(self, k: int) -> None:
        """Close panel ``k`` from stripe ``k``."""
        first, last = self._tiling.rows(k, self.job.n)
        device = self._get_device()
        panel = device.buffer(last - first)
        with self._lock:
            device.close_panel(k, panel)
            wait = device.mark(urgent=True)
        wait()
        self._levels[k] = max(k, self._levels[k])
        self._panels.put(k, panel)

    def _updates(self, k: int, stripe: int) -> int:
        return round_updates(self._tiling, k, stripe, self.job.n)

    def _forget(self, stripe: int) -> None:
        self._lives[stripe] += 1
        self._levels.pop(stripe, None)
        self._get_device().forget(stripe)

    # ---- panels -----------------------------------------------------------------------------------------------------

    def _panel(self, k: int, request: TaskRequest) -> Array:
        """Return closed panel ``k``, from the cache or the exchange folder."""

        def read() -> Array:
            first, last = self._tiling.rows(k, self.job.n)
            panel = self._get_device().buffer(last - first)
            read_panel(self._exchange_dir / request.panels[k], panel, self._pool)
            return panel

        return self._panels.find(k, read)

    # ---- writing rows -----------------------------------------------------------------------------------------------

    def _save(self, stripe: int) -> tuple[TileFile, ...]:
        """Write a stripe into the exchange folder, one band at a time from a copy, because the stripe may change."""
        first, last = self._tiling.rows(stripe, self.job.n)
        band = self._grid.tile[0]

        def write(row: int) -> list[TileFile]:
            rows = np.empty((min(last, row + band) - row, self.job.n), self.kind.dtype)
            self._get_device().copy(stripe, row - first, rows)
            return self._write_band(row, rows)

        return tuple(tile for tiles in self._pool.map(write, range(first, last, band)) for tile in tiles)

    def _write_band(self, row: int, rows: Array) -> list[TileFile]:
        return [
            self.matrix.write_tile(i, j, rows[:, across]) for i, j, _down, across in self._tiles(row, row + len(rows))
        ]

    def _finish(self, stripe: int) -> tuple[PartialSummary, tuple[TileFile, ...]]:
        """Turn the reduced lengths of a stripe into distances, gather facts of its rows, and write the rows."""
        first, last = self._tiling.rows(stripe, self.job.n)
        band, vertices = self._grid.tile[0], np.arange(first, last)
        summary = Summary(vertices, self.job.n, integral=self.job.integral)
        h = self._heights() if self.job.reduced else None

        def write(row: int) -> list[TileFile]:
            rows = np.empty((min(last, row + band) - row, self.job.n), self.kind.dtype)
            self._get_device().copy(stripe, row - first, rows)
            if h is not None:
                own = h[row : row + len(rows), None]
                rows = (rows.astype(np.float64) + (h - own)).astype(rows.dtype)
            observe(summary, row - first, rows, vertices)
            return self._write_band(row, rows)

        files = tuple(tile for tiles in self._pool.map(write, range(first, last, band)) for tile in tiles)
        return summary.part(first), files

    # ---- shared data ------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph, with reduced weights if the job has potentials."""
        with self._reading:
            if self._graph is None:
                graph = self.matrix.graph()
                if self.job.reduced:
                    graph = GraphProfile(graph).reduced(self._heights()).graph
                self._graph = graph
            return self._graph

    def _heights(self) -> npt.NDArray[np.float64]:
        """Return the potentials of a reduced job; finishing rows needs them even if no stripe was made from arcs."""
        if self._potentials is None:
            self._potentials = np.load(self._exchange_dir.parent / "potentials.npy")
        return self._potentials

    def _tiles(self, first: int, last: int) -> Iterable[tuple[int, int, slice, slice]]:
        for i, j in self._grid.covered(first, 0, last - first, self._grid.shape[1]):
            yield i, j, *self._grid.slices(i, j)

    def _all(self, tasks: Iterable[Future[None]]) -> None:
        waiting = deque(tasks)
        while waiting:
            waiting.popleft().result()  # an error and a frame that refer to each other would keep the rows
