"""The partitioned algorithm against SciPy, and part by part against what its tables promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from benchmarks.peers import coo
from engine.algorithms import elimination, part_lengths, partitioned, products
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.searches import Searches
from engine.devices.cpu.sweep import Sweeper
from engine.graph.analysis import describe
from engine.graph.partition import CPU_GRAIN, Grain, find_parts, with_parts
from engine.graph.profile import GraphProfile
from engine.model.backend import Arcs, Array
from engine.model.blocks import LEAF
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Phase
from engine.model.problem import Machine, Options
from engine.model.progress import Monitor
from engine.planning.planner import choose
from storage.errors import Cancelled, InvalidRequest, NegativeCycle
from storage.graph.graph import Graph, build_graph
from tests.oracle import closure, decode
from tests.unit.engine.algorithms.harness import Collect, Tally, context_of, make_graph, oracle

BOX = Machine(2, 2**34, 0, None, dict.fromkeys(WORK_TYPES, 4e10), 1e8, 1e9)


def run(graph: Graph, dtype: str, sources: np.ndarray | None = None, monitor: Monitor | None = None) -> np.ndarray:
    rows = np.arange(graph.n) if sources is None else sources
    backend, sink = CpuBackend(2), Collect(len(rows), graph.n, dtype, 64)
    try:
        partitioned.run(context_of(graph, dtype, sink, monitor or Monitor(), rows), backend)
    finally:
        backend.shutdown()
    return decode(sink.array)


def signed(graph: Graph, scale: float, dtype: str) -> Graph:
    """Arcs of both signs, the same cycles."""
    height = np.random.default_rng(9).integers(0, 200, graph.n)
    weights = graph.weights + np.repeat(height, np.diff(graph.indptr)) - height[graph.heads]
    return replace(graph, weights=(weights * scale).astype(dtype), directed=True)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize(
    "graph", [graphs.grid(1600), graphs.ring(700), graphs.road(2500), graphs.random(300), make_graph(900, 1400)]
)
def test_agrees_with_scipy(graph: Graph, dtype: str) -> None:
    sources = np.random.default_rng(3).permutation(graph.n)[:200]
    tally = Tally()
    assert np.array_equal(run(graph, dtype, sources, tally), oracle(graph, sources))
    assert [phase for phase, _, _ in tally.begun] == ["partition", "prepare", "search"]
    assert tally.done == sum(total for _, total, _ in tally.begun)


def test_narrow_integers_saturate_where_paths_inside_a_part_are_too_long() -> None:
    """A way round through a part may be longer than the type holds; the matrix is right all the same."""
    ring, hub = graphs.ring(800), 800
    tails, heads, _ = coo(ring)
    everyone = np.arange(800)
    arcs = np.concatenate((tails, everyone)), np.concatenate((heads, np.full(800, hub)))
    lengths = np.concatenate((np.full(len(tails), 20_000), everyone % 7 + 1))
    graph = build_graph(*arcs, lengths, n=801, directed=False)[0]
    wanted = oracle(graph, np.arange(801))
    assert wanted.max() < 20
    assert np.array_equal(run(graph, "uint16"), wanted)


@pytest.mark.parametrize(("weights", "scale", "dtype"), [("int32", 1, "int32"), ("float64", 0.1, "float64")])
def test_arcs_of_both_signs(weights: str, scale: float, dtype: str) -> None:
    graph = signed(make_graph(300, 700), scale, weights)
    matrix = np.full((300, 300), np.inf)
    matrix[np.repeat(np.arange(300), np.diff(graph.indptr)), graph.heads] = graph.weights
    np.fill_diagonal(matrix, 0)
    wanted = closure(matrix)
    assert wanted.min() < 0
    np.testing.assert_allclose(run(graph, dtype), wanted, rtol=1e-9 if dtype == "float64" else 0, atol=1e-9)


def test_a_negative_cycle_of_floats_is_named_before_any_row() -> None:
    graph = make_graph(100, 900)
    with pytest.raises(NegativeCycle):
        run(replace(graph, weights=graph.weights - 30.5), "float64")


@pytest.mark.parametrize("grain", [Grain(1, 0.0, 0.0, 0.0), CPU_GRAIN, Grain(64, 0.0, 1e9, 0.0)])
def test_tables_hold_lengths_of_walks_that_suffice(grain: Grain) -> None:
    """No table entry is shorter than the distance; from a part to itself and above, the best is in some table."""
    graph = graphs.grid(400)
    parts = find_parts(GraphProfile(graph), grain, graph.n**2)
    assert parts is not None
    backend = CpuBackend(1)
    kind = WORK_TYPES["int32"]
    lengths = part_lengths.find_lengths(backend, graph, parts, kind, nonnegative=True, monitor=Monitor())
    backend.shutdown()
    vertex = np.argsort(parts.position)
    wanted = oracle(graph, vertex)[:, vertex]
    for i in range(parts.count):
        own = slice(parts.starts[i], parts.starts[i + 1])
        columns, j = [], i
        while j >= 0:
            columns += range(parts.starts[j], parts.starts[j + 1])
            j = parts.parents[j]
        table = decode(lengths.tables[i])
        assert table.shape == (own.stop - own.start, len(columns))
        assert (table >= wanted[own][:, columns]).all()
        border = parts.border(i)
        across = decode(lengths.across[i])
        assert across.shape == (len(border), own.stop - own.start)
        assert (across >= wanted[border][:, own]).all()
        if parts.parents[i] < 0:
            assert np.array_equal(table, wanted[own][:, columns])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_small_parts_have_the_lengths_that_the_verbs_of_a_backend_find(
    dtype: str, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit: with no part small, with all of them small, and with some."""
    kind, rng = WORK_TYPES[dtype], np.random.default_rng(5)
    tails, heads, weights = coo(graphs.random(700))  # one part of more than LEAF vertices, so that halves are closed
    weights = weights + 100 * directed + rng.integers(0, 100, len(weights)) * directed
    graph = build_graph(tails, heads, weights if kind.integer else weights * 0.1137, n=700, directed=directed)[0]
    parts = find_parts(GraphProfile(graph), CPU_GRAIN, graph.n**2)
    assert parts is not None
    assert parts.sizes.max() > LEAF
    backend, found = CpuBackend(2), []
    for most in (0, int(np.median(parts.updates()[0])), 2**62):  # sides stay below PART_SIDE
        monkeypatch.setattr(elimination, "PART_UPDATES", most)
        monitor = Tally()
        lengths = part_lengths.find_lengths(backend, graph, parts, kind, nonnegative=True, monitor=monitor)
        assert monitor.done == sum(total for _, total, _ in monitor.begun)
        found.append([lengths.flat.tobytes(), *(block.tobytes() for block in lengths.across)])
    backend.shutdown()
    assert found[0] == found[1] == found[2]


def test_a_wish_to_stop_is_heard_in_every_phase() -> None:
    graph = graphs.grid(900)
    whole = Tally()
    run(graph, "int32", None, whole)
    so_far = 0
    for _, total, _ in whole.begun:
        with pytest.raises(Cancelled):
            run(graph, "int32", None, Tally(stop_after=so_far + 1))
        so_far += total


class _Counting(CpuBackend):
    """Counts the updates that it is asked for."""

    def __init__(self) -> None:
        super().__init__(2)
        self.updates = 0

    def relax(self, c: Array, a: Array, b: Array, *, nonnegative: bool, upper: bool = False) -> None:
        self.updates += c.size * a.shape[1]
        super().relax(c, a, b, nonnegative=nonnegative, upper=upper)

    def close(self, d: Array, *, nonnegative: bool, symmetric: bool = False) -> None:
        self.updates += d.size * len(d)
        super().close(d, nonnegative=nonnegative, symmetric=symmetric)


class _Looks(Tally):
    """Finds the most updates between two looks at whether to stop."""

    def __init__(self, backend: _Counting) -> None:
        super().__init__()
        self.most, self._backend, self._before = 0, backend, 0

    def cancelled(self) -> bool:
        self.most = max(self.most, self._backend.updates - self._before)
        self._before = self._backend.updates
        return False


@pytest.mark.parametrize("directed", [True, False])
def test_work_between_two_looks_at_a_wish_to_stop_is_bounded_however_large_a_part(
    directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "PIECE", 2**20)  # so that the least piece counts: GRAIN rows, SIDE by SIDE
    monkeypatch.setattr(products, "SIDE", 256)
    graph = replace(make_graph(1500, 6000), directed=True) if directed else graphs.random(1500)
    parts = find_parts(GraphProfile(graph), CPU_GRAIN, graph.n**2)
    assert parts is not None
    assert parts.sizes.max() > 600  # most of the work is the root's
    backend = _Counting()
    monitor = _Looks(backend)
    part_lengths.find_lengths(backend, graph, parts, WORK_TYPES["int32"], nonnegative=True, monitor=monitor)
    backend.shutdown()
    assert monitor.done == sum(total for _, total, _ in monitor.begun)
    assert monitor.most <= 2 * part_lengths.SMALL + LEAF**3
    assert backend.updates > 10 * monitor.most


def test_the_planner_takes_it_for_roads_and_says_what_it_found() -> None:
    graph = graphs.road(10_000)
    problem = with_parts(GraphProfile(graph), describe(graph), graph.n**2)
    plan = choose(problem, BOX, Options())
    assert plan.algorithm == "partitioned"
    assert [phase.name for phase in plan.phases] == ["prepare", "sweep", "write"]
    assert problem.parts is not None
    assert plan.phases[1].updates == graph.n * problem.parts.sweep
    with pytest.raises(InvalidRequest, match="no trial partition was made"):
        choose(replace(problem, parts=None), BOX, Options(algorithm="partitioned"))


def test_many_small_parts_cost_more_than_few() -> None:
    graph = graphs.road(10_000)
    problem = with_parts(GraphProfile(graph), describe(graph), graph.n**2)
    assert problem.parts is not None
    worse = replace(problem, parts=replace(problem.parts, sweep=50 * problem.parts.sweep, entries=10**8))
    better, other = (choose(p, BOX, Options(algorithm="partitioned")) for p in (problem, worse))
    assert better.seconds < other.seconds
    assert better.memory < other.memory


@pytest.mark.parametrize(("seconds", "first"), [(4.0, 1024), (200.0, 64)])
def test_the_first_batch_keeps_all_threads_busy_if_the_prediction_allows_it(
    seconds: float, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as in a graph whose rows are so long that a batch of FIRST_ENTRIES has few rows
    monkeypatch.setattr("engine.algorithms.dijkstra.FIRST_ENTRIES", 64 * 1600)
    monkeypatch.setattr("engine.algorithms.dijkstra.BUSY_ENTRIES", 64 * 1600)
    calls: list[int] = []
    begin = Sweeper.begin_search

    def remember(self: Sweeper, arcs: Arcs, sources: np.ndarray, *given: Any) -> Searches:
        calls.append(len(sources))
        return begin(self, arcs, sources, *given)

    monkeypatch.setattr(Sweeper, "begin_search", remember)
    graph, sources = graphs.grid(1600), np.arange(1024)
    backend, sink = CpuBackend(8), Collect(1024, graph.n, "int32", 64)
    context = context_of(graph, "int32", sink, Monitor(), sources)
    # the prediction is that of eight threads together
    plan = replace(context.plan, threads=8, batch=2048, phases=(Phase("sweep", seconds),))
    try:
        partitioned.run(replace(context, plan=plan), backend)
    finally:
        backend.shutdown()
    assert calls[0] == first
    assert np.array_equal(decode(sink.array), oracle(graph, sources))
