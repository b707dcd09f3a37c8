"""Tests the progress that solves report: every phase counts up to its total, and never beyond it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from engine.streaming import checkpoint
from storage.errors import Cancelled
from storage.graph.graph import Graph, build_graph

N = 330


class Counting(Monitor):
    """Adds up what is told of each phase; ``stop`` is the share of ``relax`` after which it asks to stop."""

    def __init__(self, stop: float = 2.0) -> None:
        self.phases: list[list[object]] = []
        self.stop = stop

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.phases.append([phase, total, 0])

    def advance(self, amount: int) -> None:
        phase, total, done = self.phases[-1]
        self.phases[-1][2] = done + amount  # type: ignore[operator]
        assert amount >= 0
        assert done + amount <= total, f"{phase}: {done + amount} of {total}"  # type: ignore[operator]

    def cancelled(self) -> bool:
        phase, total, done = self.phases[-1] if self.phases else ("", 1, 0)
        return phase == "relax" and total != 0 and done >= self.stop * total  # type: ignore[operator]


def sample(*, directed: bool, negative: bool = False) -> Graph:
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(0, N, (2, 4 * N))
    height = rng.integers(0, 50, N) * negative
    weights = rng.integers(0, 100, 4 * N) + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=N, directed=directed)[0]


CASES = [
    ("dijkstra", {}), ("johnson", {"negative": True}), ("blocked-floyd-warshall", {}),
    ("blocked-floyd-warshall", {"negative": True}), ("blocked-floyd-warshall", {"directed": False}),
    ("recursive-floyd-warshall", {}), ("recursive-floyd-warshall", {"directed": False}), ("repeated-squaring", {}),
    ("repeated-squaring", {"directed": False}), ("partitioned", {}), ("partitioned", {"directed": False}),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
def test_no_phase_goes_beyond_its_total(tmp_path, algorithm, kind):
    graph, monitor = sample(**{"directed": True, **kind}), Counting()
    options = Options(algorithm=algorithm, device="cpu")
    plan = replace(make_plan(graph, options), streaming=None)
    solve_to_store(graph, options, tmp_path / "d.zarr", plan=plan, monitor=monitor)
    assert len(monitor.phases) >= 3


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stop", [0.1, 0.6, 2.0])
def test_rounds_count_to_their_end_also_after_a_resume(tmp_path, monkeypatch, tier, half, stop):
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    graph, path = sample(directed=not half), tmp_path / "d.zarr"
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", device="cpu"))
    streaming = Tiling(tier, 64, 128, symmetric=half, passes=not half)
    plan = replace(plan, tier=tier, streaming=streaming)
    if stop < 1:
        with pytest.raises(Cancelled):
            solve_to_store(graph, Options(), path, plan=plan, monitor=Counting(stop))
    monitor = Counting()
    solve_to_store(graph, Options(), path, plan=plan, resume=True, monitor=monitor)
    for phase, total, done in monitor.phases:
        assert done == total or phase in ("create", "seal"), phase
