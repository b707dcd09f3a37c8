"""Compares every algorithm with SciPy on random graphs, for some sources and targets and a cutoff."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.api.routes import Router
from engine.api.solve import make_plan, solve, solve_to_store
from engine.devices.cpu import search
from engine.graph.analysis import describe
from engine.graph.selection import first_beyond, first_sum_beyond
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink
from engine.planning import planner
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.property.test_algorithms import QUIET, Case, cases, check_radius, expected, suitable, tolerance, types_for


def side(n: int) -> st.SearchStrategy[tuple[int, ...] | None]:
    return st.none() | st.lists(st.integers(0, n - 1), min_size=1, unique=True).map(tuple)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Graph, np.ndarray, Options]:
    """A graph without negative cycles, its distances, and what is asked of them."""
    graph = draw(cases()).graph()
    reference = expected(graph)
    if reference is None:
        graph = Case(3, [(0, 1, 2.0), (1, 2, 3.0)], True).graph()
        reference = expected(graph)
    finite = np.abs(reference[np.isfinite(reference)])
    # half a step beyond a distance that occurs, so that rounding decides nothing
    steps = np.unique(finite)
    cutoff = draw(st.none() | st.sampled_from(steps.tolist()).map(lambda d: float(d) + gap(steps, d) / 2))
    options = Options(sources=draw(side(graph.n)), targets=draw(side(graph.n)), cutoff=cutoff, threads=2)
    return graph, reference, options


def gap(steps: np.ndarray, at: float) -> float:
    beyond = steps[steps > at * (1 + 1e-5) + 1e-9]
    return float(beyond[0]) - at if len(beyond) else at + 1


def wanted(reference: np.ndarray, options: Options) -> np.ndarray:
    rows = reference if options.sources is None else reference[list(options.sources)]
    part = rows if options.targets is None else rows[:, list(options.targets)]
    return part if options.cutoff is None else np.where(part > options.cutoff, np.inf, part)


def answer(graph: Graph, options: Options) -> tuple[np.ndarray, dict, str]:
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    outcome = solve(graph, plan, options, sink)
    found = sink.array.astype(float)
    found[sink.array == WORK_TYPES[plan.dtype].sentinel()] = np.inf
    return found, outcome.summary, plan.dtype


def check_summary(summary: dict, found: np.ndarray, graph: Graph, options: Options) -> None:
    """The definition of the summary, entry by entry."""
    sources = range(graph.n) if options.sources is None else options.sources
    targets = range(graph.n) if options.targets is None else options.targets
    pairs = {(u, v): found[i, j] for i, u in enumerate(sources) for j, v in enumerate(targets) if u != v}
    finite = {pair: d for pair, d in pairs.items() if np.isfinite(d)}
    assert (summary["sources"], summary["targets"]) == (len(sources), len(targets))
    assert (summary["pairs"], summary["reached"]) == (len(pairs), len(finite))
    assert summary["sum"] == pytest.approx(sum(finite.values()), rel=1e-6, abs=1e-6)
    if not finite:
        assert summary["diameter"] is None
        return
    eccentricity: dict[int, float] = {}
    for (u, _), d in finite.items():
        eccentricity[u] = max(d, eccentricity.get(u, -math.inf))
    assert summary["diameter"] == pytest.approx(max(eccentricity.values()), rel=1e-6)
    assert finite[tuple(summary["diameter_pair"])] == pytest.approx(summary["diameter"], rel=1e-6)
    own = np.isin(np.array(sources)[:, None], list(targets)) & (np.array(sources)[:, None] == np.array(targets))
    others = np.isfinite(found) & ~own
    check_radius(summary, list(sources), found, others, others.sum(1) + own.sum(1))
    assert sum(summary["histogram"]["counts"]) + summary["histogram"]["below_zero"] == len(finite)


def check(graph: Graph, reference: np.ndarray, options: Options) -> None:
    wide = Options(cutoff=options.cutoff)
    for name in suitable(graph, Options()):
        for dtype in {"auto", *types_for(graph, wide)}:
            asked = Options(**{**vars(options), "algorithm": name, "dtype": dtype})
            found, summary, stored = answer(graph, asked)
            close = tolerance(stored, reference)
            np.testing.assert_allclose(found, wanted(reference, options), **close, err_msg=f"{name} {dtype} {options}")
            check_summary(summary, found, graph, options)


@settings(max_examples=60, **QUIET)
@given(questions())
def test_every_algorithm_answers_the_rectangle(question: tuple[Graph, np.ndarray, Options]) -> None:
    check(*question)


@pytest.mark.slow
@settings(max_examples=50, **QUIET)
@given(questions())
def test_more_rectangles(question: tuple[Graph, np.ndarray, Options]) -> None:
    check(*question)


@pytest.mark.long
@settings(max_examples=600, **QUIET)
@given(questions())
def test_hundreds_of_rectangles(question: tuple[Graph, np.ndarray, Options]) -> None:
    check(*question)


@settings(max_examples=60, **QUIET)
@given(questions())
def test_lanes_and_heaps_agree(question: tuple[Graph, np.ndarray, Options]) -> None:
    """Blocks of lanes for the fewest sources, and no lanes at all."""
    graph, reference, options = question
    before = search.LEAST_LANES
    try:
        for search.LEAST_LANES in (1, 10**9):
            for name in ("dijkstra", "johnson"):
                if name in suitable(graph, Options()):
                    found, _, stored = answer(graph, Options(**{**vars(options), "algorithm": name}))
                    np.testing.assert_allclose(found, wanted(reference, options), **tolerance(stored, reference))
    finally:
        search.LEAST_LANES = before


@settings(max_examples=60, **QUIET)
@given(questions(), st.integers(1, 5))
def test_bits_agree(question: tuple[Graph, np.ndarray, Options], count: int) -> None:
    """Breadth-first searches one bit a source, for the fewest sources."""
    from engine.devices.cpu import bfs_bits

    graph, _, options = question
    graph = replace(graph, weights=np.ones_like(graph.weights))
    options = replace(options, algorithm="bfs", cutoff=None if options.cutoff is None else count - 0.5)
    if graph.arcs == 0:
        return
    before = bfs_bits.LEAST
    bfs_bits.LEAST = 1
    try:
        found, summary, _ = answer(graph, options)
    finally:
        bfs_bits.LEAST = before
    np.testing.assert_array_equal(found, wanted(expected(graph), options))
    check_summary(summary, found, graph, options)


@pytest.mark.parametrize("sides", [("sources",), ("targets",), ("sources", "targets")])
@pytest.mark.parametrize("algorithm", ["auto", "blocked-floyd-warshall", "dijkstra", "partitioned"])
@pytest.mark.parametrize("directed", [True, False])
def test_all_vertices_in_an_order_of_their_own(
    directed: bool, algorithm: str, sides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows and columns as the matrix has, and yet not the matrix as rounds would write it."""
    monkeypatch.setattr(planner, "STREAMED_FROM", 0)  # rounds are thought of for matrices as small as these
    n, rng = 90, np.random.default_rng(8)
    graph = build_graph(*rng.integers(0, n, (2, 300)), rng.integers(1, 9, 300), n=n, directed=directed)[0]
    orders = {side: tuple(rng.permutation(n).tolist()) for side in sides}
    solve_to_store(graph, Options(algorithm=algorithm, **orders), tmp_path / "d.zarr")
    outcome = solve_to_store(graph, Options(algorithm=algorithm), tmp_path / "whole.zarr")
    assert "store" in {c.tier for c in outcome.plan.candidates}
    rows, columns = (list(orders.get(side, range(n))) for side in ("sources", "targets"))
    with open_matrix(tmp_path / "d.zarr") as some, open_matrix(tmp_path / "whole.zarr") as whole:
        natural = whole.rows(whole.sources)
        np.testing.assert_array_equal(some.rows(some.sources), natural[np.ix_(rows, columns)])
        assert some.sources.tolist() == rows
        assert some.targets.tolist() == columns


@settings(max_examples=40, **QUIET)
@given(questions(), st.data())
def test_routes_of_a_rectangle(tmp_path_factory: pytest.TempPathFactory, question: tuple, data: st.DataObject) -> None:
    graph, reference, options = question
    path: Path = tmp_path_factory.mktemp("store") / "d.zarr"
    solve_to_store(graph, options, path)
    expected_part = wanted(reference, options)
    with open_matrix(path) as matrix:
        assert matrix.attributes["cutoff"] == options.cutoff
        router = Router(matrix)
        i = data.draw(st.integers(0, matrix.shape[0] - 1))
        for j in range(matrix.shape[1]):
            u, v = int(matrix.sources[i]), int(matrix.targets[j])
            route = router.route(u, v)
            if np.isinf(expected_part[i, j]):
                assert route is None
                continue
            assert route is not None
            assert (route.vertices[0], route.vertices[-1]) == (u, v)
            close = tolerance(matrix.dtype.name, reference)
            assert route.length == pytest.approx(expected_part[i, j], rel=close["rtol"], abs=close["atol"])


@settings(max_examples=40, **QUIET)
@given(cases(), st.integers(1, 6), st.data())
def test_hops_and_rectangle_together(case: Case, hops: int, data: st.DataObject) -> None:
    from tests.property.test_algorithms import within_hops

    graph = case.graph()
    if expected(graph) is None:
        return
    reference = within_hops(graph, min(hops, graph.n))
    options = Options(max_hops=hops, sources=data.draw(side(graph.n)), targets=data.draw(side(graph.n)))
    found, _, stored = answer(graph, options)
    np.testing.assert_allclose(found, wanted(reference, options), **tolerance(stored, reference))


@settings(max_examples=100, **QUIET)
@given(cases(), st.floats(0, 1e6))
def test_what_is_beyond_the_cutoff_needs_no_room(case: Case, cutoff: float) -> None:
    """The bound holds for what stays, and SciPy's ``limit`` leaves the same."""
    graph = case.graph()
    if graph.arcs == 0 or graph.weights.min() < 0:
        return
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    kept = dijkstra(arcs, limit=cutoff)
    assert kept[np.isfinite(kept)].max() <= describe(graph, cutoff=cutoff).bound * (1 + 1e-12)


@given(st.floats(0, 1e38, allow_subnormal=True), st.sampled_from(sorted(WORK_TYPES)))
def test_the_first_sum_beyond_rounds_beyond(cutoff: float, dtype: str) -> None:
    kind = WORK_TYPES[dtype]
    last = kind.dtype.type(cutoff) if not kind.integer else math.floor(cutoff)
    beyond, summed = first_beyond(cutoff, dtype), first_sum_beyond(cutoff, dtype)
    if kind.integer:
        assert beyond == min(last + 1, kind.unreachable)
        assert summed == beyond
        return
    assert beyond > last
    assert kind.dtype.type(summed) > last
    assert kind.dtype.type(np.nextafter(summed, 0)) <= last
