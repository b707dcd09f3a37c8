"""The matrix in host memory, whose rows are written to the store as soon as a pass has finished them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.blocks import Span, cut
from engine.model.progress import Monitor
from engine.model.tiling import FINISHED, Tiling
from engine.rows.summary import SummarySink
from engine.streaming.checkpoint import Journal
from engine.streaming.host_tier import KeptHostTier
from engine.streaming.loading import Loading, Rows
from engine.streaming.progress_record import Levels
from storage.threads import Promise, ThreadPool


class FinishingHostTier(KeptHostTier):
    """A :class:`KeptHostTier` for passes; a context manager.

    During the passes, some threads gather the facts of finished rows and write these rows.  At intervals another thread
    copies the stripes that the pass down has lowered to the store, and records the levels of all stripes in the store.
    So each stripe is written at most twice.

    Args:
        matrix: the matrix, shape (n, n).
        tiling: how the matrix is cut, in passes.
        journal: writes the records; its working store receives the rows.
        collector: gathers the facts of finished rows and passes them on to the working store.
        monitor: receives the progress of the rows that must be loaded before the passes (phase ``ingest``), and of the
            rows that are written after them (phase ``write``).
        threads: number of threads of the solve; the same number of further threads write.
        idle: whether the processors have little other work, as in a solve on a GPU.
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
        self._loading: Loading
        self._stored: Levels = self.level.copy()  # a lower bound of the level of each stripe's tiles in the store
        self._known: npt.NDArray[np.bool_] = self._stored >= FINISHED  # stripes that an earlier process has finished
        # A thread that copies a stripe holds the stripe's lock until the copy has ended.  Finished rows are written
        # only afterwards, so that no older copy replaces them.
        self._guards = [threading.Lock() for _ in self.level]
        self._left: dict[int, deque[Span]] = {}  # by stripe: rows of tiles that no thread has begun to write
        self._bands = np.zeros(len(self.level), np.int64)  # rows of tiles of each stripe that are not written yet
        self._saving, self._written = False, 0
        self._release: Rows = _nothing
        self._pool = ThreadPool(threads, "apsp-finish")
        self._writes: deque[Promise[int]] = deque()

    def begin(self, levels: Levels, loading: Loading, release: Rows | None = None) -> None:
        """Set the levels that the stripes have in the store; the matrix has the same levels once it is loaded.

        Args:
            levels: the level of each stripe.
            loading: fills the matrix; a stripe is taken once it is ready.
            release: begins to unlock the memory pages of some rows; called for rows that no device will copy again.
        """
        self._loading, self._release = loading, release or self._release
        self.level[:] = self._stored[:] = levels
        self._known = levels >= FINISHED

    def await_rows(self, stripes: Sequence[int]) -> None:
        """Wait until stripes are ready, in the phase ``ingest``.

        Raises:
            Cancelled: the monitor asked to stop.
            StorageFailed: a stripe cannot be read.
        """
        self._loading.wait(self._monitor, stripes)

    def take(self, stripe: int) -> Promise[Array]:
        """Return a promise of a view of the stripe; it is fulfilled when the stripe is ready.

        Its result raises StorageFailed if the stripe cannot be read.
        """
        return _View(self.blank(stripe), self._loading.ready(stripe))

    def give(self, k: int, stripe: int, rows: Array) -> None:
        """Record the level of a stripe, whose view already holds the entries, and write it if it is final."""
        super().give(k, stripe, rows)
        if k == FINISHED and not self._known[stripe]:
            self._begin_finish(stripe, self._collector.write)

    def retire(self, stripe: int) -> None:
        """Begin to unlock the memory pages of a stripe, because no device will copy it again."""
        self._release(*self._tiling.rows(stripe, self.n))

    def commit(self, k: int) -> None:
        """Begin to copy stripes to the store if the interval has passed.

        Raises:
            StorageFailed: the last copy failed, or finished rows could not be written.
        """
        while self._writes and self._writes[0].done():
            self._written += self._writes.popleft().result()
        super().commit(k)

    def finish(self, tiling: Tiling) -> None:  # noqa: ARG002
        """Wait until all rows are written; gather the facts of the rows that an earlier process has finished.

        Raises:
            Cancelled: the monitor asked to stop.
            StorageFailed: the store cannot be written.
        """
        self._release(0, self.n)
        for stripe in np.flatnonzero(self._known):
            self._loading.ready(int(stripe)).result()
            self._begin_finish(int(stripe), self._gather)
        self._help()
        self._monitor.begin("write", self.n, "rows")
        self._monitor.step(self._written)
        while self._writes:
            self._monitor.step(self._writes.popleft().result())

    def save(self) -> None:
        """Copy to the store all stripes of which the store has an older state, as :meth:`KeptHostTier.save` does.

        Raises:
            StorageFailed: a copy failed.
        """
        self._stop()
        for write in self._writes:  # because ``_stop`` was called, writes that have not begun end without writing
            write.wait()
        self._writes.clear()
        self._saving = True
        super().save()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._pool.close(drop=True)
        self._writes.clear()  # a failed write holds an error, whose frames refer to this tier

    def _begin_finish(self, stripe: int, work: Callable[[int, int, Array], None]) -> None:
        """Let a thread write a stripe, or gather the facts of its rows, one row of tiles after the other."""
        bands = deque(cut(self._tiling.rows(stripe, self.n), self._journal.writer.tile[0]))
        self._bands[stripe], self._left[stripe] = len(bands), bands
        self._writes.append(self._pool.submit(self._finish, stripe, work))

    def _help(self) -> None:
        """Let further threads write the remaining stripes, after the passes.

        During the passes a single thread writes each stripe.  With several threads for a stripe, the thread that queues
        the device's work would wait for the interpreter's lock.
        """
        for stripe, bands in list(self._left.items()):
            work = self._gather if self._known[stripe] else self._collector.write
            self._writes.extend(self._pool.submit(self._finish, stripe, work) for _ in range(len(bands) - 1))

    def _finish(self, stripe: int, work: Callable[[int, int, Array], None]) -> int:
        """Write the remaining rows of a stripe, or gather its facts; return the number of rows."""
        count, guard, bands = 0, self._guards[stripe], self._left[stripe]
        with guard:  # wait for a copy that has begun; later copies skip this stripe
            pass
        while not self._stopping:
            try:
                first, last = bands.popleft()
            except IndexError:
                break
            work(first, 0, self.matrix[first:last])
            count += last - first
            with guard:
                self._bands[stripe] -= 1
                if self._bands[stripe] == 0:
                    self._stored[stripe] = FINISHED
        return count

    def _gather(self, row: int, _column: int, block: Array) -> None:
        self._collector.gather(row, block)

    def _copy_stripe(self, stripe: int, levels: Levels, spent: list[float], until: float | None) -> bool:
        """Copy one stripe if the store has an older state of it.  Finished stripes are left out: other threads write
        them.
        """
        with self._guards[stripe]:
            levels[stripe] = self._stored[stripe]
            reached = self.level[stripe]
            if reached <= self._stored[stripe] or (reached == FINISHED and not self._saving):
                return True
            whole = super()._copy_stripe(stripe, levels, spent, until)
            if whole:
                self._stored[stripe] = levels[stripe]
            return whole


class _View(Promise[Array]):
    """A promise of a view of a stripe; it is fulfilled when the stripe is ready."""

    __slots__ = ("_ready", "_rows")

    def __init__(self, rows: Array, ready: Promise[None]) -> None:
        super().__init__()
        self._rows, self._ready = rows, ready

    def done(self) -> bool:
        """Return whether the stripe is ready, or cannot be read."""
        return self._ready.done()

    def wait(self) -> None:
        """Wait until the stripe is ready, or cannot be read."""
        self._ready.wait()

    def result(self) -> Array:
        """Wait, and return the view."""
        self._ready.result()
        return self._rows


def _nothing(first: int, last: int) -> None:
    """Do nothing."""
