"""The matrix in the working store: stripes pass through a few buffers, and finished rounds are committed.

Background threads read ahead, write back and commit, so a device waits for the disk only if the stripe that it needs is
still being read.  A stripe that was never written is made from the graph's arcs, so the first round reads nothing.
Finished rows (those of the last round, or of the pass up) are passed to ``observe`` before they are written.

Resuming is exact (see ``engine.model.tier``): the record holds a lower bound of the round of each stripe.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

import numpy as np

from engine.model.backend import Array
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from engine.streaming.checkpoint import Journal
from engine.streaming.mirror import Mirror
from engine.streaming.progress_record import Levels, progress_of, take_up
from storage.matrix.working import WorkingMatrix
from storage.threads import Dropped, Promise, ThreadPool

#: Number of threads that read, and number of threads that write: a disk is fastest with several requests in flight.
IO_THREADS: Final = 4
#: Stripes that are read ahead.
WINDOW: Final = 2

#: Fills an array with rows of the weight matrix, from the given first row on.
Weights = Callable[[int, Array], None]
#: Receives finished rows for the summary: the index of the first row, and an array of the rows.
Observe = Callable[[int, Array], None]


class StoreTier:
    """A :class:`engine.model.tier.Tier` over a working store.

    It is a context manager, to be entered twice (``storage.threads``).  Its exit waits for writes in flight and ends
    the threads.

    Args:
        journal: holds the working store and writes the records.
        tiling: how the matrix is cut.
        weights: fills rows of the weight matrix; called from several threads.
        observe: called once with each finished row, from several threads for different rows.
        monitor: receives the progress of :meth:`finish`, and is asked there whether to stop.
        buffers: arrays of shape (rows of a stripe, n); the number of them limits the stripes in host memory.
        threads: number of threads that read, and number of threads that write.
    """

    window = WINDOW

    def __init__(
        self,
        journal: Journal,
        tiling: Tiling,
        *,
        weights: Weights,
        observe: Observe,
        monitor: Monitor,
        buffers: Sequence[Array],
        threads: int = IO_THREADS,
    ) -> None:
        self._journal, self._writer, self._tiling = journal, journal.writer, tiling
        self.n, self.dtype = self._writer.shape[1], self._writer.dtype
        self._weights, self._observe, self._monitor = weights, observe, monitor
        self._last = tiling.last(self.n)
        self._levels = take_up(journal, tiling, self.n, mirrored=True)
        self._seen = np.zeros(tiling.stripes(self.n), np.bool_)
        # ``with`` is used on the lock, never on the condition, whose methods are Python code: an interrupt in them
        # could leave the lock held (decision 166)
        self._lock = threading.RLock()
        self._state = threading.Condition(self._lock)
        self._buffers = {buffer.ctypes.data: buffer for buffer in buffers}
        self._free = deque(buffers)
        self._asked: deque[tuple[int, Promise[Array]]] = deque()
        self._writing: set[int] = set()
        self._busy = 0
        self._failure: BaseException | None = None
        self._failed: list[Promise[Array]] = []  # promises of stripes that could not be read
        self._readers, self._writers = ThreadPool(threads, "apsp-read"), ThreadPool(threads, "apsp-write")
        self._clock, self._ticks = ThreadPool(1, "apsp-commit"), False
        self._closing: SimpleQueue[None] = SimpleQueue()  # an item in it ends the thread of ``_clock``

    @property
    def levels(self) -> Levels:
        """A copy of the rounds or levels that the stripes have reached, each at most the last round or level."""
        return np.minimum(self._levels, self._last)

    def await_rows(self, stripes: Sequence[int]) -> None:
        """Do nothing: devices wait for each stripe when they take it."""

    def take(self, stripe: int) -> Promise[Array]:
        """Return a promise of a buffer with the rows of a stripe, read from the store or made from the arcs.

        Its result raises StorageFailed if the rows cannot be read.
        """
        found: Promise[Array] = Promise()
        with self._lock:
            self._check()
            self._asked.append((stripe, found))
        self._serve()
        return found

    def blank(self, stripe: int) -> Array:
        """Return a buffer for the rows of a stripe; wait until one is free."""
        with self._lock:
            self._state.wait_for(lambda: self._failure is not None or self._free)
            self._check()
            return self._rows(stripe, self._free.popleft())

    def give(self, k: int, stripe: int, rows: Array) -> None:
        """Write the rows back in the background.

        Args:
            k: the round or level that the stripe has reached.
            stripe: the stripe.
            rows: the rows of ``stripe``, shape (height, n), in a buffer of this tier, which is free after the write.

        Raises:
            StorageFailed: an earlier write failed.
        """
        with self._lock:
            self._check()
            self._writing.add(stripe)
            self._busy += 1
            if not self._ticks:
                self._ticks = True
                self._clock.submit(self._tick)
        self._writers.submit(self._put, k, stripe, rows)

    def drop(self, stripe: int, rows: Array) -> None:  # noqa: ARG002
        """Free the buffer of ``rows``."""
        self._release(rows)

    def retire(self, stripe: int) -> None:
        """Do nothing: no buffer belongs to a stripe, so there is no memory to free for it."""

    def skip(self, k: int, stripe: int) -> bool:
        """Return whether the stripe has reached round ``k``, in this process or in an earlier process."""
        return bool(self._levels[stripe] >= k)

    def wants(self, k: int) -> bool:  # noqa: ARG002
        """Return False: no stripe of the store stays on a device."""
        return False

    def commit(self, k: int) -> None:  # noqa: ARG002
        """Raise the first error of a background thread, if any.  The commits are made by a background thread, at
        intervals.
        """
        with self._lock:
            self._check()

    def finish(self, tiling: Tiling) -> None:
        """Wait for the last writes; complete the rows of a symmetric layout; pass rows to ``observe`` that an earlier
        process finished.
        """
        self._wait()
        stripes = [s for s in range(tiling.stripes(self.n)) if not self._seen[s]]
        if not stripes:
            return
        self._monitor.begin("finish", sum(self._height(s) for s in stripes), "rows")
        mirror = Mirror(self._writer, tiling, list(self._free), self._readers)
        for group in mirror.groups(stripes):
            for stripe, rows in mirror.whole(group, done=lambda s: bool(self._levels[s] > self._last)):
                self._observe(tiling.rows(stripe, self.n)[0], rows)
                self._seen[stripe] = True
                if tiling.symmetric and self._levels[stripe] <= self._last:
                    mirror.write(stripe, rows)
                    with self._lock:
                        self._levels[stripe] = self._last + 1
                self._monitor.step(len(rows))
            with self._lock:
                self._check()

    def save(self) -> None:
        """Commit the current state.

        Raises:
            StorageFailed: the store cannot be written.
        """
        self._wait()
        self._commit()

    def __enter__(self) -> StoreTier:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.put(None)
        self._clock.close()
        with self._lock:
            asked = list(self._asked)
            self._asked.clear()
        self._refuse([found for _stripe, found in asked], Dropped("the tier was left"))
        self._readers.close(drop=True)
        self._writers.close()
        # an error refers to frames that refer to this tier, so that neither would be freed
        self._failure = None
        while self._failed:
            self._failed.pop().forget()

    def _height(self, stripe: int) -> int:
        first, last = self._tiling.rows(stripe, self.n)
        return last - first

    def _rows(self, stripe: int, buffer: Array) -> Array:
        return buffer[: self._height(stripe)]

    def _serve(self) -> None:
        """Begin to read the requested stripes in order, until no buffer is free."""
        while True:
            with self._lock:
                ready = next((a for a in self._asked if a[0] not in self._writing), None)
                if ready is None or not self._free or self._failure is not None:
                    return
                self._asked.remove(ready)
                buffer = self._free.popleft()
            stripe, found = ready
            self._fetch(stripe, self._rows(stripe, buffer), found)

    def _fetch(self, stripe: int, rows: Array, found: Promise[Array]) -> None:
        first = self._tiling.rows(stripe, self.n)[0]
        if self._levels[stripe] < 0:
            pieces = [partial(self._weights, first, rows)]
        else:
            tiles = tiles_of(self._writer, first, rows, self._tiling.left(stripe))
            pieces = [partial(self._writer.read_tile, i, j, out) for i, j, out in tiles]
        left, lock = len(pieces), threading.Lock()

        def read(piece: Callable[[], object]) -> None:
            nonlocal left
            try:
                piece()
            except BaseException as error:
                with lock:
                    if not found.done():
                        self._refuse([found], error)
                return
            with lock:
                left -= 1
                if left == 0 and not found.done():
                    found.keep(rows)

        for piece in pieces:
            self._readers.submit(read, piece)

    def _put(self, k: int, stripe: int, rows: Array) -> None:
        """Write one stripe, in one writer thread."""
        try:
            first = self._tiling.rows(stripe, self.n)[0]
            if k == self._last:
                self._finish_rows(stripe, first, rows)
            for i, j, block in tiles_of(self._writer, first, rows, self._tiling.left(stripe)):
                self._writer.write(i * self._writer.tile[0], j * self._writer.tile[1], block)
            with self._lock:
                self._levels[stripe] = max(self._levels[stripe], k)
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                self._writing.discard(stripe)
                self._busy -= 1
            self._release(rows)

    def _finish_rows(self, stripe: int, first: int, rows: Array) -> None:
        if self._tiling.symmetric:
            return
        if self._seen[stripe]:
            raise RuntimeError(f"stripe {stripe} was finished twice")
        self._seen[stripe] = True
        self._observe(first, rows)

    def _release(self, rows: Array) -> None:
        with self._lock:
            self._free.append(self._buffers[rows.ctypes.data])
            self._state.notify_all()
        self._serve()

    def _wait(self) -> None:
        with self._lock:
            self._state.wait_for(lambda: self._busy == 0)
            self._check()

    def _fail(self, error: BaseException) -> None:
        """Record an error, and pass it to all pending and later callers."""
        with self._lock:
            self._failure = self._failure or error
            asked = list(self._asked)
            self._asked.clear()
            self._state.notify_all()
        self._refuse([found for _stripe, found in asked], error)

    def _refuse(self, asked: Sequence[Promise[Array]], error: BaseException) -> None:
        """Make the promises of some stripes fail with an error, and keep them, so that their errors can be dropped."""
        self._failed.extend(asked)
        for found in asked:
            found.fail(error)

    def _check(self) -> None:
        """Raise the first error of a background thread.  The caller holds the lock."""
        if self._failure is not None:
            raise self._failure

    def _tick(self) -> None:
        while True:
            with contextlib.suppress(Empty):
                self._closing.get(timeout=min(1.0, self._journal.interval / 4))
                return
            if self._journal.due():
                try:
                    self._commit()
                except BaseException as error:
                    self._fail(error)
                    return

    def _commit(self) -> None:
        with self._lock:
            levels = self._levels.copy()
        if (levels >= 0).any():
            self._journal.commit(progress_of(levels, self._tiling))


def tiles_of(writer: WorkingMatrix, first: int, rows: Array, left: int = 0) -> Iterator[tuple[int, int, Array]]:
    """Yield the tiles (i, j) of whole rows, each with its part of ``rows``.

    Args:
        writer: the store.
        first: the matrix row of ``rows[0]``.
        rows: array of shape (rows, columns of the matrix).
        left: the first column that matters; tiles that end before this column are left out.
    """
    begin = left // writer.tile[1] * writer.tile[1]
    for i, j in writer.grid.covered(first, begin, len(rows), rows.shape[1] - begin):
        down, across = writer.grid.slices(i, j)
        yield i, j, rows[down.start - first : down.stop - first, across]
