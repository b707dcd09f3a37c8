"""Which algorithm finds products, and that it follows from the graph and the number of sources only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.planning import make_plan
from engine.api.semirings.by_parts import holds_products
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from storage.errors import Cancelled, InvalidRequest
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.unit.engine.algorithms.semirings.test_parts import lattice
from tests.unit.engine.streaming.test_checkpoint import StopAfter, eager  # noqa: F401 - a fixture

PRODUCTS = Options(semiring="max-times", threads=1)


def dense(n: int) -> Graph:
    tails, heads = np.nonzero(~np.eye(n, dtype=np.bool_))
    weights = np.random.default_rng(0).uniform(0.1, 1, len(tails))
    return build_graph(tails, heads, weights, n=n, directed=True, parallel="greatest")[0]


def chain(weight: float, n: int = 2000) -> Graph:
    tails, heads = np.arange(n - 1), np.arange(1, n)
    return build_graph(tails, heads, np.full(len(tails), weight), n=n, directed=True, parallel="greatest")[0]


def test_graphs_like_roads_have_parts_dense_ones_are_closed_and_small_ones_are_searched():
    assert make_plan(lattice(60, directed=True), PRODUCTS).algorithm == "partitioned"
    assert make_plan(lattice(60, directed=False), PRODUCTS).algorithm == "partitioned"
    assert make_plan(dense(600), PRODUCTS).algorithm == "floyd-warshall"
    assert make_plan(lattice(60, directed=True), replace(PRODUCTS, sources=(5,))).algorithm == "product-search"
    assert make_plan(lattice(9, directed=True), PRODUCTS).algorithm == "product-search"
    assert make_plan(dense(40), PRODUCTS).algorithm == "product-search"
    rng = np.random.default_rng(2)
    tails, heads = rng.integers(0, 3000, (2, 12000))
    spread = build_graph(tails, heads, rng.uniform(0.1, 1, 12000), n=3000, directed=True, parallel="greatest")[0]
    assert make_plan(spread, PRODUCTS).algorithm == "product-search"


def test_algorithms_are_asked_for_by_the_names_of_those_of_distances():
    graph = lattice(20, directed=True)
    for asked, algorithm in (
        ("dijkstra", "product-search"), ("partitioned", "partitioned"), ("recursive-floyd-warshall", "floyd-warshall"),
    ):  # fmt: skip
        assert make_plan(graph, replace(PRODUCTS, algorithm=asked)).algorithm == algorithm
    with pytest.raises(InvalidRequest, match="algorithm bfs cannot be used: semiring max-times of this graph is"):
        make_plan(graph, replace(PRODUCTS, algorithm="bfs"))


def test_the_choice_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda _groups: 64)
    for graph in (lattice(40, directed=True), lattice(60, directed=False), dense(300), dense(600)):
        assert len({make_plan(graph, replace(PRODUCTS, threads=threads)).algorithm for threads in (1, 2, 64)}) == 1


def test_parts_that_do_not_fit_in_memory_are_given_up_unless_asked_for():
    graph = lattice(200, directed=True)
    plan = make_plan(graph, replace(PRODUCTS, sources=tuple(range(2000))))
    least = make_plan(graph, replace(PRODUCTS, sources=tuple(range(2000)), algorithm="product-search")).memory
    assert plan.algorithm == "partitioned"
    assert plan.memory > least + 2**24
    short = replace(PRODUCTS, sources=tuple(range(2000)), memory=(least + plan.memory) // 2)
    assert make_plan(graph, short).algorithm == "product-search"


def test_products_that_may_be_too_small_are_searched():
    assert holds_products(chain(0.71))  # 0.71 ** 1999 is 4e-298
    assert not holds_products(chain(0.71, 2100))
    assert holds_products(chain(0.5, 1022))  # 2 ** -1021
    assert not holds_products(chain(0.5, 1023))
    assert holds_products(chain(1.0))
    assert not holds_products(build_graph([0], [1], [1e-310], n=2, directed=True, parallel="greatest")[0])
    low = lattice(60, directed=True)
    low = replace(low, weights=low.weights**60)
    assert make_plan(low, PRODUCTS).algorithm == "product-search"
    for algorithm in ("partitioned", "floyd-warshall"):
        with pytest.raises(InvalidRequest, match=f"algorithm {algorithm} cannot be used: products may be smaller"):
            make_plan(low, replace(PRODUCTS, algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["product-search", "partitioned", "floyd-warshall"])
def test_a_stopped_solve_goes_on_by_the_algorithm_that_began_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eager: None,  # noqa: F811
    algorithm: str,
):
    monkeypatch.setattr("engine.api.semirings.planning.batch_rows", lambda *_, **__: 1)
    monkeypatch.setattr("engine.planning.cost_partitioned.batch_rows", lambda *_, **__: 64)
    graph = lattice(30, directed=True)
    options = replace(PRODUCTS, algorithm=algorithm)
    solve_to_store(graph, options, tmp_path / "whole")
    with pytest.raises(Cancelled):
        solve_to_store(graph, options, tmp_path / "s", monitor=StopAfter(400))
    found = find_checkpoint(tmp_path / "s")
    assert found is not None
    assert 64 <= found.record["rows"] < 900
    outcome = solve_to_store(graph, PRODUCTS, tmp_path / "s", resume=True)
    assert outcome.plan.algorithm == algorithm
    with (
        open_matrix(tmp_path / "s", semiring="max-times") as a,
        open_matrix(tmp_path / "whole", semiring="max-times") as b,
    ):
        np.testing.assert_array_equal(a.rows(a.sources), b.rows(b.sources))
        assert a.summary == b.summary
