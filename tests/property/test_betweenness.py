"""Compares betweenness with NetworkX, and betweenness and assignment with lists of all shortest paths."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from engine.algorithms.betweenness import passing as passing_searches
from engine.api.betweenness import small as small_run
from engine.api.betweenness.assignment import assign
from engine.api.betweenness.centrality import betweenness
from engine.model.problem import Options
from storage.errors import InvalidRequest
from storage.graph.demand_table import Demands
from storage.graph.graph import build_graph
from tests.paths_through import passing

GRAPHS = 360
KINDS = ("hops", "few lengths", "fractions", "large", "decimals", "even")


def random_graph(rng, kind, most=24):
    """A NetworkX multigraph, often in several pieces, with parallel edges and self loops; and the engine's graph."""
    n, directed = int(rng.integers(1, most)), bool(rng.integers(2))
    multi = (nx.MultiDiGraph if directed else nx.MultiGraph)()
    multi.add_nodes_from(range(n))
    for u, v in rng.integers(0, n, (int(rng.integers(0, 3 * n + 1)), 2)).tolist():
        weight = {
            "hops": 1,
            "few lengths": int(rng.integers(1, 4)),
            "fractions": float(rng.random()),
            "large": int(rng.integers(2**40, 2**40 + 3)),
            "decimals": int(rng.integers(1, 5)) / 4,  # exact in binary, so that NetworkX adds them exactly, too
            "even": 2.5,
        }[kind]
        multi.add_edge(u, v, weight=weight)
    edges = list(multi.edges(data="weight"))
    sides = [[edge[side] for edge in edges] for side in (0, 1)]
    weights = None if kind == "hops" else [edge[2] for edge in edges]
    return multi, build_graph(*sides, weights, n=n, directed=directed)[0]


@pytest.mark.parametrize("part", range(6))
def test_random_graphs_have_networkxs_betweenness(part, monkeypatch):
    monkeypatch.setattr(passing_searches, "FEW_ROWS", 1 if part % 2 else 10**9)  # by rows, and by one search a source
    if part < 4:
        monkeypatch.setattr(small_run, "SIZE", 0)  # small graphs are counted in another way
    ties = 0
    for seed in range(GRAPHS // 6):
        rng = np.random.default_rng((part, seed))
        multi, graph = random_graph(rng, KINDS[seed % 6])
        weight = None if seed % 6 == 0 else "weight"
        simple = (nx.DiGraph if multi.is_directed() else nx.Graph)()
        simple.add_nodes_from(multi)
        for u, v, w in sorted(multi.edges(data="weight"), key=lambda edge: -edge[2]):
            simple.add_edge(u, v, weight=w)  # the shortest of parallel edges is written last
        threads = Options(threads=1 + seed % 2)
        for normalized in (False, True):
            for endpoints in (False, True):
                right = nx.betweenness_centrality(
                    multi, normalized=normalized, endpoints=endpoints, weight=weight, backend="networkx"
                )
                found = betweenness(graph, threads, normalized=normalized, endpoints=endpoints)
                np.testing.assert_allclose(found.values, list(right.values()), rtol=1e-9, atol=1e-12)
            right = nx.edge_betweenness_centrality(simple, normalized=normalized, weight=weight, backend="networkx")
            found = betweenness(graph, threads, arcs=True, normalized=normalized)
            ends = list(zip(found.tails.tolist(), found.heads.tolist(), strict=True))
            assert set(ends) == {e if multi.is_directed() else tuple(sorted(e)) for e in right if e[0] != e[1]}
            for (u, v), value in zip(ends, found.values.tolist(), strict=True):
                assert value == pytest.approx(right[u, v] if (u, v) in right else right[v, u], rel=1e-9, abs=1e-12)
        some = rng.permutation(graph.n)[: 1 + graph.n // 2].tolist()
        others = rng.permutation(graph.n)[: 1 + graph.n // 3].tolist()
        right = nx.betweenness_centrality_subset(multi, some, others, weight=weight, backend="networkx")
        found = betweenness(graph, Options(sources=tuple(some), targets=tuple(others)), normalized=False)
        np.testing.assert_allclose(found.values, list(right.values()), rtol=1e-9, atol=1e-12)
        ties += bool((found.values % 0.5).any())
    assert ties > 5  # halves of pairs alone would not show that paths are counted


def zero_weights(rng):
    """A directed graph whose arcs of weight zero form no cycle: they follow a hidden order."""
    n = int(rng.integers(2, 9))
    height = rng.permutation(n)
    arcs = {}
    for u, v in rng.integers(0, n, (int(rng.integers(1, 3 * n)), 2)).tolist():
        if u != v:
            arcs[u, v] = int(rng.integers(0, 3)) if height[u] < height[v] else int(rng.integers(1, 3))
    return n, arcs


@pytest.mark.parametrize("kind", ["zeros", "wide zeros", "fractions with zeros", "undirected", "zeros by rows"])
def test_tiny_graphs_carry_what_their_paths_carry(kind, monkeypatch):
    monkeypatch.setattr(passing_searches, "FEW_ROWS", 1 if kind == "zeros by rows" else 10**9)
    seen_zero = seen_lost = 0
    for seed in range(60):
        rng = np.random.default_rng((7, seed))
        n, arcs = zero_weights(rng)
        if kind == "undirected":
            arcs = {(u, v): weight + 1 for (u, v), weight in arcs.items() if u < v}
            arcs |= {(v, u): weight for (u, v), weight in arcs.items()}
        seen_zero += 0 in arcs.values()
        factor = {"wide zeros": 2**45, "fractions with zeros": 2.0**-30}.get(kind, 1)
        tails, heads = ([arc[side] for arc in arcs] for side in (0, 1))
        weights = [weight * factor for weight in arcs.values()]
        graph = build_graph(tails, heads, weights, n=n, directed=kind != "undirected", mirrored=kind == "undirected")[0]
        pairs = [(s, t, 1) for s in range(n) for t in range(n) if s != t]
        through, begins, ends, over, _ = passing(arcs, n, pairs)
        half = 2 if kind == "undirected" else 1
        found = betweenness(graph, normalized=False)
        np.testing.assert_allclose(found.values, [float(x) / half for x in through], atol=1e-9)
        found = betweenness(graph, normalized=False, endpoints=True)
        whole = [float(a + b + c) / half for a, b, c in zip(through, begins, ends, strict=True)]
        np.testing.assert_allclose(found.values, whole, atol=1e-9)
        count = int(rng.integers(1, 12))
        demands = [(*rng.integers(0, n, 2).tolist(), int(rng.integers(0, 9))) for _ in range(count)]
        through, begins, ends, over, lengths = passing(arcs, n, demands)
        table = Demands(*(np.array(side) for side in zip(*demands, strict=True)))
        flows = assign(graph, table, Options(threads=1 + seed % 2))
        for values, right in ((flows.begins, begins), (flows.ends, ends), (flows.through, through)):
            np.testing.assert_allclose(values, [float(x) for x in right], atol=1e-9)
        rows = np.repeat(np.arange(n), np.diff(graph.indptr)).tolist()
        right = [float(over[arc]) for arc in zip(rows, graph.heads.tolist(), strict=True)]
        np.testing.assert_allclose(flows.flow, right, atol=1e-9)
        for (s, t, flow), length, best in zip(demands, flows.lengths, lengths, strict=True):
            if flow or s == t:
                assert length == (np.inf if best is None else best * factor)
        lost = [k for k, (_, _, flow) in enumerate(demands) if lengths[k] is None and flow]
        assert flows.unreachable.tolist() == lost
        assert flows.lost == sum(demands[k][2] for k in lost)
        assert flows.assigned + flows.inside + flows.lost == sum(flow for *_, flow in demands)
        seen_lost += bool(lost)
    assert seen_lost > 10
    assert (seen_zero > 10) == (kind != "undirected")


#: Sums of these are exact in float64, except for those that lose a summand as a whole.
SIZES = (0.0, 2.0**-30, 0.5, 1.0, 2.0**57, 2.0**58)


def loses(arcs, n):
    """Whether float64 loses a summand of the length of a shortest path from some source: an arc, or all before it."""
    for source in range(n):
        rows = {source: 0.0}
        for _ in range(n):
            for (u, v), weight in arcs.items():
                if u in rows and rows[u] + weight < rows.get(v, np.inf):
                    rows[v] = rows[u] + weight
        for (u, v), weight in arcs.items():
            if u in rows and rows[u] + weight == rows[v] == max(rows[u], weight) and min(rows[u], weight) > 0:
                return True
    return False


@pytest.mark.parametrize("part", range(4))
def test_weights_that_float64_loses_are_refused_and_all_others_count_exactly(part):
    """Also where the paths that then seem to be equally long meet far behind the arc, or over arcs of weight 0."""
    refused = answered = 0
    for seed in range(100):
        rng = np.random.default_rng((13, part, seed))
        n, arcs = zero_weights(rng)
        arcs = {arc: float(rng.choice(SIZES[weight > 0 :])) for arc, weight in arcs.items()}
        if all(weight.is_integer() for weight in arcs.values()):  # these are added as whole numbers
            continue
        exact = {arc: Fraction(weight) for arc, weight in arcs.items()}
        graph = build_graph(*map(list, zip(*arcs, strict=True)), [*arcs.values()], n=n, directed=True)[0]
        every = [(s, t, 1) for s in range(n) for t in range(n) if s != t]
        flows = Demands(*(np.array(side) for side in zip(*every, strict=True)))
        if loses(arcs, n):
            refused += 1
            for work in (lambda: betweenness(graph), lambda: assign(graph, flows)):  # noqa: B023 - called at once
                with pytest.raises(InvalidRequest, match="float64 loses them"):
                    work()
            continue
        answered += 1
        through, _, _, over, _ = passing(exact, n, every)
        found = betweenness(graph, normalized=False)
        np.testing.assert_allclose(found.values, [float(x) for x in through], atol=1e-9)
        rows = np.repeat(np.arange(n), np.diff(graph.indptr)).tolist()
        right = [float(over[arc]) for arc in zip(rows, graph.heads.tolist(), strict=True)]
        np.testing.assert_allclose(assign(graph, flows).flow, right, atol=1e-9)
    assert refused > 10
    assert answered > 10
