"""Passes rows from searches to a sink; threads never wait for each other while there is work.

Each thread takes the first of these tasks that exists: write a piece of a finished batch, search a block of the current
batch, begin the next batch.  The thread that has searched a block gathers the facts of its rows while they are in its
cache.  So there is no barrier between batches, and no thread that only writes.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt

from engine.model.backend import RowsDone
from engine.model.dtypes import work_type
from engine.model.progress import Monitor
from engine.model.rows import Array, FactSink, Sink
from storage.errors import Cancelled

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend
    from engine.devices.cpu.searches import Searches

#: Number of entries that are written at once, so that they fit in a cache; a write has at least the rows of one tile.
PIECE: Final = 2**18
#: Seconds after which all threads take part in a run that was begun with some of them, because it seemed short.
PATIENCE: Final = 0.012
#: Seconds for which a run may begin searches in compiled calls; meanwhile it reports no progress and notices no request
#: to stop.
AT_ONCE: Final = 0.5
#: If a compiled call has left at most this number of rows, one thread searches them alone.
FEW_ROWS: Final = 16
#: Seconds between two reports of progress.  Reports are made between pieces, and each also notices a request to stop.
REPORT: Final = 0.05


def place_of(sink: Sink, dtype: npt.DTypeLike) -> Array | None:
    """Return the array into which searches may write rows of type ``dtype`` directly; None if the sink has none.

    Args:
        sink: receives the rows.
        dtype: the working type; whole numbers may go into an array of float64.
    """
    place: Array | None = getattr(sink, "place", None)  # far faster than isinstance with a protocol
    if place is None or place.dtype == np.dtype(dtype):
        return place
    return place if work_type(dtype).integer and place.dtype == np.float64 else None


@dataclass(eq=False)
class _Batch:
    """A batch that is being searched or written.

    Attributes:
        first: number of its first row.
        buffer: the array of which ``block`` is a part.
        block: shape (rows, columns); receives the rows of the batch.
        searches: the searches of the batch.
        left: number of pieces that still have to be written; set when all rows are found.
    """

    first: int
    buffer: Array
    block: Array
    searches: Searches
    left: int = 0


class RowPipeline:
    """One run over all batches of rows.

    Args:
        begin: prepares the searches of a range of rows, which write into an array of shape (rows, columns).
        batches: yields the ranges in order; the next one is requested when all searches of the previous one are taken.
        sink: receives the rows.
        monitor: receives the progress, in rows, and is asked whether to stop; called by one thread.
        buffers: arrays that hold one batch each; or one array for all rows if the sink offers one (:func:`place_of`).
        in_place: whether ``buffers`` is the array of the sink, for all rows.
        few: the number of threads that begin a run that seems short; None for all threads.  If the run is not over
            after ``PATIENCE`` seconds, all threads take part.
    """

    def __init__(
        self,
        begin: Callable[[range, Array], Searches],
        batches: Iterable[range],
        sink: Sink,
        monitor: Monitor,
        buffers: Sequence[Array],
        *,
        in_place: bool,
        few: int | None = None,
    ) -> None:
        self._few, self._late = few, math.inf if few is None else time.perf_counter() + PATIENCE
        self._start, self._batches, self._sink, self._monitor = begin, iter(batches), sink, monitor
        # isinstance with the protocol FactSink takes 25 microseconds
        self._facts = cast("FactSink", sink) if hasattr(sink, "gather") and hasattr(sink, "keep") else None
        self._free, self._in_place = deque(buffers), in_place
        # ``with`` is used on the lock, never on the condition, whose methods are Python code: an interrupt in them
        # could leave the lock held (decision 166)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._writes: deque[Callable[[int], None]] = deque()
        self._now: _Batch | None = None
        self._open = 0
        self._beginning = self._all_begun = self._due = False
        self._error: BaseException | None = None
        self._done, self._told, self._last = 0, 0, time.perf_counter()

    def run(self, backend: CpuBackend, *, at_once: bool = False) -> None:
        """Search and write all rows.

        Args:
            backend: its threads do the work.
            at_once: whether the run seems short enough to be begun by one compiled call, which begins searches for
                ``AT_ONCE`` seconds; the rest is done piece by piece.

        Raises:
            Cancelled: the monitor asked to stop; the rows in the sink are then incomplete.
            Exception: what a search or the sink raised.
        """
        self._backend = backend
        if not (at_once and self._in_place and self._search_all()):
            backend.share(self._work, self._few)
        if self._error is not None:
            self._rescue()
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # an error and a frame that refer to each other would keep the graph in memory
        self._report()

    def _search_all(self) -> bool:
        """Begin the first batch, and search as many of its rows as one compiled call can; return whether nothing is
        left to do.
        """
        self._begin(0)
        batch = self._now
        if batch is None:
            return False
        last, late = False, time.perf_counter() + AT_ONCE
        # the second call searches the blocks that the first call has given up, in another form, such as a wider type
        for _ in range(2):
            if not last and (left := late - time.perf_counter()) > 0:
                rows, last = batch.searches.take_all(self._backend.threads, left, self._gatherer(batch))
                self._done += rows
        if last:
            self._finish(batch)
        if last or len(batch.block) - self._done <= FEW_ROWS:
            self._few = 1  # too few rows are left to share them with another thread
        if self._few is not None:
            self._late = time.perf_counter() + PATIENCE
        if last:
            self._begin(0)  # begins no batch, but sets ``_all_begun`` if none is left
        return self._all_begun and self._open == 0

    def _rescue(self) -> None:
        """Write the rows of finished batches after a request to stop, so that they can be committed, and report them.

        The report also counts the rows that other threads were writing when the request came.
        """
        if isinstance(self._error, Cancelled):
            while self._writes:
                self._writes.popleft()(0)
            with contextlib.suppress(Cancelled):
                self._report()

    def _work(self, worker: int) -> None:
        try:
            while (task := self._next(worker)) is not None:
                task(worker)
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
                self._changed.notify_all()

    def _next(self, worker: int) -> Callable[[int], None] | None:
        """Return the next task of a thread; None if all tasks are done, or if another thread has failed."""
        with self._lock:
            while True:
                if self._error is not None:
                    return None
                if worker == 0 and time.perf_counter() >= self._late:
                    return self._widen
                if worker == 0 and (self._due or time.perf_counter() - self._last >= REPORT):
                    return self._report
                if self._writes:
                    return self._writes.popleft()
                if self._now is not None and self._now.searches.waiting:
                    return partial(self._search, self._now)
                if not self._beginning and not self._all_begun and self._free:
                    self._beginning = True
                    return self._begin
                if self._all_begun and self._open == 0:
                    return None
                self._changed.wait(REPORT if worker == 0 else None)

    def _widen(self, worker: int) -> None:  # noqa: ARG002 - called like all tasks
        """Let all threads take part."""
        self._late = math.inf
        self._backend.widen()

    def _report(self, worker: int = 0) -> None:  # noqa: ARG002 - called like all tasks
        """Report to the monitor the rows done since the last report: rows that were written, or were searched directly
        into the sink's array.
        """
        self._last, self._due = time.perf_counter(), False
        with self._lock:
            fresh, self._told = self._done - self._told, self._done
        self._monitor.step(fresh)

    def _begin(self, worker: int) -> None:  # noqa: ARG002 - called like all tasks
        """Begin the next batch in a free buffer."""
        rows = next(self._batches, None)
        if rows is None:
            with self._lock:
                self._beginning, self._all_begun = False, True
                self._changed.notify_all()
            return
        buffer = self._free[0]
        block = buffer[rows.start : rows.stop] if self._in_place else buffer[: len(rows)]
        batch = _Batch(rows.start, buffer, block, self._start(rows, block))
        with self._lock:
            if not self._in_place:
                self._free.popleft()
            self._now, self._beginning = batch, False
            self._open += 1
            if not batch.searches.waiting:  # all rows are known: no search will finish the batch
                self._finish(batch)
            self._changed.notify_all()

    def _search(self, batch: _Batch, worker: int) -> None:
        """Search a block of a batch, and gather the facts of its rows."""
        rows, last = batch.searches.take(worker, self._gatherer(batch))
        with self._lock:
            self._done += rows if self._in_place else 0
            if last:
                self._finish(batch)
            if last or batch.searches.waiting:
                self._changed.notify_all()

    def _gatherer(self, batch: _Batch) -> RowsDone | None:
        """Return the function that gathers the facts of rows of a batch; None if no facts are wanted."""
        facts = self._facts
        return None if facts is None else lambda some, found: facts.gather(batch.first, batch.block, some, found)

    def _finish(self, batch: _Batch) -> None:
        """Cut a batch whose rows are all found into pieces to write."""
        self._due = True
        pieces = [] if self._in_place else list(self._pieces(batch))
        batch.left = len(pieces)
        self._writes.extend(pieces)
        if not pieces:
            self._open -= 1

    def _pieces(self, batch: _Batch) -> Iterator[Callable[[int], None]]:
        (rows, columns), tile = batch.block.shape, self._sink.tile[0]
        tiles = max(1, PIECE // (tile * max(1, columns)))
        # a sink may want more rows at a time; threads then take equally many ``pieces``
        if (most := getattr(self._sink, "together", tile)) > tile * tiles:
            pieces = max(1, math.ceil(rows / (most * self._backend.threads)))
            tiles = max(tiles, math.ceil(rows / (pieces * self._backend.threads * tile)))
        for k in range(0, rows, tile * tiles):
            yield partial(self._write, batch, k, k + tile * tiles)

    def _write(self, batch: _Batch, start: int, stop: int, worker: int) -> None:  # noqa: ARG002
        """Write rows of a batch.  After the last rows, the buffer of the batch is free for another batch."""
        part = batch.block[start:stop]
        if self._facts is None:
            self._sink.write(batch.first + start, 0, part)
        else:
            self._facts.keep(batch.first + start, part)
        with self._lock:
            self._done += len(part)
            batch.left -= 1
            self._due = True
            if batch.left == 0:
                self._free.append(batch.buffer)
                self._open -= 1
                self._changed.notify_all()
