"""Betweenness of graphs with many trees, which are folded: beside NetworkX, beside fractions, and without folding."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from engine.algorithms.betweenness import folding
from engine.algorithms.betweenness import passing as passing_searches
from engine.api.betweenness import passage
from engine.api.betweenness.centrality import Centrality, betweenness
from engine.model.problem import Options
from storage.graph.graph import build_graph
from tests.paths_through import passing

SHAPES = ("trees", "caterpillar", "cycle", "pieces", "hairy", "star", "lone")
KINDS = ("hops", "few lengths", "large", "decimals", "wide", "even")


@pytest.fixture(autouse=True)
def fold_small_graphs(monkeypatch):
    monkeypatch.setattr(folding, "LEAST_VISITS", 0)
    monkeypatch.setattr(folding, "LEAST_SHARE", 0.0)


def edges_of(rng, shape):
    """Return the number of vertices and the edges of a graph that is rich in trees, its vertices in random order."""
    n = int(rng.integers(2, 26))
    edges, start = [], 1
    if shape == "caterpillar":
        start = n // 2 + 1
        edges = [(i - 1, i) for i in range(1, start)]
    elif shape == "cycle":
        start = min(n, int(rng.integers(3, 9)))
        edges = [(i, (i + 1) % start) for i in range(start)]
    elif shape in ("pieces", "hairy"):
        start = min(n, 8)
        edges = rng.integers(0, start, (int(rng.integers(3, 16)), 2)).tolist()
    for v in range(start, n):
        if shape in ("pieces", "lone") and rng.random() < 0.3:
            continue  # a vertex alone, or the root of another tree
        near = {"star": 0, "caterpillar": int(rng.integers(0, start))}.get(shape, int(rng.integers(0, v)))
        edges.append((near, v))
    order = rng.permutation(n)
    return n, [(int(order[u]), int(order[v])) for u, v in edges if u != v]


def drawn(rng, shape, kind):
    """Return a graph of NetworkX, its key of weights, and the same graph for the engine."""
    n, edges = edges_of(rng, shape)
    other = nx.Graph()
    other.add_nodes_from(range(n))
    for u, v in edges:
        weight = {
            "hops": 1,
            "few lengths": int(rng.integers(1, 4)),
            "large": int(rng.integers(2**40, 2**40 + 3)),
            "decimals": int(rng.integers(1, 5)) / 4,  # exact in binary, so that NetworkX adds them exactly, too
            "wide": int(rng.integers(1, 10 ** int(rng.integers(1, 7)))),
            "even": 2.5,
        }[kind]
        other.add_edge(u, v, weight=weight)
    listed = list(other.edges(data="weight"))
    sides = [[edge[side] for edge in listed] for side in (0, 1)]
    weights = None if kind == "hops" else [edge[2] for edge in listed]
    return other, None if kind == "hops" else "weight", build_graph(*sides, weights, n=n, directed=False)[0]


def by_edge(found, right):
    return [
        right[u, v] if (u, v) in right else right[v, u]
        for u, v in zip(found.tails.tolist(), found.heads.tolist(), strict=True)
    ]


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_folded_graphs_have_networkxs_betweenness(shape, rows, monkeypatch):
    monkeypatch.setattr(passing_searches, "FEW_ROWS", 1 if rows else 10**9)
    folded = 0
    for seed in range(36):
        rng = np.random.default_rng((SHAPES.index(shape), seed))
        other, weight, graph = drawn(rng, shape, KINDS[seed % 6])
        threads = Options(threads=1 + seed % 2)
        for normalized in (False, True):
            for endpoints in (False, True):
                right = nx.betweenness_centrality(
                    other, normalized=normalized, endpoints=endpoints, weight=weight, backend="networkx"
                )
                asked = Centrality(graph, threads, normalized=normalized, endpoints=endpoints)
                folded += "trees are folded" in asked.make_plan().search
                np.testing.assert_allclose(asked.run().values, list(right.values()), rtol=1e-12, atol=1e-14)
            right = nx.edge_betweenness_centrality(other, normalized=normalized, weight=weight, backend="networkx")
            found = betweenness(graph, threads, arcs=True, normalized=normalized)
            assert len(found) == len(right)
            np.testing.assert_allclose(found.values, by_edge(found, right), rtol=1e-12, atol=1e-14)
    assert folded > 100  # of 144
