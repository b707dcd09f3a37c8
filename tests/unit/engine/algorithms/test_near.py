"""Near pairs against whole matrices of SciPy: every limit, every type, ties, terminals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from engine.api.near import near_pairs
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph

KINDS = ("whole", "zeros", "huge", "quarters", "ones")


def weights_of(kind: str, count: int, draw: np.random.Generator) -> np.ndarray:
    """Weights whose sums are exact in float64, so that equal distances are equal in every order of summation."""
    return {
        "whole": lambda: draw.integers(1, 6, count),
        "zeros": lambda: draw.integers(0, 3, count),
        "huge": lambda: draw.integers(0, 2**40, count),
        "quarters": lambda: draw.integers(0, 9, count) / 4,
        "ones": lambda: np.ones(count, np.int64),
    }[kind]()


def make_graph(seed: int, kind: str, *, most: int = 40) -> Graph:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, most))
    count = int(draw.integers(0, 4 * n))
    tails, heads = draw.integers(0, n, (2, count))
    return build_graph(tails, heads, weights_of(kind, count, draw), n=n, directed=bool(seed % 3))[0]


def reference(graph: Graph) -> np.ndarray:
    """All distances by SciPy, which takes a stored zero for an arc of length zero."""
    return dijkstra(csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n,) * 2))


def expected(row: np.ndarray, source: int, targets: np.ndarray, cutoff: float | None, nearest: int | None):
    chosen = targets[np.isfinite(row[targets]) & (targets != source)]
    chosen = chosen if cutoff is None else chosen[row[chosen] <= cutoff]
    if nearest is not None:
        chosen = chosen[np.argsort(row[chosen], kind="stable")[:nearest]]
    return chosen, row[chosen]


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    cutoff=st.sampled_from([None, 0.0, 0.3, 0.7, 1.0]),
    nearest=st.sampled_from([None, 1, 3, 50]),
    some=st.tuples(st.booleans(), st.booleans()),
)
def test_rows_are_those_of_the_matrix(seed, kind, cutoff, nearest, some):
    graph = make_graph(seed, kind)
    whole = reference(graph)
    draw = np.random.default_rng(seed)
    reached = np.sort(whole[np.isfinite(whole)])
    limit = None if cutoff is None else float(reached[int(cutoff * (len(reached) - 1))])
    if limit is None and nearest is None:
        nearest = 2
    sources, targets = (
        draw.permutation(graph.n)[: max(1, graph.n // 2)].tolist() if chosen else None for chosen in some
    )
    found = near_pairs(graph, Options(cutoff=limit, sources=sources, targets=targets, threads=2), nearest=nearest)
    columns = np.arange(graph.n) if targets is None else np.sort(targets)
    rows = range(graph.n) if sources is None else sources
    assert found.sources.tolist() == list(rows)
    for source in rows:
        vertices, lengths = found.row(source)
        want_vertices, want_lengths = expected(whole[source], source, columns, limit, nearest)
        np.testing.assert_array_equal(vertices, want_vertices)
        np.testing.assert_array_equal(lengths, want_lengths)
    assert found.lengths.dtype.kind == ("i" if graph.integral else "f")


def test_ties_behind_arcs_of_no_length_are_found():
    # 0 -> 9 settles first at distance 1; from there 3 and then 1 are reached by arcs of length zero
    graph, _ = build_graph([0, 9, 3, 0], [9, 3, 1, 2], [1, 0, 0, 5], n=10, directed=True)
    found = near_pairs(graph, Options(), nearest=1)
    assert found.row(0)[0].tolist() == [1]
    tiny, _ = build_graph([0, 9, 3], [9, 3, 1], [1.0, 1e-30, 1e-30], n=10, directed=True)
    assert near_pairs(tiny, Options(), nearest=2).row(0)[0].tolist() == [1, 3]


def test_no_path_passes_through_a_terminal_and_arrivals_keep_their_names():
    graph, _ = build_graph([2, 0, 2, 3], [0, 3, 3, 1], [1, 1, 9, 1], n=4, directed=True)
    graph = replace(graph, terminals=2)
    found = near_pairs(graph, Options(cutoff=100))
    assert [each.tolist() for each in found.row(2)] == [[0, 1, 3], [1, 10, 9]]
    nearest = near_pairs(graph, Options(), nearest=2)
    assert [each.tolist() for each in nearest.row(2)] == [[0, 3], [1, 9]]
    assert [each.tolist() for each in nearest.row(0)] == [[3, 1], [1, 2]]
    assert near_pairs(graph, Options(targets=(0,)), nearest=1).indices.tolist() == [0]


@pytest.mark.parametrize("threads", [1, 2])
def test_many_pieces_are_put_together_in_order(threads):
    draw = np.random.default_rng(5)
    n = 3000
    graph, _ = build_graph(*draw.integers(0, n, (2, 4 * n)), draw.integers(1, 100, 4 * n), n=n, directed=True)
    found = near_pairs(graph, Options(cutoff=120, threads=threads))
    some = draw.permutation(n)[:40]
    whole = dijkstra(csr_array((graph.weights, graph.heads, graph.indptr), shape=(n, n)), indices=some)
    for row, source in zip(whole, some, strict=True):
        for one, other in zip(found.row(source), expected(row, source, np.arange(n), 120, None), strict=True):
            np.testing.assert_array_equal(one, other)
    assert found.indptr[-1] == found.entries == len(found.lengths)
