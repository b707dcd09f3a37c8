"""A worker's side of a solve in rounds: the stripes that it holds, the panels that it has seen, and what it is told.

Every task brings stripes to a round, from wherever they are: held here, in the store, or only in the arcs.  It may be
run twice, here or elsewhere, over old and new entries, and comes to the same; nothing that it writes counts before the
driver has taken it.  Tasks may overlap, but not at a stripe: on a GPU the products of one follow upon those of another.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.distributed.locks import Turns
from engine.distributed.messages import Job, Order, Report, Stopped, Stored
from engine.distributed.panels import Panels
from engine.distributed.stripe_device import CpuHolder, Holder, run_of
from engine.graph.potentials import reduced_weights
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import RowFacts
from engine.model.tiling import stripe_entries
from engine.rows.dense import fill_weights
from engine.rows.summary import PartialSummary, Summary
from storage.errors import StorageFailed
from storage.graph.graph import Graph
from storage.matrix.exchange import TileFile, read_panel, write_panel
from storage.matrix.grid import TileGrid
from storage.matrix.shared import GuestMatrix

#: Threads that read and write, at least and at most: a disk wants several requests at a time.
IO_THREADS: Final = (4, 8)
#: Seconds that tasks have to end when all is given back.
PATIENCE: Final = 20.0
#: Seconds between two looks at whether to stop.
LOOK: Final = 0.2


class Bench:
    """One worker's part in one job."""

    def __init__(self, job: Job, threads: int) -> None:
        self.job, self._threads = job, threads
        self.kind, self._streaming = WORK_TYPES[job.plan.dtype], job.streaming
        self._room = Path(job.room)
        self._grid = TileGrid(job.shape, job.tile)
        self.matrix = self._guest()
        # who asks the holder for products; who reads what all need
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._hands = min(max(IO_THREADS[0], threads // 2), IO_THREADS[1])
        self._pool = ThreadPoolExecutor(self._hands, "apsp-guest")
        self._graph: Graph | None = None
        self._potentials: npt.NDArray[np.float64] | None = None
        self._holder: Holder | None = None
        self._levels: dict[int, int] = {}
        self._lives: Counter[int] = Counter()  # how often a stripe was forgotten
        self._panels = Panels(job.pace.early + 1)  # the one in use, and those to come
        self._making, self._turns = threading.Lock(), Turns()
        self._looked, self._stopped = 0.0, False

    # ---- tasks ------------------------------------------------------------------------------------------------------

    def relax(self, order: Order) -> Report:
        """Bring stripes to round ``order.level``; those to leave are written and forgotten."""
        with self._turns.at(order.stripes):
            began = time.monotonic()
            missing = self._bring(order)
            here = [s for s in order.stripes if s not in missing]
            updates = self._catch_up(here, order)
            seconds = self._turns.took(began)
            files = {s: self._save(s) for s in here if s in order.leave}
            levels = {s: self._levels[s] for s in here}
            for s in files:
                self._forget(s)
            return Report(levels, tuple(missing), updates, seconds, files)

    def lead(self, order: Order) -> Report:
        """Close panel ``order.level`` out of the stripe of that number, which may be a round or more behind."""
        with self._turns.at(order.stripes):
            began, turn = time.monotonic(), order.level
            missing = self._bring(order)
            if missing:
                return Report(missing=tuple(missing))
            needed = range(self._levels[turn] + 1, turn)
            if any(k not in order.panels and k not in self._panels for k in needed):
                if turn in order.stored:  # the driver will not know that it is here
                    self._forget(turn)
                return Report()  # closed here and not in the store yet, but before this desk was made
            updates = self._catch_up([turn], replace(order, level=turn - 1), urgent=True)
            if turn not in self._panels:  # to close one again does no harm
                self._close(turn)
                updates += self._updates(turn, turn)
            level, seconds = self._levels[turn], self._turns.took(began)
            files = {turn: self._save(turn)} if turn in order.leave else {}
            if files:
                self._forget(turn)
            return Report({turn: level}, (), updates, seconds, files)

    def publish(self, order: Order) -> Report:
        """Write a panel that was closed here for the others to read; none if it is not here."""
        with self._turns.at():
            panel = self._panels.get(order.level)
            if panel is None:
                return Report()
            name = order.panels[order.level]
            write_panel(self._room / name, panel, self._pool)
            return Report(panel=name)

    def fetch(self, order: Order) -> Report:
        """Read a panel before it is needed."""
        # a commit may have passed it meanwhile; what still needs it will say so itself
        with self._turns.at(), suppress(StorageFailed):
            self._panel(order.level, order)
        return Report()

    def save(self, order: Order) -> Report:
        """Write stripes as they are, while they change; what is written is at least of the round reported."""
        levels, files = {}, {}
        with self._turns.at():
            for s in order.stripes:
                with suppress(KeyError):  # the task that computes may forget it, even meanwhile
                    life, level = self._lives[s], self._levels[s]
                    found = self._save(s)
                    if self._lives[s] == life:  # else it may be an older copy by now
                        files[s], levels[s] = found, level
        return Report(levels, tuple(s for s in order.stripes if s not in levels), files=files)

    def finish(self, order: Order) -> Report:
        """Write finished rows and tell their facts; the stripes are not held any longer."""
        with self._turns.at(order.stripes):
            began = time.monotonic()
            missing = self._bring(order)
            here = [s for s in order.stripes if s not in missing]
            updates = self._catch_up(here, order)
            levels, files, parts = {}, {}, []
            for s in here:
                part, files[s] = self._finish(s)
                parts.append(part)
                levels[s] = order.level
                self._forget(s)
            return Report(levels, tuple(missing), updates, time.monotonic() - began, files, parts=tuple(parts))

    def forget(self, order: Order) -> Report:
        """Stripes that others have now are not held any longer."""
        with self._turns.at(order.stripes):
            for s in order.stripes:
                self._forget(s)
            return Report()

    def close(self) -> None:
        """Give everything back."""
        self._stopped = True
        self._turns.end(PATIENCE)
        with self._lock:
            holder, self._holder = self._holder, None
            self._levels.clear()
            self._panels.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)
            if holder is not None:
                holder.release()

    # ---- stripes ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Stopped if the driver wants that, or is gone with its folder."""
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            self._stopped |= not self._room.is_dir() or (self._room.parent / "stop").exists()
        if self._stopped:  # known to all tasks once one has looked
            raise Stopped("the driver has stopped")

    def _held(self) -> Holder:
        with self._making:
            if self._holder is None:
                self._holder = make_holder(self.job, self._threads, self.check)
            return self._holder

    def _bring(self, order: Order) -> list[int]:
        """Have the stripes here; those that are not, and of which nothing was said."""
        self.check()
        missing = []
        for s in order.stripes:
            stored = order.stored.get(s)
            if s in self._levels and (stored is None or self._levels[s] >= stored.level):
                continue
            if stored is None:
                missing.append(s)
                continue
            self._forget(s)  # an older copy, of when the stripe was here before
            self._held().hold(s, self._read(s, stored))
            self._levels[s] = stored.level
        return missing

    def _read(self, stripe: int, stored: Stored) -> Array:
        first, last = self._streaming.rows(stripe, self.job.n)
        rows = self._held().room(last - first)
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
        return GuestMatrix(Path(job.store), self._room, self._grid, job.plan.dtype, job.compression)

    def _put_together(self, first: int, last: int, rows: Array) -> None:
        """Fill what lies left of the diagonal, transposed from the stripes above."""
        band, width = self._grid.tile
        others = self._guest()  # tiles that another task may be told of, or write, meanwhile

        def turn(i: int, j: int) -> None:
            down, across = self._grid.slices(i, j)
            tile = np.empty((down.stop - down.start, across.stop - across.start), rows.dtype)
            others.read_tile(i, j, tile)
            begin, stop, bottom = max(first, across.start), min(last, across.stop), min(down.stop, first)
            part = tile[: bottom - down.start, begin - across.start : stop - across.start]
            rows[begin - first : stop - first, down.start : bottom] = part.T

        columns = range(first // width, -(-last // width))
        self._all(self._pool.submit(turn, i, j) for i in range(-(-first // band)) for j in columns)
        block = rows[:, first:last]
        np.copyto(block, block.T.copy(), where=np.tri(len(block), k=-1, dtype=np.bool_))

    def _catch_up(self, stripes: Sequence[int], order: Order, *, urgent: bool = False) -> int:
        """Take stripes through the rounds that they lack up to ``order.level``, each panel in turn; the updates."""
        behind = [s for s in stripes if self._levels[s] < order.level]
        if not behind:
            return 0
        holder, updates = self._held(), 0
        for turn in range(min(self._levels[s] for s in behind) + 1, order.level + 1):
            panel = self._panel(turn, order)
            now = [s for s in behind if self._levels[s] < turn]
            with self._lock:
                if any(s != turn for s in now):
                    holder.use(turn, panel)
                for s in now:
                    self.check()
                    if s == turn:
                        holder.become(turn, panel)
                    else:
                        holder.relax_by(turn, s, urgent=urgent)
                    updates += self._updates(turn, s)
                wait = holder.mark(urgent=urgent)
            wait()
            for s in now:
                self._levels[s] = turn
        return updates

    def _close(self, turn: int) -> None:
        """Make a panel of the stripe of that number."""
        first, last = self._streaming.rows(turn, self.job.n)
        holder = self._held()
        panel = holder.room(last - first)
        with self._lock:
            holder.close_panel(turn, panel)
            wait = holder.mark(urgent=True)
        wait()
        self._levels[turn] = max(turn, self._levels[turn])
        self._panels.put(turn, panel)

    def _updates(self, turn: int, stripe: int) -> int:
        start, stop = self._streaming.pivot(turn, self.job.n)
        return (stop - start) * stripe_entries(self._streaming, stripe, self.job.n)

    def _forget(self, stripe: int) -> None:
        self._lives[stripe] += 1
        self._levels.pop(stripe, None)
        self._held().forget(stripe)

    # ---- panels -----------------------------------------------------------------------------------------------------

    def _panel(self, turn: int, order: Order) -> Array:
        """A closed panel, read if it is not here."""

        def read() -> Array:
            first, last = self._streaming.rows(turn, self.job.n)
            panel = self._held().room(last - first)
            read_panel(self._room / order.panels[turn], panel, self._pool)
            return panel

        return self._panels.find(turn, read)

    # ---- rows to the store ------------------------------------------------------------------------------------------

    def _save(self, stripe: int) -> tuple[TileFile, ...]:
        """Write a stripe into the room, band by band out of copies, as it may change meanwhile."""
        first, last = self._streaming.rows(stripe, self.job.n)
        band = self._grid.tile[0]

        def write(row: int) -> list[TileFile]:
            rows = np.empty((min(last, row + band) - row, self.job.n), self.kind.dtype)
            self._held().copy(stripe, row - first, rows)
            return self._write_band(row, rows)

        return tuple(tile for tiles in self._pool.map(write, range(first, last, band)) for tile in tiles)

    def _write_band(self, row: int, rows: Array) -> list[TileFile]:
        return [
            self.matrix.write_tile(i, j, rows[:, across]) for i, j, _down, across in self._tiles(row, row + len(rows))
        ]

    def _finish(self, stripe: int) -> tuple[PartialSummary, tuple[TileFile, ...]]:
        """Potentials off, facts gathered, rows written."""
        first, last = self._streaming.rows(stripe, self.job.n)
        band, vertices = self._grid.tile[0], np.arange(first, last)
        summary = Summary(vertices, self.job.n, integral=self.job.integral, binary=True)
        h = self._heights() if self.job.reduced else None

        def write(row: int) -> list[TileFile]:
            rows = np.empty((min(last, row + band) - row, self.job.n), self.kind.dtype)
            self._held().copy(stripe, row - first, rows)
            if h is not None:
                own = h[row : row + len(rows), None]
                rows = (rows.astype(np.float64) + (h - own)).astype(rows.dtype)
            observe(summary, row - first, rows, vertices)
            return self._write_band(row, rows)

        files = tuple(tile for tiles in self._pool.map(write, range(first, last, band)) for tile in tiles)
        return summary.part(first), files

    # ---- what all need ----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph, with reduced weights where the job has potentials."""
        with self._reading:
            if self._graph is None:
                graph = self.matrix.graph()
                if self.job.reduced:
                    graph = replace(graph, weights=reduced_weights(graph, self._heights()))
                self._graph = graph
            return self._graph

    def _heights(self) -> npt.NDArray[np.float64]:
        """The potentials of a job that has them; also where all stripes came from the store and none from the arcs."""
        if self._potentials is None:
            self._potentials = np.load(self._room.parent / "potentials.npy")
        return self._potentials

    def _tiles(self, first: int, last: int) -> Iterable[tuple[int, int, slice, slice]]:
        for i, j in self._grid.covered(first, 0, last - first, self._grid.shape[1]):
            yield i, j, *self._grid.slices(i, j)

    def _all(self, tasks: Iterable[Future[None]]) -> None:
        for task in list(tasks):
            task.result()


def observe(summary: Summary, row: int, rows: Array, own: npt.NDArray[np.int64]) -> None:
    """Tell ``summary`` of whole rows from its row ``row`` on; ``own`` is the column of each row's own vertex."""
    from engine.devices.cpu.row_facts import count_rows, row_facts

    mine = own[row : row + len(rows)]

    def count(width: float, counts: npt.NDArray[np.int64]) -> int:
        return count_rows(rows, mine, width, counts)

    summary.add(row, RowFacts(*row_facts(rows, mine)), count)


def make_holder(job: Job, threads: int, check: Callable[[], None]) -> Holder:
    """What this worker computes with."""
    if job.device == "cuda":
        from engine.devices.cuda.stripes import CudaHolder

        return CudaHolder(run_of(job, check), places=job.pace.places, threads=threads)
    from engine.devices.cpu.backend import CpuBackend

    return CpuHolder(job, CpuBackend(threads), check)
