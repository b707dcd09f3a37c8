"""A profile finds each fact once, and planning and solving with one profile share what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.api.solve import make_plan, solve
from engine.graph import profile as module
from engine.graph.partition import CPU_GRAIN, DEVICE_GRAIN
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from storage.errors import NegativeCycle
from storage.graph.graph import Graph, build_graph
from tests.unit.engine.algorithms.harness import Tally


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a profile computed what takes long."""
    counts = dict.fromkeys(("dissect", "find_potentials", "hop_radius", "hops_across", "opened"), 0)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            counts[name] += 1
            return function(*given)

        return call

    for name in counts:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return counts


def signed() -> Graph:
    """Arcs of both signs, no negative cycle."""
    graph = graphs.random(200)
    height = np.random.default_rng(9).integers(0, 200, graph.n)
    return replace(
        graph, weights=graph.weights + np.repeat(height, np.diff(graph.indptr)) - height[graph.heads], directed=True
    )


def solved(graph: Graph | GraphProfile, options: Options) -> np.ndarray:
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, sink)
    return sink.array


@pytest.mark.parametrize(("algorithm", "found"), [("partitioned", "dissect"), ("johnson", "find_potentials")])
def test_planning_and_solving_share_what_takes_long(algorithm: str, found: str, calls: dict[str, int]) -> None:
    graph, options = signed(), Options(algorithm=algorithm, device="cpu", threads=1)
    alone = solved(graph, options)
    calls[found] = 0
    assert np.array_equal(solved(GraphProfile(graph), options), alone)
    assert calls[found] == 1


def test_profiles_of_equal_graphs_share_nothing(calls: dict[str, int]) -> None:
    graph = graphs.grid(100)
    first, second = GraphProfile(graph), GraphProfile(graph)
    for profile in (first, first, second):
        assert profile.hops > 0
        assert profile.parts(CPU_GRAIN).count
        assert profile.parts(DEVICE_GRAIN).count
    assert (calls["hop_radius"], calls["dissect"]) == (2, 2)
    assert GraphProfile.of(first) is first
    assert first.arcs is first.arcs


def test_a_dissection_that_was_given_up_is_tried_again_with_more_entries_only(calls: dict[str, int]) -> None:
    profile = GraphProfile(graphs.random(400))
    assert profile.dissection(500) is None
    assert profile.dissection(400) is None
    assert calls["dissect"] == 1
    assert profile.dissection(400**2) is not None
    assert profile.dissection(500) is not None
    assert calls["dissect"] == 2


def test_reduced_weights_have_their_potentials_and_no_hops_of_one() -> None:
    graph, tally = signed(), Tally()
    reduced = GraphProfile(graph).reweighted(tally)
    assert reduced.nonnegative
    assert reduced.reduced_by is not None
    assert reduced.arcs.potentials is reduced.reduced_by
    assert tally.begun == [("potentials", graph.arcs, "arcs")]
    assert reduced.reweighted(Tally()) is reduced
    for kind in ("int32", "float64"):  # whole numbers of both signs are relaxed as they are
        relaxed = GraphProfile(graph).for_products(WORK_TYPES[kind], Monitor())
        assert relaxed.reduced_by is None
    halves = GraphProfile(replace(graph, weights=graph.weights / 2))
    assert halves.for_products(WORK_TYPES["float64"], Monitor()).nonnegative


def test_unit_weights_stop_being_unit_when_they_are_reduced() -> None:
    graph, _ = build_graph([0, 1], [1, 2], None, n=3, directed=True)
    assert GraphProfile(graph).unit
    assert not GraphProfile(graph, np.zeros(3, np.int64)).unit
    none, _ = build_graph(np.empty(0, np.int64), np.empty(0, np.int64), None, n=3, directed=True)
    assert not GraphProfile(none).unit
    assert GraphProfile(none).nonnegative


def test_a_negative_cycle_is_named_each_time() -> None:
    profile = GraphProfile(build_graph([0, 1], [1, 0], [1, -2], n=2, directed=True)[0])
    for _ in range(2):
        with pytest.raises(NegativeCycle):
            _ = profile.potentials


def test_terminals_are_opened_once(calls: dict[str, int]) -> None:
    profile = GraphProfile(replace(graphs.grid(100), terminals=3))
    asked = Rectangle(100, None, None, None)
    one, rectangle = profile.open(asked)
    assert one is profile.open(asked)[0]
    assert (one.graph.n, rectangle.n, calls["opened"]) == (103, 103, 1)
    plain = GraphProfile(graphs.grid(100))
    assert plain.open(asked) == (plain, asked)
