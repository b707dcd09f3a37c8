"""Compares betweenness of the NetworkX backend with NetworkX itself, on random graphs of all its classes."""

import math

import networkx as nx
import numpy as np
import pytest

from engine.api.betweenness.centrality import betweenness
from engine.interop.networkx import BACKEND
from engine.model.problem import Options
from storage.graph.graph import build_graph

CLASSES = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)


def random_graph(rng, kind):
    """A graph with odd names, self loops, parallel edges where there may be any, and edges without a weight."""
    n, graph = int(rng.integers(1, 16)), kind()
    graph.add_nodes_from(f"v{i}" for i in rng.permutation(n))
    for u, v in rng.integers(0, n, (int(rng.integers(0, 3 * n + 1)), 2)).tolist():
        graph.add_edge(f"v{u}", f"v{v}", **({"weight": int(rng.integers(1, 4))} if rng.random() < 0.8 else {}))
    return graph


def same(ours, theirs):
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        near = ours[key] == pytest.approx(value, rel=1e-9, abs=1e-12)
        assert near or (math.isnan(value) and math.isnan(ours[key])), (key, ours[key], value)


@pytest.mark.parametrize("kind", CLASSES)
def test_all_forms_are_networkxs(kind):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, kind)
        n = len(graph)
        names = sorted(graph)
        sides = [rng.choice(names, max(1, n // 2), replace=False).tolist() for _ in range(2)]
        weight = [None, "weight"][seed % 2]
        for k in (None, n, int(rng.integers(1, n + 1))):
            for normalized in (False, True):
                drawn = {"k": k, "normalized": normalized, "weight": weight, "seed": seed}
                for endpoints in (False, True):
                    asked = {**drawn, "endpoints": endpoints}
                    same(BACKEND.betweenness_centrality(graph, **asked), nx.betweenness_centrality(graph, **asked))
                same(
                    BACKEND.edge_betweenness_centrality(graph, **drawn), nx.edge_betweenness_centrality(graph, **drawn)
                )
                some = {"normalized": normalized, "weight": weight}
                same(
                    BACKEND.betweenness_centrality_subset(graph, *sides, **some),
                    nx.betweenness_centrality_subset(graph, *sides, **some),
                )


def test_what_networkx_counts_in_its_own_order_is_left_to_it():
    zero = nx.DiGraph([("a", "b", {"weight": 0}), ("b", "c", {"weight": 1})])
    loop = nx.Graph([("a", "a", {"weight": 0}), ("a", "c", {"weight": 1})])
    plain = nx.path_graph(4)
    for graph, asked in ((zero, {"weight": "weight"}), (loop, {"weight": "weight"})):
        with pytest.raises(NotImplementedError, match="not above zero"):
            BACKEND.betweenness_centrality(graph, **asked)
    for sides in (([0, 0], [1]), ([0], [9]), ([0], []), ("ab", [1])):
        with pytest.raises(NotImplementedError):
            BACKEND.betweenness_centrality_subset(plain, *sides)
    # weights that vanish in sums of floats, as if they were 0, of edges and of self loops
    faint = nx.DiGraph([("a", "b", {"weight": 1e-20}), ("b", "c", {"weight": 1.0})])
    faint_loop = nx.Graph([("a", "a", {"weight": 5e-324}), ("a", "c", {"weight": 0.5})])
    for graph in (faint, faint_loop):
        for name in ("betweenness_centrality", "edge_betweenness_centrality"):
            with pytest.raises(NotImplementedError, match="vanish"):
                getattr(BACKEND, name)(graph, weight="weight")
    # sums that floats make unequal are unequal here, too, as they are for NetworkX
    ends = [(0, 1, 0.1), (1, 3, 0.2), (0, 2, 0.15), (2, 3, 0.15)]
    fractions = nx.DiGraph()
    fractions.add_weighted_edges_from(ends)
    same(
        BACKEND.betweenness_centrality(fractions, weight="weight"),
        nx.betweenness_centrality(fractions, weight="weight"),
    )


def test_the_subset_of_edges_is_left_out_as_networkx_splits_by_edges_and_not_by_paths():
    """Three shortest paths from 0 to 4: NetworkX gives edge (3, 4) a half of what goes on to 5, its definition a third.

    This fails once NetworkX counts paths, and then the function can be offered.
    """
    graph = nx.DiGraph([(0, 1), (0, 2), (0, 6), (1, 7), (2, 7), (6, 3), (7, 4), (3, 4), (4, 5)])
    theirs = nx.edge_betweenness_centrality_subset(graph, [0], [5])
    assert theirs[3, 4] == pytest.approx(1 / 2)
    arcs = build_graph(*zip(*graph.edges(), strict=True), None, n=8, directed=True)[0]
    ours = betweenness(arcs, Options(sources=(0,), targets=(5,)), arcs=True, normalized=False)
    found = dict(zip(zip(ours.tails.tolist(), ours.heads.tolist(), strict=True), ours.values.tolist(), strict=True))
    assert found[3, 4] == pytest.approx(1 / 3)
    assert found[7, 4] == pytest.approx(2 / 3)
    assert not hasattr(BACKEND, "edge_betweenness_centrality_subset")
