"""What a machine without the right GPU, driver or wheel is told, and how kernels are put together; no GPU needed."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.devices.cuda import context
from engine.devices.cuda.code.kernel_set import ARITHMETICS, KERNELS, options, source
from engine.devices.cuda.context import allocate, open_device
from engine.model.dtypes import WORK_TYPES
from storage.errors import DoesNotFit, InvalidRequest


class DriverError(RuntimeError):
    pass


class OutOfMemory(MemoryError):
    pass


def _fake(*, devices: int = 1, capability: str = "90", failing: bool = False, driver: int = 13000) -> Any:
    """Some of cupy; a ``driver`` of -1 does not even tell its version."""

    def count() -> int:
        if failing:
            raise DriverError("driver version is insufficient")
        return devices

    def driver_version() -> int:
        if driver < 0:
            raise DriverError("unknown error")
        return driver

    def empty(shape: tuple[int, ...], dtype: object) -> None:
        raise OutOfMemory

    runtime = SimpleNamespace(
        CUDARuntimeError=DriverError,
        getDeviceCount=count,
        memGetInfo=lambda: (1000, 2000),
        driverGetVersion=driver_version,
        runtimeGetVersion=lambda: 13000,
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Device=lambda _: SimpleNamespace(compute_capability=capability),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemory),
    )
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    return SimpleNamespace(cuda=cuda, empty=empty, dtype=np.dtype, get_default_memory_pool=lambda: pool)


def test_a_kernel_may_ask_for_more_shared_memory_later(monkeypatch: pytest.MonkeyPatch) -> None:
    found = object.__new__(context.Modules)
    found.device, found._built, found._allowed, found._lock = 0, {}, {}, threading.Lock()
    found.cupy = _fake()
    found.cupy.cuda.Device = lambda _: nullcontext()
    found.cupy.cuda.driver = SimpleNamespace(CUDADriverError=DriverError)
    made: list[str] = []
    allowed: list[tuple[int, int, int]] = []
    found.driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, funcSetAttribute=lambda *given: allowed.append(given)
    )

    def build(name: str, arithmetic: object) -> Any:
        made.append(name)
        return SimpleNamespace(ptr=77)

    monkeypatch.setattr(found, "_build", build)
    for shared in (0, 49_152, 55_512, 49_152, 60_000):
        assert found.get("search_lists", ARITHMETICS["int32", False], shared).ptr == 77
    assert allowed == [(77, 8, 49_152), (77, 8, 55_512), (77, 8, 60_000)]
    assert made == ["search_lists"]


def test_without_cupy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    context._cupy.cache_clear()
    with pytest.raises(InvalidRequest, match=r"not installed: install apsp\[cuda\]"):
        open_device()


def test_a_broken_cupy_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("import a_part_of_cupy_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    context._cupy.cache_clear()
    with pytest.raises(InvalidRequest, match=r"does not load \(No module named 'a_part_of_cupy_that_is_not_there'\)"):
        open_device()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"failing": True}, "driver version is insufficient"),
        ({"failing": True, "driver": -1}, "driver version is insufficient"),
        ({"failing": True, "driver": 0}, "there is no NVIDIA driver on this machine"),
        ({"failing": True, "driver": 12040}, r"up to 12\.4, and the installed cupy is for CUDA 13: .*cupy-cuda12x"),
        ({"devices": 0}, "no CUDA device 0: 0 found"),
        ({"capability": "61"}, r"capability 6\.1; 7\.0 is needed"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(context, "_cupy", lambda: _fake(**given))
    with pytest.raises(InvalidRequest, match=message) as caught:
        open_device()
    assert caught.value.field == "device"


@pytest.mark.parametrize("capability", ["70", "90", "100", "120"])
def test_new_chips_are_welcome(monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    fake = _fake(capability=capability)
    monkeypatch.setattr(context, "_cupy", lambda: fake)
    assert open_device() is fake


def test_too_large_a_matrix_names_what_is_needed_and_what_is_free() -> None:
    with pytest.raises(DoesNotFit, match=r"1,000 of 2,000 bytes free; 400,000,000 more") as caught:
        allocate(_fake(), (10000, 10000), "float32")
    assert (caught.value.needed, caught.value.available) == (400_000_000, 1000)


def test_every_working_type_has_its_arithmetic() -> None:
    assert {dtype for dtype, _ in ARITHMETICS} == set(WORK_TYPES)
    for (dtype, signed), arithmetic in ARITHMETICS.items():
        assert not signed or WORK_TYPES[dtype].largest_signed > 0
        assert f"struct {arithmetic.name} {{" in source(KERNELS["relax"])
        assert arithmetic.word * arithmetic.tile[1] // arithmetic.lanes == 512


@pytest.mark.parametrize("name", KERNELS)
def test_sources_stand_alone(name: str) -> None:
    text = source(KERNELS[name])
    assert "#include" not in text
    assert f" {KERNELS[name].entry}(" in text
    assert "-DARITHMETIC=Float64" in options(name, ARITHMETICS["float64", True])
