"""What passes ask of a GPU, recorded by fakes: how much memory, which copies over the bus, and in which order."""

from __future__ import annotations

import re

import numpy as np
import pytest

from engine.devices.cuda.stripes.panels import CudaPanels
from engine.model.progress import Monitor
from engine.model.tier import HostTier
from engine.model.tiling import FINISHED, Tiling, device_bytes, passed_bytes
from engine.streaming import passes
from tests.unit.engine.devices.cuda.stripes.fakes import install


def solved(monkeypatch, tiling, n):
    calls, tier = install(monkeypatch), HostTier(np.zeros((n, n), np.float32), tiling)
    passes.run(tiling, tier, CudaPanels(0, memory=10**9), Monitor(), nonnegative=True)
    assert (tier.level == FINISHED).all()
    return calls.lines


@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize(("n", "height", "width"), [(64, 64, 64), (640, 64, 64), (640, 128, 128), (768, 64, 256)])
def test_the_bytes_are_those_of_the_plan(monkeypatch, slots, n, height, width):
    tiling = Tiling("host", height, width, slots, passes=True)
    lines = solved(monkeypatch, tiling, n)
    copies = [re.search(r"memcpyAsync.* (\d+), ([12]), ", line) for line in lines]
    moved = {kind: sum(int(c[1]) for c in copies if c and c[2] == kind) for kind in "12"}
    assert (moved["1"], moved["2"]) == passed_bytes(tiling, n, 4)
    taken = [re.match(r"allocate array \d+\((\d+), (\d+)\) (\w+)", line) for line in lines]
    bytes_ = sum(int(t[1]) * int(t[2]) * np.dtype(t[3]).itemsize for t in taken if t)
    assert 0 < bytes_ <= device_bytes(tiling, n, 4)


def test_a_panel_is_closed_once(monkeypatch):
    lines = solved(monkeypatch, Tiling("host", 64, 128, 4, passes=True), 640)
    assert sum("ahead.close" in line or "solver.close" in line for line in lines) == 5
