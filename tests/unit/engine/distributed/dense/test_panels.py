"""The panels that a worker keeps."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from engine.distributed.dense.panels import PanelCache
from engine.model.backend import Array
from storage.errors import StorageFailed
from tests.cycles import keepers, no_collection


def test_a_panel_that_cannot_be_read_keeps_nothing_and_is_read_again() -> None:
    """Another thread waits for the panel meanwhile, and then reads it itself."""
    cache, begun, found = PanelCache(2), threading.Event(), list[Array]()

    def fail(rows: Array) -> Array:
        begun.set()
        while cache.lookers == 0:  # the other thread has asked
            pass
        raise StorageFailed("the disk is away")

    def other() -> None:
        begun.wait(60)
        found.append(cache.find(3, lambda: np.ones(1)))

    def failing() -> None:
        rows = np.zeros(5)
        kept.append(weakref.ref(rows))
        cache.find(3, lambda: fail(rows))

    class Counted(PanelCache):
        lookers = 0

        def get(self, k: int) -> Array | None:
            if threading.current_thread() is thread:
                self.lookers += 1
            return super().get(k)

    cache, kept = Counted(2), list[weakref.ref[Array]]()
    thread = threading.Thread(target=other)
    with no_collection():
        thread.start()
        with pytest.raises(StorageFailed, match="away"):
            failing()
        thread.join(60)
        assert kept[0]() is None, keepers(kept[0]())
    assert [panel.sum() for panel in found] == [1]
    assert 3 in cache
