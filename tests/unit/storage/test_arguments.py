from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sparse

from storage.arguments import (
    as_float64,
    check_choice,
    check_declared,
    check_distance,
    check_flags,
    check_indices,
    check_names,
    check_number,
    check_paths,
    check_texts,
    check_whole,
    shown,
)
from storage.errors import InvalidRequest


def test_values_are_returned_as_plain_ones():
    assert (type(check_whole("k", np.uint8(3), 1, 4)), check_whole("k", np.uint8(3), 1, 4)) == (int, 3)
    assert (type(check_number("x", np.float32(0.5))), check_number("x", np.int64(2))) == (float, 2)
    assert check_distance("cutoff", 0) == 0
    assert check_indices("sources", np.array([2, 1], np.uint64)) == (2, 1)
    assert check_names("also", ["a", "b"]) == ("a", "b")
    check_flags(a=True, b=np.False_)
    check_texts(a=None, b="")
    check_paths(a=None, b="s3://bucket/x", c=Path("x"))


@pytest.mark.parametrize("made", [np.array, pd.Series, pd.Index, pl.Series, list, tuple])
def test_indices_come_in_arrays_of_any_library(made: Callable[[list[int]], Any]) -> None:
    found = check_indices("sources", made([2, 1]))
    assert (found, [type(index) for index in found]) == ((2, 1), [int, int])
    for wrong in ([0.5], ["a"], [True], [(1, 2), (3, 4)]):
        with pytest.raises(InvalidRequest, match=r"sources must be a (whole|list of)") as told:
            check_indices("sources", made(wrong))  # type: ignore[arg-type]
        assert "\n" not in str(told.value)


def test_sparse_indices_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="sources cannot become an array of NumPy: Cannot convert a sparse array"):
        check_indices("sources", sparse.COO(np.array([2, 1])))


def test_masked_indices_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="sources has 1 masked"):
        check_indices("sources", np.ma.array([1, 2], mask=[True, False]))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "k must be from 1 to 4, found 0"),
        (5, "k must be from 1 to 4, found 5"),
        (1.0, r"k must be a whole number, found 1.0 \(float\)"),
        (True, r"k must be a whole number, found True \(bool\)"),
        ("1", r"k must be a whole number, found '1' \(str\)"),
    ],
)
def test_messages_name_field_limit_and_what_was_found(value: object, words: str):
    with pytest.raises(InvalidRequest, match=words) as caught:
        check_whole("k", value, 1, 4)
    assert caught.value.field == "k"


def test_a_number_that_a_float_takes_for_0_is_refused() -> None:
    assert check_number("k", Fraction(0)) == check_number("k", -0.0) == 0
    with pytest.raises(InvalidRequest, match=r"k is so small that float64 would take it for 0, found .*\(Fraction\)"):
        check_number("k", Fraction(1, 10**400))


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 0], np.longdouble) + np.array([0, np.finfo(np.longdouble).tiny]),
        np.array([1, Decimal("1e-400")]),
        np.array(["1", " -1e-400"]),
        [1, "1e-400"],
    ],
    ids=["longdouble", "decimals", "texts", "list"],
)
def test_an_array_of_numbers_that_float64_takes_for_0_is_refused(values: Any) -> None:
    if getattr(values, "dtype", None) == np.float64:
        pytest.skip("this machine has no wider floats")
    with pytest.raises(InvalidRequest, match="entry 2 of w is so small that float64 would take it for 0") as caught:
        as_float64("w", values)
    assert caught.value.field == "w"


def test_zeros_of_all_kinds_become_float64() -> None:
    for values in ([0, -0.0, "0e-500", Decimal(0), Fraction(0)], np.zeros(5, np.longdouble), np.zeros(5, np.bool_)):
        assert as_float64("w", values).tolist() == [0] * 5
    values = np.ones(2)
    as_float64("w", values)[0] = 7
    assert values.tolist() == [1, 1]


def test_bounds_on_one_side():
    with pytest.raises(InvalidRequest, match="k must be at least 1, found 0"):
        check_whole("k", 0, 1)
    assert check_whole("k", -(10**30)) == -(10**30)


def test_long_values_are_cut_in_messages():
    assert len(shown("x" * 1000)) < 100


def test_declared_options():
    kinds = {"a": str | None, "b": bool, "c": Literal["x", "y"] | None, "d": str | Path | None, "e": list | None}
    check_declared({"a": None, "b": True, "c": "x", "d": Path("x"), "e": 3}, kinds)
    for wrong in ({"a": 1}, {"b": None}, {"c": "z"}, {"d": 1}, {"a": b"x"}):
        with pytest.raises(InvalidRequest) as caught:
            check_declared(wrong, kinds)
        assert caught.value.field == next(iter(wrong))


def test_a_choice_lists_what_is_known():
    with pytest.raises(InvalidRequest, match=r"device \['cpu'\] is unknown; use cpu, cuda"):
        check_choice("device", ["cpu"], ("cpu", "cuda"))
