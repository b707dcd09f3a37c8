"""Johnson's algorithm against SciPy's, and what it refuses before it writes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import johnson as scipy_johnson

from engine.algorithms.johnson import solve
from engine.model.progress import Monitor
from storage.errors import NegativeCycle
from storage.graph.graph import Graph
from tests.unit.engine.algorithms.harness import Collect, Searcher, Tally, context_of, make_graph


def with_negative_arcs(graph: Graph, scale: float, dtype: str) -> Graph:
    """The same cycles, other arcs: w + p[tail] - p[head] for random p."""
    p = np.random.default_rng(9).integers(0, 200, graph.n)
    weights = graph.weights + np.repeat(p, np.diff(graph.indptr)) - p[graph.heads]
    assert (weights < 0).any()
    return Graph(graph.indptr, graph.heads, (weights * scale).astype(dtype), graph.labels, directed=True, weighted=True)


@pytest.mark.parametrize(
    ("weights", "scale", "dtype", "tolerance"),
    [
        ("int32", 1, "int32", 0),
        ("int64", 1, "float64", 0),
        ("float64", 0.1, "float64", 1e-9),
        ("float64", 0.1, "float32", 1e-6),
    ],
)
def test_agrees_with_scipy(weights: str, scale: float, dtype: str, tolerance: float) -> None:
    graph = with_negative_arcs(make_graph(200, 900), scale, weights)
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(200, 200))
    expected = scipy_johnson(matrix)
    backend, sink, tally = Searcher(), Collect(200, 200, dtype, 64), Tally()
    solve(context_of(graph, dtype, sink, tally), backend)
    backend.shutdown()
    found = sink.array.astype(np.float64)
    if dtype == "int32":
        found[sink.array == 2**30 - 1] = np.inf
    assert np.array_equal(np.isinf(found), np.isinf(expected))
    finite = np.isfinite(expected)
    assert np.allclose(found[finite], expected[finite], rtol=tolerance, atol=tolerance * 20)
    assert found[finite].min() < 0
    assert [phase for phase, _, _ in tally.begun] == ["potentials", "search"]


def test_a_graph_without_negative_arcs_is_searched_as_it_is() -> None:
    graph = make_graph(100, 300)
    plain, sink = Searcher(), Collect(100, 100, "int32", 64)
    solve(context_of(graph, "int32", sink, Monitor()), plain)
    plain.shutdown()
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(100, 100))
    expected = np.nan_to_num(scipy_johnson(matrix), posinf=2**30 - 1)
    assert np.array_equal(sink.array, expected)


def test_a_negative_cycle_is_refused_before_any_row() -> None:
    graph = make_graph(100, 900)
    bad = Graph(graph.indptr, graph.heads, graph.weights - 30, graph.labels, directed=True, weighted=True)
    backend, sink = Searcher(), Collect(100, 100, "int32", 64)
    with pytest.raises(NegativeCycle):
        solve(context_of(bad, "int32", sink, Monitor()), backend)
    backend.shutdown()
    assert backend.calls == []
