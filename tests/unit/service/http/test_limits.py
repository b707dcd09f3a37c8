"""Buckets of processor seconds: overdrawn by the last question, regained over time, each caller's own."""

from __future__ import annotations

import pytest

from service.api.fault import TooMuchComputing
from service.http.limits import ComputingBudget


def test_seconds_are_regained_and_no_more_than_a_minute_is_saved():
    now = 0.0
    budget = ComputingBudget(60.0, lambda: now)
    budget.check("a")
    budget.charge("a", 90.0)  # one question may take more than there is
    with pytest.raises(TooMuchComputing, match="60 processor seconds a minute") as refused:
        budget.check("a")
    assert refused.value.retry_after == 31
    budget.check("b")
    now = 29.0
    with pytest.raises(TooMuchComputing) as refused:
        budget.check("a")
    assert refused.value.retry_after == 2
    now = 31.0
    budget.check("a")
    now = 10_000.0
    budget.charge("a", 60.0)
    with pytest.raises(TooMuchComputing):
        budget.check("a")
