"""Paths counted on a GPU: everything around the kernel, with a model of it; ``tests/gpu`` runs the kernel itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.algorithms.betweenness import folding
from engine.algorithms.betweenness.passing import check_rows
from engine.api.betweenness import on_device, passage
from engine.api.betweenness import small as small_run
from engine.api.betweenness.centrality import Centrality, betweenness
from engine.api.planning import make_plan
from engine.api.reference import Reference
from engine.execution.survey import find_cuda
from engine.model.problem import Device, Options
from engine.model.rows import CountedPaths, PathCounting
from storage.errors import Cancelled, DoesNotFit, InvalidRequest, SolveFailed
from storage.graph.graph import Graph, build_graph

GPU = Device("a model", 8 << 30, 8 << 30, {"int32": 1e12, "uint16": 1e12})


def counted(asked: PathCounting, rows: Any, numbers: Any) -> CountedPaths:
    """Count the paths in rows of distances: a plain form of the kernel, a vertex at a time."""
    n, arcs = len(asked.kept), len(asked.out[1])
    vertices, ends, over, told = np.zeros(n), np.zeros(n), np.zeros(arcs), []
    indptr, heads, weights = asked.out
    lengths = weights if len(weights) else np.ones(arcs)
    tails = np.repeat(np.arange(n), np.diff(indptr))
    for row, number in zip(rows, numbers, strict=True):
        source, own = asked.sources[number], asked.own[number]
        tight = np.flatnonzero(np.isfinite(row[tails]) & (row[tails] + lengths == row[heads]))
        left = np.bincount(heads[tight], minlength=n)
        sigma, order = np.zeros(n), [int(source)]
        sigma[source] = 1
        for u in order:
            for e in tight[(tails[tight] == u)]:
                sigma[heads[e]] += sigma[u]
                left[heads[e]] -= 1
                if left[heads[e]] == 0:
                    order.append(int(heads[e]))
        coeff, passed, arrived = np.zeros(n), 0.0, 0.0
        for u in reversed(order):
            mine = tight[tails[tight] == u]
            over[mine] += sigma[u] * coeff[heads[mine]]
            passed = sigma[u] * coeff[heads[mine]].sum()
            keeps = 0.0 if u == own else asked.kept[u]
            coeff[u] = (keeps + passed) / sigma[u]
            ends[u] += keeps
            if u != source:
                vertices[u] += passed
                arrived += keeps
        told.append((passed, arrived, sigma.max()))
    empty = np.zeros(0)
    return CountedPaths(
        np.array(numbers), vertices, ends if asked.ends else empty, over if asked.over else empty, np.array(told)
    )


@pytest.fixture(params=["counted", "some rows come late"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU, whose counts are those of the model; some of its rows may come from the processors."""
    monkeypatch.setattr(small_run, "SIZE", 0)  # no graph is too small to consider the GPU
    late = request.param != "counted"

    def solve(profile: Any, plan: Any, options: Options, sink: Any, monitor: Any, *, facts: bool) -> Any:
        del plan, monitor, facts
        sources = np.arange(profile.graph.n) if options.sources is None else np.array(options.sources)
        rows = Reference(profile.graph).trees(sources)[0]
        numbers = np.arange(len(sources))
        there = numbers % 5 != 2 if late else numbers >= 0
        # two batches, the second one first
        for some in np.array_split(numbers[there], 2)[::-1]:
            if len(some):
                sink.take_counted(counted(sink.counting, rows[some], some))
        for row in numbers[~there]:
            sink.write(int(row), 0, rows[row : row + 1])

        return SimpleNamespace(seconds={"search": 0.0})

    def planned(profile: Any, options: Options, **further: Any) -> Any:
        return make_plan(profile, replace(options, device="cpu", device_memory=None), **further)

    def survey(**asked: Any) -> Any:
        machine = surveyed(**{**asked, "device": "cpu"})
        return replace(machine, cuda=GPU) if asked.get("device") == "cuda" else machine

    surveyed = passage.survey
    monkeypatch.setattr(on_device, "solve", solve)
    monkeypatch.setattr(on_device, "make_plan", planned)
    monkeypatch.setattr(passage, "survey", survey)


def drawn(seed: int, *, directed: bool, unit: bool) -> Graph:
    """Return a random graph with many paths of equal length."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(0, 90))
    u, v = rng.integers(0, 25, (2, m))
    return build_graph(u, v, None if unit else rng.integers(1, 4, m), n=25, directed=directed)[0]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_gpu_finds_what_processors_find(seed: int, directed: bool, unit: bool) -> None:
    """Vertices, arcs, ends; some sources and targets; terminals."""
    graph = drawn(seed, directed=directed, unit=unit)
    some: dict[str, Any] = {"sources": (3, 4, 20, 11), "targets": (1, 4, 7, 8)}
    kinds: list[tuple[Graph, dict[str, Any], dict[str, bool]]] = [
        (graph, {}, {}), (graph, {}, {"arcs": True}), (graph, some, {"endpoints": True, "normalized": False}),
        (replace(graph, terminals=4), some, {"arcs": True}), (replace(graph, terminals=4), {}, {}),
    ]  # fmt: skip
    for what, given, asked in kinds:
        there = betweenness(what, Options(device="cuda", **given), **asked)
        here = betweenness(what, Options(device="cpu", **given), **asked)
        assert (there.plan.device, here.plan.device) == ("cuda", "cpu")
        assert there.plan.device_memory > 0
        np.testing.assert_allclose(there.values, here.values, rtol=1e-9)


@pytest.mark.usefixtures("gpu")
def test_without_a_wish_a_gpu_counts_where_processors_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for only then, and taken only if it is faster."""
    graph = drawn(2, directed=True, unit=False)
    assert betweenness(graph).plan.device == "cpu"
    monkeypatch.setattr(passage, "LONG", 0.0)
    monkeypatch.setattr(on_device, "RATE", 1e30)
    monkeypatch.setattr(passage.PassageRun, "_plan_here", _slow(1e6))
    assert betweenness(graph).plan.device == "cuda"
    monkeypatch.setattr(passage.PassageRun, "_plan_here", _slow(1e-9))
    assert betweenness(graph).plan.device == "cpu"
    assert betweenness(graph, Options(device="cpu")).plan.device == "cpu"


@pytest.mark.usefixtures("gpu")
def test_the_processors_count_where_the_gpus_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for a GPU, so what does not fit there is no error; one that is asked for tells."""

    def refuse(*_: object, **__: object) -> Any:
        raise DoesNotFit("too small", resource="device memory", needed=2, available=1)

    graph = drawn(2, directed=True, unit=False)
    monkeypatch.setattr(passage, "LONG", 0.0)
    monkeypatch.setattr(passage.PassageRun, "_plan_here", _slow(1e6))
    monkeypatch.setattr(on_device, "make_plan", refuse)
    assert betweenness(graph).plan.device == "cpu"
    with pytest.raises(DoesNotFit, match="too small"):
        betweenness(graph, Options(device="cuda"))

    def stop(*_: object, **__: object) -> Any:
        raise Cancelled("stopped")

    monkeypatch.setattr(on_device, "make_plan", stop)
    with pytest.raises(Cancelled):
        betweenness(graph)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_second_plan_is_that_of_the_run(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a request is planned, it runs where its last plan says."""
    graph = drawn(2, directed=True, unit=False)
    monkeypatch.setattr(passage, "LONG", 0.0)
    monkeypatch.setattr(passage.PassageRun, "_plan_here", _slow(1e6))
    monkeypatch.setattr(on_device, "RATE", 1e30)
    went = []
    counted = on_device.DevicePassing.run
    monkeypatch.setattr(on_device.DevicePassing, "run", lambda self, monitor: went.append(1) or counted(self, monitor))
    run = Centrality(graph, Options(device=device))
    for rate in (1e30, 1e3, 1e30):
        monkeypatch.setattr(on_device, "RATE", rate)
        assert run.make_plan().device == "cuda"
    monkeypatch.setattr(passage.PassageRun, "_plan_here", _slow(1e-9))
    last = run.make_plan()
    assert last.device == ("cuda" if device == "cuda" else "cpu")
    run.run()
    assert bool(went) == (last.device == "cuda")


@pytest.mark.usefixtures("gpu")
def test_a_gpu_counts_in_the_whole_graph_where_processors_fold_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever counts, and whichever was planned before, the sums are those of the whole graph."""
    monkeypatch.setattr(folding, "LEAST_VISITS", 0)
    rng = np.random.default_rng(5)
    ring, leaves = np.arange(12), np.arange(12, 40)
    tails, heads = np.append(ring, leaves), np.append(np.roll(ring, 1), rng.integers(0, leaves))
    graph = build_graph(tails, heads, rng.integers(1, 4, len(tails)), n=40, directed=False)[0]
    plans = passage.PassageRun._plan_here
    for asked in ({}, {"arcs": True}, {"endpoints": True, "normalized": False}):
        right = betweenness(graph, Options(device="cuda"), **asked)
        monkeypatch.setattr(passage, "LONG", 0.0)
        monkeypatch.setattr(on_device, "RATE", 1e30)
        run = Centrality(graph, **asked)
        for seconds, device, sources in ((1e6, "cuda", 40), (1e-9, "cpu", 12), (1e6, "cuda", 40)):
            monkeypatch.setattr(passage.PassageRun, "_plan_here", _folded(plans, seconds))
            plan = run.make_plan()
            assert (plan.device, plan.sources) == (device, sources)
            assert ("trees are folded" in plan.search) == (device == "cpu")
            np.testing.assert_allclose(run.run().values, right.values, rtol=1e-9)
    assert right.plan.sources == 40


def _folded(plans: Any, seconds: float) -> Any:
    return lambda self, monitor: replace(plans(self, monitor), seconds=seconds)


def _slow(seconds: float) -> Any:
    def plan(self: Any, monitor: Any) -> Any:
        del monitor
        return passage.PathPlan("slow", 1, 1, self.memory, seconds, 0)

    return plan


@pytest.mark.usefixtures("gpu")
def test_fractions_and_long_paths_stay_on_processors() -> None:
    """A GPU compares lengths as whole numbers of 31 bits; the refusal says what would work."""
    fractions = build_graph([0, 1], [1, 2], [0.123456789012, 1.5], directed=True)[0]
    long = build_graph([0, 1], [1, 2], [2_000_000_000, 5], directed=True)[0]
    for graph in (fractions, long):
        with pytest.raises(InvalidRequest, match=r"whole numbers .* use --device cpu"):
            betweenness(graph, Options(device="cuda"))
        assert betweenness(graph).plan.device == "cpu"


def test_too_little_device_memory_is_refused_with_numbers(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names what would suffice."""
    small = replace(GPU, memory=1000)
    with monkeypatch.context() as patched:
        patched.setattr("tests.unit.engine.api.betweenness.test_on_device.GPU", small)
        graph = drawn(1, directed=True, unit=False)
        with pytest.raises(DoesNotFit) as refused:
            betweenness(graph, Options(device="cuda"))
    assert refused.value.resource == "device memory"
    assert "--device cpu" in str(refused.value)


def test_work_spaces_shrink_with_memory() -> None:
    """Fewer rows are counted side by side where memory is short, and at least one."""
    graph = drawn(1, directed=True, unit=False)
    passed = passage.Passage(graph)
    wanted = {}
    for memory in (60_000, 30_000, 15_000):
        task = on_device.PassingTask(
            np.arange(25), np.arange(25), np.ones(25), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0),
            ends=True, arcs=True,
        )  # fmt: skip
        device = replace(GPU, memory=memory)
        wanted[memory] = on_device.DevicePassing(passed.arcs, True, task, Options(), device).counting.most
    assert 25 >= wanted[60_000] > wanted[30_000] > wanted[15_000] >= 1


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ((3.0, 3.0, -1.0), "cannot be trusted"),
        ((3.0, 4.0, 1.0), "cannot be trusted"),
        ((np.nan, 4.0, 1.0), "cannot be trusted"),
        ((4.0, 4.0, np.inf), "more than 1e\\+300"),
        ((4.0, 4.0, np.nan), "more than 1e\\+300"),
    ],
)
def test_sums_that_do_not_agree_are_no_result(told: tuple[float, ...], match: str) -> None:
    """Each row tells what left and what arrived."""
    check_rows(np.array([(1.0, 1.0, 1.0)]))
    with pytest.raises(SolveFailed, match=match):
        check_rows(np.array([(1.0, 1.0, 1.0), told]))


def test_without_a_gpu_the_refusal_says_why() -> None:
    """There is none here, or no package for it; where there is one, it counts."""
    graph = drawn(1, directed=True, unit=False)
    if find_cuda(None)[0] is not None:
        pytest.skip("there is a GPU")
    with pytest.raises(InvalidRequest, match="device cuda was asked for, but"):
        betweenness(graph, Options(device="cuda"))
