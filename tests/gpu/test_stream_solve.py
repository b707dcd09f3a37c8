"""Whole solves streamed through the device, from host memory and from the store: planned, stopped, gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.devices.cuda.stripes.memory import StripeMemory
from engine.devices.cuda.stripes.panels import CudaPanels
from engine.devices.cuda.stripes.streamer import CudaStreamer, found_devices
from engine.execution import streamed
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.system import resident_bytes
from engine.model.tiling import Tiling, device_bytes
from engine.streaming import checkpoint, host_tier
from storage.errors import Cancelled, DoesNotFit, NegativeCycle
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.stores import verify_matrix

FW = "blocked-floyd-warshall"
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]
MIB = 2**20


def graph_of(n: int, *, directed: bool = True, negative: bool = False, whole: bool = True) -> Graph:
    rng = np.random.default_rng(n)
    height = rng.integers(0, 30, n) * negative
    tails, heads = rng.integers(0, n, (2, 4 * n))
    weights = rng.integers(0, 90, 4 * n) + height[tails] - height[heads]
    return build_graph(tails, heads, weights if whole else weights / 8, n=n, directed=directed)[0]


def plan_for(
    graph: Graph,
    tier: str,
    device: str = "cuda",
    *,
    height: int = 64,
    width: int = 128,
    passes: bool = True,
    **given: Any,
) -> Plan:
    plan = make_plan(graph, Options(algorithm=FW, device=device, **given))
    slots = 3 if device == "cuda" else 1
    streaming = Tiling(tier, height, width, slots, symmetric=not graph.directed, passes=passes and graph.directed)
    memory = device_bytes(streaming, graph.n, WORK_TYPES[plan.dtype].itemsize) if device == "cuda" else 0
    return replace(plan, tier=tier, streaming=streaming, device_memory=memory)


def check(graph: Graph, path: Path, folder: Path) -> None:
    """The store at ``path`` holds what the processors answer, bit for bit, and nothing is left beside it."""
    verify_matrix(path)
    assert find_checkpoint(path) is None
    want = folder / "want.zarr"
    solve_to_store(graph, Options(device="cpu", algorithm=FW), want)
    with open_matrix(path) as one, open_matrix(want) as two:
        for first in range(0, graph.n, 1000):
            sources = two.sources[first : first + 1000]
            np.testing.assert_array_equal(one.rows(sources), two.rows(sources))
        for name in set(two.summary) - {"histogram", "center", "diameter_pair"}:
            assert one.summary[name] == two.summary[name], name


class StopAt(Monitor):
    def __init__(self, updates: float) -> None:
        self.left = updates

    def advance(self, amount: int) -> None:
        self.left -= amount

    def cancelled(self) -> bool:
        return self.left <= 0


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits all the time, and keeps whatever is stopped."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.01)
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    monkeypatch.setattr(host_tier, "COST", 100.0)


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("n", [1, 130, 1111])
def test_both_tiers(tmp_path: Path, tier: str, directed: bool, n: int) -> None:
    graph, path = graph_of(n, directed=directed), tmp_path / "d.zarr"
    solve_to_store(graph, Options(), path, plan=plan_for(graph, tier))
    check(graph, path, tmp_path)


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize(("directed", "passes"), [(True, True), (True, False), (False, False)])
def test_several_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, directed: bool, passes: bool
) -> None:
    """As many as there are, and one taken twice, which are to each other as two are."""
    kind = CudaPanels if passes else CudaStreamer

    @contextmanager
    def twice(plan: Plan) -> Iterator[list[StripeMemory]]:
        yield [kind(0, memory=plan.device_memory), kind(0, memory=plan.device_memory)]

    graph = graph_of(1500, directed=directed)
    assert found_devices() >= 1
    for name in ("all", "twice"):
        folder = tmp_path / name
        folder.mkdir()
        with monkeypatch.context() as patch:
            if name == "twice":
                patch.setattr(streamed, "_devices", twice)
            plan = replace(plan_for(graph, tier, passes=passes), devices=found_devices())
            solve_to_store(graph, Options(), folder / "d.zarr", plan=plan)
        check(graph, folder / "d.zarr", folder)


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("whole", [True, False])
def test_negative_arcs(tmp_path: Path, tier: str, whole: bool) -> None:
    graph, path = graph_of(700, negative=True, whole=whole), tmp_path / "d.zarr"
    if tier == "store" and not whole:
        pytest.skip("rounded potentials want all rows at once")
    solve_to_store(graph, Options(), path, plan=plan_for(graph, tier))
    want = tmp_path / "want.zarr"
    solve_to_store(graph, Options(device="cpu", algorithm=FW), want)
    with open_matrix(path) as one, open_matrix(want) as two:
        np.testing.assert_allclose(one.rows(two.sources), two.rows(two.sources), rtol=0 if whole else 1e-5, atol=1e-3)


@pytest.mark.parametrize("tier", ["host", "store"])
def test_a_negative_cycle_is_named(tmp_path: Path, tier: str) -> None:
    """Planning finds every cycle; a plan that is bound to no graph stands for one that has missed it."""
    graph = graph_of(400, negative=True)
    plan = replace(plan_for(graph, tier), task=())
    graph.weights[graph.indptr[5] : graph.indptr[6]] -= 500
    with pytest.raises(NegativeCycle):
        solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("host", "cuda"), ("host", "cuda")),
        (("host", "cuda"), ("store", "cpu")),
        (("host", "cpu"), ("store", "cuda")),
        (("store", "cuda"), ("store", "cuda")),
        (("store", "cuda"), ("host", "cpu")),
    ],
)
def test_stopped_and_gone_on_with_elsewhere(
    tmp_path: Path, one: tuple[str, str], two: tuple[str, str], directed: bool
) -> None:
    """On the other device, in the other tier, and cut otherwise."""
    graph, path = graph_of(2000, directed=directed), tmp_path / "d.zarr"
    work = 0.3 * graph.n**3 * (1 if directed else 0.5)
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan_for(graph, *one), monitor=StopAt(work))
    assert find_checkpoint(path) is not None
    solve_to_store(graph, Options(), path, plan=plan_for(graph, *two, height=128, width=256), resume=True)
    check(graph, path, tmp_path)


@pytest.mark.parametrize(("n", "tier"), [(4000, "device"), (12_000, "host")])
def test_arrays_of_the_callers_program_do_not_count_against_the_budget(
    cupy: Any, n: int, tier: str, tmp_path: Path
) -> None:
    """A notebook that works with cupy holds arrays in the pool that solves take memory from."""
    pool, own = cupy.get_default_memory_pool(), cupy.zeros(500 * MIB, np.uint8)
    _, large = cupy.zeros(600 * MIB, np.uint8), cupy.zeros(800 * MIB, np.uint8)
    del _, large  # their blocks stay in the pool
    part = cupy.zeros(3 * MIB, np.uint8)  # lies in one of these blocks, which cannot be given back now
    before = pool.get_limit()
    asked = Options(device="cuda", algorithm=FW, dtype="int32", device_memory=300 * MIB)
    plan = make_plan(graph_of(n), asked, out=tmp_path / "d.zarr")
    assert (plan.device, plan.tier) == ("cuda", tier)
    solve_to_store(graph_of(n), asked, tmp_path / "d.zarr", plan=plan)
    verify_matrix(tmp_path / "d.zarr")
    assert (pool.get_limit(), int(own.sum()), int(part.sum())) == (before, 0, 0)


def test_the_planner_streams_what_exceeds_the_budgets(tmp_path: Path) -> None:
    """First the device's, then the host's too; the allocator of the device grants no more than was planned."""
    graph, path = graph_of(12_000), tmp_path / "d.zarr"
    asked = Options(device="cuda", algorithm=FW, dtype="int32", device_memory=300 * MIB)
    plan = make_plan(graph, asked, out=path)
    assert (plan.device, plan.tier) == ("cuda", "host")
    assert 0 < plan.device_memory <= 300 * MIB
    solve_to_store(graph, asked, path, plan=plan)
    small = replace(asked, memory=resident_bytes() + 1600 * MIB)
    other = tmp_path / "e.zarr"
    plan = make_plan(graph, small, out=other)
    assert (plan.device, plan.tier) == ("cuda", "store")
    solve_to_store(graph, small, other, plan=plan)
    with open_matrix(path) as a, open_matrix(other) as b:
        for first in range(0, graph.n, 2000):
            sources = a.sources[first : first + 2000]
            np.testing.assert_array_equal(a.rows(sources), b.rows(sources))
    with pytest.raises(DoesNotFit, match="does not fit on the GPU"):
        make_plan(graph, replace(asked, device_memory=40 * MIB), out=path)
