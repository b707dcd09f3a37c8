"""Host memory for the GPUs, with a driver that only notes what it is asked."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cuda import pinned
from engine.devices.cuda.pinned import host_matrix
from engine.devices.cuda.stripes.memory import StripeMemory
from engine.execution import streamed
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.tiling import Tiling
from engine.streaming.cpu_device import CpuStreamer
from storage.errors import DoesNotFit
from storage.graph.graph import build_graph
from storage.matrix.reader import open_matrix


class Refusal(RuntimeError):
    pass


class Driver:
    """Locks memory, slowly or not at all."""

    CUDARuntimeError = Refusal

    def __init__(self, *, slow: float = 0.0, refuses: bool = False) -> None:
        self.slow, self.refuses = slow, refuses
        self.locked: dict[int, int] = {}
        self.seen: list[int] = []

    def hostRegister(self, address: int, size: int, flags: int) -> None:
        time.sleep(self.slow)
        if self.refuses:
            raise Refusal("cudaErrorMemoryAllocation")
        assert flags == 1
        self.locked[address] = size
        self.seen.append(size)

    def hostUnregister(self, address: int) -> None:
        del self.locked[address]


class OnDevice:
    """An array of a device, of which only address and shape are asked."""

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self.shape, self.data = rows.shape, SimpleNamespace(ptr=rows.ctypes.data)

    def __len__(self) -> int:
        return int(self.shape[0])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr(pinned, "open_device", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=found)))
    return found


def test_memory_is_locked_and_given_back(driver: Driver) -> None:
    with host_matrix((100, 300), "float32", threads=3) as memory:
        assert memory.array.shape == (100, 300)
        assert list(driver.locked.values()) == [120_000]
        memory.array[:] = 7
        assert (memory.touched > 0, memory.refused) == (True, "")
    assert driver.locked == {}


def test_memory_that_is_locked_at_once_is_one_range_over_which_any_copy_may_go(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "RANGE", 2**14)
    with host_matrix((100, 300), "float32") as memory:
        assert driver.locked == {memory.array.ctypes.data: 120_000}
    assert driver.locked == {}


def test_memory_is_locked_in_parts_by_those_who_fill_it(driver: Driver) -> None:
    with host_matrix((128, 1024), "float32", ahead=True) as memory:
        assert driver.locked == {}
        memory.array[:64] = 7
        memory.lock(0, 2**18)
        memory.array[64:] = 7
        memory.lock(2**18)
        assert driver.seen == [2**18, 2**18]
        assert min(driver.locked) + 2**18 == max(driver.locked)
    with host_matrix((100, 300), "float32", ahead=True):
        pass  # nobody locks it, and nothing is unlocked
    assert driver.locked == {}


def test_ranges_end_at_multiples_of_an_address_and_the_driver_rests_between_them(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(pinned, "RANGE", 2**16)
    monkeypatch.setattr(pinned.time, "sleep", rests.append)
    with host_matrix((128, 1024), "float32", ahead=True) as memory:
        memory.lock(0, 2**18, pause=0.5)
        memory.lock(2**18)
        ends = [place + size for place, size in driver.locked.items()]
        begin = memory.array.ctypes.data
        inner = [place for place in range(begin, begin + 2**19) if place % 2**16 == 0 or place == begin + 2**18]
        assert sorted(driver.locked) == sorted({begin, *inner})
        assert sorted(ends) == [*sorted({begin, *inner})[1:], begin + 2**19]
        assert [rest for rest in rests if rest] == [0.5] * (sum(place < begin + 2**18 for place in driver.locked) - 1)
    assert driver.locked == {}


def test_ranges_are_unlocked_where_no_device_copies_any_more(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "RANGE", 2**16)
    with host_matrix((128, 1024), "float32", ahead=True) as memory:
        memory.lock(0, 2**18)
        memory.lock(2**18)
        begin, locked = memory.array.ctypes.data, dict(driver.locked)
        memory.release(2**17, 2**18)
        outside = [place for place in locked if not begin + 2**17 <= place <= place + locked[place] <= begin + 2**18]
        assert sorted(driver.locked) == sorted(outside)
        assert len(outside) <= len(locked) - 1
        memory.release(2**17, 2**18)  # once more, as those who end a solve do
        assert sorted(driver.locked) == sorted(outside)
    assert driver.locked == {}


def test_a_range_that_the_driver_does_not_unlock_is_tried_again_at_the_end_and_the_others_are_unlocked(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "RANGE", 2**16)
    with host_matrix((128, 1024), "float32", ahead=True) as memory:
        memory.lock()
        refused, real = max(driver.locked), driver.hostUnregister

        def unlock(address: int) -> None:
            if address == refused:
                raise Refusal("the device is lost")
            real(address)

        monkeypatch.setattr(driver, "hostUnregister", unlock)
        with pytest.raises(Refusal, match="lost"):
            memory.release()
        assert list(driver.locked) == [refused]
        monkeypatch.setattr(driver, "hostUnregister", real)
    assert driver.locked == {}


def test_a_device_that_fails_at_the_end_fails_no_finished_work(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with host_matrix((100, 300), "float32"):
        monkeypatch.setattr(driver, "hostUnregister", lambda _: (_ for _ in ()).throw(Refusal("the device is lost")))


@pytest.mark.parametrize("seed", range(200))
def test_parts_of_a_copy_are_all_of_it_and_cross_no_end_of_a_range(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    span = int(rng.choice([8, 16, 64, 256]))
    monkeypatch.setattr(pinned, "RANGE", span)
    rows, width = int(rng.integers(0, 12)), int(rng.integers(1, 90))
    stride, address = width + int(rng.integers(0, 20)), int(rng.integers(0, 500))
    copied = np.zeros((rows, width), int)
    for row, count, first, size in pinned.parts(address, (rows, width), stride):
        copied[row : row + count, first : first + size] += 1
        assert min(count, size) > 0
        begin = address + row * stride + first
        assert begin // span == (begin + (count - 1) * stride + size - 1) // span
    assert (copied == 1).all()


@pytest.mark.parametrize("seed", range(40))
def test_copies_over_ranges_that_were_locked_apart_move_the_same_bytes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of the host stands in for a device's; the driver refuses a copy that crosses the end of a range."""
    rng = np.random.default_rng(seed)
    span = 256
    monkeypatch.setattr(pinned, "RANGE", span)

    def move(to: int, begin: int, size: int, kind: int, _: int) -> None:
        host = begin if kind == Copies.memcpyHostToDevice else to
        assert host // span == (host + size - 1) // span
        ctypes.memmove(to, begin, size)

    def move_rows(to: int, to_pitch: int, begin: int, pitch: int, size: int, rows: int, kind: int, _: int) -> None:
        at, stride = (begin, pitch) if kind == Copies.memcpyHostToDevice else (to, to_pitch)
        assert at // span == (at + (rows - 1) * stride + size - 1) // span
        for row in range(rows):
            ctypes.memmove(to + row * to_pitch, begin + row * pitch, size)

    class Copies:
        memcpyHostToDevice, memcpyDeviceToHost = 1, 2
        memcpyAsync, memcpy2DAsync = staticmethod(move), staticmethod(move_rows)

    n, rows = int(rng.integers(1, 200)), int(rng.integers(1, 9))
    left, wide = int(rng.integers(0, n)) if seed % 2 else 0, n + int(rng.integers(0, 9)) * (seed % 3 > 0)
    device = StripeMemory.__new__(StripeMemory)
    device._cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=Copies))
    device._job = cast(Any, SimpleNamespace(kind=np.dtype("int32"), n=n))
    host = rng.integers(1, 99, (rows, n), dtype="int32")
    there = np.zeros((rows, wide), "int32")
    device._copy(OnDevice(there), host, left, SimpleNamespace(ptr=0))
    np.testing.assert_array_equal(there[:, left:n], host[:, left:])
    assert not there[:, :left].any()
    assert not there[:, n:].any()
    back = np.zeros_like(host)
    device._copy(back, OnDevice(there), left, SimpleNamespace(ptr=0))
    np.testing.assert_array_equal(back[:, left:], host[:, left:])
    assert not back[:, :left].any()


def test_after_a_refusal_no_more_is_tried_and_what_is_locked_is_given_back(driver: Driver) -> None:
    with host_matrix((128, 1024), "float32", ahead=True) as memory:
        memory.lock(0, 2**18)
        driver.refuses = True
        memory.lock(2**18)
        driver.refuses = False
        memory.lock(2**18)
        assert len(driver.locked) == 1
        assert memory.refused
    assert driver.locked == {}


def test_what_the_driver_does_not_lock_is_used_all_the_same(driver: Driver) -> None:
    driver.refuses = True
    with host_matrix((10, 30), "int32") as memory:
        assert "does not lock 1,200 bytes" in memory.refused
        memory.array[:] = 7


def test_memory_that_cannot_be_had_is_told(driver: Driver) -> None:
    with pytest.raises(DoesNotFit, match="of host memory cannot be allocated"), host_matrix((2**30, 2**30), "float32"):
        pass


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize(("directed", "refuses"), [(True, False), (False, True)])
def test_a_solve_through_devices_works_in_locked_memory(
    tier: str,
    directed: bool,
    refuses: bool,
    driver: Driver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The processors stand in for the devices; ragged last stripes come and go in buffers of full height."""

    @contextmanager
    def processors(_: Plan) -> Iterator[list[CpuStreamer]]:
        backend = CpuBackend(2)
        yield [CpuStreamer(backend)]
        backend.shutdown()

    monkeypatch.setattr(streamed, "_devices", processors)
    driver.refuses, n = refuses, 333
    rng = np.random.default_rng(1)
    graph, _ = build_graph(*rng.integers(0, n, (2, 3 * n)), rng.integers(1, 99, 3 * n), n=n, directed=directed)
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype="int32", device="cpu"))
    solve_to_store(graph, Options(), tmp_path / "want.zarr", plan=plan)
    streaming = Tiling(tier, 64, 128, 3, symmetric=not directed)
    plan = replace(plan, device="cuda", tier=tier, streaming=streaming)
    solve_to_store(graph, Options(), tmp_path / "found.zarr", plan=plan)
    with open_matrix(tmp_path / "want.zarr") as one, open_matrix(tmp_path / "found.zarr") as two:
        np.testing.assert_array_equal(two.rows(one.sources), one.rows(one.sources))
    assert driver.locked == {}
    assert driver.seen == ([] if refuses else [333 * 333 * 4] if tier == "host" else [12 * 64 * 333 * 4])
    assert ("copies will be slower" in caplog.text) == refuses
