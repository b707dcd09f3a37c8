"""Tests streamed solves of whole weights of both signs in a float type that rounds their sums.

Rounds over host memory must be exact, and the store tier must be offered only if it can relax true lengths.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.graph.analysis import describe
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Device, Machine, Options
from engine.model.tiling import Tiling
from engine.planning.cost import Setting
from engine.planning.cost_streaming import streamed
from engine.planning.cost_streaming_cuda import through_devices
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix

N = 300
SLOW = Machine(1, 2**34, 0, 2**40, dict.fromkeys(WORK_TYPES, 1e3), 1e2, 1e9)


def heights(step: int) -> np.ndarray:
    return np.arange(N) * step + np.random.default_rng(4).integers(0, step, N)


def differences(step: int) -> Graph:
    """Arcs between near vertices, as long as they differ in height: every cycle has length zero."""
    height = heights(step)
    tails, heads = np.nonzero(np.abs(np.subtract.outer(np.arange(N), np.arange(N))) <= 9)
    return build_graph(tails, heads, height[heads] - height[tails], n=N, directed=True)[0]


@pytest.mark.parametrize(("dtype", "step"), [("float32", 10**6), ("float64", 2**49)])
def test_rounds_over_host_memory_do_not_run_away(dtype: str, step: int, tmp_path: Path) -> None:
    graph, options = differences(step), Options(algorithm="blocked-floyd-warshall", dtype=dtype)
    plan = replace(make_plan(graph, options), tier="host", streaming=Tiling("host", 64, 128, symmetric=False))
    solve_to_store(graph, options, tmp_path / "d.zarr", plan=plan)
    height = heights(step)
    with open_matrix(tmp_path / "d.zarr") as matrix:
        np.testing.assert_array_equal(matrix.rows(matrix.sources), (height[None] - height[:, None]).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "step", "store"),
    [("float32", 10**6, False), ("float64", 2**49, False), ("float64", 10**6, True), ("int32", 10**4, True)],
)
def test_the_store_tier_is_offered_only_where_true_lengths_are_relaxed(dtype: str, step: int, store: bool) -> None:
    setting = Setting(describe(differences(step)), SLOW, WORK_TYPES[dtype], 2**20)
    assert {c.tier for c in streamed(setting)} == ({"host", "store"} if store else {"host"})
    device = Device("a card", 2**34, 2**34, dict.fromkeys(WORK_TYPES, 1e3))
    setting = replace(setting, machine=replace(SLOW, cuda=device))
    assert ("store" in {c.tier for c in through_devices(setting)}) == store
