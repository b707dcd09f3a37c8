"""Compares every entry of prepared graphs, for every kind of question, with SciPy and with solved stores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import johnson

from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.routes import Router, rounding
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.graph.graph import build_graph

KINDS = ("directed", "undirected", "disconnected", "parallel", "zero", "single", "negative", "floats", "tree")
#: Random graphs of each kind in every run, and by hand: 252, and 1,008.
EACH, ALL = 28, 112


def random_graph(kind, seed):
    """A small random graph of a kind; ``negative`` arcs make no negative cycle."""
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    n = 1 if kind == "single" else int(rng.integers(2, 40))
    arcs = 0 if kind == "single" else int(rng.integers(0, 4 * n))
    tails, heads = rng.integers(0, n, (2, arcs))
    weights = rng.integers(1, 100, arcs)
    directed = kind not in ("undirected", "tree")
    if kind == "disconnected":
        same = (tails < n // 2) == (heads < n // 2)
        tails, heads, weights = tails[same], heads[same], weights[same]
    if kind == "parallel":
        tails, heads, weights = np.tile(tails, 3), np.tile(heads, 3), rng.integers(1, 100, 3 * arcs)
    if kind == "zero":
        weights = rng.integers(0, 2, arcs) * 50
    if kind == "tree":
        heads = np.arange(1, n)
        tails = rng.integers(0, heads)
        weights = rng.integers(0, 100, n - 1)
    if kind == "negative":
        height = rng.integers(0, 60, n)
        weights = weights + height[tails] - height[heads]
    weights = weights / 7 if kind == "floats" else weights.astype(np.int64)
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def scipy_distances(graph):
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return johnson(arcs) if graph.arcs else np.where(np.eye(graph.n, dtype=bool), 0, np.inf)


def expected(graph, dtype, unreachable):
    found = scipy_distances(graph)
    return np.where(np.isinf(found), unreachable, found).astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_every_question_is_answered_as_scipy_does(tmp_path, kind):
    compare_with_scipy(kind, range(EACH), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_question_about_a_thousand_is_answered_as_scipy_does(tmp_path, kind):
    compare_with_scipy(kind, range(EACH, ALL), tmp_path)


def compare_with_scipy(kind, seeds, tmp_path):
    for seed in seeds:
        graph = random_graph(kind, seed)
        path = tmp_path / f"{kind}-{seed}"
        prepare(graph, path, Options(threads=1))
        with open_result(path) as matrix:
            assert isinstance(matrix, PreparedMatrix)
            want = expected(graph, matrix.dtype, matrix.unreachable)
            floats = matrix.dtype.kind == "f"
            if floats:
                found = matrix.rows(range(graph.n))
                reached = np.isfinite(want)
                np.testing.assert_array_equal(np.isfinite(found), reached)
                allowed = rounding(graph.n, want[reached].astype(float), matrix.dtype)
                assert (np.abs(found[reached].astype(float) - scipy_distances(graph)[reached]) <= allowed).all()
                want = found
            check_entries(matrix, want)
            assert floats == (kind == "floats" and not graph.integral)


def check_entries(matrix, want):
    """Compare pairs, rows, columns, blocks, nearest vertices and eccentricities with the whole matrix."""
    n, everything = len(want), np.arange(len(want))
    u, v = np.divmod(np.arange(n * n), n)
    np.testing.assert_array_equal(matrix.entries(u, v).reshape(n, n), want)
    np.testing.assert_array_equal(matrix.rows(everything), want)
    np.testing.assert_array_equal(matrix.columns(everything), want)
    np.testing.assert_array_equal(matrix.columns([n - 1]), want[:, -1:])
    some, others = everything[::3][::-1], everything[1::2]
    np.testing.assert_array_equal(matrix.block(some, others), want[np.ix_(some, others)])
    np.testing.assert_array_equal(matrix.block(everything, [0]), want[:, :1])
    np.testing.assert_array_equal(matrix.row(n // 2), want[n // 2])
    reached = want != matrix.unreachable
    apart = reached & ~np.eye(n, dtype=bool)
    largest = np.where(apart, want, want.min()).max(1)
    np.testing.assert_array_equal(
        matrix.eccentricities(everything), np.where(apart.any(1), largest, matrix.unreachable)
    )
    order = [t for t in np.argsort(want[0], kind="stable") if t != 0 and reached[0, t]]
    targets, distances = matrix.nearest(0, 5)
    np.testing.assert_array_equal(targets, order[:5])
    np.testing.assert_array_equal(distances, want[0, order[:5]])


@pytest.mark.parametrize(("largest", "dtype"), [(2**15 - 2, "uint16"), (2**15 - 1, "int32"), (2**30 - 2, "int32")])
def test_distances_up_to_the_largest_of_a_type(tmp_path, largest, dtype):
    """A path whose ends are as far apart as the type holds, and a vertex apart."""
    n, rng = 60, np.random.default_rng(largest)
    cuts = np.sort(rng.choice(largest - 1, n - 2, replace=False) + 1)  # an array to choose from would take 8 GiB
    weights = np.diff([0, *cuts, largest])
    tails, heads = np.arange(n - 1), np.arange(1, n)
    graph = build_graph(tails, heads, weights, n=n + 1, directed=True)[0]
    prepare(graph, tmp_path / "p", Options(threads=1))
    with open_result(tmp_path / "p") as matrix:
        assert matrix.dtype == dtype
        want = expected(graph, matrix.dtype, matrix.unreachable)
        assert want[0, n - 1] == largest
        assert (want[n, :n] == matrix.unreachable).all()
        check_entries(matrix, want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_solved_store_answers_the_same_to_the_bit(tmp_path, kind, seed):
    graph = random_graph(kind, 1000 + seed)
    prepare(graph, tmp_path / "prepared", Options(threads=1))
    solve_to_store(graph, Options(threads=1, device="cpu"), tmp_path / "solved")
    with open_result(tmp_path / "prepared") as prepared, open_result(tmp_path / "solved") as solved:
        assert (prepared.dtype, prepared.shape, prepared.grid) == (solved.dtype, solved.shape, solved.grid)
        np.testing.assert_array_equal(prepared.labels, solved.labels)
        assert prepared.unreachable == solved.unreachable
        ours, theirs = (matrix.rows(range(graph.n)) for matrix in (prepared, solved))
        if prepared.dtype.kind == "f":  # sums of the same arcs in another order
            reached = np.isfinite(theirs)
            np.testing.assert_array_equal(np.isfinite(ours), reached)
            allowed = rounding(graph.n, theirs[reached], prepared.dtype)
            assert (np.abs(ours[reached] - theirs[reached]) <= allowed).all()
        else:
            np.testing.assert_array_equal(ours, theirs)
            check_entries(solved, theirs)
        routers = Router(prepared), Router(solved)
        for u, v in np.random.default_rng(seed).integers(0, graph.n, (10, 2)).tolist():
            ours, theirs = (router.route(u, v) for router in routers)
            assert (ours is None) == (theirs is None)
            assert ours is None or ours.length == pytest.approx(theirs.length, rel=1e-6)
