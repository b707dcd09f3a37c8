"""Keeps threads alive between short solves, to use them again; these threads never enter Python."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.devices.cpu.atonce.threads import WORDS, end_pool, fill_pool, prepare_pool

Pool = npt.NDArray[np.int64]


class KeptThreads:
    """The pool of threads of this process. One caller at a time uses it; other callers meanwhile get pools of their
    own, which end after their use.

    Threads end after some idle seconds, and before the process forks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Pool | None = None

    @contextlib.contextmanager
    def borrow(self, threads: int) -> Iterator[Pool]:
        """Context manager: a pool with ``threads`` threads, or fewer if the system refuses some.

        Args:
            threads: the number of threads.
        """
        if not self._lock.acquire(blocking=False):
            alone = _new()
            fill_pool(alone, threads)
            try:
                yield alone
            finally:
                end_pool(alone)
            return
        try:
            if self._pool is None:
                self._pool = _new()
            fill_pool(self._pool, threads)
            yield self._pool
        finally:
            self._lock.release()

    def end(self) -> None:
        """End the threads, unless they are in use."""
        if self._pool is not None and self._lock.acquire(blocking=False):
            try:
                end_pool(self._pool)
            finally:
                self._lock.release()

    def forget(self) -> None:
        """Forget the threads, which a forked child does not have."""
        self._lock, self._pool = threading.Lock(), None


def _new() -> Pool:
    pool = np.zeros(WORDS, np.int64)
    prepare_pool(pool)
    end_pool(pool)  # loads the kernel in advance; the new pool has no thread to end
    return pool


KEPT = KeptThreads()
atexit.register(KEPT.end)  # while Python frees the memory of the pool, no thread may sleep on it
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=KEPT.end, after_in_child=KEPT.forget)
