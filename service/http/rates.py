"""Limits on request rates: one token bucket for each caller, which holds the requests of two seconds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

#: callers remembered; the least recent one is dropped first and starts again with a full bucket
_MOST_CALLERS: Final = 10_000


class Rates:
    """``limit`` requests a second for each caller, twice that at once.  Used by one thread only."""

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
