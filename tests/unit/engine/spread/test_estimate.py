"""What rounds over workers are predicted to take, and which pivot block they get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scaling import setting_of
from engine.spread.estimate import in_rounds
from engine.spread.job import PASSING

GIB = 2**30


@pytest.mark.parametrize(
    ("n", "gpus", "memory"), [(300_000, 1, 80), (500_000, 8, 80), (200_000, 2, 24), (100_000, 1, 16)]
)
def test_what_does_not_lie_in_memory_has_room_for_what_is_worked_on(n: int, gpus: int, memory: int) -> None:
    setting, workers = setting_of(n, gpus)
    found = in_rounds(setting, replace(workers, memory=memory * GIB))
    assert found.streaming is not None
    assert found.tier == "store"
    panel = found.streaming.width * n * 4
    assert PASSING.workspace * panel <= found.device_memory <= memory * GIB
    assert found.streaming.width > 64


def test_page_locked_memory_bounds_the_pivot_block() -> None:
    setting, workers = setting_of(300_000, 1)
    wide, narrow = (in_rounds(setting, replace(workers, host_memory=host * GIB)).streaming for host in (512, 16))
    assert wide is not None
    assert narrow is not None
    assert narrow.width < wide.width
    assert PASSING.pieces * narrow.width * 300_000 * 4 <= 16 * GIB


def test_a_device_too_small_for_the_narrowest_one_is_told_what_is_needed() -> None:
    setting, workers = setting_of(300_000, 1)
    assert in_rounds(setting, replace(workers, memory=GIB // 4)).device_memory > GIB // 4


@pytest.mark.parametrize(("n", "gpus", "measured"), [(98_304, 4, 66.5), (131_072, 4, 70.7)])
def test_predictions_are_near_what_was_measured(n: int, gpus: int, measured: float) -> None:
    """Updates a second of docs/many-nodes.md, in trillions, the start apart."""
    setting, workers = setting_of(n, gpus)
    found = in_rounds(setting, replace(workers, panel_rate=4e9))
    assert found.streaming is not None
    assert found.streaming.width == 2048
    relax = next(phase.seconds for phase in found.phases if phase.name == "relax")
    assert n**3 / relax / 1e12 == pytest.approx(measured, rel=0.15)
