"""Streamed rounds on the processors, against the textbook: types, ragged ends, several devices, resume, residents."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.algorithms import floyd_warshall
from engine.devices.cpu.backend import CpuBackend
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from engine.model.tier import HostTier
from engine.model.tiling import Tiling, updates
from engine.streaming import schedule
from engine.streaming.cpu_device import CpuStreamer
from storage.errors import Cancelled, SolveFailed, StorageFailed
from storage.threads import Promise
from tests import oracle


@pytest.fixture(scope="module")
def backends():
    made = [CpuBackend(1) for _ in range(3)]
    yield made
    for backend in made:
        backend.shutdown()


class Tally(Monitor):
    def __init__(self, most: float = float("inf")) -> None:
        self.begun: list[tuple[str, int, str]] = []
        self.done, self.most = 0, most
        self.threads: set[int] = set()

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.begun.append((phase, total, unit))

    def advance(self, amount: int) -> None:
        self.done += amount
        self.threads.add(threading.get_ident())

    def cancelled(self) -> bool:
        return self.done > self.most


class Strict(HostTier):
    """Hands out copies, ruins them once they are back, and keeps account of what is asked and promised."""

    window = 2

    def __init__(self, matrix, streaming, devices: int = 1) -> None:
        super().__init__(matrix, streaming)
        self.out: dict[int, int] = {}
        self.most = self.window + devices * (streaming.slots + 1)
        self.commits: list[int] = []
        self.guard = threading.Lock()
        self.fail_at: tuple[int, int] | None = None

    def blank(self, stripe):
        with self.guard:
            self.out[stripe] = self.out.get(stripe, 0) + 1
            assert self.out[stripe] == 1, "a stripe is out twice"
            assert sum(self.out.values()) <= self.most
        first, last = self._tiling.rows(stripe, self.n)
        return np.full((last - first, self.n), 1, self.dtype)

    def take(self, stripe):
        rows = self.blank(stripe)
        first, last = self._tiling.rows(stripe, self.n)
        rows[:] = self.matrix[first:last]
        return Promise.of(rows)

    def give(self, k, stripe, rows):
        if self.fail_at == (k, stripe):
            raise StorageFailed("the disk is full")
        first, last = self._tiling.rows(stripe, self.n)
        left = self._tiling.left(stripe)
        kind = WORK_TYPES[self.dtype.name]
        farthest = kind.largest_signed if kind.name == "int32" else kind.largest  # above it, all is unreachable
        fallen = (rows[:, left:] <= self.matrix[first:last, left:]) | (rows[:, left:] > farthest)
        assert fallen.all(), "an entry rose"
        self.matrix[first:last, left:] = rows[:, left:]
        super().give(k, stripe, rows)
        self.drop(stripe, rows)

    def drop(self, stripe, rows):
        with self.guard:
            self.out[stripe] -= 1
        rows[:] = 0

    def commit(self, k):
        assert (self.level >= k).all()
        assert not self.commits or k > self.commits[-1]
        self.commits.append(k)


def solve(backends, matrix, streaming, *, devices=1, nonnegative=True, monitor=None, first_round=0, tier=None):
    tier = tier or Strict(matrix, streaming, devices)
    streamers = [CpuStreamer(backend) for backend in backends[:devices]]
    schedule.run(streaming, tier, streamers, monitor or Monitor(), nonnegative=nonnegative, first_round=first_round)
    return tier


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 130, 257, 400])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", list(WORK_TYPES))
@pytest.mark.parametrize("width", [64, 128])
def test_distances(backends, dtype, symmetric, n, width):
    weights = oracle.random_weights(n, seed=n, density=min(1, 3 / n), symmetric=symmetric)
    streaming = Tiling("host", 64, width, symmetric=symmetric)
    found, tally = oracle.encode(weights, dtype), Tally()
    tier = solve(backends, found, streaming, monitor=tally)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), dtype))
    assert tally.begun == [("relax", updates(streaming, n), "updates")]
    assert tally.done == updates(streaming, n)
    assert tally.threads == {threading.get_ident()}
    assert tier.commits[-1] == streaming.rounds(n) - 1
    assert not any(tier.out.values())


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 520),
    group=st.integers(1, 3),
    devices=st.integers(1, 3),
    resident=st.integers(0, 3),
    symmetric=st.booleans(),
    negative=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_number_of_devices_and_residents(backends, n, group, devices, resident, symmetric, negative, seed):
    negative &= not symmetric
    weights = oracle.random_weights(n, seed=seed, density=min(1, 4 / n), symmetric=symmetric, negative=negative)
    streaming = Tiling("host", 64, 64 * group, 1, resident * group, symmetric)
    found = oracle.encode(weights, "int32")
    tier = solve(backends, found, streaming, devices=devices, nonnegative=not negative)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "int32"))
    assert tier.commits[-1] == streaming.rounds(n) - 1


def test_layouts_of_passes_are_refused(backends):
    found = oracle.encode(oracle.random_weights(100, seed=1, density=0.1), "int32")
    with pytest.raises(ValueError, match="one of passes"):
        solve(backends, found, Tiling("host", 64, 64, passes=True))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("most", [0.0, 0.2, 0.5, 0.8])
def test_a_stopped_solve_goes_on_where_it_was(backends, symmetric, devices, most):
    n = 400
    weights = oracle.random_weights(n, seed=7, density=3 / n, symmetric=symmetric)
    streaming, found = Tiling("host", 64, 64, symmetric=symmetric), oracle.encode(weights, "int32")
    first = Strict(found, streaming, devices)
    with pytest.raises(Cancelled):
        solve(backends, found, streaming, devices=devices, tier=first, monitor=Tally(most * updates(streaming, n)))
    again = Strict(found, streaming, devices)
    again.level = first.level
    tally = Tally()
    solve(
        backends, found, streaming, devices=devices, tier=again, first_round=int(first.level.min()) + 1, monitor=tally
    )
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "int32"))
    assert tally.done == tally.begun[0][1]


def test_entries_of_different_rounds_may_be_mixed(backends):
    """Torn writes and fuzzy copies: rounds run again over any mixture of older and newer entries."""
    n, rng = 500, np.random.default_rng(3)
    weights = oracle.random_weights(n, seed=5, density=3 / n)
    for symmetric in (False, True):
        start = oracle.encode(np.minimum(weights, weights.T) if symmetric else weights, "int32")
        streaming, states = Tiling("host", 64, 64, symmetric=symmetric), []

        class Keeping(HostTier):
            def commit(self, k, states=states):
                states.append(self.matrix.copy())

        final = start.copy()
        solve(backends, final, streaming, tier=Keeping(final, streaming))
        for k in range(1, len(states)):
            mixed = np.where(rng.random((n, n)) < 0.5, states[k], states[k - 1])
            solve(backends, mixed, streaming, first_round=k)
            np.testing.assert_array_equal(mixed, final)


def test_floats_do_not_depend_on_the_devices(backends):
    n = 600
    weights = np.random.default_rng(1).random((n, n)).astype(np.float32)
    np.fill_diagonal(weights, 0)
    results = []
    for devices, resident in ((1, 0), (3, 0), (2, 4)):
        found = weights.copy()
        solve(backends, found, Tiling("host", 64, 128, 1, resident), devices=devices)
        results.append(found)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    floyd_warshall.recursive(backends[0], weights, nonnegative=True)
    np.testing.assert_allclose(results[0], weights, rtol=1e-6)


@pytest.mark.parametrize("n", [100, 300])
def test_a_negative_cycle_ends_the_solve(backends, n):
    matrix = np.full((n, n), WORK_TYPES["int32"].sentinel(), np.int32)
    np.fill_diagonal(matrix, 0)
    matrix[3, n - 2], matrix[n - 2, 3] = 5, -6
    with pytest.raises(BelowZero, match="negative cycle"):
        solve(backends, matrix, Tiling("host", 64, 64), nonnegative=False)


@pytest.mark.parametrize("devices", [1, 3])
def test_a_tier_that_fails_ends_the_solve_and_leaves_walks(backends, devices):
    n = 400
    weights = oracle.random_weights(n, seed=2, density=3 / n)
    streaming, found = Tiling("host", 64, 64), oracle.encode(weights, "int32")
    final = oracle.encode(oracle.closure(weights), "int32")
    first = Strict(found, streaming, devices)
    first.fail_at = (3, 5)
    with pytest.raises(StorageFailed, match="disk is full"):
        solve(backends, found, streaming, devices=devices, tier=first)
    assert (found >= final).all()
    solve(backends, found, streaming, first_round=int(first.level.min()) + 1)
    np.testing.assert_array_equal(found, final)


def test_a_slow_device_gets_less(backends):
    counts = [0, 0]

    class Slow(CpuStreamer):
        def __init__(self, backend, index, pause):
            super().__init__(backend)
            self.index, self.pause = index, pause

        def relax(self, k, stripe, rows):
            counts[self.index] += 1
            time.sleep(self.pause)
            super().relax(k, stripe, rows)

    n = 800
    weights = oracle.random_weights(n, seed=4, density=3 / n)
    streaming, found = Tiling("host", 64, 64), oracle.encode(weights, "uint16")
    devices = [Slow(backends[0], 0, 0.001), Slow(backends[1], 1, 0.01)]
    schedule.run(streaming, HostTier(found, streaming), devices, Monitor(), nonnegative=True)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "uint16"))
    assert counts[0] > 2 * counts[1] > 0


@pytest.mark.parametrize("started", [0, 1, 2])
def test_devices_whose_threads_cannot_all_be_started_end_with_an_error(backends, started, monkeypatch):
    """Devices wait for each other's panels, so those that have a thread must not wait for one that has none."""
    n, streaming, start, count = 257, Tiling("host", 64, 64), threading.Thread.start, itertools.count()

    def some(thread):
        if thread.name.startswith("apsp-stream") and next(count) >= started:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    matrix = oracle.encode(oracle.random_weights(n, seed=1, density=0.02), "float32")
    caught: list[BaseException] = []

    def work() -> None:
        try:
            solve(backends, matrix, streaming, devices=3)
        except SolveFailed as error:
            caught.append(error)

    waiting = threading.Thread(target=work, daemon=True)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive(), "the devices wait for each other"
    assert "refused to start a thread" in str(caught[0])
