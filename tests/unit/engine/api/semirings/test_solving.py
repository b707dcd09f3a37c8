"""Solves of semirings that are stopped go on after their finished rows; only with the same semiring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.algorithms.semirings import solving
from engine.api.in_memory import solve
from engine.api.planning import make_plan
from engine.api.prepared_matrix import open_result
from engine.api.routes import Router
from engine.api.solve import solve_to_store
from engine.api.verify import verify_store
from engine.model.problem import Options
from storage.errors import ApspError, Cancelled, Conflict, SolveFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.stores import verify_matrix
from tests.unit.engine.streaming.test_checkpoint import StopAfter, eager  # noqa: F401 - a fixture


def sample(n: int = 700) -> Graph:
    rng = np.random.default_rng(0)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, rng.integers(1, 100, 4 * n), n=n, directed=True)[0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, eager: None) -> None:  # noqa: F811
    """Batches of 64 rows."""
    monkeypatch.setattr("engine.api.semirings.planning.batch_rows", lambda *_, **__: 1)


@pytest.mark.usefixtures("small")
def test_a_stopped_solve_goes_on(tmp_path: Path):
    graph, options = sample(), Options(semiring="min-max", threads=1)
    solve_to_store(graph, options, tmp_path / "whole")
    with pytest.raises(Cancelled):
        solve_to_store(graph, options, tmp_path / "s", monitor=StopAfter(200))
    found = find_checkpoint(tmp_path / "s")
    assert found is not None
    done = found.record["rows"]
    assert 64 <= done < 700
    for other in (Options(), Options(semiring="lor-land")):
        with pytest.raises(Conflict, match="semiring"):
            solve_to_store(graph, other, tmp_path / "s", resume=True)
    rest = StopAfter(10_000)
    solve_to_store(graph, options, tmp_path / "s", resume=True, monitor=rest)
    assert rest.searched == 700 - done
    with open_matrix(tmp_path / "s", semiring="min-max") as a, open_matrix(tmp_path / "whole", semiring="min-max") as b:
        np.testing.assert_array_equal(a.rows(a.sources), b.rows(b.sources))
        assert a.summary == b.summary
    verify_matrix(tmp_path / "s")


@pytest.mark.usefixtures("eager")
def test_a_checkpoint_of_distances_is_refused(tmp_path: Path):
    graph = sample()
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(algorithm="dijkstra", threads=1), tmp_path / "s", monitor=StopAfter(100))
    with pytest.raises(Conflict, match="checkpoint of semiring min-plus, and min-max is asked for"):
        make_plan(graph, Options(semiring="min-max"), out=tmp_path / "s", resume=True)


def test_a_product_too_small_for_its_type_is_an_error(tmp_path: Path):
    n = 40
    graph, _ = build_graph(range(n - 1), range(1, n), [1e-10] * (n - 1), n=n, directed=True, parallel="greatest")
    with pytest.raises(SolveFailed, match="every path from 0 to 31 has a product below"):
        solve_to_store(graph, Options(semiring="max-times", sources=(0,)), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_terminals_are_not_passed_through(tmp_path: Path):
    graph, _ = build_graph([1, 0, 1, 2], [0, 2, 2, 1], [9, 8, 3, 5], n=3, directed=True, parallel="greatest")
    graph = replace(graph, terminals=1)
    for semiring, scale in (("max-min", 1), ("max-times", 0.1), ("lor-land", 1)):
        scaled = graph if scale == 1 else replace(graph, weights=graph.weights * scale)
        solve_to_store(scaled, Options(semiring=semiring), tmp_path / semiring)
        with open_matrix(tmp_path / semiring, semiring=semiring) as matrix:
            rows = matrix.rows([0, 1, 2])
        assert np.diagonal(rows).tolist() == [{"max-min": np.inf}.get(semiring, 1)] * 3
        if semiring == "max-min":
            assert rows[1].tolist() == [9, np.inf, 3]  # the wider way leads through the terminal
            assert rows[0].tolist() == [np.inf, 5, 8]


@pytest.mark.parametrize("directed", [True, False])
def test_products_of_graphs_with_terminals(tmp_path: Path, directed: bool):
    """A terminal reaches its arrival by an arc of length 0, which is no factor."""
    graph, _ = build_graph([0, 2, 3, 4], [2, 3, 4, 1], [0.5] * 4, n=5, directed=directed, parallel="greatest")
    graph = replace(graph, terminals=2)
    expected = np.array([[1, 1 / 16, 1 / 2, 1 / 4, 1 / 8]])
    for sources in (None, (0,)):
        values, _ = solve(graph, Options(semiring="max-times", sources=sources, algorithm="product-search"))
        np.testing.assert_array_equal(values[:1], expected)
    solve_to_store(graph, Options(semiring="max-times"), tmp_path / "s")
    assert verify_store(tmp_path / "s", "all").searched == 5
    with open_result(tmp_path / "s", semiring="max-times") as matrix:
        route = Router(matrix).route(0, 1)
        assert route is not None
        assert (route.vertices, route.length) == ([0, 2, 3, 4, 1], 1 / 16)


def test_terminals_are_not_passed_through_where_all_arcs_weigh_the_same():
    for directed in (True, False):
        graph, _ = build_graph([1, 0, 1], [0, 2, 3], [7, 7, 7], n=5, directed=directed)
        values, outcome = solve(replace(graph, terminals=1), Options(semiring="min-max"))
        assert outcome.plan.algorithm == "components"
        back = 7 if not directed else np.inf
        assert values[0].tolist() == [-np.inf, back, 7, back, np.inf]  # one of the ends of the path is the terminal
        assert values[1].tolist() == [7, -np.inf, np.inf, 7, np.inf]  # 2 is behind the terminal
        assert values[2].tolist() == [back, np.inf, -np.inf, np.inf, np.inf]


def test_the_work_is_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(solving, "PIECE", 16)
    graph = sample(200)
    for semiring in ("min-max", "lor-land"):
        solve_to_store(graph, Options(semiring=semiring, threads=2), tmp_path / semiring)
        verify_matrix(tmp_path / semiring)


def test_an_empty_graph(tmp_path: Path):
    graph, _ = build_graph([], [], [], n=0, directed=True)
    for semiring in ("min-max", "lor-land"):
        outcome = solve_to_store(graph, Options(semiring=semiring), tmp_path / semiring)
        assert outcome.summary["reached"] == 0
    with pytest.raises(ApspError), open_matrix(tmp_path / "min-max"):
        pass
