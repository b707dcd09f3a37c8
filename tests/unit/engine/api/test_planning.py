"""One function plans for this process and for workers: both see the same graph, store and checkpoint."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.api import planning
from engine.api.planning import make_plan
from engine.distributed import planning as workers_planning
from engine.distributed.messages import WorkerInfo
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Options, Problem
from storage.errors import InvalidRequest, NegativeCycle
from storage.graph.graph import build_graph

RATES = dict.fromkeys(WORK_TYPES, 4e10)
DASK = Options(executor="dask", scheduler="toy")


@pytest.fixture(params=[Options(device="cpu"), DASK], ids=["local", "dask"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Options of a solve here, and of one over two workers of three threads."""
    worker = WorkerInfo("", "cpu", "a core", "node", 1, 3, 2**33, RATES)
    monkeypatch.setattr(workers_planning, "Cluster", lambda _: nullcontext())
    monkeypatch.setattr(workers_planning, "gather", lambda *_: {"one": worker, "two": replace(worker, process=2)})
    return request.param


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Problem, Machine, int]]:
    """What the planner was asked to choose for."""
    made, choose = [], planning.choose

    def remember(problem: Problem, machine: Machine, options: Options, **more: Any) -> Plan:
        made.append((problem, machine, more["store"]))
        return choose(problem, machine, options, **more)

    monkeypatch.setattr(planning, "choose", remember)
    return made


def test_plans_have_the_threads_of_those_who_solve(options: Options) -> None:
    plan = make_plan(graphs.grid(100), replace(options, threads=None if options is DASK else 1))
    assert (plan.workers, plan.threads) == ((2, 3) if options.executor == "dask" else (0, 1))
    assert plan.statistics is not None
    assert plan.statistics.vertices == 100


def test_the_bytes_of_a_checkpoint_count_as_free(
    options: Options, choices: list[tuple[Problem, Machine, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new store replaces them, whoever solves."""
    graph, out = graphs.grid(100), tmp_path / "d.zarr"
    monkeypatch.setattr("engine.execution.survey.shutil.disk_usage", lambda _: SimpleNamespace(free=2**30))
    make_plan(graph, options, out=out)
    monkeypatch.setattr(planning, "resumable", lambda *_, **__: SimpleNamespace(bytes=2**20, record={}))
    monkeypatch.setattr(planning, "bound_to", lambda _, options: options)
    make_plan(graph, options, out=out, resume=True)
    disks = [machine.disk for _, machine, _ in choices]
    assert set(disks) == {2**30, 2**30 + 2**20}
    assert disks[-1] == 2**30 + 2**20
    assert len({store for _, _, store in choices}) == 1


def test_both_refuse_a_negative_cycle_and_sources_that_are_none(options: Options) -> None:
    cycle, _ = build_graph([0, 1], [1, 0], [1, -2], n=2, directed=True)
    with pytest.raises(NegativeCycle):
        make_plan(cycle, options)
    with pytest.raises(InvalidRequest, match="sources"):
        make_plan(graphs.grid(100), replace(options, sources=(100,)))


def test_workers_know_no_terminals() -> None:
    with pytest.raises(InvalidRequest, match="no path may pass through"):
        make_plan(replace(graphs.grid(100), terminals=3), DASK)


def test_parts_are_not_looked_for_where_another_algorithm_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial partition decides nothing then, and on a large random graph it takes longer than the solve."""
    tails, heads = np.random.default_rng(0).integers(0, 500, (2, 2000))
    graph, _ = build_graph(tails, heads, tails % 9 + 1, n=500, directed=True)
    monkeypatch.setattr(planning, "with_trial", lambda *_: pytest.fail("a trial partition was made"))
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", device="cpu"))
    assert plan.statistics is not None
    assert plan.statistics.no_parts == "blocked-floyd-warshall was asked for"
