"""Passes through a device: equal, bit for bit, to the same matrix solved in its memory; budgets, resumes, faults."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from engine.devices.cuda.stripes.panels import CudaPanels
from engine.devices.cuda.stripes.streamer import found_devices
from engine.devices.cuda.stripes.trace import Trace
from engine.model.backend import Array
from engine.model.dtypes import WORK_TYPES, settle
from engine.model.stripe_device import BelowZero
from engine.model.tier import HostTier
from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling, device_bytes, updates
from engine.planning.layouts import StreamingDevices, choose_layout
from engine.streaming import passes
from storage.errors import Cancelled, DoesNotFit, StorageFailed
from tests.gpu.samples import closure, weights
from tests.gpu.test_stream import Bounded, Counting, answer

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]
RNG = np.random.default_rng


class Few(Bounded):
    """The buffers of a store."""

    def __init__(self, matrix: Array, streaming: Tiling, devices: int = 1) -> None:
        super().__init__(matrix, streaming)
        self.most = 8 * devices

    def commit(self, k: int) -> None:
        self.commits.append(k)


def layout(height: int, width: int, slots: int = 3, tier: str = "host", held: int = 0) -> Tiling:
    return Tiling(tier, height, width, slots, held * (width // height), passes=True)


def stream(d: Array, streaming: Tiling, *, nonnegative: bool = True, **given: Any) -> HostTier:
    tier = given.pop("tier", None) or HostTier(d, streaming, threads=2)
    monitor = given.pop("monitor", None) or Counting()
    levels, count = given.pop("levels", None), given.pop("count", 1)
    there = found_devices()  # where there are fewer, several share one, and are to each other as several are
    devices = [CudaPanels(index % there, **given) for index in range(count)]
    passes.run(streaming, tier, devices, monitor, nonnegative=nonnegative, levels=levels)
    assert monitor.done == monitor.total
    return tier


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("n", [1, 63, 130, 700, 1111])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 192), (256, 256)])
def test_small(dtype: str, n: int, height: int, width: int) -> None:
    d = weights(RNG(n), n, dtype, share=min(1, 5 / n))
    want = closure(d)
    tier = stream(d, layout(height, width))
    np.testing.assert_array_equal(d, want)
    assert (tier.level == FINISHED).all()


@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(128, 128), (128, 384), (512, 512), (1024, 2048)])
@pytest.mark.parametrize("held", [0, 2, 9])
@pytest.mark.parametrize("tier", ["host", "store"])
def test_layouts(slots: int, height: int, width: int, held: int, tier: str) -> None:
    n = 5000
    d = weights(RNG(2), n, "float32", share=0.001)
    want = answer(d)
    streaming = layout(height, width, slots, tier, held)
    for _ in range(3):
        found = d.copy()
        given = Few(found, streaming) if tier == "store" else None
        stream(found, streaming, tier=given)
        np.testing.assert_array_equal(found, want)
        assert given is None or given.out == 0


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("n", [1, 130, 1111, 4000])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("tier", ["host", "store"])
def test_several_devices(dtype: str, n: int, count: int, tier: str) -> None:
    """Bit for bit what one device finds, in n^3 updates."""
    d = weights(RNG(n), n, dtype, share=min(1, 5 / n))
    want = d.copy()
    for slots, held in ((2, 0), (3, 2), (4, 0), (4, 1), (4, 99)):
        streaming = layout(64, 192, slots, tier, held)
        stream(want, streaming)
        found, monitor = d.copy(), Counting()
        given = Few(found, streaming, count) if tier == "store" else None
        stream(found, streaming, tier=given, monitor=monitor, count=count)
        np.testing.assert_array_equal(found, want)
        assert monitor.done == n**3
        assert given is None or given.out == 0


def test_several_devices_of_both_signs_in_large_panels() -> None:
    n, rng = 9000, RNG(3)
    height = rng.integers(0, 60, n).astype(np.int64)
    d = weights(rng, n, "int32", share=3 / n)
    arc = d != WORK_TYPES["int32"].sentinel()
    d = np.where(arc, d + height[:, None] - height, d).astype(np.int32)
    want = answer(d, nonnegative=False)
    settle(want)
    for cut in ((512, 512), (512, 1024), (1024, 1024)):
        found = d.copy()
        stream(found, layout(*cut, 4, held=5), nonnegative=False, count=2)
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("count", [2, 3])
def test_several_devices_are_stopped_and_others_go_on(count: int) -> None:
    n = 3000
    d = weights(RNG(5), n, "int32", share=0.002)
    want, streaming, levels = answer(d), layout(64, 128), None
    for most, devices in ((0.2, count), (0.2, 1), (0.3, count), (2.0, 1)):
        tier = HostTier(d, streaming)
        if levels is not None:
            tier.level[:] = levels
        with suppress(Cancelled):
            stream(d, streaming, tier=tier, levels=levels, monitor=Counting(most * n**3), count=devices)
        levels = tier.level.copy()
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("n", [700, 2100])
def test_arcs_of_both_signs(n: int) -> None:
    rng = RNG(3)
    height = rng.integers(0, 60, n).astype(np.int64)
    d = weights(rng, n, "int32", share=3 / n)
    arc = d != WORK_TYPES["int32"].sentinel()
    d = np.where(arc, d + height[:, None] - height, d).astype(np.int32)
    want = answer(d, nonnegative=False)
    settle(want)
    stream(d, layout(64, 128), nonnegative=False)
    np.testing.assert_array_equal(d, want)


def test_a_negative_cycle_ends_the_solve() -> None:
    n = 1000
    d = np.full((n, n), WORK_TYPES["int32"].sentinel(), np.int32)
    np.fill_diagonal(d, 0)
    d[3, 700], d[700, 3] = 5, -6
    with pytest.raises(BelowZero, match="negative cycle"):
        stream(d, layout(64, 64), nonnegative=False)


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("most", [0.1, 0.4, 0.7, 0.9])
def test_cancelled_and_resumed(most: float, tier: str) -> None:
    n = 2000
    d = weights(RNG(5), n, "int32", share=0.003)
    want, streaming = answer(d), layout(64, 128, tier=tier)
    first = Few(d, streaming) if tier == "store" else HostTier(d, streaming)
    with pytest.raises(Cancelled):
        stream(d, streaming, tier=first, monitor=Counting(most * updates(streaming, n)))
    stream(d, streaming, tier=Few(d, streaming), levels=first.level.copy())
    np.testing.assert_array_equal(d, want)


def test_any_mixture_of_levels_is_gone_on_from() -> None:
    n, streaming = 900, layout(64, 128)
    d = weights(RNG(11), n, "int32", share=0.005)
    want, row = closure(d), np.arange(n)
    states = {n: want}
    for seed in range(12):
        rng = RNG(seed)
        levels = rng.integers(-1, FINISHED + 1, streaming.stripes(n))
        own = levels[row // 64]
        block = np.minimum(n, (row // 128 + 1) * 128)
        most = np.where(own == FINISHED, n, np.where(own == LOWERED, block, np.where(own == WALKS, row + 1, 0)))
        found = d.astype(np.int64)
        held = np.empty_like(d)
        for k in range(n + 1):
            held[most == k] = np.minimum(found[most == k], WORK_TYPES["int32"].sentinel())
            if k < n:
                np.minimum(found, found[:, k, None] + found[k], out=found)
        mixed = np.where(rng.random((n, n)) < 0.2, states[n], held).astype(np.int32)
        stream(mixed, streaming, levels=levels)
        np.testing.assert_array_equal(mixed, want)


@pytest.mark.parametrize("count", [1, 2])
def test_a_tier_that_fails_ends_the_solve(count: int) -> None:
    class Failing(HostTier):
        def give(self, k: int, stripe: int, rows: Array) -> None:
            if stripe == 4:
                raise StorageFailed("the disk is full")

    d = weights(RNG(6), 1000, "int32", share=0.01)
    want, streaming = answer(d), layout(64, 64)
    with pytest.raises(StorageFailed, match="full"):
        stream(d, streaming, tier=Failing(d, streaming), count=count)
    assert (d >= want).all()
    stream(d, streaming)
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("dtype", ["uint16", "float32", "float64"])
@pytest.mark.parametrize("memory", [160 * 2**20, 500 * 2**20])
def test_a_budget_is_kept(dtype: str, memory: int) -> None:
    """The allocator grants no more than the budget, so a layout that asked for more would fail."""
    n = 5000
    devices = StreamingDevices(1, memory, bus_rate=5e10, relax_rate=1.6e13)
    streaming = choose_layout(n, np.dtype(dtype).itemsize, devices, passes=True)
    assert streaming is not None
    assert streaming.passes
    d = weights(RNG(7), n, dtype, share=0.001)
    want = answer(d)
    stream(d, streaming, memory=memory)
    np.testing.assert_array_equal(d, want)
    assert device_bytes(streaming, n, np.dtype(dtype).itemsize) <= memory


def test_too_little_memory_is_told() -> None:
    d = weights(RNG(7), 3000, "float32", share=0.001)
    with pytest.raises(DoesNotFit, match="bytes free"):
        stream(d, layout(1024, 1024, 4), memory=10 * 2**20)
    stream(d, layout(64, 64))


@pytest.mark.parametrize("count", [1, 2])
def test_a_trace_shows_what_ran(count: int) -> None:
    n = 2000
    d, trace = weights(RNG(9), n, "float32", share=0.003), Trace()
    stream(d, layout(128, 256), trace=trace, count=count)
    found = trace.intervals()
    assert {i.kind for i in found} == {"load", "lower", "close", "store"}
    assert all(i.end >= i.begin >= 0 for i in found)
    assert sum(i.kind == "close" for i in found) == 8
    assert sum(i.kind == "store" for i in found) == 16 + 14
