"""How many threads share the work of one question to a prepared graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.threads import in_threads


class ThreadLimit(threading.local):
    """The number of threads for the questions that one thread asks; None for what holds for all."""

    wanted: int | None = None

    @contextmanager
    def using(self, threads: int | None) -> Iterator[None]:
        """Context manager: the questions that this thread asks meanwhile take so many threads; None changes nothing."""
        before = self.wanted
        self.wanted = before if threads is None else threads
        try:
            yield
        finally:
            self.wanted = before


def share(threads: int, count: int, least: int, work: Callable[[int, int], None]) -> None:
    """Call ``work`` for pieces of ``count``, of at least ``least`` each, in several threads.

    Args:
        threads: at most so many.
        count: how much there is to do.
        least: the least that is worth a thread.
        work: called with the first and the last plus one of a piece.
    """
    pieces = min(threads, -(-count // least))
    if pieces <= 1:
        work(0, count)
        return
    cuts = [count * k // pieces for k in range(pieces + 1)]
    in_threads(pieces, work, cuts[:-1], cuts[1:])
