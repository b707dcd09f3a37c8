"""What streams and workers ask of a GPU, recorded by fakes, for machines without one.

The digests were recorded from the code before streams and workers shared :class:`StripeMemory`, and before
``engine.devices.rounds`` drove the rounds: no allocation, launch, copy, event or wait has changed its place.
Since then a kernel of ours clears the rows that cupy cleared; that is all that differs.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from engine.devices.cuda.stripes.streamer import CudaStreamer
from engine.devices.cuda.stripes.worker import CudaWorkerDevice
from engine.model.progress import Monitor
from engine.model.stripe_device import StripeJob
from engine.model.tier import HostTier
from engine.model.tiling import Tiling
from engine.streaming import schedule
from tests.unit.engine.devices.cuda.stripes.fakes import install


def digest(lines):
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def streamed(monkeypatch, tiling, dtype, n):
    calls = install(monkeypatch)
    tier = HostTier(np.zeros((n, n), dtype), tiling)
    schedule.run(tiling, tier, [CudaStreamer(0, memory=10**9)], Monitor(), nonnegative=False)
    return calls.lines


def worked(monkeypatch, width, places, n):
    calls, tiling = install(monkeypatch), Tiling("host", width, width)
    tier = HostTier(np.zeros((n, n), np.int32), tiling)
    count = tiling.rounds(n)
    job = StripeJob(tiling, tier, False, [0] * count, [], lambda *_: None, lambda _: None, lambda: None)
    device = CudaWorkerDevice(job, 0, memory=10**9, places=places, threads=2)
    stripes = [np.zeros((tiling.rows(s, n)[1] - tiling.rows(s, n)[0], n), np.int32) for s in range(count)]
    for stripe, rows in enumerate(stripes):
        device.hold(stripe, rows)
    for k, panel in enumerate(stripes):
        device.close_panel(k, panel)
        device.mark(urgent=True)()
        device.use(k, panel)
        if k % 2:
            device.become(k, panel)
        for stripe in range(count):
            if stripe != k:
                device.relax_by(k, stripe, urgent=stripe == k + 1)
        device.mark(urgent=False)()
        device.copy(0, 0, np.zeros((5, n), np.int32))
    device.forget(0)
    device.buffer(3)
    device.release()
    return calls.lines


STREAMED = {
    (640, 0, False): (630, "0b6315029818bf9b"),
    (640, 0, True): (725, "701f90ed9344d461"),
    (640, 2, False): (555, "2c2ee98b1f51742a"),
    (640, 2, True): (632, "ee2776e30af4a81f"),
    (1000, 0, False): (1475, "e66c0c2519577f5d"),
    (1000, 0, True): (1822, "5432566acba7fcaf"),
    (1000, 2, False): (1350, "8f8046667def87e0"),
    (1000, 2, True): (1652, "8623ff21decb6090"),
}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("resident", [0, 2])
@pytest.mark.parametrize(("n", "dtype"), [(640, "int32"), (1000, "float32")])
def test_a_stream_asks_what_it_asked_before(monkeypatch, n, dtype, resident, symmetric):
    tiling = Tiling("host", 64, 128, 3, resident, symmetric)
    assert digest(streamed(monkeypatch, tiling, dtype, n)) == STREAMED[n, resident, symmetric]


WORKED = {
    (64, 2): (843, "17f1c02e9504b5cc"),
    (64, 6): (831, "9deb2d85c5f21873"),
    (128, 2): (306, "fb518dffd9477055"),
    (128, 6): (299, "bdbba63163d505ff"),
}


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("places", [2, 6])
def test_a_worker_asks_what_it_asked_before(monkeypatch, width, places):
    assert digest(worked(monkeypatch, width, places, 600)) == WORKED[width, places]


@pytest.mark.parametrize(("memory", "asked"), [(10**9, [2 * 10**9, 0]), (None, [])])
def test_streams_that_share_a_device_set_one_limit_and_take_it_back(monkeypatch, memory, asked):
    """``limit_memory`` adds what is in use, which the first stream's own arrays must not be part of."""
    calls, tiling = install(monkeypatch), Tiling("host", 64, 128, 3)
    tier = HostTier(np.zeros((640, 640), np.int32), tiling)
    devices = [CudaStreamer(0, memory=memory) for _ in range(2)]
    schedule.run(tiling, tier, devices, Monitor(), nonnegative=False)
    limits = [line for line in calls.lines if "set_limit" in line]
    assert [f"{{'size': {size}}}" for size in asked] == [line.partition("[] ")[2] for line in limits], limits
