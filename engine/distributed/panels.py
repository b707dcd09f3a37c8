"""The panels that a worker has in host memory: those that it has closed or read, the last few of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from engine.model.backend import Array
from storage.errors import StorageFailed


class PanelCache:
    """By round; called from any thread.  A panel is read once, and who needs it meanwhile waits."""

    def __init__(self, keep: int) -> None:
        self._keep, self._lock = keep, threading.Lock()
        self._found: dict[int, Future[Array]] = {}

    def __contains__(self, k: int) -> bool:
        with self._lock:
            return k in self._found

    def put(self, k: int, panel: Array) -> None:
        """One that was closed here."""
        place: Future[Array] = Future()
        place.set_result(panel)
        with self._lock:
            self._put(k, place)

    def get(self, k: int) -> Array | None:
        """One that is here; None if it is not, or could not be read."""
        with self._lock:
            place = self._found.get(k)
        if place is None:
            return None
        with suppress(StorageFailed):
            return place.result()
        return None

    def find(self, k: int, read: Callable[[], Array]) -> Array:
        """One that is here, or is read now.  Raises what ``read`` does."""
        while (panel := self.get(k)) is None:
            mine: Future[Array] = Future()
            with self._lock:
                if k in self._found:  # another one was quicker
                    continue
                self._put(k, mine)
            try:
                mine.set_result(read())
            except BaseException as error:
                self._forget(k, mine)
                mine.set_exception(error)
                raise
        return panel

    def clear(self) -> None:
        """Forget all."""
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
