"""What the bound by hubs looks at: walks of fewest arcs first, shortest paths only where those do not suffice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.graph import _walks, hubs, transpose
from engine.graph.hubs import NARROWEST, hub_bound
from engine.graph.transpose import reverse, transposed
from engine.model.backend import Arcs
from storage.graph.graph import Graph, build_graph


def digraph(heaviest: int, n: int = 400) -> Graph:
    """Some vertices reach nothing, and some are reached by nothing."""
    rng = np.random.default_rng(5)
    tails, heads = rng.integers(0, n, (2, 3 * n))
    return build_graph(tails, heads, rng.integers(1, heaviest, 3 * n), n=n, directed=True)[0]


def test_shortest_paths_are_searched_only_where_walks_do_not_prove_the_narrowest_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []
    search = _walks.search_from_hubs

    def counted(*given: object) -> object:
        searched.append(1)
        return search(*given)

    monkeypatch.setattr(counted, "py_func", search.py_func, raising=False)  # run instead, if the kernel is not compiled
    monkeypatch.setattr(_walks, "search_from_hubs", counted)
    assert 0 < (hub_bound(digraph(100), NARROWEST) or 0) <= NARROWEST
    assert searched == []
    assert hub_bound(digraph(3_000), NARROWEST) is not None
    assert searched


def test_a_bound_by_walks_is_a_bound() -> None:
    for graph in (digraph(100), graphs.ring(300), graphs.grid(400)):
        slow = hub_bound(graph, 2**40)
        fast = hub_bound(graph, NARROWEST)
        assert slow is not None
        assert fast is None or fast >= slow


@pytest.mark.parametrize("kept", [transpose.KEPT, 0])
@pytest.mark.parametrize("graph", [digraph(50), graphs.random(200), digraph(2**40)])
def test_reversed_arcs_are_those_of_the_general_way(graph: Graph, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transpose, "KEPT", kept)
    wanted = reverse(Arcs(graph.indptr, graph.heads, graph.weights))
    found = hubs._reversed(Arcs(graph.indptr, graph.heads, graph.weights))
    np.testing.assert_array_equal(found.indptr, wanted.indptr)
    np.testing.assert_array_equal(found.heads, wanted.heads)
    np.testing.assert_array_equal(found.weights, wanted.weights)
    assert (found.heads.dtype, found.weights.dtype) == (graph.heads.dtype, graph.weights.dtype)


def test_arcs_both_ways_are_the_arcs_and_the_reversed_ones() -> None:
    graph = digraph(50)
    indptr, heads = _walks.both_ways(graph.indptr, graph.heads)
    into, tails, _ = transposed(graph.indptr, graph.heads)
    for u in range(graph.n):
        there = graph.heads[graph.indptr[u] : graph.indptr[u + 1]]
        here = tails[into[u] : into[u + 1]]
        assert sorted(heads[indptr[u] : indptr[u + 1]]) == sorted([*there, *here])


@pytest.mark.parametrize("search", [_walks.walk_from_hubs, _walks.search_from_hubs])
@pytest.mark.parametrize(
    "graph",
    [digraph(100), digraph(9, n=60), graphs.ring(90), graphs.grid(100), graphs.random(80)]
    + [build_graph([0, 1, 2, 4, 3], [1, 2, 0, 3, 4], [7, 1, 9, 5, 6], n=5, directed=way)[0] for way in (True, False)],
)
def test_a_search_that_ends_early_changes_no_bound(graph: Graph, search: Any) -> None:
    """Every limit, up to beyond the bound, leads to the bound or to nothing."""
    arcs = Arcs(graph.indptr, graph.heads, graph.weights)
    component, order = transpose.components(arcs)
    sides = (arcs, hubs._reversed(arcs)) if graph.directed else (arcs,)
    bound = hubs._through_hubs(sides, component, order, 2**50, search)
    assert bound is not None
    for limit in {*range(0, 2 * bound, 1 + bound // 40), *range(max(0, bound - 3), bound + 4)}:
        assert hubs._through_hubs(sides, component, order, limit, search) == (bound if bound <= limit else None), limit


@pytest.mark.parametrize("directed", [True, False])
def test_the_way_back_is_searched_as_far_as_the_way_there_has_left(directed: bool) -> None:
    """Both ways of a long ring are as long as half of the limit and more: the second search sees almost nothing."""
    n = 1_000
    ring = build_graph(np.arange(n), (np.arange(n) + 1) % n, np.full(n, 10), n=n, directed=directed)[0]
    labels: list[int] = []

    def counted(*given: Any) -> object:
        found = _walks.search_from_hubs.py_func(*given)
        labels.append(int((given[-1] >= 0).sum()))
        return found

    counted.py_func = counted  # type: ignore[attr-defined]
    arcs = Arcs(ring.indptr, ring.heads, ring.weights)
    component, order = transpose.components(arcs)
    sides = (arcs, hubs._reversed(arcs)) if directed else (arcs,)
    limit = 10_000 if directed else 9_000
    assert hubs._through_hubs(sides, component, order, limit, counted) is None
    assert labels == ([n, 3] if directed else [903])


@pytest.mark.parametrize(("weight", "searches"), [(1_000, 0), (50, 2)])
def test_a_chain_of_single_vertices_that_is_too_long_is_found_without_a_search(
    weight: int, searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []

    def counted(search: Any) -> Any:
        def count(*given: object) -> object:
            searched.append(1)
            return search(*given)

        monkeypatch.setattr(count, "py_func", search.py_func, raising=False)
        return count

    for name in ("walk_from_hubs", "search_from_hubs"):
        monkeypatch.setattr(_walks, name, counted(getattr(_walks, name)))
    path = build_graph(np.arange(400), np.arange(1, 401), np.full(400, weight), n=401, directed=True)[0]
    bound = hub_bound(path, NARROWEST)
    assert (bound is None) if searches == 0 else (bound is not None and 400 * weight <= bound <= NARROWEST)
    assert len(searched) == searches
