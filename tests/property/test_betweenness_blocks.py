"""Compares betweenness of graphs with many cut vertices, most of them small blocks in a row, with NetworkX."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.algorithms.betweenness import folding
from engine.algorithms.betweenness import small as small_searches
from engine.api.betweenness import small as small_run
from engine.api.betweenness.centrality import Centrality, betweenness
from engine.model.problem import Options
from storage.graph.graph import build_graph

KINDS = ("chain", "ring", "clique", "star", "sides", "chords")
ONE_WAY = {"both": 3, "forth": 1, "back": 1}


def edges_of(kind, vertices):
    """Return the edges of a block, or of a tree, of these vertices."""
    pairs = list(pairwise(vertices))
    middle = len(vertices) // 2
    return {
        "chain": pairs,
        "ring": [*pairs, (vertices[-1], vertices[0])],
        "clique": [(u, v) for i, u in enumerate(vertices) for v in vertices[:i]],
        "star": [(vertices[0], v) for v in vertices[1:]],
        "sides": [(u, v) for u in vertices[:middle] for v in vertices[middle:]],
        "chords": [*pairs, *zip(vertices, vertices[2:], strict=False)],
    }[kind]


@st.composite
def graphs(draw):
    """Return a graph of NetworkX, its key of weights, and the same graph for the engine: blocks that hang on each
    other, vertices alone, loops and parallel arcs.
    """
    directed, weighted, arcs, n = draw(st.booleans()), draw(st.booleans()), [], 1
    ways = st.sampled_from([way for way, times in ONE_WAY.items() for _ in range(times)])
    for _ in range(draw(st.integers(1, 7))):
        size, at = draw(st.integers(1, 5)), draw(st.integers(0, n))  # at vertex n begins a component of its own
        vertices, n = [at, *range(max(n, at + 1), max(n, at + 1) + size)], max(n, at + 1) + size
        turned = draw(st.permutations(vertices))
        for u, v in edges_of(draw(st.sampled_from(KINDS)), turned):
            way = draw(ways) if directed else "forth"
            arcs += [(u, v)] if way != "back" else []
            arcs += [(v, u)] if way != "forth" else []
    arcs += [(0, 0), arcs[0]] if draw(st.booleans()) else []
    n += draw(st.integers(0, 2))
    lengths = [draw(st.integers(1, 3)) if weighted else 1 for _ in arcs]
    other = nx.DiGraph() if directed else nx.Graph()
    other.add_nodes_from(range(n))
    for (u, v), length in zip(arcs, lengths, strict=True):
        if u != v and not (other.has_edge(u, v) and other[u][v]["weight"] <= length):
            other.add_edge(u, v, weight=length)
    tails, heads = zip(*arcs, strict=True)
    graph = build_graph(tails, heads, lengths if weighted else None, n=n, directed=directed)[0]
    return other, "weight" if weighted else None, graph


@pytest.fixture(autouse=True)
def fold_all(monkeypatch):
    monkeypatch.setattr(folding, "LEAST_VISITS", 0)
    monkeypatch.setattr(folding, "LEAST_SHARE", 0.0)


@pytest.mark.parametrize("together", [False, True])
def test_graphs_with_cut_vertices_have_networkxs_betweenness(together, monkeypatch):
    monkeypatch.setattr(small_searches, "FEW_ROWS", 1 if together else 10**9)
    monkeypatch.setattr(small_searches, "ALONE", 1 / 16 if together else 1.0)
    monkeypatch.setattr(small_searches, "MOST_VISITS", 10.0)
    monkeypatch.setattr(small_searches, "SPLIT", 0)
    seen = Counter()

    @settings(max_examples=150, deadline=None)
    @given(graphs(), st.sampled_from([0.0, 1.0]))  # trees are folded, or are blocks of two vertices
    def compare(drawn, share):
        other, weight, graph = drawn
        with monkeypatch.context() as patched:
            patched.setattr(folding, "LEAST_SHARE", share)
            asked = Centrality(graph, Options(threads=1), normalized=False)
            right = nx.betweenness_centrality(other, normalized=False, weight=weight, backend="networkx")
            np.testing.assert_allclose(asked.run().values, list(right.values()), rtol=1e-11, atol=1e-11)
            seen["blocks are searched" if "blocks" in asked.make_plan().search else "whole"] += 1

    compare()
    assert seen["blocks are searched"] > 60  # of 150


def test_trees_that_lead_one_way_are_folded_in_large_graphs(monkeypatch):
    monkeypatch.setattr(small_run, "SIZE", 0)

    @settings(max_examples=100, deadline=None)
    @given(graphs())
    def compare(drawn):
        other, weight, graph = drawn
        for endpoints in (False, True):
            right = nx.betweenness_centrality(
                other, normalized=False, weight=weight, endpoints=endpoints, backend="networkx"
            )
            found = betweenness(graph, Options(threads=1), normalized=False, endpoints=endpoints)
            np.testing.assert_allclose(found.values, list(right.values()), rtol=1e-11, atol=1e-11)
        edges = nx.edge_betweenness_centrality(other, normalized=False, weight=weight, backend="networkx")
        found = betweenness(graph, Options(threads=1), arcs=True, normalized=False)
        ends = zip(found.tails.tolist(), found.heads.tolist(), strict=True)
        wanted = [edges.get((u, v), edges.get((v, u))) for u, v in ends]
        np.testing.assert_allclose(found.values, wanted, rtol=1e-11, atol=1e-11)

    compare()
