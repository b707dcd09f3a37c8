"""Sums of rows side by side: the same as those of rows one by one, and which rows and graphs are left to the walk."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from engine.graph.ordering import fixed
from engine.model.dtypes import WORK_TYPES
from engine.rows import lane_sums
from engine.rows._lane_sums import _sort, number_vertices
from engine.rows._lane_vectors import FAR
from engine.rows._squares import LANES
from engine.rows.lane_sums import LEAST_ROWS, LaneSums, aligned, lane_bytes
from engine.rows.sums import PathSums, sum_types
from storage.errors import SolveFailed
from storage.graph.graph import Graph, build_graph

INT32 = WORK_TYPES["int32"]
KINDS = ("hops", "ties", "zeros", "decimals", "far")


def random_graph(rng: np.random.Generator, kind: str, n: int) -> Graph:
    """A graph with many ties, two whole quantities and a fraction."""
    m = int(rng.integers(n // 2, 5 * n))
    tails, heads = rng.integers(0, n, (2, m))
    weights = {
        "hops": None,
        "ties": rng.integers(1, 4, m),
        "zeros": np.where(rng.random(m) < 2 / n, 0, rng.integers(1, 4, m)),
        "decimals": rng.integers(1, 5, m) / 10,
        "far": rng.integers(1, 10**6, m),
    }[kind]
    quantities = {"whole": rng.integers(-5, 50, m), "part": rng.random(m), "other": rng.integers(0, 9, m)}
    directed = bool(rng.integers(2))
    graph, _ = build_graph(tails, heads, weights, n=n, directed=directed, quantities=quantities)
    return replace(graph, terminals=int(rng.integers(0, n // 2))) if rng.random() < 0.5 else graph


def rows_from(graph: Graph, sources: np.ndarray, cutoff: float = np.inf) -> np.ndarray:
    """Distances, by relaxing all arcs until nothing changes; decimals are rounded to tenths."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    rows = np.full((len(sources), graph.n), np.inf)
    for source, row in zip(sources, rows, strict=True):
        row[source], before = 0, None
        own = (tails >= graph.terminals) | (tails == source)
        while before is None or not np.array_equal(before, row):
            before = row.copy()
            np.minimum.at(row, graph.heads[own], row[tails[own]] + graph.weights[own])
            row[:] = row if graph.integral else np.round(row, 1)
    rows[rows > cutoff] = np.inf
    return rows


def typed(rows: np.ndarray, kind: str) -> np.ndarray:
    return np.where(np.isinf(rows), WORK_TYPES[kind].unreachable, rows).astype(kind)


def walks_few(sums: PathSums) -> PathSums:
    """Let it walk only fewer rows than are summed side by side."""
    walked = sums._walk

    def few(which: np.ndarray, *rest: Any) -> tuple[int, int]:
        assert len(which) < LEAST_ROWS
        return walked(which, *rest)

    sums._walk = few  # type: ignore[method-assign]
    return sums


def ways(graph: Graph, kind: str, *, limited: bool = False, targets: np.ndarray | None = None) -> tuple[PathSums, ...]:
    """What sums rows side by side, of which it may walk few, and what walks."""
    given = graph, sum_types(graph, list(graph.quantities)), WORK_TYPES[kind]
    beside = PathSums(*given, limited=limited, targets=targets)
    walks_few(beside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LaneSums, "suits", staticmethod(lambda _graph, _weights: False))
        return beside, PathSums(*given, limited=limited, targets=targets)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_rows_side_by_side_are_summed_as_the_walk_sums_them(kind, seed, monkeypatch):
    """In one call, in a call for each 16 rows, or in a call for each 32; by mean distances, or in the last order."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n = int(rng.integers(2, 90))
    monkeypatch.setattr(lane_sums, "ENTRIES", (2**24, 1, 2 * LANES * n)[seed % 3])
    monkeypatch.setattr(lane_sums, "SORTED", (0, n)[seed // 3 % 2])
    graph, limited = random_graph(rng, kind, n), bool(rng.integers(2))
    count = int(rng.integers(0, 8) * LANES + rng.integers(LEAST_ROWS, LANES + 1))
    sources = np.sort(rng.integers(0, n, count)) if rng.random() < 0.5 else rng.integers(0, n, count)
    rows = rows_from(graph, sources)
    if limited:
        rows[rows > np.median(rows[np.isfinite(rows)])] = np.inf
    types = ["float64"] if not graph.integral else ["int32", "float64", *(["uint16"] if kind != "far" else [])]
    targets = rng.permutation(n)[: n // 2] if rng.random() < 0.4 else None
    for dtype in types:
        beside, walk = ways(graph, dtype, limited=limited, targets=targets)
        found, wanted = (way.of(sources, typed(rows, dtype)) for way in (beside, walk))
        for name in graph.quantities:
            assert np.array_equal(found[name], wanted[name]), (dtype, name)


def outcome(way: PathSums, sources: np.ndarray, rows: np.ndarray) -> dict[str, list[list[float]]]:
    """The sums by name; empty where a row is refused."""
    try:
        return {name: block.tolist() for name, block in way.of(sources, rows).items()}
    except SolveFailed:
        return {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_entry_is_refused_as_the_walk_refuses_it(kind):
    outcomes = Counter[bool]()
    for seed in range(12):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        n, limited = int(rng.integers(2, 9)), seed % 2 == 1
        graph = random_graph(rng, kind, n)
        dtype = "int32" if graph.integral else "float64"
        sources = rng.integers(0, n, LANES + LEAST_ROWS)
        rows = typed(rows_from(graph, sources), dtype)
        both = ways(graph, dtype, limited=limited)
        for _ in range(60):
            i, v = rng.integers(len(sources)), rng.integers(n)
            if v == sources[i]:
                continue
            near = rows[i, v] + rng.integers(-2, 3) * (1 if graph.integral else 0.1)
            wrong = rng.choice([0, 1, near, rng.choice(rows[i]), WORK_TYPES[dtype].unreachable])
            other = rows.copy()
            other[i, v] = wrong
            told = [outcome(way, sources, other) for way in both]
            assert told[0] == told[1], (seed, i, v, wrong)
            outcomes[told[0] == {}] += 1
    assert outcomes[True] > 150
    assert outcomes[False] > 20


@pytest.mark.parametrize("wraps", [False, True])
def test_rows_that_have_overflowed_are_refused(wraps):
    """Distances beyond the type end as no path where additions stop there, and as any number where they wrap."""
    refused = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, wraps])
        n = int(rng.integers(3, 12))
        tails, heads = rng.integers(0, n, (2, 3 * n))
        beyond = [2**31 + 5, 2**32 - 1, 2**32] if wraps else []
        weights = rng.choice([1, 2, FAR // 3, FAR - 1, FAR, 2**31 - 1, *beyond], 3 * n)
        amounts = {"whole": rng.integers(0, 9, 3 * n)}
        graph, _ = build_graph(tails, heads, weights, n=n, directed=True, quantities=amounts)
        beside, walk = ways(graph, "int32")
        for source in range(n):
            (row,) = rows_from(graph, np.array([source]))
            farthest, found = row[np.isfinite(row)].max(), np.where(np.isfinite(row), row, FAR)
            stored = found.astype(np.int64).astype(np.int32) if wraps else np.minimum(found, FAR).astype(np.int32)
            sources, rows = np.full(LEAST_ROWS, source), np.tile(stored, (LEAST_ROWS, 1))
            # the walk takes what the type holds
            for way, most in ((beside, FAR), (walk, 2**31 if wraps else FAR)):
                if farthest >= most:
                    assert outcome(way, sources, rows) == {}, (seed, source, row)
                    refused += 1
    assert refused > 100


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_the_row_with_the_wrong_entry_is_named(dtype, calls, monkeypatch):
    monkeypatch.setattr(lane_sums, "ENTRIES", LANES * 40 * (4 - calls))
    rng = np.random.default_rng(1)
    graph = random_graph(rng, "far", 40)
    beside, _ = ways(graph, dtype)
    sources = np.arange(40)
    rows = typed(rows_from(graph, sources), dtype)
    for i in (0, 15, 16, 39):
        other = rows.copy()
        other[i, i] = 1
        with pytest.raises(SolveFailed, match=f"the entry from {i} to {i} is not"):
            beside.of(sources, other)


@pytest.mark.parametrize("terminals", [0, 7])
def test_the_vertex_with_the_wrong_entry_is_named(terminals):
    """The kernels number vertices in another way than the graph."""
    rng = np.random.default_rng(2)
    ends = rng.permutation(50)
    graph, _ = build_graph(
        ends[:1].repeat(49), ends[1:], rng.integers(1, 9, 49), n=50, directed=False, quantities={"q": [1] * 49}
    )
    graph = replace(graph, terminals=terminals if ends[0] >= terminals else 0)
    beside, _ = ways(graph, "int32")
    sources = ends[1:21]
    rows = typed(rows_from(graph, sources), "int32")
    for i, v in ((0, ends[30]), (19, ends[44]), (7, ends[8]), (8, ends[7])):
        for wrong in (rows[i, v] + 1, rows[i, v] - 1, FAR):
            other = rows.copy()
            other[i, v] = wrong
            if sources[i] != v and wrong > 0:
                with pytest.raises(SolveFailed, match=f"the entry from {sources[i]} to {v} is not"):
                    beside.of(sources, other)


@pytest.mark.parametrize("terminals", [0, 20])
def test_vertices_are_numbered_along_paths(terminals):
    """Neighbours on a road have numbers near each other, also where the file has them in any order."""
    rng = np.random.default_rng(3)
    order = rng.permutation(400)
    graph, _ = build_graph(order[:-1], order[1:], [1] * 399, n=400, directed=False)
    numbers = np.empty(400, np.int64)
    number_vertices(fixed(graph.indptr), fixed(graph.heads), terminals, numbers)
    assert np.array_equal(np.sort(numbers), np.arange(400))
    assert np.array_equal(numbers[:terminals], np.arange(terminals))
    apart = np.abs(np.diff(numbers[order[order >= terminals]]))
    assert np.mean(apart == 1) > 0.9


@pytest.mark.parametrize("most", [0, 300])
def test_vertices_are_visited_later_in_the_order_in_which_they_were_finished(most, monkeypatch):
    """Rows from near sources then need few further visits."""
    monkeypatch.setattr(lane_sums, "SORTED", most)
    graph, _ = build_graph(
        np.arange(299), np.arange(1, 300), [2] * 299, n=300, directed=True, quantities={"q": [1] * 299}
    )
    beside, _ = ways(graph, "int32")
    sources = np.zeros(LANES, np.int64)
    beside.of(sources, typed(rows_from(graph, sources), "int32"))
    with beside._lanes._spaces.one() as (_, (_, orders, _)):
        numbers = beside._lanes._numbers
        assert np.array_equal(orders[0], numbers)  # from the source to the end


@pytest.mark.parametrize("terminals", [0, 30])
def test_the_memory_of_a_thread_is_counted(terminals):
    graph = replace(random_graph(np.random.default_rng(1), "far", 400), terminals=terminals)
    beside, _ = ways(graph, "int32")
    buffer, (lines, orders, ties) = beside._lanes._new_space()
    held = sum(array.nbytes for array in (buffer, *lines, *orders, ties))
    assert lane_bytes(graph.n, terminals, 2 * 4 + 8) == pytest.approx(held, abs=1000)


@pytest.mark.parametrize(("last", "walked"), [(FAR - 1, False), (FAR, True)])
def test_distances_that_do_not_fit_are_walked(last, walked, monkeypatch):
    arcs = [0, 1, 2], [1, 2, 3], [FAR - 3, 1, last - FAR + 2]
    graph, _ = build_graph(*arcs, n=4, directed=True, quantities={"q": [1, 2, 4]})
    sums = PathSums(graph, sum_types(graph, ["q"]), WORK_TYPES["float64"], limited=False, targets=None)
    calls = []
    monkeypatch.setattr(sums, "_walk", lambda *given, walk=sums._walk: calls.append(given) or walk(*given))
    found = sums.of(np.zeros(LEAST_ROWS, np.int64), np.array([[0, FAR - 3, FAR - 2, last]] * LEAST_ROWS, np.float64))
    assert found["q"].tolist() == [[0, 1, 3, 7]] * LEAST_ROWS
    assert bool(calls) == walked


def test_which_graphs_are_summed_side_by_side():
    def suits(*weights: float) -> bool:
        arcs = range(len(weights))
        graph, _ = build_graph(list(arcs), [k + 1 for k in arcs], list(weights), n=len(weights) + 1, directed=True)
        return LaneSums.suits(graph, graph.weights)

    assert suits(1, 2, 0)
    assert not suits(1, -2, 0)
    assert suits(*[0] * (lane_sums.CLUSTER - 1), 1, 0)
    assert not suits(*[0] * lane_sums.CLUSTER, 1, 0)


def test_clusters_are_the_components_of_the_arcs_of_length_zero():
    rng, found, refused = np.random.default_rng(7), 0, 0
    for _ in range(400):
        n, arcs = int(rng.integers(1, 120)), int(rng.integers(0, 90))
        tails, heads = rng.integers(0, n, (2, arcs)).astype(np.int32)
        zero = rng.random(arcs) < 0.7
        joined = coo_array((np.ones(int(zero.sum())), (tails[zero], heads[zero])), shape=(n, n))
        component = connected_components(joined, directed=False)[1]
        sets = {tuple(np.flatnonzero(component == k)) for k in range(component.max() + 1)}
        sets = {vertices for vertices in sets if len(vertices) > 1}
        clusters = lane_sums._clusters(n, tails, heads, zero)
        if clusters is None:
            refused += 1
            assert max(map(len, sets)) > lane_sums.CLUSTER
            continue
        found += 1
        which, begins, members = clusters
        assert {tuple(members[a:b]) for a, b in pairwise(begins)} == sets
        if sets or len(which):
            of = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
            assert np.array_equal(np.flatnonzero(which >= 0), np.sort(members))
            assert np.array_equal(which[members], of)
    assert min(found, refused) > 50


@pytest.mark.parametrize("many", [0, 1])
def test_the_longest_chain_of_arcs_of_length_zero(many: int):
    """Numbers fall along the chain, so that the least one passes along all of it."""
    size = lane_sums.CLUSTER + many
    chain = np.arange(size - 1, -1, -1, dtype=np.int32)
    found = lane_sums._clusters(size, chain[:-1], chain[1:], np.ones(size - 1, np.bool_))
    assert (found is None) == bool(many)
    if found is not None:
        assert [part.tolist() for part in found] == [[0] * size, [0, size], list(range(size))]


def test_several_threads_share_the_sums_of_a_graph():
    rng = np.random.default_rng(5)
    graph = random_graph(rng, "zeros", 80)
    beside, walk = ways(graph, "int32")
    sources = rng.permutation(80)
    rows = typed(rows_from(graph, sources), "int32")
    parts = [slice(first, first + 40) for first in range(0, 50, 10)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda part: beside.of(sources[part], rows[part]), parts * 4))
    wanted = walk.of(sources, rows)
    for part, sums in zip(parts * 4, found, strict=True):
        for name, block in sums.items():
            assert np.array_equal(block, wanted[name][part])


@pytest.mark.parametrize("longest", [1, 700, 2**20])
def test_vertices_are_sorted_by_their_mean_distances(longest):
    rng = np.random.default_rng(longest)
    n = 500
    distances = aligned((n, LANES), np.int32)
    distances[:] = rng.integers(0, longest + 1, (n, 1)) + rng.integers(0, 16, (n, LANES))
    distances[rng.random((n, LANES)) < 0.1] = FAR
    orders = np.arange(n, dtype=np.int32), np.empty(n, np.int32), np.empty(n, np.uint8), np.empty((n + 1, 2), np.int32)
    _sort(distances, orders)
    assert np.array_equal(np.sort(orders[0]), np.arange(n))
    means = (np.where(distances < FAR, distances, 0) >> 4).sum(1)
    shift = next(k for k in range(32) if means.max() >> k < n)
    assert (np.diff((means >> shift)[orders[0]]) >= 0).all()
