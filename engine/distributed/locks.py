"""Tasks of one worker that overlap: which stripes each is at, and what time each took."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from engine.distributed.messages import DriverStopped


class StripeLocks:
    """A stripe is one task's at a time: one that the driver has given up may still run when the next one comes."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._taken: set[int] = set()
        self._running, self._over, self._ended = 0, False, 0.0

    @contextmanager
    def at(self, stripes: Collection[int] = ()) -> Iterator[None]:
        """Be at these stripes, all at once, when no other task is.  Stopped if there are to be no more tasks."""
        own = set(stripes)
        with self._change:
            self._change.wait_for(lambda: self._over or not own & self._taken)
            if self._over:
                raise DriverStopped("the driver has stopped")
            self._taken |= own
            self._running += 1
        try:
            yield
        finally:
            with self._change:
                self._taken -= own
                self._running -= 1
                self._change.notify_all()

    def took(self, began: float) -> float:
        """Seconds since then in which no other task has ended: of tasks that overlap, each counts its own share."""
        with self._change:
            now = time.monotonic()
            seconds, self._ended = now - max(began, self._ended), now
            return seconds

    def end(self, patience: float) -> None:
        """Let no more tasks begin, and wait for those that run."""
        with self._change:
            self._over = True
            self._change.notify_all()
            self._change.wait_for(lambda: not self._running, patience)
