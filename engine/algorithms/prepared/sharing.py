"""Shares the work of one question to a prepared graph among threads, and limits the number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.threads import in_threads


class ThreadLimit(threading.local):
    """The number of threads for the questions that the current thread asks; None for the default number."""

    wanted: int | None = None

    @contextmanager
    def using(self, threads: int | None) -> Iterator[None]:
        """Context manager: set the number of threads for questions that this thread asks in its body.

        None keeps the present number.
        """
        before = self.wanted
        self.wanted = before if threads is None else threads
        try:
            yield
        finally:
            self.wanted = before


def share(threads: int, count: int, least: int, work: Callable[[int, int], None]) -> None:
    """Cut ``count`` items into pieces of at least ``least`` items, and call ``work`` for each piece, in several
    threads.

    Args:
        threads: the largest number of threads.
        count: the number of items.
        least: the smallest number of items for which starting a thread saves time.
        work: called with the first item of a piece, and the item after its last one.
    """
    pieces = min(threads, -(-count // least))
    if pieces <= 1:
        work(0, count)
        return
    cuts = [count * k // pieces for k in range(pieces + 1)]
    in_threads(pieces, work, cuts[:-1], cuts[1:])
