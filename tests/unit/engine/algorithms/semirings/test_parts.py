"""Products over parts and of whole matrices: their rounding, and what they do not depend on."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.api.in_memory import solve
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph
from tests.semirings import Arcs

JOINED = ("partitioned", "floyd-warshall")
SEARCH = Options(semiring="max-times", algorithm="product-search", threads=1)


def lattice(side: int, *, directed: bool, kind: str = "drawn") -> Graph:
    rng = np.random.default_rng(side)
    at = np.arange(side * side).reshape(side, side)
    tails, heads = np.append(at[:, :-1], at[:-1]), np.append(at[:, 1:], at[1:])
    if directed:
        tails, heads = np.append(tails, heads), np.append(heads, tails)
    weights = rng.uniform(0.5, 1, len(tails)) if kind == "drawn" else 0.5 ** rng.integers(0, 4, len(tails))
    return build_graph(tails, heads, weights, n=side * side, directed=directed, parallel="greatest")[0]


def exact(graph: Graph) -> npt.NDArray[Any]:
    """The greatest product of each pair as fractions, by Floyd and Warshall."""
    n = graph.n
    found = np.array([[Fraction(int(i == j)) for j in range(n)] for i in range(n)])
    for tail in range(n):
        for e in range(graph.indptr[tail], graph.indptr[tail + 1]):
            found[tail, graph.heads[e]] = max(found[tail, graph.heads[e]], Fraction(float(graph.weights[e])))
    for k in range(n):
        found = np.maximum(found, found[:, k : k + 1] * found[k : k + 1, :])
    return found


@pytest.mark.parametrize("algorithm", JOINED)
def test_products_are_true_to_one_rounding_for_each_arc(algorithm: str):
    """Ties abound: many paths have the same true product, whose factors are multiplied in another order."""
    rng = np.random.default_rng(11)
    for _ in range(12):
        n = int(rng.integers(2, 22))
        tails, heads = rng.integers(0, n, (2, 3 * n))
        weights = rng.choice([0.9, 0.81, 0.3, 0.27, 1.0, 0.1], 3 * n)
        graph = Arcs(n, tails, heads, weights, directed=bool(rng.integers(2))).graph("max-times")
        found, _ = solve(graph, replace(SEARCH, algorithm=algorithm))
        for true, product in zip(exact(graph).ravel(), found.ravel().tolist(), strict=True):
            assert abs(Fraction(product) - true) <= (n - 1) * true / 2**53


@pytest.mark.parametrize("algorithm", JOINED)
def test_products_agree_with_searches(algorithm: str):
    rng = np.random.default_rng(3)
    for _ in range(80):
        graph = Arcs.random(rng, "max-times", most=50).graph("max-times")
        if not graph.arcs:
            continue
        if rng.integers(3) == 0:
            graph = replace(graph, terminals=int(rng.integers(1, graph.n + 1)))
        sides = [tuple(rng.permutation(graph.n)[: int(rng.integers(1, graph.n + 1))].tolist()) for _ in range(2)]
        options = replace(SEARCH, sources=sides[0], targets=sides[1])
        expected, _ = solve(graph, options)
        found, outcome = solve(graph, replace(options, algorithm=algorithm))
        assert outcome.plan.algorithm == algorithm
        np.testing.assert_array_equal(found == 0, expected == 0)
        np.testing.assert_allclose(found, expected, rtol=(graph.n + 1) * 2.0**-52)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("algorithm", JOINED)
def test_products_that_no_rounding_changes_are_those_of_searches(algorithm: str, directed: bool):
    graph = lattice(23, directed=directed, kind="powers of two")
    np.testing.assert_array_equal(solve(graph, replace(SEARCH, algorithm=algorithm))[0], solve(graph, SEARCH)[0])


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("algorithm", JOINED)
def test_a_row_does_not_depend_on_how_it_is_asked_for(algorithm: str, directed: bool):
    graph = lattice(29, directed=directed)
    options = replace(SEARCH, algorithm=algorithm)
    whole, _ = solve(graph, options)
    rng = np.random.default_rng(1)
    for threads, rows, columns in ((2, 841, 841), (1, 1, 841), (2, 30, 7), (2, 200, 841), (1, 50, 1)):
        sources, targets = rng.permutation(841)[:rows], rng.permutation(841)[:columns]
        asked = replace(options, threads=threads, sources=tuple(sources.tolist()), targets=tuple(targets.tolist()))
        np.testing.assert_array_equal(solve(graph, asked)[0], whole[np.ix_(sources, targets)])
    if not directed and algorithm == "floyd-warshall":
        np.testing.assert_array_equal(whole, whole.T)


def test_large_parts_are_computed_as_small_ones(monkeypatch: pytest.MonkeyPatch):
    """Parts above a size are computed by calls of the backend, all others in compiled code."""
    for directed in (True, False):
        graph = lattice(20, directed=directed)
        small, _ = solve(graph, replace(SEARCH, algorithm="partitioned"))
        with monkeypatch.context() as patched:
            patched.setattr("engine.algorithms.elimination.PART_SIDE", 0)
            large, _ = solve(graph, replace(SEARCH, algorithm="partitioned"))
        np.testing.assert_array_equal(large, small)
