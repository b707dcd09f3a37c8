"""Compares betweenness of graphs whose trees are folded with NetworkX, exact fractions, and betweenness unfolded."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from engine.algorithms.betweenness import folding
from engine.algorithms.betweenness import passing as passing_searches
from engine.api.betweenness import small as small_run
from engine.api.betweenness.centrality import Centrality, betweenness
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.errors import Cancelled, InvalidRequest
from storage.graph.graph import build_graph
from storage.readers import read_graph

SHAPES = ("trees", "caterpillar", "cycle", "pieces", "hairy", "star", "lone")
#: Shares of the arcs of trees in directed graphs; see :func:`drawn_directed`.
WAYS = (0.78, 0.07, 0.07), (0.3, 0.35, 0.35), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.5, 0.5), (0.1, 0.4, 0.4)
KINDS = ("hops", "few lengths", "large", "decimals", "wide", "even")


@pytest.fixture(autouse=True)
def fold_small_graphs(monkeypatch):
    monkeypatch.setattr(small_run, "SIZE", 0)  # small graphs are counted in another way
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


def folded_calls(other, weight, graph, threads):
    """Compare the betweenness of all vertices in every form, and return how often trees were folded."""
    folded = 0
    for normalized in (False, True):
        for endpoints in (False, True):
            right = nx.betweenness_centrality(
                other, normalized=normalized, endpoints=endpoints, weight=weight, backend="networkx"
            )
            asked = Centrality(graph, threads, normalized=normalized, endpoints=endpoints)
            folded += "trees are folded" in asked.make_plan().search
            np.testing.assert_allclose(asked.run().values, list(right.values()), rtol=1e-12, atol=1e-14)
    return folded


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_folded_graphs_have_networkxs_betweenness(shape, rows, monkeypatch):
    monkeypatch.setattr(passing_searches, "FEW_ROWS", 1 if rows else 10**9)
    folded = 0
    for seed in range(36):
        rng = np.random.default_rng((SHAPES.index(shape), seed))
        other, weight, graph = drawn(rng, shape, KINDS[seed % 6])
        threads = Options(threads=1 + seed % 2)
        folded += folded_calls(other, weight, graph, threads)
        for normalized in (False, True):
            right = nx.edge_betweenness_centrality(other, normalized=normalized, weight=weight, backend="networkx")
            found = betweenness(graph, threads, arcs=True, normalized=normalized)
            assert len(found) == len(right)
            np.testing.assert_allclose(found.values, by_edge(found, right), rtol=1e-12, atol=1e-14)
    assert folded > 100  # of 144


def drawn_directed(rng, kind, ways):
    """Return a directed graph of NetworkX, its key of weights, and the same graph for the engine: a core, trees, and
    vertices without arcs.

    ``ways`` are the shares of the arcs of trees that lead both ways, away from the core, and towards it; the other
    vertices have no arc to the core.
    """
    n = int(rng.integers(2, 30))
    core = int(rng.integers(1, min(n, 9) + 1))
    arcs = {tuple(ends) for ends in rng.integers(0, core, (int(rng.integers(0, 20)), 2)).tolist()}
    for v in range(core, n):
        u, way = int(rng.integers(0, v)), int(rng.choice(4, p=[*ways, max(0.0, 1 - sum(ways))]))
        arcs |= {(u, v)} if way in (0, 1) else set()
        arcs |= {(v, u)} if way in (0, 2) else set()
    order, other = rng.permutation(n), nx.DiGraph()
    other.add_nodes_from(range(n))
    for u, v in sorted(arcs):
        weight = {"hops": 1, "few lengths": int(rng.integers(1, 4)), "decimals": int(rng.integers(1, 5)) / 4}[kind]
        if u != v:
            other.add_edge(int(order[u]), int(order[v]), weight=weight)
    listed = list(other.edges(data="weight"))
    sides = [[arc[side] for arc in listed] for side in (0, 1)]
    weights = None if kind == "hops" else [arc[2] for arc in listed]
    return other, None if kind == "hops" else "weight", build_graph(*sides, weights, n=n, directed=True)[0]


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("kind", ["hops", "few lengths", "decimals"])
def test_folded_directed_graphs_have_networkxs_betweenness(kind, rows, monkeypatch):
    monkeypatch.setattr(passing_searches, "FEW_ROWS", 1 if rows else 10**9)
    folded = 0
    for seed in range(60):
        other, weight, graph = drawn_directed(np.random.default_rng((13, seed)), kind, WAYS[seed % len(WAYS)])
        threads = Options(threads=1 + seed % 2)
        folded += folded_calls(other, weight, graph, threads)
        for normalized in (False, True):
            right = nx.edge_betweenness_centrality(other, normalized=normalized, weight=weight, backend="networkx")
            found = betweenness(graph, threads, arcs=True, normalized=normalized)
            assert len(found) == len(right)
            pairs = zip(found.tails.tolist(), found.heads.tolist(), strict=True)
            np.testing.assert_allclose(found.values, [right[pair] for pair in pairs], rtol=1e-12, atol=1e-14)
    assert folded > 160  # of 240


def test_decimals_are_folded_and_tie_as_on_paper():
    folded = 0
    for seed in range(40):
        rng = np.random.default_rng((11, seed))
        n, edges = edges_of(rng, "hairy")
        tenths, other = rng.integers(1, 5, len(edges)), nx.Graph()
        other.add_nodes_from(range(n))
        for (u, v), weight in sorted(zip(edges, tenths.tolist(), strict=True), key=lambda edge: -edge[1]):
            other.add_edge(u, v, weight=weight)  # the shortest of parallel edges is written last
        graph = build_graph(*zip(*edges, strict=True), tenths / 10, n=n, directed=False)[0]
        asked = Centrality(graph, normalized=False)
        folded += "trees are folded" in asked.make_plan().search
        right = nx.betweenness_centrality(other, normalized=False, weight="weight", backend="networkx")
        np.testing.assert_allclose(asked.run().values, list(right.values()), rtol=1e-12, atol=1e-14)
    assert folded > 20


def test_sums_of_floats_begin_at_the_source_so_trees_stay():
    """A tree before two paths can decide whether their sums, rounded at each arc, are the same float."""
    differ = 0
    for seed in range(60):
        rng = np.random.default_rng((12, seed))
        first, second, before = (int(x) / 10 for x in rng.integers(1, 40, 3))
        edges = [(0, 1, first), (1, 3, second), (0, 2, second), (2, 3, first), (4, 0, before), (5, 4, before)]
        other = nx.Graph()
        other.add_weighted_edges_from(edges)
        tails, heads, weights = zip(*edges, strict=True)
        graph = build_graph(tails, heads, weights, directed=False)[0]
        asked = Centrality(graph, normalized=False, decimal=False)
        right = nx.betweenness_centrality(other, normalized=False, weight="weight", backend="networkx")
        found = asked.run().values
        np.testing.assert_allclose(found, [right[v] for v in range(6)], rtol=1e-12)
        differ += not np.allclose(found, Centrality(graph, normalized=False).run().values)
        fractions = build_graph(tails, heads, np.array(weights) + 1e-12, directed=False)[0]
        for one in (asked, Centrality(fractions, normalized=False)):
            assert (first == second == before) == ("folded" in one.make_plan().search)
    assert differ > 10


def test_what_cannot_be_folded_is_not():
    tails, heads = np.array([0, 1, 2, 2, 3]), np.array([1, 2, 0, 3, 4])  # a triangle with a tail of two
    graph = build_graph(tails, heads, None, directed=False)[0]
    assert "trees are folded: 2 of 5 vertices" in Centrality(graph).make_plan().search
    for turned in ((3, 4), (4,), (3,), ()):  # the arcs into these vertices have a reverse
        some = np.isin(heads, turned)
        sides = np.append(tails, heads[some]), np.append(heads, tails[some])
        search = Centrality(build_graph(*sides, None, directed=True)[0]).make_plan().search
        assert "trees are folded: 2 of 5 vertices" in search
    for what, options in (
        (replace(graph, terminals=1), Options()),
        (graph, Options(sources=(0, 1))),
        (graph, Options(targets=(0, 1))),
        (build_graph(tails[:3], heads[:3], None, directed=False)[0], Options()),
    ):
        assert "folded" not in Centrality(what, options).make_plan().search
    with pytest.raises(InvalidRequest, match="the edge between 3 and 4 weighs 0"):
        betweenness(build_graph(tails, heads, [1, 1, 1, 1, 0], directed=False)[0])
    with pytest.raises(InvalidRequest, match="the arc from 3 to 4 weighs -1"):
        betweenness(build_graph(tails, heads, [1, 1, 1, 1, -1], directed=False)[0])
    line = np.arange(600)
    huge = build_graph(line, line + 1, np.where(line % 2, 2**53, 1), directed=False)[0]
    with pytest.raises(InvalidRequest, match="too large for their type"):
        betweenness(huge)


def test_small_graphs_and_few_trees_are_not_worth_it(monkeypatch):
    monkeypatch.undo()
    ring = np.arange(2000)
    tails, heads = np.append(ring, ring[:200]), np.append(np.roll(ring, -1), ring[:200] + 2000)
    for hairs, folds in ((200, True), (50, False)):
        asked = Centrality(build_graph(tails[: 2000 + hairs], heads[: 2000 + hairs], None, directed=False)[0])
        assert ("trees are folded" in asked.make_plan().search) == folds
    small = build_graph(tails[:5], heads[:5], None, directed=False)[0]
    assert "folded" not in Centrality(small).make_plan().search


def test_large_trees_are_exact_and_need_no_search():
    n = 300_000
    place = np.arange(n)
    star = betweenness(build_graph(np.zeros(n - 1, np.int64), place[1:], None, directed=False)[0], normalized=False)
    assert star.values[0] == (n - 1) * (n - 2) // 2
    assert not star.values[1:].any()
    assert star.plan.sources == 0
    line = build_graph(place[:-1], place[1:], np.arange(1, n) % 7 + 1, directed=False)[0]
    found = betweenness(line, Options(threads=2), normalized=False)
    assert np.array_equal(found.values, place * (n - 1 - place))
    found = betweenness(line, arcs=True, normalized=False)
    assert np.array_equal(found.values, place[1:] * (n - place[1:]))
    line = build_graph(place[:-1], place[1:], None, directed=True)[0]
    assert np.array_equal(betweenness(line, normalized=False).values, place * (n - 1 - place))
    assert np.array_equal(
        betweenness(line, arcs=True, normalized=False).values,
        place[1:] * (n - place[1:]),
    )
    heads = np.where(place[1:] % 2, 0, place[1:])  # half of the arcs lead to vertex 0, half away from it
    star = betweenness(build_graph(place[1:] - heads, heads, None, directed=True)[0], normalized=False)
    assert star.values[0] == (n // 2) * ((n - 1) // 2)
    assert not star.values[1:].any()


def test_progress_counts_the_core_and_a_wish_to_stop_is_heard():
    class Told(Monitor):
        total, done, stop, phase = 0, 0, False, ""

        def begin(self, phase, total, unit):
            self.phase, self.total = phase, total if phase == "search" else self.total

        def advance(self, amount):
            if self.phase == "search":  # a kernel may be compiled before
                self.done += amount

        def cancelled(self):
            return self.stop

    ring, told = np.arange(300), Told()
    tails, heads = np.append(ring, ring), np.append(np.roll(ring, -1), ring + 300)
    graph = build_graph(tails, heads, None, directed=False)[0]
    asked = Centrality(graph)
    assert asked.make_plan(told).sources == 300
    asked.run(told)
    assert told.total == told.done == 300
    told.stop = True
    with pytest.raises(Cancelled):
        asked.run(told)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "weighted", "asked"),
    [
        ("power.graph", False, ({}, {"arcs": True})),
        ("PGPgiantcompo.graph", False, ({},)),
        ("netscience.mtx", False, ({"endpoints": True, "normalized": False}, {"arcs": True})),
        ("minnesota_km.mtx", True, ({"endpoints": True}, {"arcs": True, "normalized": False})),
        ("rome99.gr", False, ({"endpoints": True}, {"arcs": True, "normalized": False})),
        ("monaco_drive.csv", False, ({"endpoints": True}, {"arcs": True, "normalized": False})),
    ],
)
def test_real_networks_pass_what_they_pass_unfolded(name, weighted, asked, data_dir, monkeypatch):
    graph, _ = read_graph(data_dir / name, unweighted=not weighted)
    if weighted:  # in metres, each at least 1
        graph = replace(graph, weights=np.rint(1000 * graph.weights).astype(np.int32) + 1)
    folded = [betweenness(graph, **each) for each in asked]
    monkeypatch.setattr(folding, "LEAST_SHARE", 2.0)
    for found, each in zip(folded, asked, strict=True):
        right = betweenness(graph, **each)
        assert found.plan.sources < right.plan.sources == graph.n
        np.testing.assert_allclose(found.values, right.values, rtol=1e-10, atol=1e-15)
