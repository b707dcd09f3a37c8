"""Facts of rows that hold distances in a few columns only: the same as those of the whole rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.devices.cpu.row_facts import count_rows, expand_rows, row_facts
from engine.model.dtypes import WORK_TYPES


@pytest.mark.parametrize("dtype", WORK_TYPES)
@settings(deadline=None)
@given(data=st.data())
def test_rows_are_spread_to_their_columns_and_facts_come_from_these(dtype: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    width, high = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 5))
    columns = np.flatnonzero(rng.random(width) < data.draw(st.sampled_from([0.05, 0.5, 1.0]))).astype(np.int32)
    columns = columns if len(columns) else np.array([width - 1], np.int32)
    sentinel = WORK_TYPES[dtype].sentinel()
    few = rng.integers(0, 20, (high, len(columns))).astype(dtype)
    few[rng.random(few.shape) < 0.3] = sentinel
    out = np.full((high + 1, width), 7, dtype)
    expected = out.copy()
    rows = rng.permutation(high + 1)[:high]
    out[rows, : len(columns)] = few
    expected[rows] = sentinel
    expected[rows[:, None], columns] = few

    expand_rows(out, rows, columns, sentinel)
    np.testing.assert_array_equal(out, expected)

    own = rng.integers(0, len(columns), high)
    out[rows, columns[own]] = 0
    found, whole = row_facts(out, own, rows, columns), row_facts(out, columns[own].astype(np.int64), rows)
    for got, want in zip(found[:3], whole[:3], strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.where(found[3] < 0, -1, columns[found[3]]), whole[3])
    bins, counts = np.zeros(8, np.int64), np.zeros(8, np.int64)
    below = count_rows(out, own, 2.0, bins, rows, columns)
    assert below == count_rows(out, columns[own].astype(np.int64), 2.0, counts, rows) == 0
    np.testing.assert_array_equal(bins, counts)
