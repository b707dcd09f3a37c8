"""Betweenness: what is refused, what a plan says, tables, terminals, and ties of decimals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars
import pytest

from engine.api.betweenness import passage
from engine.api.betweenness import small as small_run
from engine.api.betweenness.centrality import Centrality, betweenness
from engine.model.problem import Options
from storage.errors import DoesNotFit, InvalidRequest
from storage.graph.graph import build_graph


def path(n=5, weights=None, **kind):
    return build_graph(np.arange(n - 1), np.arange(1, n), weights, n=n, **({"directed": False} | kind))[0]


@pytest.mark.parametrize(
    ("asked", "kind", "field", "message"),
    [
        ({"cutoff": 3}, {}, "cutoff", "cutoff cannot be given"),
        ({"algorithm": "johnson"}, {}, "algorithm", "algorithm cannot be given"),
        ({"executor": "dask"}, {}, "executor", "executor cannot be given"),
        ({"max_hops": 3}, {}, "max_hops", "max_hops cannot be given"),
        ({"sources": (5,)}, {}, "sources", "from 0 to 4"),
        ({"targets": (1, 1)}, {}, "targets", "vertex 1 twice"),
        ({"threads": 10**6}, {}, "threads", "1000000"),
        ({}, {"arcs": True, "endpoints": True}, "of", "arcs were asked for"),
    ],
)
def test_requests_without_an_answer_are_refused(asked, kind, field, message):
    with pytest.raises(InvalidRequest, match=message) as refused:
        betweenness(path(), Options(**asked), **kind)
    assert refused.value.field == field


def test_weights_without_a_count_of_paths_are_refused_with_the_names_of_an_arc():
    with pytest.raises(InvalidRequest, match="the arc from 1 to 2 weighs -1"):
        betweenness(build_graph([0, 1], [1, 2], [3, -1], n=3, directed=True)[0])
    with pytest.raises(InvalidRequest, match="the edge between 1 and 2 weighs 0"):
        betweenness(path(weights=[1, 0, 1, 1]))
    arcs = [0, 1, 2, 3], [1, 2, 3, 1]
    with pytest.raises(InvalidRequest, match="the arc from 1 to 2 weighs 0 and lies on a cycle"):
        betweenness(build_graph(*arcs, [5, 0, 0, 0], n=4, directed=True)[0])
    found = betweenness(build_graph(*arcs, [5, 0, 0, 1], n=4, directed=True)[0], normalized=False)
    assert found.values.tolist() == [0, 3, 2, 1]  # 0-3 and 1-3 pass 2; 2-1 passes 3
    with pytest.raises(InvalidRequest, match="too large for their type"):
        betweenness(_huge())


def _huge():
    tails = np.arange(600)
    return build_graph(tails, tails + 1, np.full(600, 2**53), n=601, directed=True)[0]


def test_a_plan_tells_search_memory_and_seconds_and_too_little_memory_is_refused(monkeypatch):
    plan = Centrality(path(), Options(threads=1)).make_plan()
    assert (plan.sources, plan.threads, plan.tried) == (5, 1, 0)
    assert plan.search.startswith("breadth first")
    assert "exact" in Centrality(path(weights=[1, 2, 3, 4])).make_plan().search
    assert "multiples of 0.1" in Centrality(path(weights=[0.1, 0.2, 0.3, 0.4])).make_plan().search
    assert "float64" in Centrality(path(weights=np.random.default_rng(1).random(4))).make_plan().search
    monkeypatch.setattr(passage, "LITTLE", 0)
    monkeypatch.setattr(small_run, "SIZE", 0)
    tried = Centrality(path(300)).make_plan()
    assert tried.tried > 0
    assert tried.seconds > 0
    with pytest.raises(DoesNotFit, match=r"with 1 thread, .*give it more memory") as refused:
        betweenness(path(), Options(memory=10**6))
    assert refused.value.needed > refused.value.available == 10**6


def test_a_trial_takes_sources_together_as_the_searches_do(monkeypatch):
    monkeypatch.setattr(passage, "LITTLE", 0)
    monkeypatch.setattr(small_run, "SIZE", 0)
    rng = np.random.default_rng(4)
    tails, heads = rng.integers(0, 500, 3000), rng.integers(0, 1500, 3000)
    graph = build_graph(tails, heads, None, n=1500, directed=True)[0]
    assert Centrality(graph, Options(threads=1)).make_plan().tried == 64
    assert Centrality(graph, Options(threads=1, sources=tuple(range(20)))).make_plan().tried == 16
    asked = Centrality(graph, Options(threads=1), normalized=False)
    asked.make_plan()
    right = Centrality(graph, Options(threads=1), normalized=False).run().values
    np.testing.assert_allclose(asked.run().values, right, rtol=1e-12)


def test_searches_that_visit_little_need_no_trial_and_are_predicted_by_what_they_visit():
    n = 12_000  # small components: all vertices and arcs times all sources are more than a trial needs
    tails = np.arange(n)
    graph = build_graph(tails, tails // 6 * 6 + (tails + 1) % 6, None, n=n, directed=True)[0]
    assert n * (n + graph.arcs) > 2 * passage.LITTLE
    plan = Centrality(graph, Options(threads=1)).make_plan()
    assert plan.tried == 0
    assert plan.seconds < 0.01
    found = betweenness(graph, Options(threads=1), normalized=False).values
    assert np.array_equal(found, np.full(n, 10.0))  # on a ring of six, each passes what is not its own


@pytest.mark.parametrize(("long", "runs"), [(1e9, 1), (0.0, 2)])
def test_a_trial_is_repeated_only_if_it_predicts_long_searches(long, runs, monkeypatch):
    monkeypatch.setattr(passage, "LITTLE", 0)
    monkeypatch.setattr(small_run, "SIZE", 0)
    monkeypatch.setattr(passage, "LONG", long)
    ran, run = [], passage.PassingSearches.run
    monkeypatch.setattr(passage.PassingSearches, "run", lambda *given: ran.append(1) or run(*given))
    plan = Centrality(path(300), Options(threads=1, device="cpu")).make_plan()
    assert (len(ran), plan.tried) == (runs, 64)
    assert plan.seconds > 0


def test_little_memory_makes_searches_one_after_the_other():
    ring = np.arange(20_000)
    graph = build_graph(ring, np.roll(ring, 1), None, directed=False)[0]
    asked = Centrality(graph, Options(threads=1, sources=tuple(range(64))))
    need = asked.make_plan().memory
    less = Centrality(graph, Options(threads=1, sources=tuple(range(64)), memory=need - (20 << 20)))
    assert less.make_plan().memory < need - (30 << 20)
    np.testing.assert_allclose(asked.run().values, less.run().values, rtol=1e-12)


def test_fewer_threads_search_where_memory_is_short_for_all(monkeypatch):
    ring, few = np.arange(20_000), tuple(range(64))
    graph = build_graph(ring, np.roll(ring, 1), None, directed=False)[0]
    one = Centrality(graph, Options(threads=1, sources=few)).make_plan()
    monkeypatch.setattr("engine.execution.survey.usable_processors", lambda _groups: 64)
    asked = Centrality(graph, Options(sources=few, memory=one.memory + (8 << 20)))
    plan = asked.make_plan()
    assert 1 < plan.threads < 64
    assert plan.memory <= one.memory + (8 << 20)
    right = Centrality(graph, Options(threads=1, sources=few)).run().values
    np.testing.assert_allclose(asked.run().values, right, rtol=1e-12)


def test_decimals_are_equally_long_where_they_are_on_paper():
    arcs = [0, 1, 0, 2], [1, 3, 2, 3]
    tie = build_graph(*arcs, [0.1, 0.2, 0.15, 0.15], n=4, directed=True)[0]
    assert betweenness(tie, normalized=False).values.tolist() == [0, 0.5, 0.5, 0]
    assert 0.1 + 0.2 != 0.15 + 0.15
    as_floats = Centrality(tie, normalized=False, decimal=False).run()
    assert as_floats.values.tolist() == [0, 0, 1, 0]


def test_no_path_passes_through_a_terminal():
    # a square; 0 and 1 are zones: 0 - 1 - 2 would be short, 0 - 3 - 2 is what is left, as is 1 - 2 - 3
    ends = [0, 1, 1, 2, 0, 3, 3, 2], [1, 0, 2, 1, 3, 0, 2, 3]
    graph = build_graph(*ends, [1, 1, 1, 1, 5, 5, 5, 5], n=4, directed=True)[0]
    assert betweenness(graph, normalized=False).values.tolist() == [1, 2, 1, 0]
    closed = replace(graph, terminals=2)
    found = betweenness(closed, normalized=False)
    assert found.values.tolist() == [0, 0, 2, 2]  # 1-2-3 and back, 0-3-2 and back
    arcs = betweenness(closed, arcs=True, normalized=False)
    assert dict(zip(zip(arcs.tails.tolist(), arcs.heads.tolist(), strict=True), arcs.values.tolist(), strict=True)) == {
        (0, 1): 1, (0, 3): 2, (1, 0): 1, (1, 2): 2, (2, 1): 2, (2, 3): 3, (3, 0): 2, (3, 2): 3,
    }  # fmt: skip
    whole = betweenness(closed, normalized=False, endpoints=True)
    assert whole.values.tolist() == [6, 6, 8, 8]  # each is an end of six ordered pairs


def test_tables_name_vertices_and_both_ends_of_arcs(tmp_path):
    graph = build_graph([0, 1], [1, 2], None, labels=np.array(["x", "y", "z"], np.dtypes.StringDType()),
                        directed=False)[0]  # fmt: skip
    assert betweenness(graph).to_polars().to_dicts() == [
        {"vertex": "x", "betweenness": 0.0}, {"vertex": "y", "betweenness": 1.0}, {"vertex": "z", "betweenness": 0.0},
    ]  # fmt: skip
    betweenness(graph, arcs=True, normalized=False).write(tmp_path / "edges.csv")
    assert (tmp_path / "edges.csv").read_text() == "source,target,betweenness\nx,y,2.0\ny,z,2.0\n"
    betweenness(graph).write(tmp_path / "table.parquet")
    assert polars.read_parquet(tmp_path / "table.parquet")["vertex"].to_list() == ["x", "y", "z"]


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_and_empty_graphs_have_no_betweenness(n):
    empty = build_graph([], [], None, n=n, directed=True)[0]
    for kind in ({}, {"normalized": False}, {"endpoints": True}, {"arcs": True}):
        assert not betweenness(empty, **kind).values.any()
    assert betweenness(path(2), endpoints=True).values.tolist() == [1, 1]


def test_counts_beyond_two_to_the_53_are_close():
    side = 40  # the corner has C(78, 39), about 2.7e22 shortest paths
    place = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([place[:-1].ravel(), place[:, :-1].ravel()])
    heads = np.concatenate([place[1:].ravel(), place[:, 1:].ravel()])
    graph = build_graph(tails, heads, None, n=side * side, directed=True)[0]
    found = betweenness(graph, Options(sources=(0,), targets=(side * side - 1,)), normalized=False).values
    np.testing.assert_allclose(found.reshape(side, side), found.reshape(side, side).T, rtol=1e-12)
    diagonals = [np.fliplr(found.reshape(side, side)).trace(k) for k in range(-side + 2, side - 1)]
    np.testing.assert_allclose(diagonals, 1.0, rtol=1e-12)  # every path passes each diagonal once
