"""The search over layouts of a streamed matrix: those chosen fit, and suit the devices."""

from __future__ import annotations

import pytest

from engine.model.plan import Candidate
from engine.model.tiling import Tiling, device_bytes, streamed_bytes
from engine.planning.layouts import LayoutGrid, StreamingDevices, choose_layout, fastest, waiting


def h200(count, memory):
    """Devices of the rates of an H200, which does not depend on their number here."""
    return StreamingDevices(count, memory, bus_rate=5e10, relax_rate=1.6e13)


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("memory", [2**28, 2**30, 2**32, 139 * 2**30])
@pytest.mark.parametrize("n", [500, 9999, 65536, 200_000])
def test_layouts_fit_the_memory_they_are_made_for(n, memory, symmetric, itemsize):
    found = choose_layout(n, itemsize, h200(2, memory), symmetric=symmetric)
    if found is None:
        tight = Tiling("host", 64, 64, 3, 0, symmetric)
        assert device_bytes(tight, n, itemsize) > memory
        return
    assert device_bytes(found, n, itemsize) <= memory
    assert found.slots >= 3


def test_the_bus_hides_behind_the_pivot_block_that_is_chosen():
    found = choose_layout(65536, 4, h200(1, 2**32))
    assert found is not None
    assert found.width == 2048
    assert found.height >= 512
    assert streamed_bytes(found, 65536, 4) / 5e10 < 65536**2 * found.width / 1.6e13


def test_what_fits_stays_resident():
    found = choose_layout(131_072, 4, h200(4, 139 * 2**30))
    assert found is not None
    assert 4 * found.resident >= found.stripes(131_072)
    assert streamed_bytes(found, 131_072, 4, devices=4) == 0


def test_a_grid_has_each_layout_whose_stripes_divide_the_pivot_block():
    grid = LayoutGrid("store", (64, 192), (128, 64), (4, 3), (True, False), passes=True)
    found = list(grid.layouts())
    assert len(found) == len(set(found)) == 8
    assert {(t.height, t.width, t.slots, t.symmetric) for t in found} == {
        (64, width, slots, half) for width in (64, 192) for slots in (4, 3) for half in (True, False)
    }
    assert all(t.passes != t.symmetric for t in found)
    assert [(t.height, t.width) for t in LayoutGrid("host", (64, 128)).layouts()] == [(64, 64), (128, 128)]


def test_the_fastest_that_fits_else_the_one_that_needs_least():
    quick, small = Candidate("a", memory=10, disk=0, seconds=1.0), Candidate("b", memory=5, disk=0, seconds=2.0)
    assert fastest([small, quick], 10) is quick
    assert fastest([quick, small], 9) is small
    assert fastest([quick, small], 4) is small
    assert fastest([], 4) is None


def passes_of(panels, devices, bus):
    """Seconds of two passes, where a product of a panel by a panel takes one, and a copy of a panel ``bus``."""
    free, given = [0.0] * devices, [dict[int, tuple[float, int]]() for _ in range(2)]
    down = [(0, k, range(k)) for k in range(panels)]
    up = [(1, k, range(panels - 1, k, -1)) for k in reversed(range(panels - 1))]
    for way, k, sources in (*down, *up):
        device = free.index(min(free))
        now = max(free[device], given[0][k][0]) if way else free[device]
        for source in sources:
            ready, owner = given[way][source]
            now = max(now, ready + (0 if owner == device else 2 * bus)) + 1
        free[device] = now = now + (not way)
        given[way][k] = now, device
        if k == panels - 1:
            given[1][k] = now, device
    return max(free)


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("panels", [32, 64, 74, 98, 147])
@pytest.mark.parametrize("bus", [0.3, 0.65, 1.0])
def test_devices_wait_in_passes_as_in_a_simulation(devices, panels, bus):
    share = waiting(Tiling("host", 64, 64, 4, passes=True), 64 * panels, devices, bus)
    simulated = devices * passes_of(panels, devices, bus) / panels**2 - 1
    assert share == 0 if devices == 1 else simulated - 0.025 < share
    assert share < simulated + 0.015 or simulated < share < 1.4 * simulated
