"""Host memory for the GPUs, with a driver that only notes what it is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cuda import pinned
from engine.devices.cuda.pinned import host_matrix
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
