"""Workers that compute on the device, in one process: what they make is what one process makes on the processors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.problem import Options
from engine.stream.layout import Streaming
from storage.matrix import open_matrix
from tests.spreading import ToyCluster
from tests.unit.engine.spread import test_batches as batches
from tests.unit.engine.spread import test_rounds as rounds

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


@pytest.mark.parametrize("kind", [{}, {"negative": True}, {"negative": True, "whole": False}, {"directed": False}])
def test_rounds(kind: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = rounds.sample(1500, **kind)
    plan = replace(rounds.plan_for(graph), device="cuda", streaming=Streaming("host", 256, 256))
    rounds.solve(ToyCluster(3, seed=5, device="cuda"), graph, tmp_path / "d.zarr", monkeypatch, plan=plan)
    rounds.same(tmp_path / "d.zarr", rounds.expected(graph, tmp_path), 0.0 if graph.integral else 1e-5)


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
    return replace(plan, turned=False, workers=2)
