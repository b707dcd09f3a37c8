"""Tests distances from many sources to many targets: requests that users of other libraries have made."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.graphs import grid, random
from engine.api.solve import make_plan, solve
from engine.devices.cpu.arcs import prepare
from engine.graph.analysis import describe
from engine.graph.selection import Rectangle
from engine.graph.transpose import reverse
from engine.model.backend import Arcs
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Machine, Options
from engine.model.rows import ArraySink
from engine.planning.planner import choose
from storage.errors import InvalidRequest
from storage.graph.graph import Graph, build_graph


def answer(graph: Graph, **asked: object) -> np.ndarray:
    options = Options(threads=2, **asked)  # type: ignore[arg-type]
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, sink)
    return sink.array


def test_only_the_rectangle_is_ever_held() -> None:
    """rustworkx #1118, cuGraph #529: some sources and some targets, without n columns in between."""
    problem = describe(random(4_000), rows=50, targets=60)
    box = Machine(2, 2**40, 0, None, dict.fromkeys(WORK_TYPES, 1e10), 1e8, 1e9)
    small = choose(problem, box, Options(algorithm="dijkstra"), store=1)
    whole = choose(describe(random(4_000)), box, Options(algorithm="dijkstra"), store=1)
    assert small.shape == (50, 60)
    assert whole.memory - small.memory > 2**20


def test_order_is_kept_and_a_vertex_may_be_on_both_sides() -> None:
    """NetworKit #525: some sources, some targets, in the order given."""
    graph = grid(400)
    whole = answer(graph)
    sources, targets = (399, 3, 17, 0), (17, 200, 399)
    np.testing.assert_array_equal(answer(graph, sources=sources, targets=targets), whole[np.ix_(sources, targets)])


@pytest.mark.parametrize("side", ["sources", "targets"])
def test_one_vertex_named_twice_is_refused_by_its_label(side: str) -> None:
    graph, _ = build_graph([0, 1], [1, 2], [1, 1], labels=["a", "b", "c"], directed=True)
    with pytest.raises(InvalidRequest, match=f"{side} names vertex b twice"):
        make_plan(graph, Options(**{side: (1, 1)}))


def test_fewer_targets_than_sources_are_searched_from_their_side() -> None:
    """cuGraph #806: many to few must not cost one search a source."""
    graph, _ = build_graph(
        *np.random.default_rng(3).integers(0, 300, (2, 900)), np.arange(1, 901), n=300, directed=True
    )
    options = Options(algorithm="dijkstra", targets=(7, 250))
    plan = make_plan(graph, options)
    assert plan.from_targets
    assert "searching from the targets" in plan.reason
    assert not make_plan(graph, Options(algorithm="dijkstra", sources=(1,), targets=(7, 250))).from_targets
    np.testing.assert_array_equal(answer(graph, targets=(7, 250)), answer(graph)[:, [7, 250]])


def test_arcs_reversed_twice_are_as_before() -> None:
    graph = random(50, 100)
    arcs = Arcs(graph.indptr, graph.heads, np.arange(graph.arcs), np.arange(50.0))
    again = reverse(reverse(arcs))
    for name in ("indptr", "heads", "weights", "potentials"):
        np.testing.assert_array_equal(getattr(again, name), getattr(arcs, name))


def test_a_target_that_nothing_reaches_is_unreachable_and_no_error() -> None:
    """NetworKit #994."""
    graph, _ = build_graph([0, 1], [1, 2], [1, 1], n=5, directed=True)
    for asked in ({"sources": (0,), "targets": (4, 2)}, {"targets": (4,)}, {"sources": (4, 0), "targets": (4, 3, 2)}):
        whole = answer(graph, algorithm="dijkstra")
        rows, columns = asked.get("sources", range(5)), asked["targets"]
        np.testing.assert_array_equal(answer(graph, algorithm="dijkstra", **asked), whole[np.ix_(rows, columns)])


def test_a_cutoff_ends_the_search_instead_of_filtering_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuGraph #843: labels beyond the cutoff are never made, so narrow types do where whole distances are large."""
    graph, _ = build_graph(np.arange(3_000), np.arange(1, 3_001), np.full(3_000, 1_000_000), directed=True)
    plan = make_plan(graph, Options(cutoff=3))
    assert plan.dtype == "uint16"
    found = answer(graph, cutoff=2_000_000, sources=(5,))
    assert (found[0] != 2**30 - 1).sum() == 3


def test_the_prepared_graph_is_shared_by_all_batches() -> None:
    """cuGraph #1464: sources in one call, not one call a source."""
    graph = random(300)
    arcs = Arcs(graph.indptr, graph.heads, graph.weights)
    assert prepare(arcs) is prepare(arcs)
    assert Rectangle.of(Options(sources=(4, 2)), 300).rows.tolist() == [4, 2]
