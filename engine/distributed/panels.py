"""The panels that a worker has in host memory: those that it has closed or read, the last few of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from engine.model.backend import Array
from storage.errors import StorageFailed


class Panels:
    """By round; called from any thread.  A panel is read once, and who needs it meanwhile waits."""

    def __init__(self, keep: int) -> None:
        self._keep, self._lock = keep, threading.Lock()
        self._found: dict[int, Future[Array]] = {}

    def __contains__(self, turn: int) -> bool:
        with self._lock:
            return turn in self._found

    def put(self, turn: int, panel: Array) -> None:
        """One that was closed here."""
        place: Future[Array] = Future()
        place.set_result(panel)
        with self._lock:
            self._put(turn, place)

    def get(self, turn: int) -> Array | None:
        """One that is here; None if it is not, or could not be read."""
        with self._lock:
            place = self._found.get(turn)
        if place is None:
            return None
        with suppress(StorageFailed):
            return place.result()
        return None

    def find(self, turn: int, read: Callable[[], Array]) -> Array:
        """One that is here, or is read now.  Raises what ``read`` does."""
        while (panel := self.get(turn)) is None:
            mine: Future[Array] = Future()
            with self._lock:
                if turn in self._found:  # another one was quicker
                    continue
                self._put(turn, mine)
            try:
                mine.set_result(read())
            except BaseException as error:
                self._forget(turn, mine)
                mine.set_exception(error)
                raise
        return panel

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._found.clear()

    def _forget(self, turn: int, place: Future[Array]) -> None:
        with self._lock:
            if self._found.get(turn) is place:
                del self._found[turn]

    def _put(self, turn: int, place: Future[Array]) -> None:
        self._found[turn] = place
        for old in sorted(self._found)[: -self._keep]:
            if old != turn:
                del self._found[old]
