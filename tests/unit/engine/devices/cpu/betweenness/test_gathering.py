"""Sources that are equally far from most vertices are ordered next to each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.algorithms.betweenness import acyclic
from engine.algorithms.betweenness.numbering import number_arcs
from engine.algorithms.betweenness.rows import RowPasses
from engine.devices.cpu.betweenness.gathering import FAR_HOPS, PIVOTS, order_by_pivots
from engine.devices.cpu.betweenness.vectors import LANES
from storage.graph.graph import build_graph


def entering_of(graph):
    """Return where the arcs into each vertex begin, and the hops from each vertex to each other one."""
    matrix = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return matrix.T.tocsr().indptr.astype(np.int64), dijkstra(matrix, unweighted=True)


def popular(rng, n, count):
    """Return arcs most of whose heads are a few vertices."""
    return rng.integers(0, n, count), (n * rng.random(count) ** 3).astype(np.int64)


@pytest.mark.parametrize("shape", ["random", "popular", "path", "few", "none"])
def test_sources_are_sorted_by_their_hops_to_the_pivots(shape):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = 3 if shape == "few" else int(rng.integers(20, 200))
        tails, heads = rng.integers(0, n, (2, 2 * n)) if shape in ("random", "few") else popular(rng, n, 3 * n)
        if shape == "path":  # most vertices are far from the pivots
            tails, heads = np.append(np.arange(n - 1), [0] * 3), np.append(np.arange(1, n), [2, 3, 4])
        if shape == "none":
            tails, heads = [], []
        graph = build_graph(tails, heads, None, n=n, directed=seed % 2 == 0)[0]
        entering, hops = entering_of(graph)
        sources = rng.permutation(n)[: int(rng.integers(1, n + 1))]
        order, share = order_by_pivots((graph.indptr.astype(np.int64), graph.heads), entering, sources)
        pivots = np.argsort(-np.diff(entering), kind="stable")[:PIVOTS]
        near = np.minimum(hops[np.ix_(sources, pivots)], FAR_HOPS)
        assert np.array_equal(order, np.lexsort(near.T[::-1]))
        assert share == np.mean(near < FAR_HOPS)


def entries(rows, order):
    """Return how many different distances each vertex has from the sources of each group, added up."""
    groups = [np.sort(rows[order[at : at + LANES]], axis=0) for at in range(0, len(order), LANES)]
    return sum(len(group[0]) + np.count_nonzero(np.diff(group, axis=0)) for group in groups)


def test_there_are_fewer_entries_by_distance_in_a_small_world():
    rng, n = np.random.default_rng(1), 800  # each vertex has an edge to one of six hubs, and four others on average
    tails, heads = np.append(rng.integers(0, n, 2 * n), np.arange(n)), rng.integers(0, n, 2 * n)
    graph = build_graph(tails, np.append(heads, rng.integers(0, 6, n)), None, n=n, directed=False)[0]
    arcs = number_arcs(graph, decimal=True)
    every = np.arange(graph.n)
    near = RowPasses(arcs, (every, every, np.ones(graph.n)), np.ones(graph.n)).near()
    assert np.array_equal(np.sort(near), np.flatnonzero(np.diff(arcs.indptr)))
    matrix = csr_array((np.ones(graph.arcs), arcs.heads, arcs.indptr), shape=(graph.n, graph.n))
    rows = dijkstra(matrix, unweighted=True)[:, np.diff(arcs.indptr) > 0]
    assert entries(rows, near) < 0.8 * entries(rows, np.sort(near))


def test_without_cycles_sources_are_ordered_by_pivots_if_many_are_near_pivots(monkeypatch):
    rng = np.random.default_rng(5)
    heads, tails = np.sort(rng.integers(0, 400, (2, 1600)) ** 2 // 400, axis=0)
    mesh = np.arange(30 * 30).reshape(30, 30)
    ends = [(mesh[:-1], mesh[1:]), (mesh[:, :-1], mesh[:, 1:])]
    world = tails[tails > heads], heads[tails > heads]
    meshed = [np.concatenate([pair[k].ravel() for pair in ends]) for k in (0, 1)]
    for (first, last), by_pivots in ((world, True), (meshed, False)):
        graph = build_graph(first, last, None, directed=True)[0]
        arcs, every = number_arcs(graph, decimal=True), np.arange(graph.n)
        assert arcs.forward
        passes = acyclic.ForwardPasses(arcs, (every, every, np.ones(graph.n)), np.ones(graph.n))
        with monkeypatch.context() as patched:
            if by_pivots:
                patched.delattr(acyclic, "near_each_other")
            found = passes.near()
        assert np.array_equal(np.sort(found), np.flatnonzero(np.diff(arcs.indptr)))
        some = np.sort(found)
        order = some[order_by_pivots(passes._sides[0], passes._sides[1][0], every[some])[0]]
        assert np.array_equal(found, order) == by_pivots
