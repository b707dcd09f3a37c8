"""Keeps the last few panels that a worker has closed or read, in host memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from engine.model.backend import Array
from storage.errors import StorageFailed


class PanelCache:
    """A cache of panels by round; safe to use from many threads, which wait while one of them reads a panel.

    Args:
        keep: the number of panels to keep.
    """

    def __init__(self, keep: int) -> None:
        self._keep, self._lock = keep, threading.Lock()
        self._found: dict[int, Future[Array]] = {}

    def __contains__(self, k: int) -> bool:
        with self._lock:
            return k in self._found

    def put(self, k: int, panel: Array) -> None:
        """Add a panel that this worker has closed."""
        place: Future[Array] = Future()
        place.set_result(panel)
        with self._lock:
            self._put(k, place)

    def get(self, k: int) -> Array | None:
        """Return a cached panel; None if it is not in the cache or could not be read."""
        with self._lock:
            place = self._found.get(k)
        if place is None:
            return None
        try:
            with suppress(StorageFailed):
                return place.result()
            return None
        finally:
            del place  # an error and a frame that refer to each other would keep the panels

    def find(self, k: int, read: Callable[[], Array]) -> Array:
        """Return the cached panel, or load it with ``read``, once for all threads.  It raises what ``read`` raises."""
        while (panel := self.get(k)) is None:
            mine: Future[Array] = Future()
            with self._lock:
                if k in self._found:  # another thread has begun to read this panel
                    continue
                self._put(k, mine)
            try:
                mine.set_result(read())
            except BaseException as error:
                self._forget(k, mine)
                mine.set_exception(error)
                del mine  # as ``place`` in ``get``
                raise
        return panel

    def clear(self) -> None:
        """Drop all panels."""
        with self._lock:
            self._found.clear()

    def _forget(self, k: int, place: Future[Array]) -> None:
        with self._lock:
            if self._found.get(k) is place:
                del self._found[k]

    def _put(self, k: int, place: Future[Array]) -> None:
        self._found[k] = place
        for old in sorted(self._found)[: -self._keep]:
            if old != k:
                del self._found[old]
