"""The matrix in host memory, copied to the working store at intervals, so that another process can resume the solve.

The copy is made while stripes change (a fuzzy checkpoint).  Each copied stripe is at least as advanced as the stripe
was when its copy began, and resuming needs no more than that (see ``engine.model.tier``).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from engine.model.backend import Array
from engine.model.tier import HostTier
from engine.model.tiling import Tiling
from engine.streaming.checkpoint import Journal
from engine.streaming.progress_record import progress_of
from engine.streaming.store_tier import tiles_of
from storage.threads import Promise, ThreadPool, in_threads

#: Limits on the processor time of copies.  In a solve on processors, copies may take the share COST of
#: (threads x seconds), and the share COST of this process's processor time.  In a solve on GPUs, which leave the
#: processors idle, they may take the share IDLE_COST of (threads x seconds).
COST: Final = 0.02
IDLE_COST: Final = 0.5
#: Most threads that copy in a solve on GPUs.
HELPERS: Final = 4
#: Seconds that the last copy may take after the solve has been asked to stop.
LAST: Final = 12.0


class KeptHostTier(HostTier):
    """A :class:`HostTier` with a thread that copies all stripes to the store at intervals; a context manager, to be
    entered twice (``storage.threads``).

    Args:
        matrix: the matrix, shape (n, n).
        tiling: how the matrix is cut.
        journal: writes the records; its working store receives the copies.
        threads: threads of the solve.
        idle: whether the processors have little other work, as in a solve on GPUs.
    """

    def __init__(
        self, matrix: Array, tiling: Tiling, journal: Journal, *, threads: int = 1, idle: bool = False
    ) -> None:
        super().__init__(matrix, tiling)
        self._journal, self._share = journal, threads * (IDLE_COST if idle else COST)
        self._helpers, self._spare = min(HELPERS, threads) if idle else 1, idle
        self._due, self._earned = time.monotonic() + journal.interval, 0.0
        self._asked: int | None = None
        self._stopping = False
        self._keeper = ThreadPool(1, "apsp-keep")
        self._copying: Promise[None] | None = None
        self._failure: BaseException | None = None
        self._took = 0.0

    def wants(self, k: int) -> bool:
        """Return whether a copy is due, so that devices must write resident stripes to this tier after round ``k``."""
        if self._is_time() and self._asked is None:
            self._asked = k
        return self._asked == k

    def commit(self, k: int) -> None:
        """Begin to copy the stripes to the store if a copy is due.

        Raises:
            StorageFailed: the last copy failed.
        """
        if self._failure is not None:
            raise self._failure
        whole = self._tiling.passes or self._tiling.resident == 0
        ready = whole or (self._asked is not None and k >= self._asked)
        if ready and self._is_time():
            self._asked = None
            self._copying = self._keeper.submit(self._copy_all)

    def finish(self, tiling: Tiling) -> None:
        """Do nothing: columns left of the diagonal are filled in later, while other rows are written to the disk."""

    def save(self) -> None:
        """Copy the stripes once more if the time limit allows; no stripe may change during this call.

        If no stripe has finished a round in this run, the store may be more advanced than memory, so it is left
        unchanged.

        Raises:
            StorageFailed: this copy or the previous copy failed.
        """
        self._stop()
        if self._failure is None and self._took <= LAST and (self.level >= 0).any():
            self._stopping = False
            self._copy_all(until=time.monotonic() + LAST)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._keeper.close()
        self._failure = None  # an error refers to frames that refer to this tier, so that neither would be freed

    def _is_time(self) -> bool:
        resting = self._copying is None or self._copying.done()
        return resting and time.monotonic() >= self._due and time.process_time() >= self._earned

    def _stop(self) -> None:
        self._stopping = True
        if self._copying is not None:
            self._copying.wait()

    def _copy_all(self, until: float | None = None) -> None:
        began, spent, levels = time.monotonic(), list[float](), np.full_like(self.level, -1)
        try:
            copy = partial(self._copy_stripe, levels=levels, spent=spent, until=until)
            if all(in_threads(self._helpers, copy, range(len(levels)), name="apsp-copy")):
                self._journal.commit(progress_of(levels, self._tiling))
                self._took = time.monotonic() - began
        except BaseException as error:
            self._failure = error
        finally:
            self._journal.work += sum(spent)
            self._due = time.monotonic() + max(self._journal.interval, sum(spent) / self._share)
            if not self._spare:
                self._earned = time.process_time() + sum(spent) / COST

    def _copy_stripe(self, stripe: int, levels: npt.NDArray[np.int64], spent: list[float], until: float | None) -> bool:
        """Copy one stripe, and set ``levels[stripe]`` to the round that it had reached before.

        Returns:
            False if the copy was told to stop, or its time was over, before the stripe was copied; else True.
        """
        began, height = time.thread_time(), self._journal.writer.tile[0]
        levels[stripe] = self.level[stripe]
        first, last = self._tiling.rows(stripe, self.n)
        for row in range(first, last, height):
            if self._stopping or (until is not None and time.monotonic() > until):
                return False
            self._copy(row, min(last, row + height), self._tiling.left(stripe))
        spent.append(time.thread_time() - began)
        return True

    def _copy(self, first: int, last: int, left: int) -> None:
        """Copy one band of rows.  The writer makes a copy of each tile, because the checksum must be that of the bytes
        written, and the stripe may change meanwhile.
        """
        writer = self._journal.writer
        for i, j, block in tiles_of(writer, first, self.matrix[first:last], left):
            writer.write(i * writer.tile[0], j * writer.tile[1], block)
