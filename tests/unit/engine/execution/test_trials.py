"""Trials on the graph itself: many sources must be tried as many, for side by side they take a small part each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.devices.cpu import backend
from engine.execution import trials
from engine.execution.survey import survey
from engine.graph.analysis import describe
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Options
from engine.planning.planner import choose, choose_type
from storage.graph.graph import Graph, build_graph


class Timed:
    """A backend in whose time a call takes what it is told to."""

    threads = 2
    clock = 0.0
    calls: list[int]

    def __init__(self, threads: int) -> None:
        assert threads == self.threads

    def search(self, arcs: Any, sources: Any, out: Any, **given: Any) -> None:
        Timed.calls.append(len(sources))
        Timed.clock += self.seconds(len(sources))

    @staticmethod
    def seconds(count: int) -> float:
        """One by one 40 ms each; from 64 on side by side, 1 ms each."""
        return count * (0.001 if count >= 64 else 0.04)

    def shutdown(self) -> None:
        pass


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> type[Timed]:
    Timed.clock, Timed.calls = 0.0, []
    monkeypatch.setattr(backend, "CpuBackend", Timed)
    monkeypatch.setattr("engine.execution.trials.time.process_time", lambda: Timed.clock)
    return Timed


@pytest.mark.parametrize("kind", ["int32", "uint16"])
def test_many_sources_are_tried_side_by_side(kind: str, timed: type[Timed]) -> None:
    graph = graphs.ring(8_000)
    found = trials.search_seconds(graph, WORK_TYPES[kind], 2, unit=False)
    assert found == pytest.approx(0.001 / 2)
    assert max(timed.calls) >= 2 * 256 // np.dtype(kind).itemsize
    assert sum(timed.calls) < 500


def test_few_sources_are_not_tried_for_longer_than_they_take(timed: type[Timed]) -> None:
    from engine.graph.selection import Rectangle

    rectangle = Rectangle(5_000, np.arange(40), None, None)
    found = trials.search_seconds(graphs.ring(8_000), WORK_TYPES["int32"], 2, unit=False, rectangle=rectangle)
    assert found == pytest.approx(0.04 / 2)
    assert max(timed.calls) <= 40


def test_what_cannot_win_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense graph of 2,048 vertices was planned for a second, in which it was searched, and solved in a tenth."""
    tried = []
    monkeypatch.setattr(trials, "search_seconds", lambda *_, **given: tried.append(given) or 1.0)
    monkeypatch.setattr(trials, "relax_rate", lambda *_: tried.append("relax") or 1e9)
    rates = {"uint16": 1e8, "int32": 1e8, "float32": 1e8, "float64": 1e8}
    box = replace(survey(), relax_rate=rates, search_rate=1e5, disk=None)
    graph = complete(256)
    problem = describe(graph)
    kind, _ = choose_type(problem, "auto")

    def plan_on(machine: Machine) -> Plan:
        plan = choose(problem, machine, Options())
        assert plan.seconds > trials.WORTHWHILE
        trials.calibrate(graph, problem, kind, machine, plan)
        return plan

    assert plan_on(box).algorithm == "recursive-floyd-warshall"
    assert tried == []
    close = replace(box, search_rate=2e6)
    assert plan_on(close).candidates[0].seconds < 1
    assert {"relax"} < {some if isinstance(some, str) else "search" for some in tried}


def complete(n: int) -> Graph:
    tails, heads = np.divmod(np.arange(n * n), n)
    return build_graph(tails, heads, 1 + (tails * heads) % 97, n=n, directed=True)[0]
