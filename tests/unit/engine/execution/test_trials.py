"""Trials on the graph itself: many sources must be tried as many, for side by side they take a small part each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.api.solve import make_plan, solve
from engine.devices.cpu import backend, bfs_bits
from engine.devices.cpu import backend as cpu_backend
from engine.devices.cpu.search import SearchBatch
from engine.devices.cpu.searches import Searches
from engine.execution import trials
from engine.execution.survey import survey
from engine.graph import partition
from engine.graph import profile as profiles
from engine.graph.analysis import describe
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.algorithms import ALGORITHMS
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Device, Machine, Options
from engine.model.progress import NotCompiledError
from engine.model.rows import ArraySink
from engine.planning.planner import choose
from engine.rows.floats import FloatSink
from storage.graph.graph import Graph, build_graph


class Timed:
    """A backend in whose time a call takes what it is told to."""

    threads = 2
    clock = 0.0
    calls: list[int]

    def __init__(self, threads: int) -> None:
        assert threads in (1, self.threads)

    def search(self, arcs: Any, sources: Any, out: Any, **given: Any) -> None:
        Timed.calls.append(len(sources))
        Timed.clock += self.seconds(len(sources))

    @staticmethod
    def seconds(count: int) -> float:
        """One by one 40 ms each; from 64 on side by side, 1 ms each."""
        return count * (0.001 if count >= 64 else 0.04)

    def shutdown(self) -> None:
        pass


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> type[Timed]:
    Timed.clock, Timed.calls = 0.0, []
    monkeypatch.setattr(backend, "CpuBackend", Timed)
    monkeypatch.setattr("engine.execution.trials.time.process_time", lambda: Timed.clock)
    return Timed


@pytest.mark.parametrize("kind", ["int32", "uint16"])
def test_many_sources_are_tried_side_by_side(kind: str, timed: type[Timed]) -> None:
    graph = graphs.ring(8_000)
    found = trials.SearchTrial(GraphProfile(graph), WORK_TYPES[kind], 2).seconds(unit=False)
    assert found == pytest.approx(0.001 / 2)
    assert max(timed.calls) >= 2 * 256 // np.dtype(kind).itemsize
    assert sum(timed.calls) < 500


def test_few_sources_are_not_tried_for_longer_than_they_take(timed: type[Timed]) -> None:
    rectangle = Rectangle(5_000, np.arange(40), None, None)
    found = trials.SearchTrial(GraphProfile(graphs.ring(8_000)), WORK_TYPES["int32"], 2, rectangle).seconds(unit=False)
    assert found == pytest.approx(0.04 / 2)
    assert max(timed.calls) <= 40


def test_what_cannot_win_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense graph of 2,048 vertices was planned for a second, in which it was searched, and solved in a tenth."""
    tried: list[object] = []
    monkeypatch.setattr(trials.SearchTrial, "seconds", lambda _, **given: tried.append("search") or 1.0)
    monkeypatch.setattr(trials, "relax_rate", lambda *_: tried.append("relax") or 1e9)
    rates = {"uint16": 1e8, "int32": 1e8, "float32": 1e8, "float64": 1e8}
    box = replace(survey(threads=1), relax_rate=rates, search_rate=1e5, disk=None)
    graph = complete(256)
    problem = describe(graph)

    def plan_on(machine: Machine) -> Plan:
        plan = choose(problem, machine, Options())
        assert plan.seconds > trials.WORTHWHILE
        trials.calibrate(GraphProfile(graph), problem, machine, plan)
        return plan

    assert plan_on(box).algorithm == "recursive-floyd-warshall"
    assert tried == []
    plan_on(replace(box, search_rate=2e6))  # products may win, but timing them takes longer than the solve
    assert tried == ["search"]
    monkeypatch.setattr(trials, "EDGE", 32)
    plan_on(replace(box, search_rate=2e6))
    assert tried == ["search", "search", "relax"]


GRAPHS = {
    "random": lambda: graphs.random(3_000),
    "R-MAT": lambda: graphs.rmat(4_096),
    "grid": lambda: graphs.grid(4_096),
    "one way": lambda: graphs.one_way(3_000),
    "random hops": lambda: graphs.hops(graphs.random(3_000)),
    "R-MAT hops": lambda: graphs.hops(graphs.rmat(4_096)),
    "dense": lambda: complete(512),
}


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("name", GRAPHS)
def test_planning_wastes_little_work(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted work: on 16 threads all rows of graphs of hops were searched twice, and most of others."""
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda _groups: threads)
    monkeypatch.setattr(trials, "WORTHWHILE", 0.0)
    monkeypatch.setattr(trials, "only_ready", contextlib.nullcontext)
    tried, cut, search, dissect = [], [], trials.SearchTrial._search, partition.dissect
    monkeypatch.setattr(trials.SearchTrial, "_search", lambda *a, **k: (tried.append(a[2]), search(*a, **k))[1])
    monkeypatch.setattr(profiles, "dissect", lambda *a: (cut.append(a), dissect(*a))[1])
    graph = GRAPHS[name]()
    make_plan(GraphProfile(graph), Options(device="cpu", threads=threads))  # loads kernels, once in a process
    tried.clear()
    cut.clear()
    profile = GraphProfile(graph)
    plan = make_plan(profile, Options(device="cpu", threads=threads))
    kept = 0 if profile.known is None else profile.known.count
    assert sum(tried) - kept <= trials.WASTE * graph.n
    assert kept <= graph.n / 8
    assert kept == 0 or ALGORITHMS[plan.algorithm].searches
    if "hops" in name or name == "dense":
        assert tried == []  # no decision hangs on it
    assert not cut or name == "grid"
    assert not cut or plan.algorithm == "partitioned"


def test_a_trial_stays_within_its_limit(timed: type[Timed]) -> None:
    trial = trials.SearchTrial(GraphProfile(graphs.ring(8_000)), WORK_TYPES["uint16"], 2, budget=10.0)
    trial.limit(250)
    assert trial.seconds(unit=False) is None  # fewer than fill the vectors say nothing of many
    assert timed.calls == []
    trial.limit(600)
    assert trial.seconds(unit=False) == pytest.approx(0.001 / 2)
    assert sum(timed.calls) <= 600 + 1 + trials.HEAP_BELOW


@pytest.mark.parametrize(("took", "tried"), [(1e-6, [True]), (None, [True]), (1.0, [True, False])])
def test_hops_are_tried_first_and_searches_by_weights_only_if_they_may_win(
    took: float | None, tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    seconds = {True: took, False: 1.0}

    def trial(_: object, *, unit: bool, bits: bool = False) -> float | None:
        assert unit
        found.append(bits)
        return seconds[bits]

    monkeypatch.setattr(trials.SearchTrial, "seconds", trial)
    monkeypatch.setattr(trials, "relax_rate", lambda *_: 1e12)
    graph = graphs.hops(graphs.random(3_000))
    problem, box = describe(graph), replace(survey(threads=1), search_rate=1e7, disk=None)
    trials.calibrate(GraphProfile(graph), problem, box, choose(problem, box, Options()))
    assert found == tried


@pytest.mark.parametrize("unit", [False, True])
def test_the_rows_of_trials_are_not_searched_again(unit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning and solving together search each source once (but for a sample at another place, which is kept too)."""
    searched: list[int] = []

    class Counted(Searches):
        def take(self, worker: int, then: Any = None) -> Any:
            before = len(copied)
            found = super().take(worker, then)
            searched.append(found[0] - sum(copied[before:]))
            return found

        def take_all(self, threads: int, seconds: float, then: Any = None) -> Any:
            found = super().take_all(threads, seconds, then)
            searched.append(found[0])
            return found

    copied: list[int] = []
    copy = SearchBatch._copy

    def counted(self: Any, known: Any, rows: Any, worker: int) -> Any:
        copied.append(len(rows))
        return copy(self, known, rows, worker)

    monkeypatch.setattr(SearchBatch, "_copy", counted)
    monkeypatch.setattr(cpu_backend, "Searches", Counted)
    monkeypatch.setattr(bfs_bits, "Searches", Counted)
    monkeypatch.setattr(trials, "WORTHWHILE", 0.0)
    monkeypatch.setattr(trials, "TRIAL", 0.02)
    monkeypatch.setattr(trials, "WASTE", 1.0)  # a trial is made even of rows that are hardly worth keeping
    monkeypatch.setattr(trials, "only_ready", contextlib.nullcontext)
    rng = np.random.default_rng(4)
    weights = np.ones(12_000, np.int64) if unit else rng.integers(1, 50, 12_000)
    graph = build_graph(
        rng.integers(0, 3_000, 12_000), rng.integers(0, 3_000, 12_000), weights, n=3_000, directed=True
    )[0]
    profile, options = GraphProfile(graph), Options(threads=1, device="cpu", algorithm="bfs" if unit else "dijkstra")
    plan = make_plan(profile, options)
    assert sum(searched) >= 1
    sink = ArraySink(plan.shape, plan.dtype)
    solve(profile, plan, options, sink)
    assert sum(searched) == 3_000
    assert sum(copied) >= 1
    again = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, again)
    np.testing.assert_array_equal(sink.array, again.array)
    floats, unreachable = np.zeros(plan.shape), WORK_TYPES[plan.dtype].unreachable
    other = GraphProfile(graph)
    solve(other, make_plan(other, options), options, FloatSink(floats, unreachable))
    assert other.known is None
    np.testing.assert_array_equal(floats, np.where(again.array == unreachable, np.inf, again.array))


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 30_000, 2**20])
def test_a_trial_ends_however_few_rows_may_be_kept(bits: bool, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches so fast that the trial runs out of new sources."""
    monkeypatch.setattr(trials, "MOST_KEPT", kept)
    monkeypatch.setattr(trials, "TRIAL", 1e9)
    monkeypatch.setattr(trials, "only_ready", contextlib.nullcontext)
    for n in (1, 2, 40, 700):
        graph = graphs.ring(n) if n > 2 else build_graph(np.arange(n - 1), np.arange(1, n), None, n=n, directed=True)[0]
        graph = replace(graph, weights=np.ones_like(graph.weights))
        for rectangle in (None, Rectangle(n, np.arange(min(n, 3)), None, None)):
            trial = trials.SearchTrial(GraphProfile(graph), WORK_TYPES["uint16"], 2, rectangle)
            assert trial.seconds(unit=True, bits=bits) >= 0


def complete(n: int) -> Graph:
    tails, heads = np.divmod(np.arange(n * n), n)
    return build_graph(tails, heads, 1 + (tails * heads) % 97, n=n, directed=True)[0]


def test_a_plan_waits_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a kernel was never compiled, the plan rests on the table, and nothing is kept."""

    def uncompiled(*_: object, **__: object) -> None:
        raise NotCompiledError("a kernel is not compiled")

    monkeypatch.setattr(trials.SearchTrial, "_search", uncompiled)
    monkeypatch.setattr(trials, "WORTHWHILE", 0.0)
    graph = build_graph(np.arange(2_000), np.roll(np.arange(2_000), 1), np.arange(1, 2_001), directed=True)[0]
    plan = make_plan(GraphProfile(graph), Options(device="cpu", algorithm="dijkstra"))
    assert plan.algorithm == "dijkstra"


@pytest.mark.parametrize(("make", "tried"), [(graphs.road, 0), (graphs.random, 1)])
def test_a_gpu_tries_no_searches_of_a_deep_graph_beside_its_parts(
    make: Callable[[int], Graph], tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial of sweeps over Seattle's roads took four seconds, and its parts a tenth of one."""
    device = Device("a model", 64 << 30, 64 << 30, dict.fromkeys(WORK_TYPES, 1.6e13))
    monkeypatch.setattr("engine.execution.survey.find_cuda", lambda _: (device, ""))
    calls: list[object] = []
    monkeypatch.setattr("engine.devices.cuda.search.trial_seconds", lambda *_, **__: calls.append(1) or 1e-4)
    plan = make_plan(make(250_000), Options(device="cuda"), dropped=True)
    assert len(calls) == tried
    assert plan.algorithm == ("bellman-ford" if tried else "partitioned")
