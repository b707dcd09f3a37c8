"""Compares the betweenness of small graphs with NetworkX, and with that of the same graphs as large ones."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from engine.algorithms.betweenness import folding
from engine.algorithms.betweenness import small as small_searches
from engine.api.betweenness import small as small_run
from engine.api.betweenness.centrality import Centrality, betweenness
from engine.devices.cpu.betweenness.levels import list_levels
from engine.devices.cpu.betweenness.vectors import LANES
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.errors import Cancelled, SolveFailed
from storage.graph.graph import build_graph
from storage.readers import read_graph

SHAPES = ("sparse", "dense", "cliques", "one-way", "ring", "ends", "trees", "rays")
LENGTHS = ("hops", "few", "wide", "decimals")


def arcs_of(rng, shape):
    """Return the number of vertices, arcs, and whether these have a direction."""
    n = int(rng.integers(2, 60))
    if shape == "cliques":  # authors of papers: many twins, and trees of papers
        papers = [
            rng.choice(n, min(n, int(rng.integers(2, 6))), replace=False) for _ in range(int(rng.integers(1, 14)))
        ]
        return n, [(int(u), int(v)) for paper in papers for u in paper for v in paper if u < v], False
    if shape == "trees":
        return n, [(int(rng.integers(0, v)), v) for v in range(1, n) if rng.random() < 0.95], bool(rng.integers(2))
    if shape == "ring":  # every vertex has one arc out, and some have a second one
        order = rng.permutation(n).tolist()
        arcs = list(zip(order, [*order[1:], order[0]], strict=True))
        return n, arcs + rng.integers(0, n, (int(rng.integers(0, 6)), 2)).tolist(), True
    if shape in ("one-way", "rays"):  # streets in one direction, and paths that lead into a core, or out of it
        core = max(1, n // 3)
        arcs = rng.integers(0, core, (2 * core, 2)).tolist()
        for v in range(core, n):
            u = int(rng.integers(0, v))
            arcs += [(v, u)] if shape == "rays" or rng.random() < 0.5 else [(u, v)]
            arcs += [(u, v)] if rng.random() < 0.2 else []
            arcs += [(v, int(rng.integers(0, n)))] if rng.random() < 0.1 else []
        return n, arcs, True
    if shape == "ends":
        core = max(1, n // 4)
        arcs = rng.integers(0, core, (2 * core, 2)).tolist()
        return n, arcs + [(int(rng.integers(0, core)), v) for v in range(core, n) if rng.random() < 0.8], True
    count = int(rng.integers(0, 2 * n if shape == "sparse" else 8 * n))
    return n, rng.integers(0, n, (count, 2)).tolist(), bool(rng.integers(2))


def drawn(rng, shape, lengths):
    """Return a graph of NetworkX, its key of weights, and the same graph for the engine."""
    n, arcs, directed = arcs_of(rng, shape)
    other = nx.DiGraph() if directed else nx.Graph()
    other.add_nodes_from(range(n))
    for u, v in arcs:
        weight = {
            "hops": 1,
            "few": int(rng.integers(1, 4)),
            "wide": int(rng.integers(1, 10 ** int(rng.integers(1, 8)))),
            "decimals": int(rng.integers(1, 9)) / 4,  # exact in binary, so that NetworkX adds them exactly, too
        }[lengths]
        if u != v:
            other.add_edge(u, v, weight=weight)
    listed = list(other.edges(data="weight"))
    sides = [[arc[side] for arc in listed] for side in (0, 1)]
    weights = None if lengths == "hops" else [arc[2] for arc in listed]
    return other, None if lengths == "hops" else "weight", build_graph(*sides, weights, n=n, directed=directed)[0]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_small_graphs_have_networkxs_betweenness(shape, together, monkeypatch):
    monkeypatch.setattr(small_searches, "FEW_ROWS", 1 if together else 10**9)
    monkeypatch.setattr(small_searches, "ALONE", 1 / 16 if together else 1.0)
    monkeypatch.setattr(folding, "LEAST_VISITS", 0)
    small = 0
    for seed in range(80):
        rng = np.random.default_rng((SHAPES.index(shape), seed))
        monkeypatch.setattr(folding, "LEAST_SHARE", (0.0, 0.05, 2.0)[seed % 3])
        monkeypatch.setattr(small_searches, "NEAR_HOPS", (-1, 10)[seed % 2])
        other, weight, graph = drawn(rng, shape, LENGTHS[seed % 4])
        asked = Centrality(graph, normalized=False)
        small += asked._small is not None
        right = nx.betweenness_centrality(other, normalized=False, weight=weight, backend="networkx")
        np.testing.assert_allclose(asked.run().values, list(right.values()), rtol=1e-11, atol=1e-11)
    assert small > 60


@pytest.mark.parametrize("shape", SHAPES)
def test_small_graphs_have_the_betweenness_of_large_ones(shape, monkeypatch):
    """Some of these graphs have so many vertices that they need several searches of the widest kind."""
    small = 0
    for seed in range(12):
        rng = np.random.default_rng((7, SHAPES.index(shape), seed))
        parts = [drawn(rng, shape, LENGTHS[seed % 4])[2] for _ in range(2 + 20 * (seed % 3))]
        first = np.cumsum([0, *(part.n for part in parts)])
        sides = [
            np.concatenate([each[k] + at for at, each in zip(first, map(ends_of, parts), strict=False)]) for k in (0, 1)
        ]
        weights = np.concatenate([part.weights for part in parts])
        links = rng.integers(0, first[-1], (2, len(parts)))  # most parts are connected
        sides = [np.append(side, link) for side, link in zip(sides, links, strict=True)]
        weights = None if seed % 4 == 0 else np.append(weights, np.ones(len(parts), weights.dtype))
        graph = build_graph(*sides, weights, n=int(first[-1]), directed=parts[0].directed)[0]
        asked = Centrality(graph, Options(threads=1), normalized=False)
        small += asked._small is not None
        found = asked.run().values
        with monkeypatch.context() as patched:
            patched.setattr(small_run, "SIZE", 0)
            right = betweenness(graph, Options(threads=1), normalized=False).values
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-9)
    assert small >= 6


def test_short_lengths_are_counted_by_distance():
    """From the second group of sixteen sources on; large graphs with weights are counted in one order."""
    for seed in range(12):
        rng = np.random.default_rng((270, seed))
        n = int(rng.integers(70, 160))
        other = nx.gnm_random_graph(n, 5 * n, seed=seed, directed=bool(seed % 2))
        other.add_weighted_edges_from((u, v, int(rng.integers(1, (4, 8, 12)[seed % 3]))) for u, v in [*other.edges()])
        sides = [[arc[side] for arc in other.edges(data="weight")] for side in range(3)]
        graph = build_graph(*sides, n=n, directed=bool(seed % 2))[0]
        asked = Centrality(graph, normalized=False)
        assert asked._small is not None
        searches = asked._small._searches
        (block, near, every, _), space = searches._space()
        searches._searcher(block, near)(searches._merged[0][0], every)
        columns = np.ascontiguousarray(block[:LANES].T).astype(np.int32)
        space[3][0][:] = 0  # no arc is listed, which only changes the order of entries at the same distance
        size, reached = list_levels(
            columns, np.int32(searches._kind.sentinel()), space[3][0], (*space[5:8:2], space[10], space[2])
        )
        assert reached == np.count_nonzero((columns < searches._kind.sentinel()).any(1))
        assert size > reached
        right = nx.betweenness_centrality(other, normalized=False, weight="weight", backend="networkx")
        np.testing.assert_allclose(asked.run().values, [right[v] for v in range(n)], rtol=1e-11, atol=1e-11)


def ends_of(graph):
    return np.repeat(np.arange(graph.n), np.diff(graph.indptr)), graph.heads.astype(np.int64)


def test_paths_with_more_steps_than_searches_by_bits_take():
    n = 700
    line = np.arange(n - 1)
    sides = np.append(line, [0, 5]), np.append(line + 1, [2, 9])
    graph = build_graph(*sides, None, n=n, directed=False)[0]
    right = nx.betweenness_centrality(nx.Graph(list(zip(*sides, strict=True))), normalized=False, backend="networkx")
    asked = Centrality(graph, normalized=False)
    assert asked._small is not None
    np.testing.assert_allclose(asked.run().values, [right[v] for v in range(n)], rtol=1e-12)


def test_what_is_not_small_or_not_whole_is_counted_as_before():
    tails, heads = np.array([0, 1, 2, 2, 3]), np.array([1, 2, 0, 3, 4])
    asked = {}, {"arcs": True}, {"endpoints": True}
    graph = build_graph(tails, heads, None, directed=False)[0]
    assert [Centrality(graph, **each)._small is not None for each in asked] == [True, False, False]
    assert Centrality(graph, Options(sources=(0, 1)))._small is None
    assert Centrality(graph, Options(targets=(0, 1)))._small is None
    for weights, small in (
        ([0.5, 0.25, 0.5, 1.5, 2.5], True),
        (np.random.default_rng(1).random(5), False),
        ([1, 1, 1, 1, 2**40], False),
        ([2**40] * 5, False),
    ):
        weighted = build_graph(tails, heads, weights, directed=False)[0]
        assert (Centrality(weighted)._small is not None) == small
        assert Centrality(weighted, decimal=False)._small is None or weighted.integral
    line = np.arange(9000)
    assert Centrality(build_graph(line, line + 1, None, directed=True)[0], Options(device="cpu"))._small is None


def joints(stages, width):
    """Return a directed chain of vertices, and between each two of them ``width`` paths of two arcs."""
    step = width + 1
    first, between = (
        np.repeat(np.arange(stages) * step, width),
        np.arange(stages * step).reshape(-1, step)[:, 1:].ravel(),
    )
    return np.concatenate([first, between]), np.concatenate([between, first + step])


def test_too_many_paths_are_noticed():
    stages, width = 520, 4  # 4^520 paths from the first vertex to the last; an arc back makes one block of all
    tails, heads = joints(stages, width)
    last = stages * (width + 1)
    graph = build_graph(np.append(tails, last), np.append(heads, 0), None, directed=True)[0]
    asked = Centrality(graph)
    assert asked._small is not None
    with pytest.raises(SolveFailed, match="more than 1e"):
        asked.run()


def test_many_paths_through_several_blocks_are_no_trouble():
    stages, width = 520, 4
    graph = build_graph(*joints(stages, width), None, directed=True)[0]
    asked = Centrality(graph, normalized=False)
    assert "blocks between cut vertices" in asked.make_plan().search
    found, n, step = asked.run().values, graph.n, width + 1
    before = np.arange(0, n, step)
    np.testing.assert_array_equal(found[::step], before * (n - 1 - before))
    some = np.delete(found, np.s_[::step]).reshape(-1, width)
    ways = (before[:-1] + 1) * (n - before[1:])  # a quarter of the paths from here and before to there and beyond
    np.testing.assert_allclose(some, np.broadcast_to(ways[:, None] / width, some.shape), rtol=1e-12)


def test_progress_is_told_and_a_wish_to_stop_is_heard():
    class Told(Monitor):
        total, done, stop = 0, 0, False

        def begin(self, phase, total, unit):
            self.total = total if phase == "search" else self.total

        def advance(self, amount):
            self.done += amount

        def cancelled(self):
            return self.stop

    ring, told = np.arange(50), Told()
    asked = Centrality(build_graph(ring, np.roll(ring, -1), None, directed=True)[0])
    assert asked.make_plan(told).sources == 50
    found = asked.run()
    assert found.plan.threads == 1
    assert found.seconds.keys() == {"search"}
    told.done = 0
    asked.run(told)
    assert told.total == told.done == 50
    told.stop = True
    with pytest.raises(Cancelled):
        asked.run(told)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "weighted"),
    [
        ("EVA.mtx", False),
        ("netscience.mtx", False),
        ("monaco_drive.csv", False),
        ("krems_drive.csv", True),
        ("helsinki_drive.csv", False),
        ("north-bayreuth_drive.csv", False),
        ("celegansneural.gml", True),
        ("mediumEWD.txt", True),
        ("celegans_metabolic.graph", False),
        ("Ragusa16.mtx", False),
        ("polbooks.mtx", False),
    ],
)
def test_real_networks_have_the_betweenness_of_large_ones(name, weighted, data_dir, monkeypatch):
    graph, _ = read_graph(data_dir / name, unweighted=not weighted)
    asked = Centrality(graph, Options(threads=1), normalized=False)
    small = asked._small is not None
    found = asked.run().values
    monkeypatch.setattr(small_run, "SIZE", 0)
    np.testing.assert_allclose(
        found, betweenness(graph, Options(threads=1), normalized=False).values, rtol=1e-10, atol=1e-9
    )
    assert small or name == "krems_drive.csv"
