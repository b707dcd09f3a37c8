"""Values of paths, and routes of stores whose products were multiplied over parts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.prepared_matrix import open_result
from engine.api.routes import Router, rounding
from engine.api.semirings import routes
from engine.api.semirings.routes import path_value, path_values
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from tests.unit.engine.algorithms.semirings.test_parts import lattice


def test_values_of_beginnings_of_paths():
    assert path_values("max-min", [3, 5, 2]) == [math.inf, 3, 3, 2]
    assert path_values("min-max", [3, 5, 2]) == [-math.inf, 3, 5, 5]
    assert path_values("max-times", [0.5, 0.5]) == [1, 0.5, 0.25]
    assert path_values("lor-land", [7, 8]) == [1, 1, 1]
    assert path_value("min-max", []) == -math.inf


@pytest.mark.parametrize("algorithm", ["partitioned", "floyd-warshall"])
@pytest.mark.parametrize("asked", ["whole rows", "some columns", "terminals", "no tolerance"])
def test_routes_have_the_stored_product_but_for_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, asked: str
):
    graph = lattice(18, directed=True)
    if asked == "terminals":
        graph = replace(graph, terminals=3)
    if asked == "no tolerance":  # a new search finds what the row does not
        monkeypatch.setattr(routes, "_LOOSE", ())
    targets = tuple(range(0, 324, 5)) if asked == "some columns" else None
    options = Options(semiring="max-times", algorithm=algorithm, targets=targets)
    solve_to_store(graph, options, tmp_path / "s")
    weights = {
        (u, int(graph.heads[e])): graph.weights[e]
        for u in range(graph.n)
        for e in range(graph.indptr[u], graph.indptr[u + 1])
    }
    with open_result(tmp_path / "s", semiring="max-times") as matrix:
        router = Router(matrix)
        for source, target in itertools.product(range(0, 324, 41), range(0, 324, 35)):
            stored = matrix.entries([source], [target])[0]
            route = router.route(source, target)
            assert route is not None
            assert (route.vertices[0], route.vertices[-1]) == (source, target)
            assert route.weights == [weights[pair] for pair in itertools.pairwise(route.vertices)]
            assert route.length == path_value("max-times", route.weights)
            assert abs(route.length - stored) <= rounding(len(route.weights), stored, "float64")
            if asked == "terminals":
                assert min(route.vertices[1:-1], default=324) >= 3
