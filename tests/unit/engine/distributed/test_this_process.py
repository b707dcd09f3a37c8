"""Tables that pass through files, span by span, in one process: the same files, whatever stops it, and who goes on."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api import prepared_planning
from engine.api.from_tables.compacting import prepare_compact
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.api.prepared_planning import plan_prepared
from engine.api.solve import Outcome
from engine.distributed import sessions
from engine.distributed.prepared import driver, planning, run
from engine.distributed.prepared.worker import PreparedWorker
from engine.distributed.this_process import SELF, ThisProcess
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.system import resident_bytes
from engine.planning.constants import RESIDENT_SPREAD
from engine.streaming import part_journal
from storage.errors import Cancelled, DoesNotFit, SolveFailed, StorageFailed
from storage.graph.graph import Graph
from storage.prepared import writer
from tests.property.test_prepared import KINDS, random_graph
from tests.spreading import ToyCluster
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import arcs_of
from tests.unit.engine.distributed.prepared.test_driver import Until, by_workers, local, spoil_files, whole


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many spans, tasks of few of them, and chunks of few entries, so that small graphs have all of it."""
    monkeypatch.setattr(planning, "LEAST_UPDATES", 1)
    monkeypatch.setattr(driver, "TASK_UPDATES", 2000)
    monkeypatch.setattr(writer, "TABLE_CHUNK", 64)


def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables at once never fit."""
    estimate = prepared_planning.estimate_prepared
    monkeypatch.setattr(
        prepared_planning, "estimate_prepared", lambda *given, **more: replace(estimate(*given, **more), memory=2**50)
    )


def in_files(
    graph: Graph, path: Path, *, compact: bool = False, options: Options | None = None, **more: Any
) -> Outcome:
    """Prepare span by span in this process."""
    profile, options = GraphProfile(graph), options or Options()
    plan = replace(plan_prepared(profile, options, compact=compact), tier="store")
    return (prepare_compact if compact else prepare)(profile, path, options, plan=plan, **more)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 60), marks=pytest.mark.long)])
def test_the_files_are_those_of_tables_in_memory(kind: str, seeds: range, compact: bool, tmp_path: Path) -> None:
    for seed in seeds:
        graph, path = random_graph(kind, seed), tmp_path / "files"
        want = local(graph, tmp_path / "local", compact=compact)
        outcome = in_files(graph, path, compact=compact)
        assert "workers" not in outcome.summary
        assert outcome.summary["spans"] >= 1  # type: ignore[operator]
        assert whole(path) == want
        assert sorted(each.name for each in tmp_path.iterdir()) == ["files", "local"]
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "local")


@pytest.mark.parametrize("form", [{"dtype": "float32"}, {"dtype": "float64"}, {"cutoff": 30.0}, {"threads": 1}])
@pytest.mark.parametrize("kept", [0, 3000])
def test_with_every_form_and_whatever_is_kept(
    form: dict[str, Any], kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "KEPT", kept)
    monkeypatch.setattr("engine.algorithms.elimination.PART_UPDATES", 500)
    for directed in (True, False):
        graph, options = grid_graph(9, directed=directed), Options(**form)
        want = local(graph, tmp_path / f"local{directed}", options=options)
        in_files(graph, tmp_path / f"{directed}", options=options)
        assert whole(tmp_path / f"{directed}") == want


@pytest.mark.parametrize("share", [0.6])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("first", ["memory", "files", "workers"])
@pytest.mark.parametrize("then", ["memory", "files", "workers"])
def test_a_stopped_run_is_gone_on_with_whatever_the_budget_is_then(
    first: str, then: str, share: float, compact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory, or the machines, may be others halfway."""
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    graph, path = grid_graph(11), tmp_path / "p"
    want = local(graph, tmp_path / "local", compact=compact)

    def make(how: str, **more: Any) -> Outcome:
        if how == "workers":
            return by_workers(ToyCluster(2), graph, path, monkeypatch, compact=compact, **more)
        if how == "files":
            return in_files(graph, path, compact=compact, **more)
        return (prepare_compact if compact else prepare)(graph, path, **more)

    with pytest.raises(Cancelled):
        make(first, monitor=Until(share))
    monkeypatch.undo()
    monkeypatch.setattr(planning, "LEAST_UPDATES", 1)
    monkeypatch.setattr(writer, "TABLE_CHUNK", 64)
    outcome = make(then)
    if {first, then} <= {"files", "workers"}:  # both cut the parts, and one goes on with the other's spans
        assert outcome.summary["resumed"]["eliminate"] > 0  # type: ignore[index]
    assert whole(path) == want
    assert sorted(each.name for each in tmp_path.iterdir()) == ["local", "p"]


def test_new_weights_pass_through_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grid_graph(9)
    tails, heads, weights = arcs_of(graph)
    weights = np.concatenate([[np.inf], weights[1:] * 2.0])
    prepare(graph, tmp_path / "p")
    reweight(tmp_path / "p", (tails, heads, weights), out=tmp_path / "local")
    short_of_memory(monkeypatch)
    outcome = reweight(tmp_path / "p", (tails, heads, weights), out=tmp_path / "q")
    assert outcome.plan.tier == "store"
    assert outcome.summary["closed"] == 1
    assert whole(tmp_path / "q") == whole(tmp_path / "local")


def test_the_plan_says_so_and_its_numbers_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = grid_graph(20)
    usual = plan_prepared(graph, out=tmp_path / "p")
    short_of_memory(monkeypatch)
    plan = plan_prepared(graph, out=tmp_path / "p")
    assert (usual.tier, plan.tier) == ("host", "store")
    assert "all tables at once exceed the memory, so they pass through files in" in plan.device_reason
    assert plan.seconds > usual.seconds
    assert plan.disk > usual.disk
    outcome = prepare(graph, tmp_path / "p")
    assert outcome.plan.tier == "store"
    assert whole(tmp_path / "p") == local(graph, tmp_path / "local")


def test_the_memory_that_a_refusal_names_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GraphProfile(grid_graph(40))
    plan_prepared(grid_graph(40))  # what is compiled for a plan stays in the memory of this process
    short_of_memory(monkeypatch)
    with pytest.raises(DoesNotFit, match=r"which pass through files span by span, and of memory") as refused:
        plan_prepared(graph, Options(memory=32 << 20))
    plan = plan_prepared(graph, Options(memory=refused.value.needed))
    assert plan.memory <= refused.value.needed
    with pytest.raises(DoesNotFit):
        plan_prepared(graph, Options(memory=refused.value.needed - (64 << 20)))


def test_a_run_keeps_to_the_memory_and_threads_of_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options need not say again what the plan was made with; processors may be fewer by now."""
    graph, seen, inner = GraphProfile(grid_graph(20)), list[planning.Workers](), run.described
    short_of_memory(monkeypatch)
    most = resident_bytes() + (900 << 20)
    plan = plan_prepared(graph, Options(memory=most))
    monkeypatch.setattr(run, "described", lambda workers: (seen.append(workers), inner(workers))[1])
    monkeypatch.setattr(run, "usable_processors", lambda: 1)
    prepare(graph, tmp_path / "p", plan=plan)
    assert plan.tier == "store"
    assert seen[0].threads == 1
    assert seen[0].memory < most + RESIDENT_SPREAD
    assert (sessions._sessions, sessions._timers) == ({}, [])
    assert whole(tmp_path / "p") == local(graph.graph, tmp_path / "local")


def test_memory_that_is_gone_when_the_run_begins_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grid_graph(9)
    plan = replace(plan_prepared(graph), tier="store")
    too_small = planning.Workers(1, "cpu", "here", 1, 1000, {})
    monkeypatch.setattr("engine.distributed.prepared.run.summed_up", lambda _: too_small)
    with pytest.raises(DoesNotFit, match=r"its largest part needs \d+ bytes .* of memory, and 1000 .* may be used now"):
        prepare(graph, tmp_path / "p", plan=plan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damaged", ["eliminated", "extended", "parts", "arcs"])
def test_a_damaged_file_is_named_and_nothing_is_sealed(
    damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "KEPT", 0)  # what is remembered would not be read again
    run, spoilt = PreparedWorker.run, list[Path]()

    def spoil(self: PreparedWorker, *given: Any) -> Any:
        if not spoilt:
            spoilt.extend(spoil_files(tmp_path, f"{damaged}*.bin"))
        return run(self, *given)

    monkeypatch.setattr(PreparedWorker, "run", spoil)
    with pytest.raises(StorageFailed, match="is damaged"):
        in_files(grid_graph(9), tmp_path / "p")
    assert spoilt
    assert not (tmp_path / "p").exists()


def test_an_accident_in_a_task_is_told_and_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("an accident")

    monkeypatch.setattr(PreparedWorker, "_extend", explode)
    with pytest.raises(SolveFailed, match="a task on worker this process failed: RuntimeError"):
        in_files(grid_graph(9), tmp_path / "p")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("apsp-spans")]
    assert (sessions._sessions, sessions._timers) == ({}, [])
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_runs_is_waited_for_and_others_are_dropped() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), list[str]()

    def task(name: str) -> str:
        begun.set()
        may_end.wait(10)
        done.append(name)
        return name

    with suppress(KeyError), ThisProcess() as here:
        first = here.submit("a note", SELF, task, "first", device=None)
        here.submit(None, SELF, task, "second", device=None)
        assert begun.wait(10)
        assert list(here.events(0.01)) == []
        may_end.set()
        ended = next(iter(here.events(10)))
        assert (ended.ticket, ended.result, ended.error) == (first, "first", None)
        here.everywhere(done.append, "over")
        here.submit(None, SELF, task, "third", device=None)
        raise KeyError
    assert (done[0], done[-1]) == ("first", "over")
    assert "third" not in done
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("apsp-spans")]
