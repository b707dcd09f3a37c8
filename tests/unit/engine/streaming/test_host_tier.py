"""Copies of host memory: what failed once is not counted on afterwards."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine.model.dtypes import WORK_TYPES
from engine.model.tiling import Tiling
from engine.rows.dense import fill_weights
from engine.streaming.checkpoint import Journal
from engine.streaming.host_tier import KeptHostTier
from storage.errors import StorageFailed
from storage.files import direct
from storage.graph.graph import build_graph
from storage.matrix.frame import MatrixSpec
from storage.matrix.working import open_working

N = 200
KIND = WORK_TYPES["int32"]
TILING = Tiling("host", 64, 64, passes=True)


def test_after_an_fsync_that_failed_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells the loss of bytes once; a second fsync of the same file succeeds, and the bytes are lost."""
    rng = np.random.default_rng(2)
    graph = build_graph(*rng.integers(0, N, (2, 3 * N)), rng.integers(1, 9, 3 * N), n=N, directed=True)[0]
    matrix, real, failed = np.empty((N, N), KIND.dtype), direct.settle_file, list[Path]()
    fill_weights(graph, KIND, 0, matrix)

    def settle(path: Path) -> None:
        if not failed:
            failed.append(path)
            raise OSError(5, "the disk has lost something")
        real(path)

    monkeypatch.setattr(direct, "settle_file", settle)
    plan = SimpleNamespace(to_dict=lambda: {"algorithm": "blocked-floyd-warshall"}, counted=None)
    with open_working(tmp_path / "d.zarr", graph, MatrixSpec("int32", int(KIND.unreachable))) as writer:
        journal = Journal(writer, plan, dict)  # type: ignore[arg-type]
        with KeptHostTier(matrix, TILING, journal) as tier, tier:
            tier.give(1, 0, matrix[:64])
            tier._copy_all()
            with pytest.raises(StorageFailed, match="lost something"):
                tier.commit(1)
            with pytest.raises(StorageFailed, match="lost something"):
                tier.save()
        assert len(failed) == 1
        assert writer.record() is None
    assert list(tmp_path.iterdir()) == []
