"""Limits the requests of each caller: how many come in a second, and how many long ones run at the same time."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from service.api.fault import TooManyAtOnce
from service.settings import variable

#: most callers that are remembered; the least recent one is dropped first and then starts again with a full bucket
_MOST_CALLERS: Final = 10_000


class Rates:
    """A token bucket for each caller: ``limit`` requests per second, and up to twice that at once; used by one thread
    only.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._clock = limit, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str) -> float:
        """Count one request and return 0, or return the seconds until it would be allowed without counting it."""
        now, full = self._clock(), 2.0 * self.limit
        tokens, last = self._buckets.get(who, (full, now))
        tokens = min(full, tokens + (now - last) * self.limit)
        allowed = tokens >= 1.0
        self._buckets[who] = (tokens - 1.0 if allowed else tokens, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / self.limit


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
