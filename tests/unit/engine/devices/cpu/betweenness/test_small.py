"""What is folded and merged before a small graph is counted; sums are compared in tests/property."""

from __future__ import annotations

import math

import numpy as np

from engine.devices.cpu.betweenness.merging import merge_sources
from engine.devices.cpu.betweenness.peeling import DOWN, UP, fold_twins, hand_down, peel_trees
from engine.devices.cpu.betweenness.small import prepare_small
from engine.graph.ordering import fixed
from storage.graph.graph import build_graph

ALL_ONE = np.zeros(0, np.int32)


def arcs_of(tails, heads, *, directed, n=None):
    graph = build_graph(tails, heads, None, directed=directed, n=n)[0]
    return fixed(graph.indptr), fixed(graph.heads)


def merged(tails, heads, sources, n):
    indptr, heads = arcs_of(tails, heads, directed=True, n=n)
    return merge_sources((indptr.copy(), heads.copy()), np.zeros(n, np.int32), np.array(sources), np.ones(n))


def test_sources_with_one_arc_are_merged_into_its_head():
    # 5 and 4 lead to 3, which leads to 0; 0 has two arcs, and 6 leads to 7, which is no source
    tails, heads = [5, 4, 3, 0, 0, 6, 7, 1], [3, 3, 0, 1, 2, 7, 0, 0]
    (searched, factors), (first, members, lacking), (chain, parent, root, _) = merged(tails, heads, range(7), 8)
    assert dict(zip(searched.tolist(), factors.tolist(), strict=True)) == {0: 5, 2: 1, 6: 1}
    assert set(members[first[0] : first[1]].tolist()) == {1, 3, 4, 5}
    assert np.diff(first).tolist() == [4, 0, 0]
    assert lacking[[0, 1, 3, 4, 5]].tolist() == [5, 1, 3, 1, 1]
    assert [parent[v] for v in (3, 4, 5, 1)] == [0, 3, 3, 0]
    assert set(root[[0, 1, 3, 4, 5]]) == {0}
    assert chain.tolist().index(3) < min(chain.tolist().index(4), chain.tolist().index(5))


def test_one_vertex_of_a_cycle_of_single_arcs_is_searched_from():
    ring = np.arange(6)
    (searched, factors), (_, members, _), _ = merged([*ring, 6, 7], [*np.roll(ring, -1), 2, 6], range(8), 8)
    assert len(searched) == 1
    assert factors.tolist() == [8]
    assert len(members) == 7


def test_without_such_sources_nothing_is_merged():
    ring = np.arange(6)
    sides = np.append(ring, ring), np.append(np.roll(ring, -1), np.roll(ring, -2))
    (searched, factors), (first, members, lacking), (chain, *_) = merged(*sides, range(6), 6)
    assert searched.tolist() == list(range(6))
    assert factors.tolist() == [1] * 6
    assert len(first) == len(members) == len(lacking) == len(chain) == 0


def test_twins_of_a_clique_become_one_vertex():
    clique = [(u, v) for u in range(5) for v in range(u)] + [(4, 5), (5, 6), (6, 7), (7, 4)]
    indptr, heads = arcs_of(*zip(*clique, strict=True), directed=False)
    left, stands = np.ones(8, np.bool_), np.arange(1.0, 9.0)
    left[7] = False  # a vertex of a tree
    assert fold_twins(indptr, heads, left, stands) == 3
    assert left.tolist() == [True, False, False, False, True, True, True, False]
    assert stands[0] == 1 + 2 + 3 + 4
    square = arcs_of([0, 1, 2, 3], [1, 2, 3, 0], directed=False)  # its twins are no neighbours of each other
    assert fold_twins(*square, np.ones(4, np.bool_), np.ones(4)) == 0


def test_trees_whose_arcs_lead_one_way_are_peeled():
    # 0, 1 and 2 are a ring; 3 and 4 are ends behind 0, 5 leads to 1, 6 to 5 and back, 7 has no arc
    arcs = [(0, 1), (1, 2), (2, 0), (0, 3), (3, 4), (5, 1), (6, 5), (5, 6)]
    removed, parent, ways, sizes, _ = peel_trees(*arcs_of(*zip(*arcs, strict=True), directed=True, n=8))
    out, into, products = sizes
    assert sorted(removed.tolist()) == [3, 4, 5, 6]
    assert parent.tolist() == [-1, -1, -1, 0, 3, 1, 5, -1]
    assert ways.tolist() == [0, 0, 0, DOWN, DOWN, UP, UP | DOWN, 0]
    assert out.tolist() == [3, 1, 1, 2, 1, 2, 1, 1]
    assert into.tolist() == [1, 3, 1, 1, 1, 2, 1, 1]
    assert products.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]


def test_a_component_that_is_a_tree_keeps_one_vertex():
    removed, parent, ways, (out, into, _), left = peel_trees(*arcs_of([0, 2, 2], [1, 1, 3], directed=True))
    (last,) = np.flatnonzero(parent < 0)
    assert not left.any()
    reached, reaching = out.copy(), into.copy()
    tree = removed, parent, ways
    hand_down(tree, (out, into), (reached, reaching))
    assert len(removed) == 3
    assert last not in removed
    assert reached.tolist() == [2, 1, 3, 1]
    assert reaching.tolist() == [1, 3, 1, 2]


def test_small_graphs_are_folded_only_if_it_is_worth_it():
    ends = arcs_of([0, 1, 0, 0, 1], [1, 0, 2, 3, 4], directed=True)
    clique = arcs_of([0, 1, 2, 2, 3], [1, 2, 0, 3, 4], directed=False)
    for arcs, directed, sizes in ((ends, True, (5, 0)), (clique, False, (5, 0))):  # a single vertex has no arc
        for share, size in zip((math.inf, 0.05), sizes, strict=True):
            found = prepare_small(*arcs, ALL_ONE, directed, (share, 1 / 16, 0.75), (32, 0))
            assert len(found[1][3]) == size
