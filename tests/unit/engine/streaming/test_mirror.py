"""How rows of a symmetric matrix are completed; the solves of test_streamed complete whole matrices."""

from __future__ import annotations

import weakref
from typing import cast

import numpy as np
import pytest

from engine.model.tiling import Tiling
from engine.streaming.mirror import Mirror
from storage.errors import StorageFailed
from storage.matrix.working import WorkingMatrix
from storage.threads import ThreadPool
from tests.cycles import keepers, no_collection


class Full:
    """A store on a full disk."""

    shape, tile = (200, 200), (64, 64)

    def write(self, row: int, column: int, rows: object) -> None:
        raise StorageFailed("no space is left")


def test_rows_that_cannot_be_written_are_not_kept() -> None:
    def failing() -> None:
        rows = np.zeros((128, 200))
        kept.append(weakref.ref(rows))
        with ThreadPool(2) as pool, pool:
            mirror = Mirror(cast(WorkingMatrix, Full()), Tiling("store", 128, 128, symmetric=True), [rows], pool)
            mirror.write(0, rows)

    kept = list[weakref.ref[np.ndarray]]()
    with no_collection():
        with pytest.raises(StorageFailed):
            failing()
        assert kept[0]() is None, keepers(kept[0]())
