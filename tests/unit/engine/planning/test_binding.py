"""A plan is followed for the graph and the question it was made for, and refused for any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api import bulk
from engine.api.bulk import Entry, make_bulk_plan
from engine.api.solve import make_plan, solve, solve_to_store
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.rows import NullSink
from engine.planning.binding import check_plan, fingerprint
from engine.planning.bulk import Group
from storage.errors import InvalidRequest
from storage.graph.graph import Graph, build_graph

N = 60


def sample(heaviest: int = 9, *, directed: bool = True, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, N, (2, 4 * N))
    return build_graph(tails, heads, rng.integers(1, heaviest + 1, 4 * N), n=N, directed=directed)[0]


GRAPH = sample()
OTHER_ARC = replace(GRAPH, heads=np.concatenate([GRAPH.heads[1:], GRAPH.heads[:1]]))
OTHER_WEIGHT = replace(GRAPH, weights=GRAPH.weights * 10_000)
OTHERS = {
    "another arc": OTHER_ARC,
    "another weight": OTHER_WEIGHT,
    "weights of another type": replace(GRAPH, weights=GRAPH.weights.astype(np.float64)),
    "the other direction": replace(GRAPH, directed=False),
    "a vertex more": replace(
        GRAPH, indptr=np.append(GRAPH.indptr, GRAPH.indptr[-1]), labels=np.append(GRAPH.labels, N)
    ),
    "a terminal": replace(GRAPH, terminals=1),
}
ASKED = Options(sources=(3, 4), targets=(5, 6), max_hops=7, cutoff=50.0)
ASKED_OTHERWISE = {
    "sources": replace(ASKED, sources=(4, 3)),
    "all sources": replace(ASKED, sources=None),
    "targets": replace(ASKED, targets=(5, 7)),
    "max_hops": replace(ASKED, max_hops=None),
    "cutoff": replace(ASKED, cutoff=51.0),
}


def solves(plan: Plan, graph: Graph, options: Options, path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the plan was made for") as in_memory:
        solve(graph, plan, options, NullSink(graph.n))
    with pytest.raises(InvalidRequest, match="the plan was made for") as stored:
        solve_to_store(graph, options, path, plan=plan)
    assert in_memory.value.field == stored.value.field == "plan"
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("other", OTHERS)
def test_a_plan_of_another_graph_is_refused(tmp_path: Path, other: str) -> None:
    solves(make_plan(GRAPH, Options()), OTHERS[other], Options(), tmp_path / "d.zarr")


@pytest.mark.parametrize("other", ASKED_OTHERWISE)
def test_a_plan_of_another_question_is_refused(tmp_path: Path, other: str) -> None:
    solves(make_plan(GRAPH, ASKED), GRAPH, ASKED_OTHERWISE[other], tmp_path / "d.zarr")


def test_a_plan_is_followed_for_an_equal_graph_whatever_its_labels(tmp_path: Path) -> None:
    plan = make_plan(GRAPH, ASKED)
    same = replace(sample(), labels=GRAPH.labels + 1000)
    solve_to_store(same, replace(ASKED, threads=1), tmp_path / "d.zarr", plan=plan)
    check_plan(replace(plan, task=()), OTHER_ARC, Options())  # made by hand, and bound to nothing
    assert "task" not in plan.to_dict()


def test_fingerprints_tell_all_these_apart() -> None:
    graphs = [fingerprint(graph, Options()) for graph in (GRAPH, *OTHERS.values())]
    questions = [fingerprint(GRAPH, options) for options in (ASKED, *ASKED_OTHERWISE.values(), Options())]
    assert len(set(graphs)) == len(graphs)
    assert len(set(questions)) == len(questions)


@pytest.mark.parametrize("way", ["beside", "stacked"])
def test_plans_of_a_bulk_are_of_its_graphs(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that pass the planned type would come out wrong without a word."""
    planned = make_bulk_plan({0: GRAPH, 1: sample(seed=1)}, Options(), stores=False)
    entries = {0: Entry(OTHER_WEIGHT), 1: Entry(sample(seed=1))}
    if way == "beside":
        results = {result.index: result for result in bulk.run(entries, planned, Options())}
        assert results[0].failure is not None
        assert "another graph" in results[0].failure.message
        assert results[1].failure is None
        return
    group = replace(planned.groups[0], way="stacked", members=(0, 1), launch=2)
    closed: list[object] = []
    monkeypatch.setattr(bulk, "_closed", lambda *words: closed.append(words))
    monkeypatch.setattr("engine.devices.cuda.bulk.device_stacks", _NoDevice)
    found = list(bulk._stacked(group, entries, planned, Options(device="cuda"), {}))
    assert not closed
    assert isinstance(group, Group)
    assert all("another graph" in result.failure.message for result in found)


class _NoDevice:
    """Stands for a GPU that is never asked to close anything."""

    def __init__(self, **_: object) -> None:
        pass

    def __enter__(self) -> _NoDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass
