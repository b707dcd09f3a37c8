"""Potentials against SciPy's Bellman-Ford, and negative cycles against exact sums."""

from __future__ import annotations

import contextlib
import math
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import NegativeCycleError, johnson

from engine.api.solve import make_plan
from engine.graph import potentials
from engine.graph.analysis import describe
from engine.graph.potentials import find_potentials, reduced_weights
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES, needs_potentials, relaxes_reduced
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.errors import Cancelled, InvalidRequest, NegativeCycle
from storage.graph.graph import Graph


def make_graph(
    n: int, arcs: dict[tuple[int, int], float], dtype: npt.DTypeLike, labels: list[str] | None = None
) -> Graph:
    keys = sorted(arcs)
    tails = np.array([u for u, _ in keys], np.int64)
    return Graph(
        indptr=np.concatenate(([0], np.cumsum(np.bincount(tails, minlength=n)))).astype(np.int64),
        heads=np.array([v for _, v in keys], np.int32),
        weights=np.array([arcs[k] for k in keys], dtype),
        labels=np.arange(n) if labels is None else np.array(labels, np.dtypes.StringDType()),
        directed=True,
        weighted=True,
    )


def exact_cycle_weight(graph: Graph, error: NegativeCycle) -> Fraction:
    """The exact sum along the named cycle; KeyError if an arc of it does not exist."""
    index = {label: i for i, label in enumerate(graph.labels.tolist())}
    weight = {}
    for u in range(graph.n):
        for e in range(graph.indptr[u], graph.indptr[u + 1]):
            weight[u, int(graph.heads[e])] = Fraction(graph.weights[e].item())
    route = [index[label] for label in error.cycle]
    assert len(set(route)) == len(route)
    return sum((weight[u, v] for u, v in zip(route, [*route[1:], route[0]], strict=True)), Fraction(0))


def random_graph(rng: np.random.Generator, n: int, m: int, low: int, high: int, dtype: npt.DTypeLike) -> Graph:
    pairs = {(int(u), int(v)) for u, v in rng.integers(0, n, (m, 2)) if u != v}
    scale = 1 if np.dtype(dtype).kind == "i" else 0.37
    return make_graph(n, {p: int(rng.integers(low, high)) * scale for p in pairs}, dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_agrees_with_scipy_on_whether_there_is_a_negative_cycle(dtype: str) -> None:
    rng = np.random.default_rng(5)
    found = {True: 0, False: 0}
    for trial in range(150):
        n = int(rng.integers(2, 40))
        graph = random_graph(rng, n, int(rng.integers(1, 5 * n)), -3 - trial % 7, 20 + trial % 40, dtype)
        dense = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(n, n))
        try:
            johnson(dense)
            negative = False
        except NegativeCycleError:
            negative = True
        found[negative] += 1
        if negative:
            with pytest.raises(NegativeCycle) as caught:
                find_potentials(graph)
            exact = exact_cycle_weight(graph, caught.value)
            assert exact < 0
            assert caught.value.weight == float(exact)
        else:
            h = find_potentials(graph)
            assert h.dtype == (np.float64 if dtype == "float64" else np.int64)
            assert h.max() <= 0
            raw = graph.weights + np.repeat(h, np.diff(graph.indptr)) - h[graph.heads]
            assert raw.min(initial=0) >= (-1e-12 if dtype == "float64" else 0)
            assert reduced_weights(graph, h).min(initial=0) >= 0
    assert min(found.values()) >= 20


def test_potentials_are_the_shortest_walks_that_end_in_each_vertex() -> None:
    h = find_potentials(make_graph(4, {(0, 1): -5, (1, 2): 3, (2, 0): 2, (2, 3): -4}, np.int32))
    assert h.tolist() == [0, -5, -2, -6]


@pytest.mark.parametrize("weights", [(0.1, 0.2, -0.3), (-0.1, -0.2, 0.3), (1e16, 1.0, -1e16)])
def test_a_cycle_that_is_zero_but_for_rounding_passes(weights: tuple[float, float, float]) -> None:
    a, b, c = weights
    h = find_potentials(make_graph(3, {(0, 1): a, (1, 2): b, (2, 0): c}, np.float64))
    assert np.isfinite(h).all()


def test_many_cycles_that_are_zero_but_for_rounding_end() -> None:
    """Weights p[v] - p[u] make every cycle zero on paper and none exactly zero in float64."""
    rng = np.random.default_rng(3)
    for size in (1.0, 1e-3, 1e9):
        p = rng.normal(0, size, 60) / 3
        arcs = {(u, v): float(p[v] - p[u]) for u in range(60) for v in range(60) if u != v}
        graph = make_graph(60, arcs, np.float64)
        h = find_potentials(graph)
        raw = graph.weights + np.repeat(h, 59) - h[graph.heads]
        assert raw.min() >= -1e-12 * size


def test_a_small_but_real_negative_float_cycle_is_refused_by_name() -> None:
    arcs = {(0, 1): 5.25, (1, 2): -9.5, (2, 0): 4.2499, (2, 3): 1.0, (3, 1): 9.0}
    graph = make_graph(4, arcs, np.float64, ["ant", "bee", "cat", "dog"])
    with pytest.raises(NegativeCycle, match="bee -> ") as caught:
        find_potentials(graph)
    assert sorted(caught.value.cycle) == ["ant", "bee", "cat"]
    assert caught.value.weight == math.fsum([5.25, -9.5, 4.2499])
    assert exact_cycle_weight(graph, caught.value) < 0


def test_an_undirected_negative_edge_is_a_cycle_of_two_vertices() -> None:
    graph = make_graph(3, {(0, 1): 4, (1, 0): 4, (1, 2): -1, (2, 1): -1}, np.int32)
    with pytest.raises(NegativeCycle) as caught:
        find_potentials(graph)
    assert sorted(caught.value.cycle) == [1, 2]
    assert caught.value.weight == -2


def test_integers_near_the_limit_are_exact_and_beyond_it_refused() -> None:
    big = 2**52
    arcs = {(0, 1): -big, (1, 2): -big + 1, (2, 0): 2 * big - 1}
    assert find_potentials(make_graph(3, arcs, np.int64)).tolist() == [0, -big, 1 - 2 * big]
    arcs[2, 0] -= 1
    with pytest.raises(NegativeCycle) as caught:
        find_potentials(make_graph(3, arcs, np.int64))
    assert caught.value.weight == -1
    with pytest.raises(InvalidRequest, match="2\\^62"):
        find_potentials(make_graph(3, {(0, 1): -(2**62)}, np.int64))


def test_empty_graphs_and_graphs_without_negative_arcs_have_zero_potentials() -> None:
    assert find_potentials(make_graph(1, {}, np.int32)).tolist() == [0]
    assert find_potentials(make_graph(3, {(0, 1): 2.5, (2, 1): 0.0}, np.float64)).tolist() == [0, 0, 0]


def test_a_long_negative_path_and_a_dense_graph_stay_cheap() -> None:
    """Work is bounded: both would take minutes if labels fell one vertex at a time in the wrong order."""
    n = 100_000
    indptr = np.concatenate((np.arange(n), [n - 1]))
    path = Graph(indptr, np.arange(1, n, dtype=np.int32), np.full(n - 1, -1, np.int32), np.arange(n), True, True)
    assert np.array_equal(find_potentials(path), -np.arange(n))
    n = 400
    p = np.random.default_rng(1).integers(0, 10_000, n)
    arcs = {(u, v): int(p[v] - p[u]) + (u + v) % 7 for u in range(n) for v in range(n) if u != v}
    graph = make_graph(n, arcs, np.int32)
    assert reduced_weights(graph, find_potentials(graph)).min() >= 0


@pytest.mark.data
@pytest.mark.parametrize(("name", "negative"), [("spread", False), ("rounded", True)])
def test_real_exchange_rates(data_dir: Path, name: str, negative: bool) -> None:
    lines = (data_dir / f"ecb_2024-06-28_{name}.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    names = sorted({name for row in rows for name in row[:2]})
    index = {name: i for i, name in enumerate(names)}
    graph = make_graph(len(names), {(index[u], index[v]): float(w) for u, v, w in rows}, np.float64, names)
    if negative:
        with pytest.raises(NegativeCycle) as caught:
            find_potentials(graph)
        assert exact_cycle_weight(graph, caught.value) < 0
    else:
        assert reduced_weights(graph, find_potentials(graph)).min() >= 0


@pytest.mark.parametrize(
    ("dtype", "integral", "negative", "bound", "needed"),
    [
        ("float32", True, True, 2**22, False),
        ("float32", True, True, 2**22 + 1, True),
        ("float64", True, True, 2**51, False),
        ("float64", True, True, 2**51 + 1, True),
        ("int32", True, True, 2**29 - 1, False),
        ("float32", True, False, 1e30, False),
        ("float64", False, True, 1.0, True),
        ("float64", False, False, 1e30, False),
    ],
)
def test_potentials_depend_on_what_the_working_type_holds_exactly(
    dtype: str, integral: bool, negative: bool, bound: float, needed: bool
) -> None:
    assert needs_potentials(WORK_TYPES[dtype], negative=negative, integral=integral, bound=bound) == needed


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("hops", [None, 2])
def test_planning_and_running_agree_on_reduced_weights(dtype: str, hops: int | None) -> None:
    kind = WORK_TYPES[dtype]
    for low, scale, of in (
        (-3, 1, "int64"),
        (-(2**21), 2**21, "int64"),
        (-(2**50), 2**50, "int64"),
        (-1, 1, "float64"),
    ):
        graph = make_graph(3, {(0, 1): low, (1, 2): scale, (2, 0): scale}, of)
        if kind.integer and not graph.integral:
            continue
        assert relaxes_reduced(kind, describe(graph, max_hops=hops)) == GraphProfile(graph).holds_reduced(kind, hops)


@pytest.mark.parametrize("weights", [(-1e308, -1e308), (1.7e308, -1.7e308), (5e307, -5e307)])
def test_floats_of_both_signs_whose_sums_could_leave_float64_are_refused(weights: tuple[float, float]) -> None:
    """A cycle of n arcs weighs more than any path: it used to be minus infinity, and was not found."""
    graph = make_graph(2, {(0, 1): weights[0], (1, 0): weights[1]}, "float64")
    with pytest.raises(InvalidRequest, match="sums may leave float64"):
        find_potentials(graph)
    with pytest.raises(InvalidRequest, match="no type holds the distances"):
        make_plan(graph, Options())


def test_a_negative_cycle_of_weights_as_large_as_sums_allow_is_found() -> None:
    graph = make_graph(2, {(0, 1): -4e307, (1, 0): -4e307}, "float64")
    with pytest.raises(NegativeCycle) as caught:
        make_plan(graph, Options())
    assert caught.value.weight == -8e307


def downhill(n: int) -> Graph:
    """Labels fall often: every vertex has a long way that is shorter than its short ones."""
    arcs = {(u, u + 1): -1 for u in range(n - 1)} | {(u, v): 1 for u in range(n) for v in range(u + 2, min(n, u + 9))}
    return make_graph(n, arcs, np.int32)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_potentials_do_not_depend_on_where_the_search_pauses(dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    height = rng.integers(0, 1000, 80)
    ends = {(int(u), int(v)) for u, v in rng.integers(0, 80, (600, 2)) if u != v}
    graph = make_graph(80, {(u, v): height[u] - height[v] + rng.integers(0, 9) for u, v in ends}, dtype)
    cyclic = make_graph(80, {(u, (u + 1) % 80): (-1) ** u * 0.5 - (u == 79) for u in range(80)}, np.float64)
    whole = find_potentials(graph)
    with pytest.raises(NegativeCycle) as told:
        find_potentials(cyclic)
    monkeypatch.setattr(potentials, "SLICE", 1)
    assert (find_potentials(graph) == whole).all()
    with pytest.raises(NegativeCycle) as again:
        find_potentials(cyclic)
    assert again.value.details() == told.value.details()


def test_the_search_for_potentials_is_stopped_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes O(n m) at worst, minutes for large graphs: the monitor is asked, and signals come, after every slice."""
    asked = []

    class Stops(Monitor):
        def cancelled(self) -> bool:
            asked.append(1)
            return len(asked) == 3

    monkeypatch.setattr(potentials, "SLICE", 100)
    with pytest.raises(Cancelled):
        find_potentials(downhill(2000), Stops())
    assert len(asked) == 3


def test_a_slice_takes_little_of_the_time_within_which_a_solve_stops() -> None:
    n, times = 60_000, []
    rng = np.random.default_rng(1)
    height, tails, heads = rng.integers(0, 10**6, n), np.repeat(np.arange(n), 8), rng.integers(0, n, 8 * n)
    arcs = csr_array((np.ones(8 * n, np.int64), (tails, heads)), shape=(n, n)).tocoo()
    weights = height[arcs.row] - height[arcs.col] + rng.integers(0, 9, len(arcs.row))
    matrix = csr_array((weights, (arcs.row, arcs.col)), shape=(n, n))
    matrix.sort_indices()
    graph = Graph(
        matrix.indptr.astype(np.int64), matrix.indices, matrix.data, np.arange(n), directed=True, weighted=True
    )

    class Clock(Monitor):
        def cancelled(self) -> bool:
            times.append(time.process_time())
            return len(times) > 2

    began = time.process_time()
    with contextlib.suppress(Cancelled):
        find_potentials(graph, Clock())
    assert times
    assert max(np.diff([began, *times])) < 5
