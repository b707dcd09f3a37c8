"""The tables of what users wait for: planning's share, what of planning is not kept, and who is slower."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.waits_tables import medians, shares, summary


def row(planning: float, solving: float, *, kept: int = 0, partition: float = 0.0, peer: float = 1.0) -> dict[str, Any]:
    """One graph of 100 vertices with 16 threads; its first call, which is not counted, is faster."""
    call = {"planning": planning, "seconds": planning + solving, "kept": kept, "partition": partition}
    now = {"engine": [{**call, "seconds": planning / 2, "planning": planning / 2}, {**call, "algorithm": "dijkstra"}]}
    facts = {"graph": "a", "n": 100, "arcs": 300, "threads": 16, "hops": False, "made": False}
    return {**facts, "now": now, "SciPy": {"engine": [{"seconds": peer}]}}


def test_planning_is_a_share_of_the_whole() -> None:
    share, lost = shares(row(0.002, 0.006)) or (0.0, 0.0)
    assert (share, lost) == (pytest.approx(0.25), pytest.approx(0.002))


def test_kept_rows_and_parts_are_no_loss() -> None:
    # 50 of 100 rows were kept: they would have taken the solve as long as the other 50
    assert (shares(row(0.006, 0.004, kept=50)) or (0, 0))[1] == pytest.approx(0.002)
    assert (shares(row(0.006, 0.004, partition=0.005)) or (0, 0))[1] == pytest.approx(0.001)
    assert (shares(row(0.006, 0.004, kept=50, partition=0.005)) or (0, 0))[1] == 0.0


def test_preparing_that_the_solve_uses_is_no_loss() -> None:
    one = row(0.006, 0.004)
    for call in one["now"]["engine"]:
        call["prepared"] = 0.0025
    assert (shares(one) or (0, 0))[1] == pytest.approx(0.0035)


def test_a_graph_that_was_not_solved_has_no_share() -> None:
    assert shares({"now": {"failed": "no memory"}, "n": 3}) is None
    assert shares({"n": 3}) is None


@pytest.mark.parametrize(
    ("planning", "solving", "good"),
    [(0.0009, 0.002, 1), (0.0011, 0.002, 0), (0.0011, 0.03, 1), (0.004, 0.1, 1), (0.006, 0.1, 0)],
)
def test_five_per_cent_or_a_millisecond_is_what_planning_may_lose(planning: float, solving: float, good: int) -> None:
    told = medians([row(planning, solving)], 16)
    assert f"planning that is not kept is at most 5 % or 1 ms on {good} of 1" in told


def test_who_is_slower_is_counted() -> None:
    rows = [row(0.1, 0.4, peer=1.0), row(0.1, 0.4, peer=0.25)]
    assert "| 16 | 2 real, weights | 1.2 × | 0.5 × | 2.0 × | 1 |" in summary(rows)
