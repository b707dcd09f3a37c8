"""Limits on how many long requests of one caller run at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from service.api.fault import TooManyAtOnce
from service.settings import variable


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
