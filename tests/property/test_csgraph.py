"""Compares our versions of SciPy's functions with SciPy's, on random graphs of every kind."""

import numpy as np
import pytest
import scipy.sparse.csgraph as theirs
import sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from engine.interop import scipy_csgraph as ours

KINDS = ("whole", "fractional", "zeros", "negative", "negative fractions")


def random_graph(seed: int, n: int, kind: str) -> coo_array:
    """n x n, about three arcs a vertex; negative ones come from potentials, so no cycle is negative."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, n, (3 * n, 2)), axis=0)
    tails, heads = pairs[pairs[:, 0] != pairs[:, 1]].T
    weights = rng.integers(0 if kind == "zeros" else 1, 3 if kind == "zeros" else 50, len(tails)).astype(float)
    if "fraction" in kind:
        weights += rng.random(len(tails))
    if "negative" in kind:
        h = rng.integers(0, 40, n) + (rng.random(n) if "fraction" in kind else 0)
        weights += h[tails] - h[heads]
    return coo_array((weights, (tails, heads)), shape=(n, n))


def check_trees(graph, distances, before, sources):
    """Every predecessor's arc is tight, and every reached vertex has one."""
    dense = np.full(graph.shape, np.inf)
    dense[graph.row, graph.col] = graph.data
    for i, source in enumerate(sources):
        reached = np.isfinite(distances[i])
        assert before[i, source] == ours.NONE
        has = before[i] != ours.NONE
        has[source] = True
        assert np.array_equal(has, reached)
        v = np.flatnonzero(has & (np.arange(len(has)) != source))
        u = before[i, v]
        np.testing.assert_allclose(distances[i, u] + dense[u, v], distances[i, v], rtol=1e-12, atol=1e-9)
        steps = np.arange(len(has))
        for _ in range(len(has)):  # walking back ends at the source, always
            steps = np.where(before[i, steps] == ours.NONE, steps, before[i, steps])
        assert (steps[has] == source).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["auto", "FW", "BF", "J"])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 70))
def test_distances_and_trees(kind, method, seed, n):
    graph = random_graph(seed, n, kind)
    # explicit zeros are dropped by SciPy's own Floyd-Warshall; Bellman-Ford keeps them
    expected = theirs.bellman_ford(graph.tocsr())
    found = ours.shortest_path(graph, method)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)
    distances, before = ours.shortest_path(graph, method, return_predecessors=True)
    np.testing.assert_allclose(distances, expected, rtol=1e-12, atol=1e-9)
    assert before.dtype == np.int32
    check_trees(graph, distances, before, range(n))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 60), kind=st.sampled_from(KINDS[:3]), limit=st.floats(0, 80))
def test_indices_limit_and_the_nearest(seed, n, kind, limit):
    graph = random_graph(seed, n, kind)
    indices = np.random.default_rng(seed).integers(-n, n, (2, 2))
    expected = theirs.dijkstra(graph.tocsr(), indices=indices, limit=limit)
    found, before = ours.dijkstra(graph, indices=indices, limit=limit, return_predecessors=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.shape == before.shape == (2, 2, n)
    assert ((before == ours.NONE) | np.isfinite(found)).all()
    nearest, tree, sources = ours.dijkstra(graph, indices=indices.ravel(), min_only=True, return_predecessors=True)
    whole = theirs.dijkstra(graph.tocsr(), indices=indices.ravel())
    np.testing.assert_allclose(nearest, whole.min(0), rtol=1e-12)
    reached = np.isfinite(nearest)
    assert np.array_equal(sources != ours.NONE, reached)
    every = theirs.dijkstra(graph.tocsr())
    v = np.flatnonzero(reached)
    np.testing.assert_allclose(every[sources[v], v], nearest[v], rtol=1e-12)
    assert set(sources[v].tolist()) <= set((indices.ravel() % n).tolist())
    assert (tree[~reached] == ours.NONE).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), unweighted=st.booleans())
def test_dense_masked_and_undirected(seed, n, unweighted):
    sparse = random_graph(seed, n, "fractional")
    dense = sparse.toarray()
    options = {"directed": False, "unweighted": unweighted}
    expected = theirs.shortest_path(dense, "D", **options)
    np.testing.assert_allclose(ours.shortest_path(dense, **options), expected, rtol=1e-12)
    np.testing.assert_allclose(ours.floyd_warshall(np.ma.masked_equal(dense, 0), **options), expected, rtol=1e-12)
    np.testing.assert_allclose(ours.johnson(sparse, **options), expected, rtol=1e-12)
    holes = np.where(dense == 0, np.nan, dense)
    np.testing.assert_allclose(ours.bellman_ford(holes, **options), expected, rtol=1e-12)


def test_what_scipy_refuses_is_refused():
    graph = np.array([[0.0, 1], [1, 0]])
    with pytest.raises(ValueError, match="unrecognized method"):
        ours.shortest_path(graph, "X")
    with pytest.raises(ValueError, match="indices"):
        ours.shortest_path(graph, "FW", indices=[0])
    with pytest.raises(ValueError, match="out of range"):
        ours.dijkstra(graph, indices=[2])
    with pytest.raises(ValueError, match="whole numbers"):
        ours.dijkstra(graph, indices=[0.5])
    with pytest.raises(ValueError, match="limit"):
        ours.dijkstra(graph, limit=-1)
    with pytest.raises(ValueError, match=r"\(N, N\)"):
        ours.dijkstra(np.ones((2, 3)))
    with pytest.raises(theirs.NegativeCycleError, match="cycle"):
        ours.johnson(np.array([[0.0, 1], [-2, 0]]))
    with pytest.warns(UserWarning, match="negative"):
        assert ours.dijkstra(np.array([[0.0, -1], [0, 0]]))[0, 1] == -1


def test_indices_of_other_types_count_as_scipy_counts_them():
    graph = random_graph(3, 12, "fractional")
    for indices in ([0.0, 3.0, -1.0], [True, False], np.int8(2), np.array([[1], [4]], np.uint8)):
        np.testing.assert_allclose(
            ours.dijkstra(graph, indices=indices), theirs.dijkstra(graph, indices=indices), rtol=1e-12
        )
    for strange in ([1.5], [np.nan], np.inf, ["1"], [1j]):
        with pytest.raises(ValueError, match="whole numbers"):
            ours.shortest_path(graph, indices=strange)


def test_arrays_of_pydata_sparse_are_taken_whatever_stands_for_no_arc():
    dense = random_graph(5, 20, "fractional").toarray()
    expected = theirs.shortest_path(dense)
    for nothing in (0, np.inf, np.nan):
        array = sparse.COO.from_numpy(np.where(dense == 0, nothing, dense), fill_value=nothing)
        np.testing.assert_allclose(ours.shortest_path(array), expected, rtol=1e-12)
        np.testing.assert_allclose(ours.dijkstra(array.asformat("gcxs"), indices=2), expected[2], rtol=1e-12)
    with pytest.raises(ValueError, match="fill"):
        ours.shortest_path(sparse.COO.from_numpy(dense, fill_value=7.0))


def test_nan_in_a_sparse_graph_is_a_value_error():
    with pytest.raises(ValueError, match="NaN"):
        ours.shortest_path(csr_array((np.array([1.0, np.nan]), ([0, 1], [1, 2])), shape=(3, 3)))


@pytest.mark.parametrize("name", ["shortest_path", "dijkstra", "johnson", "bellman_ford", "floyd_warshall"])
def test_flags_are_those_of_scipy(name: str):
    graph = np.array([[0, 3, 0], [0, 0, 4], [1, 0, 0]])
    mine, other = getattr(ours, name), getattr(theirs, name)
    for flag in (0, 1, True, False, np.True_, np.False_):
        assert np.array_equal(mine(graph, directed=flag), other(graph, directed=bool(flag)))
    for wrong in ("no", None, [], 0.5, np.array([True, False])):
        with pytest.raises(ValueError, match="directed must be True or False"):
            mine(graph, directed=wrong)
    for text in (
        graph.astype(str),
        graph.astype(bytes),
        graph.astype(str).astype(object),
        "abc",
        graph.astype(str).tolist(),
    ):
        with pytest.raises(ValueError, match="matrix of numbers"):
            mine(text)
