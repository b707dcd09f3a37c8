"""What a machine without the right GPU, driver or wheel is told, and how kernels are put together; no GPU needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.devices.cuda import context
from engine.devices.cuda.budgets import lift_limit, limit_memory
from engine.devices.cuda.code import prebuilt
from engine.devices.cuda.code.kernel_set import ARITHMETICS, KERNELS, forms, options, source
from engine.devices.cuda.code.prebuilt import Module, all_modules, write_archive
from engine.devices.cuda.context import allocate, open_device
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import announcing
from storage.errors import Cancelled, DoesNotFit, InvalidRequest, SolveFailed
from tests.unit.engine.execution.test_compiling import Told


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


class Pool:
    """CuPy's pool of device memory, as far as limits go: blocks of the caller's program, and blocks that are free."""

    def __init__(self, limit: int, kept: int, free: int) -> None:
        self.limit, self.kept, self.free = limit, kept, free

    def get_limit(self) -> int:
        return self.limit

    def set_limit(self, size: int) -> None:
        self.limit = size

    def total_bytes(self) -> int:
        return self.kept + self.free

    def free_bytes(self) -> int:
        return self.free

    def free_all_blocks(self) -> None:
        self.free = 0


@pytest.mark.parametrize("before", [0, 120])
def test_arrays_of_the_caller_do_not_count_against_the_budget(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    cupy, pool = _fake(), Pool(before, 70, 20)
    cupy.get_default_memory_pool, cupy.cuda.Device = lambda: pool, lambda _: nullcontext()
    cupy.cuda.driver = SimpleNamespace(CUDADriverError=DriverError)
    monkeypatch.setattr(context, "modules", lambda: SimpleNamespace(cupy=cupy, device=0))
    for memory, usable, limit in ((None, 1020, before), (100, 100, 170), (5000, 1000, 5070)):
        with context.held_device(memory) as (_, found):
            assert (found, pool.limit) == (usable, min(limit, before) if before else limit)
        assert pool.limit == before  # what the caller had set holds again
    with pytest.raises(ZeroDivisionError), context.held_device(100):
        raise ZeroDivisionError
    assert pool.limit == before


@pytest.mark.parametrize("before", [0, 10_000])
def test_budgets_of_solves_at_the_same_time_are_added_whichever_ends_first(before: int) -> None:
    for first_ends_first in (True, False):
        cupy, pool = _fake(), Pool(before, 70, 20)
        cupy.get_default_memory_pool = lambda pool=pool: pool
        limit_memory(cupy, 0, 100)
        limit_memory(cupy, 0, 300)
        assert pool.limit == 470
        one, other = (100, 300) if first_ends_first else (300, 100)
        lift_limit(cupy, 0, one)
        assert pool.limit == 70 + other
        lift_limit(cupy, 0, other)
        assert pool.limit == before


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


class FakeCupy:
    """The loader and the compiler of cupy, which say what they were given."""

    def __init__(self, *, refuses: bool = False, fails: bool = False) -> None:
        self.loaded, self.compiled = list[bytes](), list[str]()

        def load(module: Any, code: bytes) -> None:
            if refuses:
                raise DriverError("CUDA_ERROR_NO_BINARY_FOR_GPU")
            self.loaded.append(code)

        module = type("Module", (), {"load": load, "get_function": lambda _, entry: f"loaded {entry}"})

        def compiler(code: str, options: tuple[str, ...]) -> Any:
            if fails:
                raise DriverError("nvrtc: error")
            self.compiled.append(code)
            return SimpleNamespace(get_function=lambda entry: SimpleNamespace(kernel=f"compiled {entry}"))

        self.RawModule = compiler
        self.cuda = SimpleNamespace(
            Device=lambda _: nullcontext(),
            function=SimpleNamespace(Module=module),
            compiler=SimpleNamespace(CompileException=DriverError),
            driver=SimpleNamespace(CUDADriverError=DriverError),
        )


def _modules(cupy: Any, capability: tuple[int, int] = (9, 0)) -> context.Modules:
    found = object.__new__(context.Modules)
    found.device, found.capability, found.loaded = 0, capability, 0
    found._modules, found._built, found._allowed, found._lock = {}, {}, {}, threading.Lock()
    found.cupy = cupy
    return found


INT32 = ARITHMETICS["int32", False]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with the module of ``pack`` and ``mirror``, as the only one of this installation."""
    for architecture in ("sm_90", prebuilt.PTX):
        codes = {Module("pack", INT32).key(architecture): architecture.encode()}
        write_archive(tmp_path / f"{architecture}.zip", codes, made_by="a test")
    monkeypatch.setattr(prebuilt, "folder", lambda: tmp_path)
    return tmp_path / "sm_90.zip"


def _told(found: context.Modules, names: list[str]) -> tuple[list[Any], list[str]]:
    told: list[str] = []

    @contextmanager
    def tell(name: str) -> Iterator[None]:
        told.append(name)
        yield

    with announcing(tell):
        return [found.get(name, INT32) for name in names], told


def test_a_module_that_was_compiled_ahead_is_loaded_once_and_is_no_phase(archive: Path) -> None:
    cupy = FakeCupy()
    found = _modules(cupy)
    assert _told(found, ["pack", "mirror", "pack"]) == (["loaded pack", "loaded mirror", "loaded pack"], [])
    assert (cupy.loaded, cupy.compiled, found.loaded) == ([b"sm_90"], [], 1)


def test_what_was_not_compiled_ahead_is_compiled_as_a_phase_of_its_own(archive: Path) -> None:
    cupy = FakeCupy()
    assert _told(_modules(cupy), ["tell", "tell"]) == (["compiled tell", "compiled tell"], ["tell"])
    assert cupy.compiled == [source(KERNELS["tell"])]


def test_a_later_chip_takes_ptx_which_its_driver_compiles_as_a_phase(archive: Path) -> None:
    cupy = FakeCupy()
    assert _told(_modules(cupy, (12, 0)), ["pack"]) == (["loaded pack"], ["pack"])
    assert cupy.loaded == [prebuilt.PTX.encode()]


@pytest.mark.parametrize("reason", ["the driver refuses", "damaged", "older source"])
def test_code_that_cannot_be_trusted_is_compiled_instead(
    archive: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    cupy = FakeCupy(refuses=reason == "the driver refuses")
    if reason == "damaged":
        held = bytearray(archive.read_bytes())
        held[60:200] = bytes(140)
        archive.write_bytes(held)
        prebuilt._Archive.at.cache_clear()
    if reason == "older source":
        monkeypatch.setattr(prebuilt, "source", lambda kernel: source(kernel) + "// newer")
    found = _modules(cupy)
    assert _told(found, ["pack", "mirror"]) == (["compiled pack", "compiled mirror"], ["pack"])
    assert (cupy.loaded, found.loaded) == ([], 0)


def test_a_kernel_that_can_neither_be_loaded_nor_compiled_is_named(archive: Path) -> None:
    with pytest.raises(SolveFailed, match=r"the CUDA kernel tell could not be built .*nvrtc: error"):
        _modules(FakeCupy(fails=True)).get("tell", INT32)


def test_all_kernels_are_made_ready_and_only_what_is_lacking_is_compiled(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = FakeCupy()
    found = _modules(cupy)
    monkeypatch.setattr(context, "modules", lambda _: found)
    told = Told()
    assert context.ensure_kernels(threads=2, monitor=told) == (1, len(all_modules()) - 1)
    assert (told.phases, told.done) == ([("compile", len(all_modules()) - 1, "kernels")], len(all_modules()) - 1)
    assert len(found._built) == len(forms())
    assert source(KERNELS["pack"]) in cupy.compiled  # with other arithmetics


def test_making_kernels_ready_stops_when_that_is_wanted(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    found = _modules(cupy)
    monkeypatch.setattr(context, "modules", lambda _: found)
    with pytest.raises(Cancelled):
        context.ensure_kernels(threads=1, monitor=Told(stop_after=3))
    assert 3 <= len(cupy.compiled) <= len(all_modules())
    assert found._built == {}
