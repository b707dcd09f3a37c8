"""Arcs that no bottleneck needs are left out, and the others join components at the right ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from engine.algorithms.semirings import components
from engine.algorithms.semirings.components import joining_ranks, needed_arcs
from storage.graph.graph import build_graph


def strong_components(n: int, tails: Any, heads: Any) -> npt.NDArray[np.int32]:
    arcs = csr_array((np.ones(len(tails), np.bool_), (tails, heads)), shape=(n, n))
    return np.asarray(connected_components(arcs, connection="strong")[1])


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
        inside, joined, between, whole = joining_ranks(n, (tails, heads, ranks), none)
        np.testing.assert_array_equal(joined, expected[inside])
        never = np.flatnonzero(expected == none)
        early = inside[ranks[inside] < joined]
        assert sorted(between) == sorted(np.concatenate([early, never]))
        left_out = np.setdiff1d(np.arange(m), np.concatenate([inside, between]))
        assert (expected[left_out] < ranks[left_out]).all()
        component = strong_components(n, tails, heads)
        np.testing.assert_array_equal(whole[:, None] == whole, component[:, None] == component)
        assert (whole[tails] >= whole[heads]).all()


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


@pytest.mark.parametrize("greatest", [True, False])
def test_arcs_are_needed_that_alone_lead_to_a_component(monkeypatch: pytest.MonkeyPatch, greatest: bool):
    """Every other weight is seen, and the arcs out of the first vertices are worse than all that seem to be needed."""
    monkeypatch.setattr(components, "_SAMPLE", 5000)
    n = 150
    tails, heads = (side.ravel() for side in np.mgrid[0:n, 0:n])
    weights = np.random.default_rng(1).permutation(n * n)
    weights[tails < 3] += -(10**6) if greatest else 10**6
    graph, _ = build_graph(tails, heads, weights, directed=True, parallel="greatest" if greatest else "least")
    kept = needed_arcs(graph, greatest=greatest)
    assert len(kept[0]) < 0.2 * graph.arcs
    listed = {(*ends, weight) for *ends, weight in zip(*(side.tolist() for side in kept), strict=True)}
    assert listed >= {(t, h, graph.weights[e]) for t in range(3) for e, h in _out(graph, t)}


def _out(graph: Any, tail: int) -> list[tuple[int, int]]:
    return [(e, int(graph.heads[e])) for e in range(graph.indptr[tail], graph.indptr[tail + 1])]
