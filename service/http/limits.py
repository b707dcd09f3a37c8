"""Limits each caller: requests a second, long requests at the same time, and seconds of computing a minute."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from service.api.fault import TooManyAtOnce, TooMuchComputing
from service.settings import variable

#: the most callers whose buckets are stored; the bucket of the caller seen least recently is dropped first, and such a
#: caller starts again with a full bucket
_MOST_CALLERS: Final = 10_000


class Rates:
    """A token bucket for each caller: ``limit`` requests per second, and at most ``2 * limit`` at once; used by one
    thread only.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._clock = limit, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str) -> float:
        """Count a request and return 0 if it is allowed now; else return the seconds until then, and count nothing."""
        now, full = self._clock(), 2.0 * self.limit
        tokens, last = self._buckets.get(who, (full, now))
        tokens = min(full, tokens + (now - last) * self.limit)
        allowed = tokens >= 1.0
        self._buckets[who] = (tokens - 1.0 if allowed else tokens, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / self.limit


class ComputingBudget:
    """A token bucket of processor seconds for each caller: ``limit`` seconds are added per minute, and the bucket holds
    at most ``limit`` seconds.

    The cost of a question is known only after it is answered, so a question may take more seconds than the bucket has.
    Further questions are then refused until the bucket has seconds again.  Safe to use from many threads.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._clock = limit, clock
        self._buckets: OrderedDict[str | None, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, who: str | None) -> None:
        """Raise TooMuchComputing if the caller's bucket is empty."""
        with self._lock:
            left = self._left(who)
        if left <= 0:
            wait = max(1, math.ceil(-left * 60 / self.limit + 0.001))
            message = (
                f"more than {self.limit:g} processor seconds a minute were used on prepared results; "
                f"try again in {wait} s"
            )
            raise TooMuchComputing(
                message, limit=self.limit, setting=variable("max_computing_seconds"), retry_after=wait
            )

    def charge(self, who: str | None, seconds: float) -> None:
        """Subtract ``seconds`` of processor time from the caller's bucket."""
        with self._lock:
            self._buckets[who] = self._left(who) - seconds, self._clock()
            self._buckets.move_to_end(who)
            if len(self._buckets) > _MOST_CALLERS:
                self._buckets.popitem(last=False)

    def _left(self, who: str | None) -> float:
        now = self._clock()
        left, last = self._buckets.get(who, (self.limit, now))
        return min(self.limit, left + (now - last) * self.limit / 60)


class ConcurrencyLimit:
    """Counts the running requests of one kind for each caller; used on one event loop only."""

    def __init__(self, what: str, setting: str) -> None:
        self._what, self._setting = what, setting
        self._running: Counter[str | None] = Counter()

    @contextmanager
    def hold(self, owner: str | None, limit: int) -> Iterator[None]:
        """Count one request while the block runs.  Raises TooManyAtOnce if ``limit`` requests are running."""
        running = self._running[owner]
        if running >= limit:
            message = f"{running} {self._what} run at the same time, which is the limit; try again when one has ended"
            raise TooManyAtOnce(message, limit=limit, requested=running + 1, setting=variable(self._setting))
        self._running[owner] += 1
        try:
            yield
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
