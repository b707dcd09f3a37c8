"""Tests that every semiring agrees with a Floyd-Warshall in NumPy, that its routes have the stored values, and that its
rows pass the verification.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.in_memory import solve
from engine.api.prepared_matrix import open_result
from engine.api.routes import Router
from engine.api.semirings.routes import path_value
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.readers import read_graph
from storage.semirings import needed_parallel
from tests.reference_options import graph_file, read_arguments, references
from tests.semirings import OTHERS, Arcs, assert_values


@pytest.mark.parametrize("semiring", OTHERS)
def test_values_of_random_graphs(semiring: str):
    rng = np.random.default_rng(7)
    for _ in range(100):
        arcs = Arcs.random(rng, semiring)
        values, outcome = solve(arcs.graph(semiring), Options(semiring=semiring, threads=1))
        expected = arcs.values(semiring)
        assert_values(values, expected, semiring)
        others = ~np.eye(arcs.n, dtype=np.bool_)
        lost = values == (np.inf if semiring == "min-max" else -np.inf if semiring == "max-min" else 0)
        assert outcome.summary["pairs"] == arcs.n * (arcs.n - 1)
        assert outcome.summary["reached"] == int((others & ~lost).sum())
        if outcome.summary["reached"] and semiring != "lor-land":
            reached = values[others & ~lost]
            assert [outcome.summary[name] for name in ("least", "greatest")] == [reached.min(), reached.max()]


@pytest.mark.parametrize("semiring", OTHERS)
def test_values_of_random_graphs_with_terminals(semiring: str):
    rng = np.random.default_rng(19)
    for _ in range(60):
        arcs = Arcs.random(rng, semiring)
        terminals = int(rng.integers(1, arcs.n + 1))
        values, _ = solve(replace(arcs.graph(semiring), terminals=terminals), Options(semiring=semiring, threads=1))
        assert_values(values, arcs.values_past(semiring, terminals), semiring)


@pytest.mark.parametrize("semiring", OTHERS)
@pytest.mark.parametrize("degree", [0.7, 2, 6, 150])
def test_values_of_larger_directed_graphs(semiring: str, degree: float):
    rng = np.random.default_rng(17)
    for n, ranks in ((70, 1), (200, 3), (130, 20), (150, 10**6)):
        tails, heads = rng.integers(0, n, (2, int(degree * n)))
        weights = rng.integers(0, ranks, len(tails)) / ranks / 2 + 0.5
        arcs = Arcs(n, tails, heads, weights, directed=True)
        values, outcome = solve(arcs.graph(semiring), Options(semiring=semiring, threads=2))
        assert_values(values, arcs.values(semiring), semiring)
        assert outcome.summary["sources"] == n


@pytest.mark.parametrize("semiring", OTHERS)
def test_some_rows_and_columns_in_any_order(semiring: str):
    rng = np.random.default_rng(3)
    for _ in range(20):
        arcs = Arcs.random(rng, semiring)
        sides = [tuple(rng.permutation(arcs.n)[: int(rng.integers(1, arcs.n + 1))].tolist()) for _ in range(2)]
        options = Options(semiring=semiring, threads=1, sources=sides[0], targets=sides[1])
        values, _ = solve(arcs.graph(semiring), options)
        assert_values(values, arcs.values(semiring)[np.ix_(*sides)], semiring)


@pytest.mark.parametrize("semiring", OTHERS)
@pytest.mark.parametrize("directed", [True, False])
def test_stores_answer_with_routes_and_are_verified(tmp_path: Path, semiring: str, directed: bool):
    rng = np.random.default_rng(11)
    tails, heads = rng.integers(0, 80, (2, 150))
    arcs = Arcs(80, tails, heads, rng.integers(1, 9, 150) / 8, directed=directed)
    graph = arcs.graph(semiring)
    solve_to_store(graph, Options(semiring=semiring), tmp_path / "s")
    assert verify_store(tmp_path / "s", "all").searched == 80
    weights = {
        (u, int(graph.heads[e])): graph.weights[e]
        for u in range(80)
        for e in range(graph.indptr[u], graph.indptr[u + 1])
    }
    with open_result(tmp_path / "s", semiring=semiring) as matrix:
        values, router = matrix.rows(matrix.sources), Router(matrix)
        assert_values(values, arcs.values(semiring), semiring)
        for source, target in itertools.product(range(0, 80, 7), range(80)):
            route = router.route(source, target)
            if route is None:
                assert values[source, target] == matrix.unreachable
                continue
            assert (route.vertices[0], route.vertices[-1]) == (source, target)
            walked = [weights[pair] for pair in itertools.pairwise(route.vertices)]
            assert route.weights == walked
            assert path_value(semiring, walked) == route.length == values[source, target]
        best = matrix.nearest(0, 5)
        key = -values[0].astype(float) if semiring != "min-max" else values[0].astype(float)
        known = [v for v in np.argsort(key, kind="stable") if v != 0 and values[0, v] != matrix.unreachable]
        assert best[0].tolist() == known[:5]


@pytest.mark.long
@pytest.mark.parametrize("name", ["rome99.gr", "celegansneural.gml", "PGPgiantcompo.graph", "SiouxFalls_net.tntp"])
@pytest.mark.parametrize("semiring", OTHERS)
def test_real_graphs(tmp_path: Path, data_dir: Path, name: str, semiring: str):
    assert name in references(data_dir)
    parallel = needed_parallel(semiring)
    graph, _ = read_graph(graph_file(name, data_dir, tmp_path), parallel=parallel, **read_arguments(name))
    if semiring == "max-times":
        graph = replace(graph, weights=np.exp(-graph.weights.astype(float) / float(graph.weights.max())))
    few = tuple(range(0, graph.n, max(1, graph.n // 40)))
    solve_to_store(graph, Options(semiring=semiring, sources=few), tmp_path / "s")
    assert verify_store(tmp_path / "s", "all").searched == len(few)
