"""Fills a matrix in host memory by threads, piece by piece, in the order in which the running solve needs it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Self

from engine.model.blocks import cut
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from storage.threads import Promise, ThreadPool

#: Most bytes of rows that a thread fills at a time, unless one row of tiles is larger.
_SHARE: Final = 2**24
#: Bytes of a page of memory: a piece begins at a multiple of this number.
_PAGE: Final = 4096
#: Most bytes of a piece, unless the fewest stripes that fill whole pages have more.  Smaller pieces take longer in all,
#: because the CUDA driver needs time for each page and also for each piece.
_PIECE: Final = 2**25

#: Seconds between the locking of two pieces that no caller waits for.
_PAUSE: Final = 0.03
#: Values that are put in queues in place of a piece: _BEGIN tells the thread that locks pages to begin, _END to end.
_BEGIN: Final = -2
_END: Final = -1

#: A function of a range of rows: its arguments are the first row, and the row after the last.
Rows = Callable[[int, int], None]


class Loading:
    """Threads that fill the rows of a matrix.

    It is a context manager, to be entered twice (``storage.threads``), that ends the threads.

    A *piece* is a run of stripes that begins at a page of the memory.  Once its rows are filled, another thread locks
    its pages, and then its stripes are *ready*.  While the CUDA driver locks pages, its other calls wait, for example
    allocations.  So the thread that locks begins at the first call of ``wait``, after devices have allocated their
    memory.  It pauses after each piece, unless a caller waits for another piece.

    Args:
        tiling: how the matrix is cut.
        size: rows of the matrix, and bytes of a row.
        fill: fills rows; called from several threads for different rows.
        lock: locks the pages of rows that are filled; called once for each piece, from one thread.
        band: height of a tile; ``fill`` gets multiples of this number of rows, except for the last rows of a stripe.
        order: the stripes to fill first, in this order; stripes that are not listed follow.
        threads: number of threads that fill.
    """

    def __init__(
        self,
        tiling: Tiling,
        size: tuple[int, int],
        *,
        fill: Rows,
        lock: Rows,
        band: int,
        order: Sequence[int] = (),
        threads: int = 1,
    ) -> None:
        n, row = size
        self._tiling, self._rows, self._fill, self._lock_pages = tiling, n, fill, lock
        stripes = tiling.stripes(n)
        self._group = piece_stripes(tiling.height * row)
        self._height = self._group * tiling.height
        self._pieces: list[Promise[None]] = [Promise() for _ in range(-(-stripes // self._group))]
        share = max(1, _SHARE // max(1, row) // band) * band
        first = [stripe // self._group for stripe in order]
        self._tasks = [
            (piece, *span)
            for piece in dict.fromkeys((*first, *range(len(self._pieces))))
            for stripe in range(piece * self._group, min(stripes, (piece + 1) * self._group))
            for span in cut(tiling.rows(stripe, n), share)
        ]
        self._left = Counter(piece for piece, *_ in self._tasks)  # how many tasks of each piece are not done
        self._guard, self._stopping = threading.Lock(), False
        self._filled: SimpleQueue[int] = SimpleQueue()
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._wanted = set[int]()  # pieces that a caller waits for
        self._pool, self._locking = ThreadPool(threads, "apsp-load"), ThreadPool(1, "apsp-lock")

    def begin(self) -> None:
        """Begin to fill the matrix."""
        self._locking.submit(self._lock_all)
        for task in self._tasks:
            self._pool.submit(self._load, *task)

    def ready(self, stripe: int) -> Promise[None]:
        """Return a promise that is fulfilled when a stripe is ready.

        The promise raises the exception of filling or locking the stripe's piece, if there was one.
        """
        piece = stripe // self._group
        if not self._pieces[piece].done():
            self._asked.put(piece)
        return self._pieces[piece]

    def wait(self, monitor: Monitor, stripes: Sequence[int]) -> None:
        """Wait until stripes are ready.

        Args:
            monitor: receives the number of rows of ``stripes`` (phase ``ingest``), and is asked whether to stop.
            stripes: the stripes.

        Raises:
            Cancelled: the monitor asked to stop.
            StorageFailed: a stripe cannot be read.
        """
        self._asked.put(_BEGIN)
        heights = [last - first for first, last in (self._tiling.rows(stripe, self._rows) for stripe in stripes)]
        monitor.begin("ingest", sum(heights), "rows")
        for ready, height in zip([self.ready(stripe) for stripe in stripes], heights, strict=True):
            ready.result()
            monitor.step(height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._filled.put(_END)
        self._asked.put(_END)
        self._pool.close(drop=True)
        self._locking.close(drop=True)
        for piece in self._pieces:  # an error refers to frames that refer to this object: neither would be freed
            piece.forget()

    def _load(self, piece: int, first: int, last: int) -> None:
        if self._stopping:
            return
        try:
            self._fill(first, last)
        except BaseException as error:
            self._fail(piece, error)
            return
        with self._guard:
            self._left[piece] -= 1
            whole = self._left[piece] == 0
        if whole:
            self._filled.put(piece)

    def _lock_all(self) -> None:
        self._asked.get()
        for _ in self._pieces:
            piece = self._filled.get()
            if piece == _END or self._stopping:
                return
            try:
                self._lock_pages(piece * self._height, min(self._rows, (piece + 1) * self._height))
            except BaseException as error:
                self._fail(piece, error)
            else:
                self._pieces[piece].keep(None)
            self._pause()

    def _pause(self) -> None:
        """Wait until a caller needs a piece that is not ready, but at most for ``_PAUSE`` seconds."""
        with suppress(Empty):
            until = time.monotonic() + _PAUSE
            while not self._stopping and not any(not self._pieces[piece].done() for piece in self._wanted):
                piece = self._asked.get(timeout=max(0.0, until - time.monotonic()))
                if piece >= 0:
                    self._wanted.add(piece)

    def _fail(self, piece: int, error: BaseException) -> None:
        with self._guard:
            if not self._pieces[piece].done():
                self._pieces[piece].fail(error)


def piece_stripes(size: int) -> int:
    """Return the number of stripes of a piece: the least number that fills whole pages, or a multiple of this number if
    stripes are small.

    Args:
        size: bytes of a stripe.
    """
    least = max(1, _PAGE // (size & -size)) if size else 1
    return least * max(1, _PIECE // max(1, least * size))
