"""Workers that compute on the device, in one process: what they make is what one process makes on the processors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.devices.cuda.pinned import PinnedPool
from engine.distributed import messages
from engine.model import pace
from engine.model.problem import Options
from engine.model.tiling import Tiling
from engine.streaming import checkpoint
from storage.matrix.reader import open_matrix
from tests.spreading import BusyCluster, ToyCluster
from tests.unit.engine.distributed import test_rows_driver as batches
from tests.unit.engine.distributed.dense import test_driver as rounds

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


@pytest.mark.parametrize("tier", ["device", "store"])
@pytest.mark.parametrize("kind", [{}, {"negative": True}, {"negative": True, "whole": False}, {"directed": False}])
def test_rounds(kind: dict[str, bool], tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = rounds.sample(1500, **kind)
    plan = replace(rounds.plan_for(graph), device="cuda", tier=tier, streaming=Tiling("host", 256, 256))
    rounds.solve(ToyCluster(3, seed=5, device="cuda"), graph, tmp_path / "d.zarr", monkeypatch, plan=plan)
    rounds.same(tmp_path / "d.zarr", rounds.expected(graph, tmp_path), 0.0 if graph.integral else 1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_tasks_overlap_are_done_twice_and_lost(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker relaxes by two panels at a time while it closes a third one; from the fourth seed on some go."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.05)
    monkeypatch.setattr(rounds.commits, "COST", 10.0)
    monkeypatch.setattr(messages, "RESIDENT", replace(pace.RESIDENT, task=0.0, places=2 if seed % 2 else 6))
    monkeypatch.setattr(rounds.drive, "LOSSES", 100)
    graph, cluster = rounds.sample(4000, negative=seed in {2, 4}, seed=seed), BusyCluster(3, seed=seed, device="cuda")

    def mischief(_: ToyCluster) -> None:
        if seed > 2 and cluster.random.random() < 0.02 and cluster.number < 12:
            cluster.kill(cluster.random.choice(sorted(cluster.workers)))
            cluster.add()

    cluster.mischief = mischief
    plan = replace(rounds.plan_for(graph), device="cuda", streaming=Tiling("host", 128, 128))
    rounds.solve(cluster, graph, tmp_path / "d.zarr", monkeypatch, plan=plan)
    assert cluster.most > 3
    assert (cluster.number > 3) == (seed > 2)
    rounds.same(tmp_path / "d.zarr", rounds.expected(graph, tmp_path))


CASES = [("bellman-ford", {}), ("johnson", {"negative": True}), *(c for c in batches.CASES if c[0] == "partitioned")]


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
def test_rows(algorithm: str, kind: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, cluster = batches.sample(**kind), ToyCluster(3, device="cuda")
    monkeypatch.setattr(batches, "plan_for", on_the_device)
    batches.solve(cluster, graph, Options(algorithm=algorithm), tmp_path / "d.zarr", monkeypatch, "cuda")
    assert cluster.done.count("search") >= 3
    host = "dijkstra" if algorithm == "bellman-ford" else algorithm
    wanted = batches.expected(graph, Options(algorithm=host, device="cpu"), tmp_path)
    batches.same(tmp_path / "d.zarr", wanted, 0.0 if graph.integral else 1e-5)


@pytest.mark.parametrize("algorithm", ["bellman-ford", "partitioned"])
def test_a_rectangle_up_to_a_cutoff(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, some = batches.sample(), {"sources": tuple(range(500, 90, -1)), "targets": (3, 9, 1), "cutoff": 300.0}
    monkeypatch.setattr(batches, "plan_for", on_the_device)
    options = Options(algorithm=algorithm, **some)  # type: ignore[arg-type]
    batches.solve(ToyCluster(2, device="cuda"), graph, options, tmp_path / "d.zarr", monkeypatch, "cuda")
    wanted = batches.expected(graph, Options(algorithm="dijkstra", device="cpu", **some), tmp_path)  # type: ignore[arg-type]
    with open_matrix(tmp_path / "d.zarr") as one, open_matrix(wanted) as other:
        np.testing.assert_array_equal(one.rows(one.sources), other.rows(other.sources))


def on_the_device(graph: object, options: Options) -> object:
    """The plan of one process for its GPU."""
    plan = batches.make_plan(graph, replace(options, device="cuda", executor="local", scheduler=None))  # type: ignore[arg-type]
    return replace(plan, from_targets=False, workers=2)


def test_pieces_come_back_when_nobody_shows_them() -> None:
    pieces = PinnedPool((64, 100), np.int32, 2)
    one, two = pieces.take(64), pieces.take(10)
    assert (one.shape, two.shape) == ((64, 100), (10, 100))
    assert not np.shares_memory(one, two)
    place, last = one.ctypes.data, one[63:].reshape(-1).view(np.uint8)
    del one
    assert pieces.take(64).ctypes.data not in (place, two.ctypes.data)
    last[:] = 7
    del last
    found = [pieces.take(3) for _ in range(2)]
    assert place in [piece.ctypes.data for piece in found]
    pieces.release()
    found[0][:] = 1  # still memory, only not locked any more
