"""The kernels that prepare a graph: bounds hold, and no arc is lost when vertices are renumbered or left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.devices.cpu.betweenness.preparing import bound_visits, cut_out, number_vertices, reverse_arcs
from engine.graph._walks import strong_components
from engine.graph.ordering import fixed
from storage.graph.graph import build_graph


def drawn(seed, *, directed=True):
    """A graph with components of several sizes, some of them strongly connected, and vertices without arcs."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 120))
    tails = rng.integers(0, n, int(rng.integers(1, 3 * n)))
    heads = np.clip(tails + rng.integers(-6, 7, len(tails)), 0, n - 1)
    place = rng.permutation(n)
    return build_graph(place[tails], place[heads], rng.integers(1, 9, len(tails)), n=n, directed=directed)[0]


def ends(graph):
    return fixed(graph.indptr), fixed(graph.heads)


def visited(graph):
    """Return which vertices each vertex reaches, and the number of these vertices and of their arcs."""
    matrix = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    reached = np.isfinite(dijkstra(matrix))
    return reached, reached @ (1 + np.diff(graph.indptr))


@pytest.mark.parametrize("directed", [True, False])
def test_bounds_of_visits_hold_and_are_exact_where_reach_is_a_tree(directed):
    bounded = direct_ones = 0
    for seed in range(60):
        graph = drawn(seed, directed=directed)
        whole, limit = graph.n + graph.arcs, seed % 40
        visits, inside, direct = bound_visits(*ends(graph), *strong_components(*ends(graph)), limit)
        reached, right = visited(graph)
        few = visits <= limit
        assert np.all(visits >= right)
        assert np.all(few | (visits == whole))
        assert np.array_equal(inside, reached[~few].any(axis=0))
        bounded += int(few.sum())
        near = reached.sum(axis=1) == 1 + np.diff(graph.indptr)
        assert np.all(near | ~direct)
        assert np.all(direct[np.diff(graph.indptr) == 0])
        direct_ones += int(direct[np.diff(graph.indptr) > 0].sum())
        if not directed:  # then nothing is counted twice
            assert np.array_equal(few, right <= limit)
            assert np.array_equal(visits[few], right[few])
            assert np.array_equal(direct, near)
    assert bounded > 500
    assert direct_ones > 100


def test_what_several_components_reach_counts_for_each_of_them():
    # 0 reaches 3 over 1 and over 2
    graph = build_graph([0, 0, 1, 2], [1, 2, 3, 3], None, n=4, directed=True)[0]
    visits, inside, direct = bound_visits(*ends(graph), *strong_components(*ends(graph)), 100)
    assert visits.tolist() == [9, 3, 3, 1]
    assert not inside.any()
    assert direct.tolist() == [False, True, True, True]


@pytest.mark.parametrize("directed", [True, False])
def test_vertices_without_arcs_out_get_the_largest_numbers(directed):
    for seed in range(30):
        graph = drawn(seed, directed=directed)
        rng = np.random.default_rng(seed)
        order = rng.permutation(graph.n).astype(np.int32)
        facts = rng.integers(0, 9, graph.n), rng.random(graph.n) < 0.5, rng.random(graph.n) < 0.5
        rank, (indptr, heads, moved), by_rank = number_vertices(*ends(graph), order, *facts)
        assert np.array_equal(np.sort(rank), np.arange(graph.n))
        degrees = np.diff(graph.indptr)
        wanted = np.concatenate([order[degrees[order] > 0], order[degrees[order] == 0]])
        assert np.array_equal(rank[wanted], np.arange(graph.n))
        assert np.array_equal(np.diff(indptr), degrees[wanted])
        tails = np.repeat(np.arange(graph.n), np.diff(indptr))
        old = np.repeat(np.arange(graph.n), degrees)
        assert np.array_equal(rank[old[moved]], tails)
        assert np.array_equal(rank[graph.heads[moved]], heads)
        for fact, found in zip(facts, by_rank, strict=True):
            assert np.array_equal(fact[wanted], found)


@pytest.mark.parametrize("weighted", [True, False])
def test_reversed_arcs_are_those_of_the_graph(weighted):
    for seed in range(30):
        graph = drawn(seed)
        order = np.arange(graph.n, dtype=np.int32)
        none = np.zeros(graph.n, np.int64), np.zeros(graph.n, np.bool_), np.zeros(graph.n, np.bool_)
        _, (indptr, heads, moved), _ = number_vertices(*ends(graph), order, *none)
        weights = graph.weights[moved].astype(np.int32) if weighted else np.zeros(0, np.int32)
        inner = int(np.count_nonzero(np.diff(indptr)))
        incoming, lone, (starts, ahead, kept, numbers) = reverse_arcs(indptr, heads, weights, inner, 5)
        into, found_heads, tails, lengths, places = incoming
        old = np.repeat(np.arange(graph.n), np.diff(indptr))
        right = np.lexsort((old, heads))
        assert np.array_equal(places, right)
        assert np.array_equal(found_heads, heads[right])
        assert np.array_equal(tails, old[right])
        assert np.array_equal(lengths, np.minimum(weights, 5)[right] if weighted else np.ones(len(heads)))
        assert np.array_equal(np.diff(into), np.bincount(heads, minlength=graph.n))
        assert np.array_equal(lone, np.flatnonzero(np.diff(into)[:inner] == 0))
        assert np.array_equal(kept, np.flatnonzero(heads < inner))
        assert np.array_equal(ahead, heads[kept])
        assert np.array_equal(np.diff(starts), np.bincount(old[kept], minlength=graph.n)[:inner])
        assert np.array_equal(kept[numbers], places[: into[inner]])


def test_a_part_has_all_arcs_between_its_vertices():
    for seed in range(40):
        graph = drawn(seed, directed=False)
        matrix = csr_array((np.arange(graph.arcs) + 1, graph.heads, graph.indptr), shape=(graph.n, graph.n))
        kept = np.random.default_rng(seed).random(graph.n) < 0.6
        for lone in (True, False):
            number, vertices, places, (indptr, heads) = cut_out(*ends(graph), kept, lone)
            part = matrix[np.flatnonzero(kept)][:, np.flatnonzero(kept)]
            left = np.ones(part.shape[0], np.bool_) if lone else np.diff(part.indptr) > 0
            assert np.array_equal(vertices, np.flatnonzero(kept)[left])
            wanted = part[left][:, left]
            assert np.array_equal(indptr, wanted.indptr)
            assert np.array_equal(heads, wanted.indices)
            assert np.array_equal(places + 1, wanted.data)
            assert number[-1] == -1
            assert np.array_equal(np.flatnonzero(number[:-1] >= 0), vertices)
            assert np.array_equal(number[vertices], np.arange(len(vertices)))
