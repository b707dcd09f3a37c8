"""Betweenness counted on a GPU, beside the processors and NetworkX."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from benchmarks import graphs
from engine.api.betweenness.centrality import betweenness
from engine.model.problem import Options
from storage.errors import InvalidRequest
from storage.graph.graph import Graph, build_graph

pytestmark = pytest.mark.gpu
#: Sums of shares of pairs may be added in another order.
NEAR: Any = {"rtol": 1e-9, "atol": 1e-12}


def drawn(seed: int, *, n: int = 60, directed: bool = False, kind: str = "whole") -> Graph:
    """Return a random graph with weights of a kind, and many paths of equal length."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(0, 4 * n))
    u, v = rng.integers(0, n, (2, m))
    weights = {
        "hops": np.ones(m, np.int64),
        "whole": rng.integers(1, 5, m),
        "decimals": rng.integers(1, 30, m) / 10,
        "large": rng.integers(1, 40_000, m),
    }[kind]
    return build_graph(u, v, weights, n=n, directed=directed)[0]


def both(graph: Graph, options: dict[str, Any] | None = None, **asked: bool) -> None:
    """Compare the processors and the GPU."""
    given = options or {}
    there = betweenness(graph, Options(device="cuda", **given), **asked)
    here = betweenness(graph, Options(device="cpu", **given), **asked)
    assert there.plan.device == "cuda"
    assert here.plan.device == "cpu"
    np.testing.assert_array_equal(there.tails, here.tails)
    np.testing.assert_allclose(there.values, here.values, **NEAR)


@pytest.mark.parametrize("kind", ["hops", "whole", "decimals", "large"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int, directed: bool, kind: str) -> None:
    """Vertices, arcs and ends of random graphs, connected or not."""
    graph = drawn(seed, directed=directed, kind=kind)
    both(graph)
    both(graph, arcs=True)
    both(graph, endpoints=True, normalized=False)


@pytest.mark.parametrize("directed", [False, True])
def test_as_networkx(directed: bool) -> None:
    """NetworkX counts the same."""
    theirs = nx.gnp_random_graph(80, 0.06, seed=4, directed=directed)
    rng = np.random.default_rng(4)
    for _, _, data in theirs.edges(data=True):
        data["weight"] = int(rng.integers(1, 4))
    u, v, w = zip(*theirs.edges(data="weight"), strict=True)
    graph = build_graph(u, v, w, n=80, directed=directed)[0]
    found = betweenness(graph, Options(device="cuda"))
    want = nx.betweenness_centrality(theirs, weight="weight")
    np.testing.assert_allclose(found.values, [want[k] for k in range(80)], **NEAR)


@pytest.mark.parametrize("side", [40])
@pytest.mark.parametrize("arcs", [False, True])
def test_grids_have_many_paths(side: int, arcs: bool) -> None:
    """The counts of paths in a grid exceed 2^53."""
    at = np.arange(side * side).reshape(side, side)
    u = np.concatenate((at[:, :-1].ravel(), at[:-1].ravel()))
    v = np.concatenate((at[:, 1:].ravel(), at[1:].ravel()))
    both(build_graph(u, v, np.ones(len(u), np.int64), n=side * side, directed=False)[0], arcs=arcs)


def test_hubs_are_shared_by_a_warp() -> None:
    """A star of stars has vertices with thousands of arcs."""
    hubs = np.repeat(np.arange(5), 3000)
    leaves = np.arange(5, 5 + len(hubs))
    u, v = np.concatenate((hubs, [0, 1, 2, 3], hubs)), np.concatenate((leaves, [1, 2, 3, 4], np.roll(leaves, 1500)))
    graph = build_graph(u, v, np.ones(len(u), np.int64), n=5 + len(hubs), directed=False)[0]
    both(graph, {"sources": tuple(range(0, graph.n, 7))}, arcs=True)


@pytest.mark.parametrize("name", ["road", "rmat", "random"])
@pytest.mark.parametrize("unit", [False, True])
def test_larger_graphs(name: str, unit: bool) -> None:
    """Roads, uneven degrees and random graphs of some thousand vertices."""
    graph = graphs.road(4000) if name == "road" else graphs.GENERATORS[name](4000)
    graph = graphs.hops(graph) if unit else graph
    both(graph)
    both(graph, arcs=True)


def test_zero_weights() -> None:
    """Arcs of weight zero that form no cycle are passed in the order of vertices."""
    rng = np.random.default_rng(3)
    u, v = np.sort(rng.integers(0, 50, (2, 300)), axis=0)
    graph = build_graph(u, v, rng.integers(0, 3, 300), n=50, directed=True)[0]
    both(graph)
    both(graph, arcs=True)


def test_some_sources_and_targets() -> None:
    """Only paths between those that are asked for count."""
    for seed in range(4):
        graph = drawn(seed, directed=True)
        both(graph, {"sources": (1, 5, 9, 30), "targets": (2, 9, 44)}, endpoints=True)
        both(graph, {"sources": (7,)}, arcs=True)


def test_terminals() -> None:
    """No path passes through a terminal."""
    from dataclasses import replace

    graph = replace(drawn(2, directed=True), terminals=8)
    both(graph)
    both(graph, arcs=True)


def test_little_memory_counts_few_rows_side_by_side() -> None:
    """The work spaces shrink with the memory that may be used."""
    graph = graphs.road(10_000)
    both(graph, {"device_memory": 128 << 20, "sources": tuple(range(0, graph.n, 40))})


def test_the_same_every_time() -> None:
    """Sums do not depend on timing."""
    graph = graphs.road(5000)
    first, second = (betweenness(graph, Options(device="cuda")).values for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_fractions_are_refused() -> None:
    """Lengths that are no whole numbers are compared on processors only."""
    rng = np.random.default_rng(1)
    graph = build_graph([0, 1, 2], [1, 2, 3], rng.random(3), directed=True)[0]
    with pytest.raises(InvalidRequest, match="whole numbers"):
        betweenness(graph, Options(device="cuda"))
