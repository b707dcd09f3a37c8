"""Powers of the weight matrix: limits on arcs, chosen rows, the cheaper way, memory, early end."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from engine.algorithms import squaring
from engine.devices.cpu.backend import CpuBackend
from engine.model.dtypes import WORK_TYPES
from storage.errors import Cancelled
from tests import oracle
from tests.unit.engine.algorithms.test_floyd_warshall import Tally


@pytest.fixture(scope="module")
def backend():
    made = CpuBackend(2)
    yield made
    made.shutdown()


@pytest.mark.parametrize("dtype", list(WORK_TYPES))
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5, 7, 11, 100])
def test_paths_of_so_many_arcs(backend, dtype, symmetric, hops):
    weights = oracle.random_weights(60, seed=1, density=0.04, symmetric=symmetric)
    expected = oracle.encode(oracle.hops(weights, hops), dtype)
    for rows in (None, np.array([7]), np.array([50, 3, 20, 8]), np.arange(60)[::-1]):
        found = squaring.power(
            backend, oracle.encode(weights, dtype), hops, rows=rows, nonnegative=True, symmetric=symmetric
        )
        np.testing.assert_array_equal(found, expected if rows is None else expected[rows])


@pytest.mark.parametrize("n", [1, 2, 3, 64, 150])
@pytest.mark.parametrize("dtype", list(WORK_TYPES))
def test_no_limit(backend, dtype, n):
    weights = oracle.random_weights(n, seed=n, density=min(1, 3 / n))
    expected = oracle.encode(oracle.closure(weights), dtype)
    for rows in (None, np.array([n - 1])):
        found = squaring.power(backend, oracle.encode(weights, dtype), None, rows=rows, nonnegative=True)
        np.testing.assert_array_equal(found, expected if rows is None else expected[rows])


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("hops", [2, 3, 6, None])
def test_negative_arcs(backend, dtype, hops):
    weights = oracle.random_weights(50, seed=2, density=0.06, negative=True)
    expected = oracle.encode(oracle.hops(weights, hops or 49), dtype)
    for rows in (None, np.array([4, 44])):
        found = squaring.power(backend, oracle.encode(weights, dtype), hops, rows=rows, nonnegative=False)
        np.testing.assert_array_equal(found, expected if rows is None else expected[rows])


def test_the_cheaper_way_is_taken(backend):
    n = 100
    ring = oracle.encode(np.where(np.eye(n) == 1, 0, np.where(np.roll(np.eye(n), 1, axis=1) == 1, 1, np.inf)), "int32")
    few, many = Tally(), Tally()
    squaring.power(backend, ring.copy(), 32, rows=np.array([0]), nonnegative=True, monitor=few)
    squaring.power(backend, ring.copy(), 32, rows=np.arange(50), nonnegative=True, monitor=many)
    assert few.begun == [("relax", 31 * n * n, "updates")]
    assert many.begun == [("relax", 5 * n**3, "updates")]
    assert sum(few.steps) == 31 * n * n
    assert sum(many.steps) == 5 * n**3


def test_it_ends_when_nothing_changes(backend):
    n = 200
    complete = np.ones((n, n), np.int32) - np.eye(n, dtype=np.int32)
    tally = Tally()
    found = squaring.power(backend, complete.copy(), None, nonnegative=True, monitor=tally)
    assert np.array_equal(found, complete)
    assert sum(tally.steps) == n**3


def test_a_cancelled_run_stops(backend):
    with pytest.raises(Cancelled):
        squaring.power(backend, np.zeros((100, 100), np.int32), 4, nonnegative=True, monitor=Tally(most=10))


@pytest.mark.parametrize("rows", [None, np.arange(0, 900, 2), np.arange(900)])
def test_three_matrices_are_held_at_most(backend, rows):
    n = 900
    d = oracle.encode(oracle.random_weights(n, seed=3, density=0.003), "float32")
    tracemalloc.start()
    squaring.power(backend, d, 7, rows=rows, nonnegative=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 2 * d.nbytes + 500_000
