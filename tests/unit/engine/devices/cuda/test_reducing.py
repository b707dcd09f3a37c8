"""What the host does for rows that are reduced on a device; tests/gpu/test_measures.py runs the kernels."""

from __future__ import annotations

import numpy as np
import pytest

from engine.devices.cuda.reducing import reduced_bytes, reduction_of, sort_nearest, without_subnormal
from engine.graph.selection import Narrow, Rectangle, first_beyond
from engine.model.dtypes import WORK_TYPES
from engine.model.rows import ArraySink, NullSink
from engine.rows.asked_measures import asked_measures
from engine.rows.measures import MeasureSink


def sink_of(n: int, wanted: Rectangle, **request: object) -> MeasureSink:
    return MeasureSink(wanted, WORK_TYPES["int32"], asked_measures(n, 0.0, request))  # type: ignore[arg-type]


def test_nearest_columns_are_sorted_by_distance_then_column() -> None:
    rng = np.random.default_rng(4)
    columns = np.array([rng.permutation(50)[:9] for _ in range(30)], np.int32)
    distances = rng.integers(0, 4, columns.shape).astype(float)
    columns[::3, 5:], distances[::3, 5:] = -1, np.nan
    pairs = [sorted(zip(d[d == d], c, strict=False)) for d, c in zip(distances.copy(), columns.copy(), strict=True)]
    sort_nearest(columns, distances)
    for i, right in enumerate(pairs):
        count = len(right)
        assert list(zip(distances[i, :count], columns[i, :count], strict=True)) == right
        assert (columns[i, count:] == -1).all()
        assert np.isnan(distances[i, count:]).all()
    none = np.zeros((3, 0), np.int32)
    sort_nearest(none, np.zeros((3, 0)))


@pytest.mark.parametrize("targets", [None, np.arange(4)])
def test_the_bytes_count_results_and_selected_columns(targets: np.ndarray | None) -> None:
    n, kind = 1000, WORK_TYPES["int32"]
    wanted = Rectangle(n, np.arange(n), targets, None)
    sink = sink_of(n, wanted, within=[1, 2], opportunities={"a": np.ones(n), "b": np.ones(n)}, nearest=3)
    into = Narrow(sink, wanted) if targets is not None else sink
    asked = reduction_of(into)
    assert asked is not None
    results = n * 8 * (5 + 2 + 2 * 2 + 2 * 3)
    assert results <= asked.bytes <= results + 50 * n
    more = reduced_bytes(asked, n, kind) - asked.bytes
    assert (more == 0) == (targets is None)
    assert reduced_bytes(None, n, kind) == 0


def test_sinks_that_want_rows_are_sent_rows() -> None:
    for sink in (NullSink(5), ArraySink((5, 5), "int32"), Narrow(NullSink(5), Rectangle(5, None, np.arange(2), None))):
        assert reduction_of(sink) is None


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_limits_are_compared_right_also_by_kernels_that_take_subnormal_numbers_for_zero(dtype: str) -> None:
    """CuPy compiles such kernels, for float32 alone."""
    tiny = np.finfo(np.float32).tiny
    entries = np.array([-5, -1, 0, 1, 3, 7], dtype)
    for cutoff in (-3.0, -1.0, 0.0, 0.5, 3.0, float("inf")):
        limit = np.array([first_beyond(cutoff, dtype)])
        sent = without_subnormal(limit)
        assert sent.dtype == limit.dtype
        flushed = np.where(np.abs(sent) < tiny, np.zeros_like(sent), sent) if dtype == "float32" else sent
        assert np.array_equal(entries < flushed, entries < limit), cutoff
    small = np.array([tiny], np.float32)
    assert np.array_equal(without_subnormal(small), small)
