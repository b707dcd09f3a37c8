"""Many graphs at once on the device: each like alone on the CPU, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.api.bulk import Entry, make_bulk_plan, run
from engine.api.solve import solve_to_store
from engine.devices.cuda.bulk import device_stacks
from engine.model.problem import Options
from storage.errors import DoesNotFit, SolveFailed
from storage.matrix.reader import open_matrix
from tests.bulks import cycle, facts, graph_of, mixed, same_as_alone, solved
from tests.gpu.samples import KINDS, closure, weights

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


@pytest.mark.parametrize(("dtype", "signed"), KINDS)
@pytest.mark.parametrize(("graphs", "side"), [(1, 32), (300, 32), (300, 64), (40, 128), (5, 512)])
def test_stacks(dtype: str, signed: bool, graphs: int, side: int) -> None:
    rng = np.random.default_rng(side)
    stack = np.stack([weights(rng, side, dtype) for _ in range(graphs)])
    want = {i: closure(stack[i]) for i in {0, graphs // 2, graphs - 1}}
    with device_stacks() as device:
        device.close(stack, nonnegative=not signed)
    for i, matrix in want.items():
        np.testing.assert_array_equal(stack[i], matrix)


def test_mixed_graphs_like_alone(tmp_path: Path) -> None:
    graphs = [graph for graph in mixed() if graph.n]
    results = solved(graphs, tmp_path, Options(device="cuda"))
    same_as_alone(graphs, tmp_path, results)
    assert {result.plan.device for result in results if result.plan} == {"cuda"}


def test_hundreds_of_sizes_in_a_few_launches(tmp_path: Path) -> None:
    graphs = {i: graph_of(20 + i % 500, i) for i in range(600)}
    options = Options(device="cuda")
    plan = make_bulk_plan(graphs, options, stores=False)
    assert {group.way for group in plan.groups} == {"stacked"}
    assert len(plan.groups) < 20
    found = {r.index: r for r in run({i: Entry(g) for i, g in graphs.items()}, plan, options)}
    on_cpu = Options(device="cpu")
    other = make_bulk_plan(graphs, on_cpu, stores=False)
    for result in run({i: Entry(g) for i, g in graphs.items()}, other, on_cpu):
        assert result.failure is None
        assert facts(result.summary) == facts(found[result.index].summary)


def test_a_negative_cycle_fails_its_graph_alone(tmp_path: Path) -> None:
    results = solved([graph_of(40, 1), cycle(), graph_of(50, 2)], tmp_path, Options(device="cuda"))
    assert [result.failure.kind if result.failure else None for result in results] == [None, "negative-cycle", None]


def test_a_cycle_that_no_plan_looked_for_is_reported() -> None:
    stack = np.full((3, 64, 64), 2**30 - 1, np.int32)
    stack[:, np.arange(64), np.arange(64)] = 0
    stack[1, 0, 1], stack[1, 1, 0] = 5, -9
    with device_stacks() as device, pytest.raises(SolveFailed, match="negative distance"):
        device.close(stack, nonnegative=False)


def test_a_budget_is_kept(tmp_path: Path) -> None:
    with device_stacks(memory=10**6) as device, pytest.raises(DoesNotFit, match="bytes free"):
        device.close(np.zeros((100, 256, 256), np.int32), nonnegative=True)
    graphs = {i: graph_of(250, i) for i in range(300)}
    options = Options(device="cuda", dtype="int32", device_memory=80 * 2**20)
    plan = make_bulk_plan(graphs, options, stores=False)
    (group,) = plan.groups
    assert 1 < group.launch < 100
    results = list(run({i: Entry(g) for i, g in graphs.items()}, plan, options))
    assert all(result.failure is None for result in results)


def test_large_graphs_have_the_device_to_themselves(tmp_path: Path) -> None:
    graphs = [graph_of(40, 1), graph_of(4000, 2)]
    results = solved(graphs, tmp_path, Options(device="cuda", dtype="int32"))
    assert all(result.plan is not None and result.plan.device == "cuda" for result in results)
    solve_to_store(graphs[1], Options(device="cpu", dtype="int32"), tmp_path / "alone.zarr")
    with open_matrix(tmp_path / "alone.zarr") as one, open_matrix(tmp_path / "1.zarr") as two:
        assert facts(one.summary) == facts(two.summary)
        np.testing.assert_array_equal(one.rows(np.arange(4000)), two.rows(np.arange(4000)))
