"""Arcs that no bottleneck needs are left out, and the others join components at the right ranks."""

from __future__ import annotations

import numpy as np

from engine.algorithms.semirings.components import joining_ranks, needed_arcs, strong_components
from storage.graph.graph import build_graph


def test_ranks_at_which_arcs_join_components():
    rng = np.random.default_rng(5)
    for _ in range(200):
        n, none = int(rng.integers(1, 15)), int(rng.integers(2, 30))
        m = int(rng.integers(0, 5 * n))
        tails, heads = rng.integers(0, n, (2, m), dtype=np.int32)
        ranks = rng.integers(1, none, m, dtype=np.int32)
        expected = np.full(m, none)
        for rank in range(none - 1, 0, -1):
            open_now = ranks <= rank
            component = strong_components(n, tails[open_now], heads[open_now])
            expected[component[tails] == component[heads]] = rank
        inside, joined, between = joining_ranks(n, (tails, heads, ranks), none)
        np.testing.assert_array_equal(joined, expected[inside])
        never = np.flatnonzero(expected == none)
        early = inside[ranks[inside] < joined]
        assert sorted(between) == sorted(np.concatenate([early, never]))
        left_out = np.setdiff1d(np.arange(m), np.concatenate([inside, between]))
        assert (expected[left_out] < ranks[left_out]).all()


def test_of_a_dense_graph_few_arcs_are_needed():
    n = 150
    tails, heads = (side.ravel() for side in np.mgrid[0:n, 0:n])
    weights = np.random.default_rng(1).permutation(n * n)
    for greatest in (False, True):
        graph, _ = build_graph(tails, heads, weights, directed=True, parallel="greatest" if greatest else "least")
        kept = needed_arcs(graph, greatest=greatest)
        assert len(kept[0]) < 0.1 * graph.arcs
        assert (kept[2].min() > 20_000) == greatest
    sparse, _ = build_graph([0, 1], [1, 2], [3, 4], directed=True)
    assert len(needed_arcs(sparse, greatest=True)[0]) == 2
