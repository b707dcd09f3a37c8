"""Streaming through a device: equal, bit for bit, to the same matrix solved in its memory; budgets; several devices."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from engine.devices.cuda.pinned import host_matrix
from engine.devices.cuda.stripes.streamer import CudaStreamer
from engine.devices.cuda.stripes.trace import Trace
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES, settle
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from engine.model.tier import HostTier
from engine.model.tiling import Tiling, device_bytes, updates
from engine.planning.layouts import StreamingDevices, choose_layout
from engine.streaming import schedule
from storage.errors import Cancelled, DoesNotFit, StorageFailed
from storage.threads import Promise
from tests.gpu.cuda_backend import CudaBackend
from tests.gpu.samples import closure, weights

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]
RNG = np.random.default_rng


class Counting(Monitor):
    def __init__(self, most: float = float("inf")) -> None:
        self.total, self.done, self.most = 0, 0, most

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.total = total

    def advance(self, amount: int) -> None:
        self.done += amount

    def cancelled(self) -> bool:
        return self.done > self.most


class Bounded(HostTier):
    """Few buffers of its own, ruined when they come back, as in a store."""

    window = 2

    def __init__(self, matrix: Array, streaming: Tiling, devices: int = 1) -> None:
        super().__init__(matrix, streaming)
        self.out, self.most, self.commits = 0, self.window + devices * (streaming.slots + 2), []  # type: ignore[var-annotated]
        self.guard = threading.Lock()

    def blank(self, stripe: int) -> Array:
        first, last = self._tiling.rows(stripe, self.n)
        with self.guard:
            self.out += 1
            assert self.out <= self.most
        return np.full((last - first, self.n), 1, self.dtype)

    def take(self, stripe: int) -> Promise[Array]:
        first, last = self._tiling.rows(stripe, self.n)
        rows = self.blank(stripe)
        rows[:] = self.matrix[first:last]
        return Promise.of(rows)

    def give(self, k: int, stripe: int, rows: Array) -> None:
        first, last = self._tiling.rows(stripe, self.n)
        left = self._tiling.left(stripe)
        self.matrix[first:last, left:] = rows[:, left:]
        super().give(k, stripe, rows)
        self.drop(stripe, rows)

    def drop(self, stripe: int, rows: Array) -> None:
        with self.guard:
            self.out -= 1
        rows[:] = 0

    def wants(self, k: int) -> bool:
        return k % 2 == 1

    def commit(self, k: int) -> None:
        assert (self.level >= k).all()
        self.commits.append(k)


def answer(d: Array, *, nonnegative: bool = True) -> Array:
    if len(d) < 1500:
        return closure(d)
    found, backend = d.copy(), CudaBackend()
    backend.close(found, nonnegative=nonnegative)
    backend.shutdown()
    return found


def stream(d: Array, streaming: Tiling, *, count: int = 1, nonnegative: bool = True, **given: Any) -> HostTier:
    tier = given.pop("tier", None) or HostTier(d, streaming, threads=2)
    monitor = given.pop("monitor", None) or Counting()
    first_round = given.pop("first_round", 0)
    devices = [CudaStreamer(0, **given) for _ in range(count)]
    schedule.run(streaming, tier, devices, monitor, nonnegative=nonnegative, first_round=first_round)
    assert monitor.done == monitor.total
    return tier


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("n", [1, 63, 130, 700, 1111])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 192), (256, 256)])
def test_small(dtype: str, symmetric: bool, n: int, height: int, width: int) -> None:
    d = weights(RNG(n), n, dtype, share=min(1, 5 / n), symmetric=symmetric)
    want = closure(d)
    stream(d, Tiling("host", height, width, 3, symmetric=symmetric))
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("resident", [0, 2, 6, 100])
@pytest.mark.parametrize("slots", [1, 3, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_residents_slots_and_devices(dtype: str, symmetric: bool, resident: int, slots: int, count: int) -> None:
    """Two streamers on one device are to each other as two devices are."""
    n = 2100
    d = weights(RNG(1), n, dtype, share=0.003, symmetric=symmetric)
    want = answer(d)
    stream(d, Tiling("host", 128, 256, slots, resident, symmetric), count=count)
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("width", [1024, 2048, 4096])
@pytest.mark.parametrize("symmetric", [False, True])
def test_wide_pivot_blocks(width: int, symmetric: bool) -> None:
    n = 9000
    d = weights(RNG(2), n, "int32", share=0.001, symmetric=symmetric)
    want = answer(d)
    for resident in (0, width // 512 * 1):
        found = d.copy()
        stream(found, Tiling("host", 512, width, 4, resident, symmetric), count=2)
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("n", [700, 2100])
@pytest.mark.parametrize("resident", [0, 4])
def test_negative_arcs(n: int, resident: int) -> None:
    rng = RNG(3)
    height = rng.integers(0, 60, n).astype(np.int64)
    d = weights(rng, n, "int32", share=3 / n)
    arc = d != WORK_TYPES["int32"].sentinel()
    d = np.where(arc, d + height[:, None] - height, d).astype(np.int32)
    want = answer(d, nonnegative=False)
    settle(want)
    stream(d, Tiling("host", 64, 128, 3, resident), nonnegative=False)
    np.testing.assert_array_equal(d, want)


def test_a_negative_cycle_ends_the_solve() -> None:
    n = 1000
    d = np.full((n, n), WORK_TYPES["int32"].sentinel(), np.int32)
    np.fill_diagonal(d, 0)
    d[3, 700], d[700, 3] = 5, -6
    with pytest.raises(BelowZero, match="negative cycle"):
        stream(d, Tiling("host", 64, 64, 3), nonnegative=False)


def test_repeated_without_a_race() -> None:
    n = 3000
    d = weights(RNG(8), n, "int32", share=0.002)
    want = answer(d)
    for attempt in range(6):
        for symmetric in (False,):
            found = d.copy()
            stream(found, Tiling("host", 128, 128 * (1 + attempt % 3), 3, 0, symmetric), count=1 + attempt % 3)
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("resident", [0, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_a_tier_of_few_buffers(symmetric: bool, resident: int, count: int) -> None:
    n = 1500
    d = weights(RNG(4), n, "float32", share=0.004, symmetric=symmetric)
    want = answer(d)
    streaming = Tiling("store", 64, 128, 3, resident, symmetric)
    tier = Bounded(d, streaming, count)
    stream(d, streaming, tier=tier, count=count)
    np.testing.assert_array_equal(d, want)
    assert tier.commits[-1] == streaming.rounds(n) - 1
    assert len(tier.commits) > 2
    assert tier.out == 0


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("most", [0.1, 0.6])
def test_cancelled_and_resumed(symmetric: bool, most: float) -> None:
    n = 2000
    d = weights(RNG(5), n, "int32", share=0.003, symmetric=symmetric)
    want = answer(d)
    streaming = Tiling("host", 64, 128, 3, 0, symmetric)
    tier = HostTier(d, streaming)
    with pytest.raises(Cancelled):
        stream(d, streaming, tier=tier, monitor=Counting(most * updates(streaming, n)))
    stream(d, streaming, tier=tier, first_round=int(tier.level.min()) + 1, count=2)
    np.testing.assert_array_equal(d, want)


def test_a_tier_that_fails_ends_the_solve() -> None:
    class Failing(HostTier):
        def give(self, k: int, stripe: int, rows: Array) -> None:
            if k == 2:
                raise StorageFailed("the disk is full")

    d = weights(RNG(6), 1000, "int32", share=0.01)
    want, streaming = answer(d), Tiling("host", 64, 64, 3)
    with pytest.raises(StorageFailed, match="full"):
        stream(d, streaming, tier=Failing(d, streaming), count=2)
    assert (d >= want).all()
    stream(d, streaming)
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", ["uint16", "float32", "float64"])
@pytest.mark.parametrize("memory", [160 * 2**20, 500 * 2**20])
def test_a_budget_is_kept(cupy: Any, dtype: str, memory: int, symmetric: bool) -> None:
    """The allocator grants no more than the budget, so a layout that asked for more would fail."""
    n = 5000
    devices = StreamingDevices(1, memory, bus_rate=5e10, relax_rate=1.6e13)
    streaming = choose_layout(n, np.dtype(dtype).itemsize, devices, symmetric=symmetric)
    assert streaming is not None
    d = weights(RNG(7), n, dtype, share=0.001, symmetric=symmetric)
    want = answer(d)
    stream(d, streaming, memory=memory)
    np.testing.assert_array_equal(d, want)
    found = device_bytes(streaming, n, np.dtype(dtype).itemsize)
    assert 0.5 * memory < found <= memory or streaming.resident >= streaming.stripes(n)


def test_too_little_memory_is_told(cupy: Any) -> None:
    d = weights(RNG(7), 3000, "float32", share=0.001)
    with pytest.raises(DoesNotFit, match="bytes free"):
        stream(d, Tiling("host", 1024, 1024, 4), memory=10 * 2**20)
    stream(d, Tiling("host", 64, 64, 3))


def test_host_memory(cupy: Any) -> None:
    with host_matrix((1000, 3000), "float32", threads=4) as memory:
        assert memory.array.shape == (1000, 3000)
        assert memory.refused == ""
        memory.array[:] = 7
        assert bool((cupy.asarray(memory.array) == 7).all())


def test_a_trace_shows_what_ran(cupy: Any) -> None:
    n = 2000
    d, trace = weights(RNG(9), n, "float32", share=0.003), Trace()
    streaming = Tiling("host", 128, 256, 3, 2)
    stream(d, streaming, trace=trace)
    found = trace.intervals()
    kinds = {i.kind for i in found}
    assert kinds == {"load", "relax", "store", "reside", "close", "write"}
    assert all(i.end >= i.begin >= 0 for i in found)
    streamed = sum(i.kind == "load" for i in found)
    assert streamed == sum(i.kind == "relax" for i in found) == sum(i.kind == "store" for i in found)
