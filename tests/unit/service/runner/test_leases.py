"""When a beat is overdue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.runner.leases import Leases


def test_a_beat_that_stays_is_overdue_and_one_that_changes_is_not():
    leases = Leases(10, gap=4)
    for now in range(0, 10, 2):
        assert leases.overdue([("a", 1, 5), ("b", 1, now)], now) == []
    assert leases.overdue([("a", 1, 5), ("b", 1, 10)], 10) == [("a", 1, 5)]


def test_a_new_claim_of_the_same_job_begins_anew():
    leases = Leases(10, gap=4)
    for now in range(0, 10, 2):
        leases.overdue([("a", 1, 5)], now)
    assert leases.overdue([("a", 2, 5)], 10) == []


def test_time_in_which_the_observer_was_away_does_not_count():
    leases = Leases(10, gap=4)
    leases.overdue([("a", 1, 5)], 0)
    assert leases.overdue([("a", 1, 5)], 1_000_000) == []
    assert leases.overdue([("a", 1, 5)], 1_000_004) == []
    assert leases.overdue([("a", 1, 5)], 1_000_006) == [("a", 1, 5)]


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=60))
def test_nothing_is_overdue_that_beat_within_the_lease(steps: list[tuple[float, bool]]):
    leases, now, beat, last = Leases(10, gap=4), 0.0, 0, 0.0
    for passed, beats in steps:
        now += passed
        if beats:
            beat, last = beat + 1, now
        found = leases.overdue([("a", 1, beat)], now)
        assert not found or now - last >= 10 - 1e-6
