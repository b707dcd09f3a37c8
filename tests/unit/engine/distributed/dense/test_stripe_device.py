"""What a worker computes with, verb by verb."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.devices.cpu.backend import CpuBackend
from engine.distributed.dense.stripe_device import CpuWorkerDevice
from engine.model.tiling import Tiling


def test_a_panel_closed_in_the_place_of_the_one_in_use_does_not_stand_in_for_it() -> None:
    n, width = 256, 64
    job: Any = SimpleNamespace(
        n=n, tiling=Tiling("host", width, width), nonnegative=True, plan=SimpleNamespace(dtype="int32")
    )
    device = CpuWorkerDevice(job, CpuBackend(1), lambda: None)
    rng = np.random.default_rng(0)
    panel, one, two = (rng.integers(1, 10**6, (width, n), dtype=np.int32) for _ in range(3))
    right = np.minimum(one, (one[:, :width, None] + panel[None]).min(axis=1))
    device.hold(1, one.copy())
    device.hold(2, two)
    device.use(0, panel)
    device.close_panel(2, device.buffer(width))
    device.use(0, panel)
    device.relax_by(0, 1)
    out = device.buffer(width)
    device.copy(1, 0, out)
    device.release()
    np.testing.assert_array_equal(out, right)
