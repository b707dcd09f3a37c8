"""Floats that are whole numbers of a decimal unit."""

from __future__ import annotations

import numpy as np
import pytest

from engine.model.decimals import in_units, limit_on_paper


@pytest.mark.parametrize(
    ("weights", "units", "unit"),
    [
        ([3.0, 20.0], [3, 20], 1.0),
        ([0.1, 0.2, 0.0], [1, 2, 0], 0.1),
        ([177.387, 25.277], [177387, 25277], 0.001),
        ([1e-9, 1.0], [1, 10**9], 1e-9),
    ],
)
def test_the_largest_unit_that_divides_all(weights: list[float], units: list[int], unit: float) -> None:
    found = in_units(np.array([0, len(weights)]), np.array(weights))
    assert found is not None
    assert found[0].tolist() == units
    assert found[0].dtype == np.int32
    assert found[1] == pytest.approx(unit, rel=1e-15)


@pytest.mark.parametrize(
    "weights",
    [[], [1 / 3], [0.1 + 0.2], [np.sqrt(2)], [1e-10], [2.0**30], [0.5, 1e10], [0.001, 2e6], [np.inf]],
)
def test_others_have_none(weights: list[float]) -> None:
    assert in_units(np.array([0, len(weights)]), np.array(weights)) is None


def test_a_late_one_decides() -> None:
    weights = np.full(1000, 0.25)
    assert in_units(np.array([0, 1000]), weights) is not None
    weights[-1] = np.pi
    assert in_units(np.array([0, 1000]), weights) is None


def test_a_path_takes_one_arc_out_of_each_vertex() -> None:
    """Ten vertices of a hundred arcs each: their sum passes int32, that of the ten heaviest does not."""
    weights = np.full(1000, 1e5 + 0.001)
    assert in_units(np.arange(0, 1001, 100), weights) is not None
    assert in_units(np.arange(1001), weights) is None
    assert in_units(np.array([0, 0, 1000, 1000]), weights) is not None


@pytest.mark.parametrize(
    ("limit", "weights", "found"),
    [
        (0.3, [0.1, 0.2], 0.35),
        (0.1 + 0.2, [0.1, 0.2], 0.35),
        (0.29, [0.1, 0.2], 0.25),
        (0.0, [0.1], 0.05),
        (3.0, [0.001, 7.5], 3.0005),
        (5.0, [1.0, 2.0], 5.5),
        (0.3, [0.1, 1 / 3], 0.3),
        (0.3, [0.1, -0.2], 0.3),
        (1e15, [0.1], 1e15),
        (float("inf"), [0.1], float("inf")),
        (0.3, [], 0.3),
    ],
)
def test_a_limit_lies_between_two_sums(limit: float, weights: list[float], found: float) -> None:
    assert limit_on_paper(limit, np.array(weights), 10) == found


def test_whole_weights_need_no_other_limit_and_narrow_types_have_less_room() -> None:
    assert limit_on_paper(3.0, np.array([1, 2]), 10) == 3.0
    assert limit_on_paper(1000.0, np.array([0.001]), 10**6) == 1000.0005
    assert limit_on_paper(1000.0, np.array([0.001]), 10**6, np.float32) == 1000.0
