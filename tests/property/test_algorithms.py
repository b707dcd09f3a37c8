"""Compares every algorithm, in every type that can hold the distances, with SciPy on random graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import NegativeCycleError, bellman_ford

from engine.api.solve import make_plan, solve
from engine.graph.analysis import describe
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Machine, Options
from engine.model.rows import ArraySink
from engine.planning.cost_partitioned import whole
from engine.planning.planner import ESTIMATES, choose, choose_type
from storage.errors import InvalidRequest, NegativeCycle
from storage.graph.graph import Graph, build_graph


@dataclass(frozen=True)
class Case:
    """A list of arcs before cleaning."""

    n: int
    arcs: list[tuple[int, int, float]]
    directed: bool

    def graph(self) -> Graph:
        tails = np.array([a for a, _, _ in self.arcs], np.int64)
        heads = np.array([b for _, b, _ in self.arcs], np.int64)
        weights = np.array([w for _, _, w in self.arcs])
        return build_graph(tails, heads, weights, n=self.n, directed=self.directed)[0]


WEIGHTS = {
    "units": st.just(1),
    "whole": st.integers(0, 50),
    "large": st.integers(0, 10**7),
    "half of int32": st.integers(2**29 - 9, 2**29 + 9),
    "huge": st.integers(0, 2**40),
    "signed": st.integers(-4, 30),
    "eighths": st.integers(0, 400).map(lambda x: x / 8),
    "signed eighths": st.integers(-16, 400).map(lambda x: x / 8),
    "floats": st.floats(0, 1e6, allow_subnormal=False),
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 24))
    directed = draw(st.booleans())
    weight = WEIGHTS[draw(st.sampled_from(sorted(WEIGHTS)))]
    vertex = st.integers(0, n - 1)
    most = draw(st.sampled_from([0, n // 2, 2 * n, n * n]))
    arcs = draw(st.lists(st.tuples(vertex, vertex, weight), max_size=most))
    # a negative self loop is refused while the graph is built, with a test of its own
    return Case(n, [(u, v, w) for u, v, w in arcs if u != v or w >= 0], directed)


def expected(graph: Graph) -> np.ndarray | None:
    """SciPy's distances; None where it finds a negative cycle."""
    if graph.arcs == 0:
        return np.where(np.eye(graph.n, dtype=bool), 0.0, np.inf)
    matrix = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    try:
        return bellman_ford(matrix, directed=True)
    except NegativeCycleError:
        return None


def within_hops(graph: Graph, hops: int) -> np.ndarray:
    """Lengths of walks of at most ``hops`` arcs, the slow and obvious way."""
    weights = np.full((graph.n, graph.n), np.inf)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    weights[tails, graph.heads] = graph.weights
    np.fill_diagonal(weights, 0)
    result = np.where(np.eye(graph.n, dtype=bool), 0.0, np.inf)
    for _ in range(hops):
        result = (result[:, :, None] + weights[None, :, :]).min(1)
    return result


def solved(graph: Graph, options: Options) -> np.ndarray:
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    outcome = solve(graph, plan, options, sink)
    kind = WORK_TYPES[plan.dtype]
    result = sink.array.astype(float)
    result[sink.array == kind.sentinel()] = np.inf
    check_summary(outcome.summary, result, options)
    return result


def check_summary(summary: dict, distances: np.ndarray, options: Options) -> None:
    """The summary that went by must say what the finished matrix says."""
    rows = range(len(distances)) if options.sources is None else options.sources
    own = np.zeros(distances.shape, bool)
    own[np.arange(len(distances)), list(rows)] = True
    finite = np.isfinite(distances) & ~own
    assert summary["reached"] == finite.sum()
    assert summary["sum"] == pytest.approx(distances[finite].sum(), rel=1e-6, abs=1e-6)
    if finite.any():
        eccentricities = [row[mask].max() for row, mask in zip(distances, finite, strict=True) if mask.any()]
        assert summary["diameter"] == pytest.approx(max(eccentricities), rel=1e-7)
        check_radius(summary, list(rows), distances, finite, finite.sum(1) + 1)
        counted = summary["histogram"]
        assert sum(counted["counts"]) + counted["below_zero"] == finite.sum()


def check_radius(
    summary: dict, sources: list[int], distances: np.ndarray, finite: np.ndarray, reach: np.ndarray
) -> None:
    """The smallest eccentricity of sources that reach nine tenths of what any does, themselves counted in ``reach``."""
    far = {
        i: row[mask].max()
        for i, (row, mask) in enumerate(zip(distances, finite, strict=True))
        if mask.any() and 10 * reach[i] >= 9 * max(reach)
    }
    assert summary["radius"] == pytest.approx(min(far.values()), rel=1e-6)
    assert far[sources.index(summary["center"])] == pytest.approx(summary["radius"], rel=1e-6)
    assert summary["central_sources"] == len(far)
    assert summary["central_reach"] == min(reach[i] for i in far)


def types_for(graph: Graph, options: Options) -> list[str]:
    problem = describe(graph, max_hops=options.max_hops)
    names = []
    for name in WORK_TYPES:
        try:
            names.append(choose_type(problem, name)[0].name)
        except InvalidRequest:
            continue
    return names


BOX = Machine(2, 2**40, 0, None, dict.fromkeys(WORK_TYPES, 1e10), 1e8, 1e9)


def suitable(graph: Graph, options: Options) -> list[str]:
    names = []
    for name in ESTIMATES:
        try:
            problem = replace(describe(graph, max_hops=options.max_hops), parts=whole(graph.n))
            choose(problem, BOX, Options(**{**vars(options), "algorithm": name}))
            names.append(name)
        except InvalidRequest:
            continue
    return names


def tolerance(dtype: str, reference: np.ndarray) -> dict[str, float]:
    largest = np.abs(reference[np.isfinite(reference)]).max(initial=0)
    return {"rtol": 1e-6, "atol": 1e-6 * largest} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12 * largest}


def check(case: Case) -> None:
    graph = case.graph()
    reference = expected(graph)
    if reference is None:
        with pytest.raises(NegativeCycle) as caught:
            make_plan(graph, Options())
        check_cycle(graph, caught.value)
        return
    for name in suitable(graph, Options()):
        for dtype in types_for(graph, Options()):
            found = solved(graph, Options(algorithm=name, dtype=dtype, threads=2))
            np.testing.assert_allclose(found, reference, **tolerance(dtype, reference), err_msg=f"{name} {dtype}")


def check_cycle(graph: Graph, error: NegativeCycle) -> None:
    """The cycle that is named exists and is negative."""
    cycle = [int(v) for v in error.cycle]
    total = 0
    for tail, head in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        row = slice(graph.indptr[tail], graph.indptr[tail + 1])
        at = np.flatnonzero(graph.heads[row] == head)
        assert len(at) == 1, f"the named arc {tail} -> {head} does not exist"
        total += graph.weights[row][at[0]].item()
    assert total < 0
    assert total == pytest.approx(error.weight)


QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=60, **QUIET)
@given(cases())
def test_every_algorithm_and_type_agrees_with_scipy(case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=80, **QUIET)
@given(cases())
def test_more_graphs_agree_with_scipy(case: Case) -> None:
    check(case)


@pytest.mark.long
@settings(max_examples=1000, **QUIET)
@given(cases())
def test_a_thousand_graphs_agree_with_scipy(case: Case) -> None:
    check(case)


@settings(max_examples=100, **QUIET)
@given(cases(), st.integers(1, 30), st.data())
def test_paths_of_at_most_k_arcs(case: Case, hops: int, data: st.DataObject) -> None:
    graph = case.graph()
    if expected(graph) is None:
        return
    reference = within_hops(graph, min(hops, graph.n))
    some = data.draw(st.none() | st.lists(st.integers(0, graph.n - 1), min_size=1, unique=True).map(tuple))
    for dtype in types_for(graph, Options(max_hops=hops)):
        found = solved(graph, Options(max_hops=hops, dtype=dtype, sources=some, algorithm="repeated-squaring"))
        wanted = reference if some is None else reference[list(some)]
        np.testing.assert_allclose(found, wanted, **tolerance(dtype, reference))


@settings(max_examples=60, **QUIET)
@given(cases(), st.data())
def test_chosen_sources_are_rows_of_the_whole(case: Case, data: st.DataObject) -> None:
    graph = case.graph()
    reference = expected(graph)
    if reference is None:
        return
    some = tuple(data.draw(st.lists(st.integers(0, graph.n - 1), min_size=1, unique=True)))
    for name in suitable(graph, Options()):
        found = solved(graph, Options(algorithm=name, sources=some))
        np.testing.assert_allclose(found, reference[list(some)], **tolerance("float32", reference), err_msg=name)


@settings(max_examples=200, **QUIET)
@given(cases())
def test_the_bound_holds(case: Case) -> None:
    graph = case.graph()
    reference = expected(graph)
    if reference is not None:
        largest = np.abs(reference[np.isfinite(reference)]).max()
        assert largest <= describe(graph).bound * (1 + 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name", ["johnson", "recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring", "partitioned"]
)
def test_cycles_near_zero_do_not_run_away(name: str, dtype: str) -> None:
    """Every arc is a difference of heights, so every cycle has length zero but for rounding."""
    rng = np.random.default_rng(4)
    n = 60
    height = rng.random(n) * 10
    tails, heads = np.divmod(np.arange(n * n), n)
    graph = build_graph(tails, heads, height[heads] - height[tails], n=n, directed=True)[0]
    found = solved(graph, Options(algorithm=name, dtype=dtype))
    np.testing.assert_allclose(found, height[None] - height[:, None], atol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize(("dtype", "step"), [("float32", 10**6), ("float64", 2**49)])
@pytest.mark.parametrize(
    "name", ["johnson", "recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring", "partitioned"]
)
def test_whole_weights_beyond_what_the_type_holds_do_not_run_away(name: str, dtype: str, step: int) -> None:
    """Whole weights are exact in int64 only: in narrower types cycles of length zero fall by rounding, too."""
    rng = np.random.default_rng(4)
    n = 100
    height = np.arange(n) * step + rng.integers(0, step, n)
    tails, heads = np.nonzero(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 9)
    graph = build_graph(tails, heads, height[heads] - height[tails], n=n, directed=True)[0]
    assert graph.integral
    plan = make_plan(graph, Options(algorithm=name, dtype=dtype))
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, Options(algorithm=name, dtype=dtype), sink)
    exact = (height[None] - height[:, None]).astype(dtype)  # each distance rounded once
    np.testing.assert_array_equal(sink.array, exact)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name", ["johnson", "recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring", "partitioned"]
)
@pytest.mark.parametrize("copies", [1, 8])  # one by one, and side by side
def test_a_small_distance_is_not_lost_behind_a_large_potential(name: str, dtype: str, copies: int) -> None:
    tails = np.concatenate([[3 * i, 3 * i + 1] for i in range(copies)])
    weights = np.tile([-1e17, 1.5], copies)
    graph = build_graph(tails, tails + 1, weights, n=3 * copies, directed=True)[0]
    plan = make_plan(graph, Options(algorithm=name, dtype=dtype))
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, Options(algorithm=name, dtype=dtype), sink)
    assert [sink.array[3 * i + 1, 3 * i + 2] for i in range(copies)] == [1.5] * copies
