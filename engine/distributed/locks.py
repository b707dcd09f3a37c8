"""Locks, so that only one task of a worker uses a stripe at a time; and a monitor through which drivers stop tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.distributed.messages import DriverStopped
from engine.model.progress import Monitor

#: Seconds between two checks whether to stop.
LOOK: Final = 0.2


class StripeLocks:
    """Lets one task at a time hold a stripe.

    This is needed because a task that the driver has dropped may still run when the next task starts.
    """

    def __init__(self) -> None:
        # ``with`` is used on ``_lock``, never on ``_change``: the methods of a condition are Python code, and an
        # interrupt in them could leave the lock held (decision 166)
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._taken: set[int] = set()
        self._running, self._over, self._ended = 0, False, 0.0

    @contextmanager
    def hold(self, stripes: Collection[int] = ()) -> Iterator[None]:
        """Context manager: wait until no other task holds any of these stripes, then hold all of them.

        Raises:
            DriverStopped: no further task may begin.
        """
        own = set(stripes)
        with self._lock:
            self._change.wait_for(lambda: self._over or not own & self._taken)
            if self._over:
                raise DriverStopped("the driver has stopped")
            self._taken |= own
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken -= own
                self._running -= 1
                self._change.notify_all()

    def own_seconds(self, began: float) -> float:
        """Return the seconds that count for a task: since ``began``, or since the last call of this method if later."""
        with self._lock:
            now = time.monotonic()
            seconds, self._ended = now - max(began, self._ended), now
            return seconds

    def end(self, patience: float) -> None:
        """Let no further task begin, and wait at most ``patience`` seconds for the end of running tasks."""
        with self._lock:
            self._over = True
            self._change.notify_all()
            self._change.wait_for(lambda: not self._running, patience)


class StopMonitor(Monitor):
    """A monitor that ends a task if the driver has asked tasks to stop, or if the driver's folder is gone."""

    def __init__(self, exchange_dir: Path) -> None:
        self._exchange_dir, self._looked = exchange_dir, 0.0

    def step(self, amount: int) -> None:  # noqa: ARG002
        """Raise DriverStopped if the task should end."""
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            if not self._exchange_dir.is_dir() or (self._exchange_dir.parent / "stop").exists():
                raise DriverStopped("the driver has stopped")
