"""Graphs of NetworkX become the engine's of any kind: directed, parallel edges, views, self loops, odd names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from engine.interop.networkx import BACKEND
from engine.interop.networkx_backend import BackendGraph
from storage.graph.graph import build_graph, graph_digest


def filled(kind: Callable[[], Any], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    names = [f"v{i}" if i % 3 else (i, "pair") for i in range(20)]
    graph = kind()
    graph.add_nodes_from(names)
    for u, v in rng.integers(0, 20, (70, 2)).tolist():
        graph.add_edge(names[u], names[v], **({"w": int(rng.integers(1, 9))} if rng.random() < 0.8 else {}))
    return graph


KINDS = [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]
VIEWS: dict[str, Callable[[Any], Any]] = {
    "none": lambda whole: whole,
    "some vertices": lambda whole: whole.subgraph(list(whole)[3:15]),
    "some edges": lambda whole: whole.edge_subgraph(list(whole.edges)[::3]),
    "without some edges": lambda whole: nx.restricted_view(whole, list(whole)[:2], list(whole.edges)[::3]),
    "reversed": lambda whole: whole.reverse(copy=False) if whole.is_directed() else whole,
}


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_the_arcs_are_those_of_the_edges(kind: Callable[[], Any], weight: str | None, view: str) -> None:
    for seed in range(3):
        graph = VIEWS[view](filled(kind, seed))
        found = BackendGraph(graph).under(weight)
        place = {node: i for i, node in enumerate(graph)}
        edges = list(graph.edges(data=weight or "w", default=1))
        tails, heads = ([place[edge[side]] for edge in edges] for side in (0, 1))
        weights = None if weight is None else [w for _, _, w in edges]
        wanted = build_graph(tails, heads, weights, n=len(graph), directed=graph.is_directed())[0]
        assert graph_digest(found.graph) == graph_digest(wanted)
        assert found.graph.weighted == wanted.weighted
        assert graph_digest(found.reversed()) == graph_digest(
            build_graph(heads, tails, weights, n=len(graph), directed=graph.is_directed())[0]
        )


def test_facts_of_rows_are_those_of_the_distances() -> None:
    graph = filled(nx.DiGraph, 5)
    facts = BackendGraph(graph).under("w").statistics(inverse=True)
    lengths = [dict(row) for _, row in nx.all_pairs_dijkstra_path_length(graph, weight="w", backend="networkx")]
    for i, row in enumerate(lengths):
        others = [length for length in row.values() if length]
        assert facts.reached[i] == len(row) - 1
        assert facts.sums[i] == sum(others)
        assert facts.largest[i] == max(others, default=0)
        assert facts.inverse[i] == pytest.approx(sum(1 / length for length in others))


def test_only_the_vertices_that_are_asked_for_must_reach_all_others() -> None:
    graph = nx.DiGraph([(0, 1), (1, 2), (0, 2), (1, 0)])
    for v in (0, 1, [1, 0], [7, 0], []):
        assert BACKEND.eccentricity(graph, v) == nx.eccentricity(graph, v, backend="networkx")
    for v in (2, [0, 2], None):
        with pytest.raises(nx.NetworkXError, match="not strongly connected"):
            BACKEND.eccentricity(graph, v)


@pytest.mark.parametrize("kind", KINDS)
def test_a_negative_loop_is_left_to_networkx(kind: Callable[[], Any]) -> None:
    graph = kind()
    graph.add_weighted_edges_from([("a", "b", 2), ("z", "z", -1)])
    for name in ("single_source_dijkstra_path_length", "single_source_bellman_ford_path_length"):
        assert getattr(nx, name)(graph, "a", backend="networkx") == {"a": 0, "b": 2}
        with pytest.raises(NotImplementedError, match="a negative loop"):
            getattr(BACKEND, name)(graph, "a")


@pytest.mark.parametrize("name", ["harmonic_centrality", "floyd_warshall_numpy", "shortest_path_length"])
@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_undirected_views_whose_edges_have_another_weight_at_each_end_are_left_to_networkx(
    kind: Callable[[], Any], name: str
) -> None:
    """NetworkX reads the weight at one end or at the other, each function its own way."""
    key = "distance" if name == "harmonic_centrality" else "weight"
    graph = kind()
    graph.add_weighted_edges_from([(0, 1, 2), (1, 0, 5), (1, 2, 1), (3, 2, 4)])
    view = graph.to_undirected(as_view=True)
    asked = {"target": 0} if name == "shortest_path_length" else {}
    with pytest.raises(NotImplementedError, match="depend on the side"):
        getattr(BACKEND, name)(view, **{key: "weight"}, **asked)
    copied = graph.to_undirected()
    theirs = getattr(nx, name)(copied, **{key: "weight"}, **asked, backend="networkx")
    ours = getattr(BACKEND, name)(copied, **{key: "weight"}, **asked)
    assert np.array_equal(ours, theirs) if isinstance(theirs, np.ndarray) else ours == pytest.approx(theirs)
    nx.set_edge_attributes(graph, 3, "weight")
    theirs = getattr(nx, name)(view, **{key: "weight"}, **asked, backend="networkx")
    ours = getattr(BACKEND, name)(view, **{key: "weight"}, **asked)
    assert np.array_equal(ours, theirs) if isinstance(theirs, np.ndarray) else ours == pytest.approx(theirs)
