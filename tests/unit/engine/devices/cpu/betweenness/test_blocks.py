"""Blocks, the copies of cut vertices, and what these stand for, on graphs small enough to count by hand and random
ones.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from engine.devices.cpu.betweenness.blocks import find_blocks, split_blocks, visit_components
from storage.graph.graph import build_graph


def arcs_of(edges, n, directed=False):
    tails, heads = zip(*edges, strict=True)
    graph = build_graph(tails, heads, None, directed=directed, n=n)[0]
    return graph.indptr.astype(np.int64), graph.heads.copy()


def ones(n):
    return np.ones(n), np.ones(n)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_are_networkxs(seed):
    other = nx.gnm_random_graph(40, 45, seed=seed)
    number, block, tops = find_blocks(*arcs_of(other.edges, 40))
    found = [{int(top), *np.flatnonzero(block == b).tolist()} for b, top in enumerate(tops)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, nx.biconnected_components(other)))
    assert sorted(number.tolist()) == list(range(40))


@pytest.mark.parametrize("seed", range(10))
def test_searches_from_all_vertices_visit_their_components(seed):
    other = nx.gnm_random_graph(40, (10, 30, 60)[seed % 3], seed=seed)
    arcs = arcs_of(other.edges, 40)
    number, block, _ = find_blocks(*arcs)
    parts = [other.subgraph(part) for part in nx.connected_components(other)]
    right = sum(len(part) * (len(part) + 2 * part.number_of_edges()) for part in parts)
    assert visit_components(arcs[0], number, block) == right


def test_a_cut_vertex_stands_for_what_lies_behind_it():
    # two rings of four that share vertex 3, and a vertex alone
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5), (5, 6), (6, 3)]
    done, (vertex, places, _), weights, (known, sums, across) = split_blocks(
        *arcs_of(edges, 8), (False, True), ones(8), (0.75, 100)
    )
    assert done
    assert vertex.tolist() == [0, 0, 1, 2, 3, 3, 4, 5, 6] or vertex.tolist() == [0, 1, 2, 3, 3, 4, 5, 6]
    assert weights[0][vertex == 3].tolist() == weights[1][vertex == 3].tolist() == [4, 4]
    assert weights[0][vertex != 3].tolist() == [1] * 6
    assert len(places) == 16
    assert known[3]
    assert sums[:, 3].tolist() == [6, 6]
    assert across.tolist() == [0, 0, 0, 6 * 6 - 2 * 3 * 3, 0, 0, 0, 0]


def test_one_way_arcs_count_only_what_is_reached():
    # a ring 0, 1, 2; from 2 leads a diamond 2, 3, 4, 5, all of whose arcs lead to 5; 5 leads on to the ring 5, 6, 7
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6), (6, 7), (7, 5)]
    done, (vertex, *_), (kept, times), (_, sums, across) = split_blocks(
        *arcs_of(edges, 8, directed=True), (True, True), ones(8), (1.0, 100)
    )
    assert done
    assert sums[:, 2].tolist() == [7, 2]
    assert sums[:, 5].tolist() == [2, 7]
    assert across[[2, 5]].tolist() == [2 * 5, 5 * 2]
    assert sorted(kept[vertex == 2].tolist()) == [1 + 2, 1 + 5] or sorted(kept[vertex == 2].tolist()) == [3, 6]
    assert sorted(times[vertex == 5].tolist()) == [1 + 2, 1 + 5]


def test_graphs_are_split_only_if_that_pays_and_is_quick():
    ring = [(v, (v + 1) % 9) for v in range(9)]
    assert not split_blocks(*arcs_of(ring, 9), (False, True), ones(9), (0.75, 100))[0]
    apart = [(u + first, v + first) for first in (0, 9) for u, v in ring]  # searches stay in their components anyway
    assert not split_blocks(*arcs_of(apart, 18), (False, True), ones(18), (0.75, 100))[0]
    rings = [(u + first, v + first) for first in (0, 8) for u, v in ring]
    assert split_blocks(*arcs_of(rings, 17), (False, True), ones(17), (0.75, 0))[0]  # all reach each other
    forth = [*rings[:17], (8, 0), *rings[9:-1], (8, 16)]
    assert not split_blocks(*arcs_of(forth, 17, directed=True), (True, True), ones(17), (0.75, 10**4))[0]  # little
    assert split_blocks(*arcs_of(forth, 17, directed=True), (True, True), ones(17), (2.0, 10**4))[0]
    assert not split_blocks(*arcs_of(forth, 17, directed=True), (True, True), ones(17), (2.0, 0))[0]
