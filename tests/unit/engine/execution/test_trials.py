"""Trials on the graph itself: many sources must be tried as many, for side by side they take a small part each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.devices.cpu import backend
from engine.execution import trials
from engine.model.dtypes import WORK_TYPES


class Timed:
    """A backend in whose time a call takes what it is told to."""

    threads = 2
    clock = 0.0
    calls: list[int]

    def __init__(self, threads: int) -> None:
        assert threads in (1, self.threads)

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
