"""Tests plans for machines with and without a GPU; the machines are described by numbers, so no GPU is needed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api import solve
from engine.execution import survey
from engine.model import device_layout
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Device, Machine, Options, Problem, Trials
from engine.planning.constants import PROCESS_BYTES
from engine.planning.cost import Setting
from engine.planning.planner import DEVICE_ESTIMATES, ESTIMATES, choose
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import build_graph

GIB = 2**30
ROAD = Problem(
    n=20_000, arcs=50_000, rows=20_000, directed=True, integral=True, unit=False, min_weight=1, max_weight=900,
    smallest_weight=0, bound=10**6, bound_proof="two searches", max_hops=None,
)  # fmt: skip
DENSE_ALGORITHMS = ("recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring")
DENSE = replace(ROAD, arcs=20_000 * 19_999)
CARD = Device("a card", 20 * GIB, 24 * GIB, {"uint16": 34e12, "int32": 18e12, "float32": 16e12, "float64": 5e12})
BOX = Machine(
    threads=2, memory=16 * GIB, resident=GIB // 4, disk=100 * GIB,
    relax_rate={"uint16": 12e10, "int32": 7e10, "float32": 5e10, "float64": 2e10}, search_rate=1e8, write_rate=1e9,
    cuda=CARD, no_cuda="",
)  # fmt: skip


def test_dense_graphs_go_to_the_device_and_searches_compete() -> None:
    dense = choose(DENSE, BOX, Options())
    assert (dense.device, dense.algorithm) == ("cuda", "blocked-floyd-warshall")
    assert dense.device_memory > 4 * DENSE.n**2
    assert "a card" in dense.device_reason
    sparse = choose(ROAD, BOX, Options())
    assert (sparse.device, sparse.algorithm) == ("cuda", "bellman-ford")
    fast = Trials(search=1e-5, device_search=float("inf"))
    sparse = choose(ROAD, BOX, Options(), trials=fast)
    assert (sparse.device, sparse.algorithm) == ("cpu", "dijkstra")
    assert "faster than a card" in sparse.device_reason


def test_hops_are_searched_breadth_first_whatever_a_trial_took() -> None:
    hops = replace(ROAD, unit=True, max_weight=1, min_weight=1, bound=60, hops=30)
    for trials in (None, Trials(device_search=1e-6), Trials(device_search=1e-5)):
        assert choose(hops, BOX, Options(device="cuda"), trials=trials).algorithm == "bfs"


def test_sweeps_take_longer_for_each_arc_of_a_dense_graph() -> None:
    """On an H200: about 3.1 s for the complete graph of 4,096 vertices, 0.17 s for 65,536 of four arcs each."""
    chip = replace(CARD, memory=140 * GIB, relax_rate={"uint16": 34.2e12, "int32": 17.8e12})
    box = replace(BOX, cuda=chip, memory=64 * GIB, disk=None)
    for n, arcs, measured in ((4096, 4096 * 4095, 3.1), (65_536, 262_137, 0.166), (32_768, 131_055, 0.0375)):
        problem = replace(ROAD, n=n, arcs=arcs, rows=n, bound=9000, max_weight=1000)
        kind = WORK_TYPES["uint16" if n == 4096 else "int32"]
        found = DEVICE_ESTIMATES["bellman-ford"](Setting(problem, box, kind, n * n * kind.itemsize))
        search = next(p.seconds for p in found.phases if p.name == "search")
        assert measured / 1.6 < search < measured * 1.6


#: Milliseconds on an H200, from the graph to rows in memory; benchmarks/kernels/gpu_set.py.
SMALL = [
    ("random", 1024, 4085, 12, 9000, {"bellman-ford": 4.5, "blocked-floyd-warshall": 4.3}),
    ("random", 2048, 8178, 13, 90_000, {"bellman-ford": 6.9, "blocked-floyd-warshall": 8.3}),
    ("random", 4096, 16_376, 14, 90_000, {"bellman-ford": 10.3, "blocked-floyd-warshall": 16.9}),
    ("random", 8192, 32_758, 14, 90_000, {"bellman-ford": 20.1, "blocked-floyd-warshall": 50.9}),
    ("rmat", 4096, 28_606, 9, 9000, {"bellman-ford": 13.2, "blocked-floyd-warshall": 18.6}),
    ("ring", 4096, 8192, 2048, 10**6, {"bellman-ford": 20.6, "blocked-floyd-warshall": 16.0}),
    ("rome", 3353, 8859, 80, 10**6, {"bellman-ford": 18.7, "blocked-floyd-warshall": 14.9}),
    ("as-caida", 8020, 36_406, 8, 9000, {"bellman-ford": 25.0, "blocked-floyd-warshall": 36.5}),
]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case[0]} {case[1]}")
def test_small_graphs_go_where_they_were_measured_to_be_done_first(
    case: tuple[str, int, int, int, int, dict[str, float]],
) -> None:
    _, n, arcs, hops, bound, measured = case
    rates = {"uint16": 34.2e12, "int32": 17.8e12}
    box = replace(BOX, cuda=replace(CARD, memory=140 * GIB, relax_rate=rates), threads=16, disk=None)
    problem = replace(ROAD, n=n, arcs=arcs, rows=n, bound=bound, max_weight=min(1000, bound), hops=hops)
    plan = choose(problem, box, Options(device="cuda"))
    assert measured[plan.algorithm] <= 1.15 * min(measured.values())


def test_every_candidate_of_both_devices_is_listed_with_numbers_and_a_reason() -> None:
    plan = choose(DENSE, BOX, Options())
    named = {(c.algorithm, c.device) for c in plan.candidates}
    assert named >= {(a, "cpu") for a in ESTIMATES} | {(a, "cuda") for a in DEVICE_ESTIMATES}
    assert plan.candidates[0].rejected is None
    assert all(c.rejected for c in plan.candidates[1:])
    assert all((c.device_memory > 0) == (c.device == "cuda") for c in plan.candidates)
    slower = next(c for c in plan.candidates if c.algorithm == "recursive-floyd-warshall" and c.device == "cpu")
    assert slower.rejected is not None
    assert slower.rejected.endswith("on cuda")


def test_asking_for_the_device_leaves_the_processors_out() -> None:
    plan = choose(ROAD, BOX, Options(device="cuda"), trials=Trials(search=1e-5))
    assert plan.device == "cuda"
    assert all("device cuda was asked for" in str(c.rejected) for c in plan.candidates if c.algorithm == "dijkstra")
    hops = choose(replace(DENSE, max_hops=5), BOX, Options(device="cuda"))
    assert (hops.device, hops.algorithm) == ("cuda", "repeated-squaring")


def test_asking_for_the_processors_leaves_the_device_out() -> None:
    plan = choose(DENSE, BOX, Options(device="cpu"))
    assert plan.device == "cpu"
    assert {c.device for c in plan.candidates} == {"cpu"}


def test_the_host_holds_bands_alone() -> None:
    plan = choose(DENSE, BOX, Options(device="cuda"))
    assert plan.memory < BOX.resident + PROCESS_BYTES + GIB // 4


def test_a_matrix_beyond_the_devices_memory_stays_on_the_host_or_is_refused_with_both_numbers() -> None:
    small = replace(BOX, cuda=replace(CARD, memory=GIB // 32))
    plan = choose(DENSE, small, Options())
    assert plan.device == "cpu"
    assert any("of GPU memory" in str(c.rejected) for c in plan.candidates)
    with pytest.raises(DoesNotFit, match="does not fit on the GPU") as caught:
        choose(DENSE, small, Options(device="cuda"))
    assert caught.value.resource == "device memory"
    assert caught.value.available == GIB // 32
    assert f"{caught.value.needed:,}" in str(caught.value)


def test_without_a_device_the_plan_says_why() -> None:
    bare = replace(BOX, cuda=None, no_cuda="there is no CUDA device 0: 0 found")
    assert choose(DENSE, bare, Options()).device_reason == "the CPU: there is no CUDA device 0: 0 found"
    with pytest.raises(InvalidRequest, match="asked for, but there is no CUDA device 0"):
        choose(DENSE, bare, Options(device="cuda"))


@pytest.mark.parametrize("name", DENSE_ALGORITHMS)
def test_device_memory_covers_what_is_allocated(name: str) -> None:
    """The matrix, its copies and the packed operands, counted by hand for one size."""
    setting = Setting(replace(DENSE, n=4_100, rows=4_100), BOX, WORK_TYPES["uint16"], 1)
    side = 17 * 256
    assert device_layout.padded_side(4_100, 2) == side
    matrices = 3 if name == "repeated-squaring" else 1
    need = DEVICE_ESTIMATES[name](setting).device_memory
    assert need >= matrices * side * side * 2
    assert need < matrices * side * side * 2 + 4096 * side * 6 + 160 * 2**20


def _probes(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    asked: list[int | None] = []

    def find(budget: int | None) -> tuple[Device | None, str]:
        asked.append(budget)
        return CARD, ""

    monkeypatch.setattr(survey, "find_cuda", find)
    return asked


def _plan(n: int, options: Options) -> Plan:
    rng = np.random.default_rng(0)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return solve.make_plan(build_graph(tails, heads, rng.integers(1, 9, 4 * n), n=n, directed=True)[0], options)


def test_no_device_is_started_for_what_is_quick_or_meant_for_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _probes(monkeypatch)
    assert "finishes before a GPU could start" in _plan(100, Options()).device_reason
    assert _plan(100, Options(device="cpu")).device_reason == "the CPU was asked for"
    assert not asked
    assert _plan(100, Options(device="cuda", device_memory=5 * GIB)).device == "cuda"
    assert asked == [5 * GIB]


def test_no_device_is_started_where_only_a_disk_would_make_processors_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, n = _probes(monkeypatch), 15_000
    monkeypatch.setattr(survey, "usable_processors", lambda _: 16)
    ring = np.arange(n)
    tails, heads = np.tile(ring, 3), np.concatenate([np.roll(ring, -step) for step in (1, 100, 2000)])
    graph = build_graph(tails, heads, np.ones(3 * n), n=n, directed=True)[0]
    for memory in (False, True):
        monkeypatch.setattr(survey, "in_memory", lambda _, answer=memory: answer)
        plan = solve.make_plan(graph, Options(), out=tmp_path / "store")
        assert (plan.device, len(asked)) == (("cpu", 1) if memory else ("cuda", 1))
        # the rows of a card are written as fast as processors write, and no faster than memory takes them
        written = next(phase for phase in plan.phases if phase.name == "write")
        assert written.seconds == pytest.approx(n * n * 2 / (1.1e9 * 16 if memory else 8e8 * 2.5), rel=0.02)


def test_what_a_broken_installation_throws_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.devices.cuda import context

    def broken(_: int | None) -> Device:
        raise OSError("libcudart.so.13: cannot open\nand more")

    monkeypatch.setattr(context, "find_device", broken)
    found, why = survey.find_cuda(None)
    assert found is None
    assert why == "the CUDA installation cannot be used (OSError: libcudart.so.13: cannot open)"
