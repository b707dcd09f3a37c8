"""The comparison of the planner's choices: samples, what is run, and whose time it takes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs, regret
from benchmarks.sampled import PEERS, Timed
from engine.api.solve import make_plan
from engine.model.problem import Options


def test_a_small_graph_is_searched_from_everywhere_and_a_large_one_from_spans() -> None:
    assert regret.sample(1_000) == list(range(1_000))
    some = regret.sample(100_000)
    assert len(set(some)) == len(some) == 1024
    assert some[0] == 0
    assert some[-1] == 99_999
    assert sum(b - a != 1 for a, b in pairwise(some)) == 1


def test_what_depends_on_the_sources_is_scaled_and_the_rest_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graphs.grid(400)
    plan = make_plan(graph, Options(device="cpu", threads=1, algorithm="partitioned"))

    def solve(graph: Any, plan: Any, options: Options, sink: Any, monitor: regret.Clock) -> None:
        assert options.sources is not None
        monitor.begin("prepare", 1, "updates")
        clock[0] += 3.0
        monitor.begin("search", 1, "rows")
        clock[0] += 0.1 * len(options.sources)

    clock = [0.0]
    monkeypatch.setattr(regret, "solve", solve)
    monkeypatch.setattr(regret.Clock, "_now", staticmethod(lambda: np.array([clock[0], 2 * clock[0]])))
    one = regret.Own(graph, plan, plan.candidates[0], range(100))
    one.run()
    assert one.best == pytest.approx(np.array([3 + 0.1 * 400, 2 * (3 + 0.1 * 400)]))


def test_a_row_has_the_choice_the_best_and_our_own_dijkstra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret, "PEERS", {"SciPy": PEERS["SciPy"]})
    monkeypatch.setattr(regret, "TURNS", 2)
    row = regret.compare("grid", graphs.grid(100), 1, 1.0, 0.001)
    assert {"dijkstra", "recursive-floyd-warshall", "heap"} <= set(row["seconds"])
    assert row["choice"] in row["seconds"]
    assert row["best"] != "heap"
    assert row["regret"] >= 1
    assert row["rejected"][row["choice"]] is None
    assert row["peers"]["SciPy"] > 0
    table = regret.markdown([row])
    assert table.splitlines()[-1].count("|") == table.splitlines()[0].count("|")


def test_a_peer_is_asked_for_as_much_as_its_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("benchmarks.sampled.time.perf_counter", lambda: clock[0])

    def search(sources: Any) -> None:
        clock[0] += 0.01 * len(sources)

    peer = Timed.of("SciPy", search, 2, range(1_000), 0.5)
    assert len(peer.sources) == 50
    peer.run()
    assert peer.best[0] == pytest.approx(0.01)
