"""What a worker computes with, verb by verb."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.devices.cpu.backend import CpuBackend
from engine.distributed.stripe_device import CpuHolder
from engine.model.tiling import Streaming


def test_a_panel_closed_in_the_place_of_the_one_in_use_does_not_stand_in_for_it() -> None:
    n, width = 256, 64
    job: Any = SimpleNamespace(
        n=n, streaming=Streaming("host", width, width), nonnegative=True, plan=SimpleNamespace(dtype="int32")
    )
    holder = CpuHolder(job, CpuBackend(1), lambda: None)
    rng = np.random.default_rng(0)
    panel, one, two = (rng.integers(1, 10**6, (width, n), dtype=np.int32) for _ in range(3))
    right = np.minimum(one, (one[:, :width, None] + panel[None]).min(axis=1))
    holder.hold(1, one.copy())
    holder.hold(2, two)
    holder.use(0, panel)
    holder.close_panel(2, holder.room(width))
    holder.use(0, panel)
    holder.relax_by(0, 1)
    out = holder.room(width)
    holder.copy(1, 0, out)
    holder.release()
    np.testing.assert_array_equal(out, right)
