"""What the bound by hubs looks at: walks of fewest arcs first, shortest paths only where those do not suffice."""

from __future__ import annotations

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
