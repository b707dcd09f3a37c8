"""The matrix in host memory, whose rows are written to the store as soon as a pass has finished them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.model.tiling import FINISHED, Tiling
from engine.rows.summary import SummarySink
from engine.streaming.checkpoint import Journal
from engine.streaming.host_tier import KeptHostTier
from engine.streaming.progress_record import Levels
from storage.threads import Promise, ThreadPool


class FinishingHostTier(KeptHostTier):
    """A :class:`KeptHostTier` for passes; a context manager.

    Threads gather the facts of finished rows and write them, while the passes continue.  At intervals another thread
    copies the stripes that the pass down has left, and records which levels the store has.  Each stripe is thus written
    twice at most.

    Args:
        matrix: the matrix, shape (n, n).
        tiling: how the matrix is cut, in passes.
        journal: its working store gets the rows, and it writes the records.
        collector: gathers the facts of finished rows and passes them on to the working store.
        monitor: gets the progress of rows that are written after the passes (phase ``write``).
        threads: threads of the solve, and as many that write.
        idle: whether the processors have little else to do, as in a solve on a GPU.
    """

    def __init__(
        self,
        matrix: Array,
        tiling: Tiling,
        journal: Journal,
        collector: SummarySink,
        monitor: Monitor,
        *,
        threads: int = 1,
        idle: bool = False,
    ) -> None:
        super().__init__(matrix, tiling, journal, threads=threads, idle=idle)
        self._collector, self._monitor = collector, monitor
        self._stored: Levels = self.level.copy()  # the level that the tiles of each stripe have at least
        self._known: npt.NDArray[np.bool_] = self._stored >= FINISHED  # stripes that an earlier process has finished
        # A stripe's tiles are written by one thread at a time, so that no older copy replaces finished rows.
        self._guards = [threading.Lock() for _ in self.level]
        self._saving, self._written = False, 0
        self._pool = ThreadPool(threads, "apsp-finish")
        self._writes: deque[Promise[int]] = deque()

    def begin(self, levels: Levels) -> None:
        """Begin with the levels that the store has; the matrix holds the same."""
        self.level[:] = self._stored[:] = levels
        self._known = levels >= FINISHED

    def give(self, k: int, stripe: int, rows: Array) -> None:
        """Record the level of a stripe, and write it if it is final.

        Args:
            k: the level.
            stripe: number of the stripe.
            rows: the stripe's view, which already holds the entries.
        """
        super().give(k, stripe, rows)
        if k == FINISHED and not self._known[stripe]:
            self._writes.append(self._pool.submit(self._finish, stripe, self._collector.write))

    def commit(self, k: int) -> None:
        """Begin a copy if one is due.

        Raises:
            StorageFailed: the last copy, or writing finished rows, failed.
        """
        while self._writes and self._writes[0].done():
            self._written += self._writes.popleft().result()
        super().commit(k)

    def finish(self, tiling: Tiling) -> None:  # noqa: ARG002
        """Wait until all rows are written; gather the facts of those that an earlier process has finished.

        Raises:
            Cancelled: the monitor asked to stop.
            StorageFailed: the store cannot be written.
        """
        for stripe in np.flatnonzero(self._known):
            self._writes.append(self._pool.submit(self._finish, int(stripe), self._gather))
        self._monitor.begin("write", self.n, "rows")
        self._monitor.step(self._written)
        while self._writes:
            self._monitor.step(self._writes.popleft().result())

    def save(self) -> None:
        """Copy what the store does not have yet, as :meth:`KeptHostTier.save`.

        Raises:
            StorageFailed: a copy failed.
        """
        self._stop()
        for write in self._writes:  # those that have not begun end at once now
            write.wait()
        self._writes.clear()
        self._saving = True
        super().save()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._pool.close(drop=True)

    def _finish(self, stripe: int, work: Callable[[int, int, Array], None]) -> int:
        """Write a stripe, or gather its facts; return the number of its rows, 0 if it was stopped."""
        first, last = self._tiling.rows(stripe, self.n)
        band = self._journal.writer.tile[0]
        with self._guards[stripe]:
            for row in range(first, last, band):
                if self._stopping:
                    return 0
                work(row, 0, self.matrix[row : min(last, row + band)])
            self._stored[stripe] = FINISHED
        return last - first

    def _gather(self, row: int, _column: int, block: Array) -> None:
        self._collector.gather(row, block)

    def _copy_stripe(self, stripe: int, levels: Levels, spent: list[float], until: float | None) -> bool:
        """Copy one stripe if the store has less of it; leave finished rows to the threads that write them."""
        with self._guards[stripe]:
            levels[stripe] = self._stored[stripe]
            reached = self.level[stripe]
            if reached <= self._stored[stripe] or (reached == FINISHED and not self._saving):
                return True
            whole = super()._copy_stripe(stripe, levels, spent, until)
            if whole:
                self._stored[stripe] = levels[stripe]
            return whole
