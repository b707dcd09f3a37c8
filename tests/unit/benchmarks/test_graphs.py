"""The generators give clean graphs of the promised size and shape, the same ones each time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from benchmarks import graphs


@pytest.mark.parametrize("name", list(graphs.GENERATORS))
def test_graphs_are_clean_symmetric_and_repeatable(name: str) -> None:
    graph, again = graphs.GENERATORS[name](100), graphs.GENERATORS[name](100)
    assert graph.n == 100
    assert np.array_equal(graph.heads, again.heads)
    assert np.array_equal(graph.weights, again.weights)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    keys = tails * graph.n + graph.heads
    assert (np.diff(keys) > 0).all()
    assert (tails != graph.heads).all()
    assert graph.weights.min() >= 1
    matrix = csr_array((graph.weights, graph.heads, graph.indptr), shape=(100, 100))
    assert (matrix != matrix.T).nnz == 0


def test_shapes() -> None:
    assert graphs.ring(50).arcs == 100
    assert graphs.dense(20).arcs == 20 * 19
    assert graphs.grid(100).arcs == 2 * 2 * 10 * 9
    assert 0.6 < graphs.road(10_000).arcs / graphs.grid(10_000).arcs < 0.8
    assert 7.5 < graphs.random(5_000).arcs / 5_000 <= 8
    degrees = np.diff(graphs.rmat(4_096).indptr)
    assert degrees.max() > 20 * degrees.mean()
    ring = graphs.ring(50)
    parts, _ = connected_components(csr_array((ring.weights, ring.heads, ring.indptr), shape=(50, 50)))
    assert parts == 1


def test_hops_keeps_the_arcs() -> None:
    graph = graphs.random(60)
    ones = graphs.hops(graph)
    assert not ones.weighted
    assert (ones.weights == 1).all()
    assert np.array_equal(ones.heads, graph.heads)
