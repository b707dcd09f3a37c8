"""The sentinels and limits that make sums safe."""

import numpy as np
import pytest

from engine.model.dtypes import WORK_TYPES, adds_exactly, settle, work_type


@pytest.mark.parametrize("name", WORK_TYPES)
def test_two_sentinels_never_wrap(name: str) -> None:
    kind = WORK_TYPES[name]
    twice = int(kind.unreachable) * 2 if kind.integer else np.inf
    assert not kind.integer or twice <= np.iinfo(kind.dtype).max
    assert kind.largest < kind.unreachable or not kind.integer
    assert kind.sentinel().dtype == kind.dtype
    assert work_type(kind.dtype) is kind


def test_with_negative_arcs_distances_and_sunk_sentinels_never_meet() -> None:
    kind = WORK_TYPES["int32"]
    assert kind.unreachable - kind.largest_signed > kind.largest_signed


def test_settle_restores_sunk_sentinels_only() -> None:
    kind = WORK_TYPES["int32"]
    block = np.array([[kind.unreachable - 7, kind.largest_signed, -3, kind.unreachable]], np.int32)
    settle(block)
    assert block.tolist() == [[kind.unreachable, kind.largest_signed, -3, kind.unreachable]]


def test_other_types_are_unknown() -> None:
    with pytest.raises(KeyError):
        work_type(np.int8)


@pytest.mark.parametrize(
    ("weights", "n", "dtype", "exact"),
    [
        ([], 5, "float32", True),
        ([3, 7], 5, "int32", True),
        ([0.0, 0.0], 5, "float32", True),
        ([0.25, 3.0, 0.0], 100, "float32", True),
        ([0.1, 0.3], 100, "float64", False),
        ([1.0, 2.0**20], 8, "float32", True),  # two paths of 8 arcs are 2^24 long
        ([1.0, 2.0**20], 9, "float32", False),
        ([1.0, 2.0**20], 9, "float64", True),
        ([2.0**-1074, 1.0], 2, "float64", False),
        ([2.0**-1074, 2.0**-1073], 2, "float64", True),
        ([2**24 + 1], 2, "float32", False),  # rounded where it is stored
        ([-1.0, 2.0], 2, "float64", False),
    ],
)
def test_sums_of_few_digits_are_exact(weights, n, dtype, exact):
    assert adds_exactly(np.array(weights), n, work_type(dtype)) is exact
