"""Both orders of Floyd-Warshall against the textbook; progress, cancellation, memory, determinism."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from engine.algorithms import floyd_warshall, products
from engine.devices.cpu.backend import CpuBackend
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from engine.planning import cost_dense
from storage.errors import Cancelled
from tests import oracle

ORDERS = [floyd_warshall.recursive, floyd_warshall.blocked]


@pytest.fixture(scope="module")
def backend():
    made = CpuBackend(2)
    yield made
    made.shutdown()


@pytest.fixture(params=ORDERS, ids=["recursive", "blocked"])
def order(request):
    return request.param


@pytest.fixture
def small_steps(monkeypatch):
    """Blocks, stripes and pieces so small that every kind of split happens on small matrices."""
    for module in (floyd_warshall, cost_dense):
        monkeypatch.setattr(module, "LEAF", 64)
        monkeypatch.setattr(module, "PIVOT", 100)
        monkeypatch.setattr(module, "STRIPE", 80)
    monkeypatch.setattr(products, "PIECE", 4 * 64**3)
    monkeypatch.setattr(products, "SIDE", 96)


class Tally(Monitor):
    """Keeps account; asks to stop after ``most`` units."""

    def __init__(self, most: float = float("inf")) -> None:
        self.begun: list[tuple[str, int, str]] = []
        self.steps: list[int] = []
        self.most = most

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.begun.append((phase, total, unit))

    def advance(self, amount: int) -> None:
        self.steps.append(amount)

    def cancelled(self) -> bool:
        return sum(self.steps) > self.most


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("n", [1, 2, 64, 65, 130, 257, 411])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", list(WORK_TYPES))
def test_distances(backend, order, dtype, symmetric, n):
    weights = oracle.random_weights(n, seed=n, density=min(1, 3 / n), symmetric=symmetric)
    expected = oracle.encode(oracle.closure(weights), dtype)
    for nonnegative in (True, False):
        found, tally = oracle.encode(weights, dtype), Tally()
        order(backend, found, nonnegative=nonnegative, symmetric=symmetric, monitor=tally)
        np.testing.assert_array_equal(found, expected)
        assert tally.begun == [("relax", sum(tally.steps), "updates")]


@pytest.mark.parametrize("n", [300, 900])
@pytest.mark.parametrize("symmetric", [False, True])
def test_distances_with_the_steps_as_they_are(backend, order, n, symmetric):
    weights = oracle.random_weights(n, seed=n, density=0.02, symmetric=symmetric)
    found = oracle.encode(weights, "int32")
    order(backend, found, nonnegative=True, symmetric=symmetric)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "int32"))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("n", [5, 70, 300])
def test_negative_arcs(backend, order, dtype, n):
    weights = oracle.random_weights(n, seed=n, density=min(1, 4 / n), negative=True)
    found = oracle.encode(weights, dtype)
    order(backend, found, nonnegative=False)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), dtype))


@pytest.mark.usefixtures("small_steps")
def test_directed_work_is_the_cube_and_undirected_work_about_half(backend, order):
    n = 640
    totals = {}
    for symmetric in (False, True):
        tally = Tally()
        order(backend, np.zeros((n, n), np.int32), nonnegative=True, symmetric=symmetric, monitor=tally)
        totals[symmetric] = tally.begun[0][1]
    assert totals[False] == n**3
    assert 0.5 * n**3 < totals[True] < 0.62 * n**3


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("symmetric", [False, True])
def test_float_results_depend_neither_on_threads_nor_on_chance(order, symmetric):
    rng = np.random.default_rng(1)
    weights = rng.random((300, 300), np.float32)
    weights = np.minimum(weights, weights.T)
    np.fill_diagonal(weights, 0)
    results = []
    for threads in (1, 2, 2):
        backend, found = CpuBackend(threads), weights.copy()
        order(backend, found, nonnegative=True, symmetric=symmetric)
        backend.shutdown()
        results.append(found)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[1], results[2])
    exact = oracle.closure(weights.astype(np.float64))
    np.testing.assert_allclose(results[0], exact, rtol=300 * np.finfo(np.float32).eps)


@pytest.mark.usefixtures("small_steps")
def test_a_cancelled_run_stops_at_the_next_piece(backend, order):
    n = 400
    tally = Tally(most=n**3 // 3)
    with pytest.raises(Cancelled):
        order(backend, np.zeros((n, n), np.int32), nonnegative=True, monitor=tally)
    assert sum(tally.steps[:-1]) <= n**3 // 3 < sum(tally.steps)


@pytest.mark.parametrize("n", [10, 3_000, 100_000])
@pytest.mark.parametrize("threads", [1, 2, 64])
def test_no_step_is_longer_than_a_moment(monkeypatch, n, threads):
    """Planned without a matrix: the pieces of the widest product stay within PIECE at any n."""

    class Planner:
        def relax(self, c, a, b, *, nonnegative, upper=False):
            self.most = max(getattr(self, "most", 0), c.shape[0] * c.shape[1] * a.shape[1])

    planner = Planner()
    planner.threads = threads
    half = -(-n // 2)
    shape = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint16), (half, half), (0, 0))
    tally = Tally()
    rows = min(half, 20_000)
    products.multiply(planner, shape[:rows], shape[:rows], shape, nonnegative=True, monitor=tally)
    assert sum(tally.steps) == rows * half * half
    assert planner.most * 2 <= products.PIECE * threads


def test_memory_is_the_matrix_and_the_workspace(backend, order):
    for n in (500, 1500):
        for symmetric in (False, True):
            d = np.zeros((n, n), np.float32)
            order(backend, d[:1, :1], nonnegative=True)
            tracemalloc.start()
            order(backend, d, nonnegative=False, symmetric=symmetric)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            rounds = order is floyd_warshall.blocked
            assert peak <= cost_dense.workspace_bytes(n, 4, 0, rounds=rounds) + 100_000


@pytest.mark.slow
def test_cancellation_is_noticed_within_half_a_second(backend, order):
    class Impatient(Monitor):
        longest = last = 0.0

        def begin(self, phase: str, total: int, unit: str) -> None:
            self.last = time.thread_time()

        def cancelled(self) -> bool:
            now = time.thread_time()
            self.longest, self.last = max(self.longest, now - self.last), now
            return False

    for symmetric in (False, True):
        d = np.ones((4096, 4096), np.float64)
        np.fill_diagonal(d, 0)
        monitor = Impatient()
        order(backend, d, nonnegative=False, symmetric=symmetric, monitor=monitor)
        assert monitor.longest < 0.5
