"""The device: its properties, memory and errors; and its kernels, which are loaded or compiled here.

A kernel that was compiled ahead (``code.prebuilt``) is loaded.  NVRTC compiles any other kernel, through cupy, when it
is first requested on a device; cupy caches the result on disk.  Only the modules of this folder import cupy, which is
an optional dependency.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.budgets import lift_limit, limit_memory
from engine.devices.cuda.code import prebuilt
from engine.devices.cuda.code.kernel_set import ARITHMETICS, KERNELS, Arithmetic, forms, options, source
from engine.devices.cuda.code.prebuilt import Module, all_modules
from engine.model.problem import Device
from engine.model.progress import COMPILING, WAITING, Monitor
from storage.errors import DoesNotFit, InvalidRequest, SolveFailed

#: The oldest compute capability that the kernels are written for.
OLDEST: Final = (7, 0)

#: Updates per clock cycle and multiprocessor that whole solves reach, measured on an H200 (docs/kernels.md).
HOPPER: Final = MappingProxyType({"uint16": 131.0, "int32": 68.0, "float32": 62.0, "float64": 19.0})
#: The same rates for chips without three-operand minima or with fewer float64 units: cautious estimates.
OLDER: Final = MappingProxyType({"uint16": 50.0, "int32": 30.0, "float32": 30.0, "float64": 1.0})
_CLOCK_RATE: Final = 13  # the device attribute cudaDevAttrClockRate, whose value is in kHz
log = logging.getLogger("apsp.engine")


@cache
def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        absent = error.name == "cupy"
        what = "is not installed" if absent else f"does not load ({str(error).partition(chr(10))[0]})"
        raise InvalidRequest(
            f"computing on a GPU needs cupy, which {what}: install apsp[cuda] "
            "(or the cupy wheel that fits your CUDA version), or use --device cpu",
            field="device",
        ) from error
    return cupy


def _unusable(cupy: Any, error: Exception) -> str:
    """Return a sentence that says why the CUDA runtime fails: there is no driver, or the driver is too old for the
    installed wheel, or else the message of the runtime's error.
    """
    runtime = cupy.cuda.runtime
    try:
        offered, needed = int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    except runtime.CUDARuntimeError:
        return f"the CUDA driver or device cannot be used ({error})"
    if offered == 0:
        return "there is no NVIDIA driver on this machine, or it cannot be seen from here (containers need --gpus all)"
    if offered // 1000 < needed // 1000:
        return (
            f"the NVIDIA driver serves CUDA up to {offered // 1000}.{offered % 1000 // 10}, and the installed cupy is "
            f"for CUDA {needed // 1000}: update the driver, or install cupy-cuda{offered // 1000}x instead"
        )
    return f"the CUDA driver or device cannot be used ({error})"


def open_device(index: int = 0) -> Any:
    """Return cupy, after a check that device ``index`` exists and is recent enough.

    Raises:
        InvalidRequest: cupy, the driver or the device is missing or too old; the message says which.
    """
    cupy = _cupy()
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        if index >= count:
            raise InvalidRequest(f"there is no CUDA device {index}: {count} found", field="device")
        capability = tuple(int(d) for d in divmod(int(cupy.cuda.Device(index).compute_capability), 10))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InvalidRequest(_unusable(cupy, error), field="device") from error
    if capability < OLDEST:
        found, needed = (".".join(map(str, c)) for c in (capability, OLDEST))
        raise InvalidRequest(f"CUDA device {index} has compute capability {found}; {needed} is needed", field="device")
    return cupy


class Modules:
    """The kernels of one device.

    Args:
        device: index of the device.

    Attributes:
        loaded: number of modules that were compiled ahead and loaded.
        shared: the most bytes of shared memory that a thread block may ask for.
    """

    def __init__(self, device: int = 0) -> None:
        self.cupy = open_device(device)
        self.device = device
        from cupy_backends.cuda.api import driver

        self.driver: Any = driver
        self.loaded = 0
        self._modules: dict[str, Any] = {}
        self._built: dict[tuple[str, str], Any] = {}
        self._allowed: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        with translated(self.cupy), self.cupy.cuda.Device(device) as chip:
            # while some page-locked memory is in use, the driver keeps more of it ready for small requests; without
            # this piece the first request of each solve would take 1 ms
            self._piece = self.cupy.cuda.alloc_pinned_memory(512)
            major, minor = divmod(int(chip.compute_capability), 10)
        self.capability = (major, minor)
        properties = self.cupy.cuda.runtime.getDeviceProperties(device)
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared = int(properties["sharedMemPerBlockOptin"])

    def get(self, name: str, arithmetic: Arithmetic, shared: int = 0) -> Any:
        """Return a kernel, loaded or compiled at the first call.

        Args:
            name: a key of ``KERNELS``.
            arithmetic: the arithmetic for which it is compiled.
            shared: bytes of dynamic shared memory that a launch needs; the kernel is allowed at least as many.

        Raises:
            SolveFailed: the kernel cannot be compiled for this device.
        """
        key = (name, arithmetic.name)
        with self._lock:
            if key not in self._built:
                self._built[key] = self._build(name, arithmetic)
            function = self._built[key]
            # more than 48 KiB of shared memory, static shared memory included, must be requested explicitly
            if shared > max(40 * 1024, self._allowed.get(key, 0)):
                with self.cupy.cuda.Device(self.device), translated(self.cupy):
                    most = self.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    self.driver.funcSetAttribute(function.ptr, most, shared)
                self._allowed[key] = shared
            return function

    def _build(self, name: str, arithmetic: Arithmetic) -> Any:
        module, entry = Module(name, arithmetic), KERNELS[name].entry
        key = module.key("")
        with self.cupy.cuda.Device(self.device):
            if key not in self._modules:
                self._modules[key] = self._load(module) or self.compile(module)
            return self._modules[key].get_function(entry)

    def _load(self, module: Module) -> Any:
        """Return the module as it was compiled ahead of time; None if there is no such module, or if the driver refuses
        it.
        """
        found = prebuilt.find(module, self.capability)
        if found is None:
            return None
        architecture, code = found
        made = self.cupy.cuda.function.Module()
        try:
            # PTX is announced to callers like a compilation: the driver compiles it, which takes as long as NVRTC
            with _told(module.name) if architecture == prebuilt.PTX else nullcontext():
                made.load(code)
        except self.cupy.cuda.driver.CUDADriverError as error:  # the driver is older than the compiler
            log.info("the driver does not take %s for %s (%s); it is compiled", module.name, architecture, error)
            return None
        self.loaded += 1
        return made

    def compile(self, module: Module) -> Any:
        """Return a module from cupy's cache, or compile it with NVRTC.  Several threads may call this at once.

        Raises:
            SolveFailed: the module cannot be compiled for this device.
        """
        kernel, cuda = KERNELS[module.name], self.cupy.cuda
        try:
            with _told(module.name), cuda.Device(self.device):
                made = self.cupy.RawModule(code=source(kernel), options=options(module.name, module.arithmetic))
                _ = made.get_function(kernel.entry).kernel  # cupy compiles only when this attribute is read
        except (cuda.compiler.CompileException, cuda.driver.CUDADriverError, RuntimeError) as error:
            raise SolveFailed(
                f"the CUDA kernel {module.name} could not be built for this device; the installed cupy and the "
                f"driver's CUDA version probably do not fit each other ({str(error).splitlines()[0]})"
            ) from error
        return _Compiled(made)


class _Compiled:
    """A module that cupy compiled, with the interface of a module that was compiled ahead."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def get_function(self, entry: str) -> Any:
        """Return the function for the current device."""
        return self._made.get_function(entry).kernel


def _told(name: str) -> Any:
    """Context manager: tell a caller who waits for kernel ``name`` that it is being compiled."""
    return nullcontext() if WAITING.announce is None else WAITING.announce(name)


def ensure_kernels(device: int = 0, *, threads: int | None = None, monitor: Monitor | None = None) -> tuple[int, int]:
    """Make every kernel ready for a device: load it if it was compiled ahead, else compile it into cupy's cache.

    Args:
        device: index of the device.
        threads: the number of compilations at a time; None for one per processor.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        The number of modules that were loaded, and the number that were compiled or found in cupy's cache.

    Raises:
        Cancelled: the monitor asked to stop; what was compiled is kept.
        InvalidRequest: there is no usable device.
        SolveFailed: a kernel cannot be compiled for the device.
    """
    found, every, watched = modules(device), all_modules(), monitor or Monitor()
    lacking = [module for module in every if prebuilt.find(module, found.capability) is None]
    if lacking:
        watched.begin(COMPILING, len(lacking), "kernels")
    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, "apsp-nvrtc")
    try:
        for _ in pool.map(found.compile, lacking):
            watched.step(1)
    finally:
        pool.shutdown(cancel_futures=True)
    for name, arithmetic in forms():
        found.get(name, arithmetic)
    return found.loaded, len(every) - found.loaded


@cache
def modules(device: int = 0) -> Modules:
    """Return the kernels of ``device``; the result is cached, so a process has one instance per device."""
    return Modules(device)


def alike(runtime: Any, index: int) -> int:
    """Return the length of the run of consecutive devices, from ``index`` on, that are of the same model as device
    ``index``, can access its memory, and let it access theirs.
    """
    name, last = runtime.getDeviceProperties(index)["name"], index + 1
    while last < runtime.getDeviceCount() and runtime.getDeviceProperties(last)["name"] == name:
        if not (runtime.deviceCanAccessPeer(index, last) and runtime.deviceCanAccessPeer(last, index)):
            break
        last += 1
    return last - index


def find_device(budget: int | None, index: int = 0) -> Device:
    """Return the device in the form that the planner uses, after loading or compiling a kernel for it as a test.

    Args:
        budget: bytes of device memory that may be used; None for all that is free.
        index: index of the device.

    Raises:
        InvalidRequest: the device cannot be used; the message says why.
    """
    try:
        found = modules(index)
        found.get("settle", ARITHMETICS["int32", True])
    except SolveFailed as error:
        raise InvalidRequest(str(error), field="device") from error
    runtime = found.cupy.cuda.runtime
    with found.cupy.cuda.Device(index) as device:
        free, total = runtime.memGetInfo()
        capability = int(device.compute_capability)
        kilohertz = int(runtime.deviceGetAttribute(_CLOCK_RATE, index))
    pool = found.cupy.get_default_memory_pool()
    usable = free + pool.free_bytes()
    clocks = kilohertz * 1e3 * found.multiprocessors
    return Device(
        name=runtime.getDeviceProperties(index)["name"].decode(),
        memory=usable if budget is None else min(budget, usable),
        total=int(total),
        relax_rate={name: rate * clocks for name, rate in (HOPPER if capability >= 90 else OLDER).items()},
        count=alike(runtime, index),
        free=usable,
    )


def memory_in_use() -> tuple[int, int] | None:
    """Return the used and the total bytes of the current device's memory; None if they cannot be read."""
    try:
        free, total = _cupy().cuda.runtime.memGetInfo()
    except Exception:  # this figure is for metrics only; a solve reports a failed device itself
        return None
    return int(total - free), int(total)


@contextmanager
def translated(cupy: Any) -> Iterator[None]:
    """Context manager: translates exceptions of cupy and CUDA into exceptions of ``storage.errors``."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise _full(cupy, 0) from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise SolveFailed(f"the GPU failed: {error}") from error


@contextmanager
def held_device(memory: int | None) -> Iterator[tuple[Modules, int]]:
    """Context manager: makes the first device current, limits its memory, and translates its errors as ``translated``
    does.

    It yields the kernels of the device and the bytes of its memory that may be used.

    Args:
        memory: bytes of device memory that may be used; None for all that is free.
    """
    found = modules()
    with translated(found.cupy), found.cupy.cuda.Device(found.device):
        limit_memory(found.cupy, found.device, memory)
        try:
            free = found.cupy.cuda.runtime.memGetInfo()[0] + found.cupy.get_default_memory_pool().free_bytes()
            yield found, min(memory or free, free)
        finally:
            lift_limit(found.cupy, found.device, memory)


def _full(cupy: Any, needed: int) -> DoesNotFit:
    cupy.get_default_memory_pool().free_all_blocks()
    free, total = cupy.cuda.runtime.memGetInfo()
    more = f"{needed:,} more are needed" if needed else "more are needed"
    return DoesNotFit(
        f"the GPU has {free:,} of {total:,} bytes free; {more}",
        resource="device memory",
        needed=needed,
        available=free,
    )


def allocate(cupy: Any, shape: tuple[int, ...], dtype: object) -> Any:
    """Allocate device memory, not cleared.

    Args:
        cupy: the module.
        shape: shape of the array.
        dtype: type of its entries.

    Raises:
        DoesNotFit: the array does not fit; the error names the bytes needed and free.
    """
    try:
        return cupy.empty(shape, dtype=dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        needed = cupy.dtype(dtype).itemsize
        for side in shape:
            needed *= side
        raise _full(cupy, needed) from error


def upload(cupy: Any, array: npt.NDArray[Any]) -> Any:
    """Copy ``array`` to the device, in order with the current stream; the caller may change ``array`` afterwards.

    The driver copies pageable memory through its own buffers, which takes less time than page-locking the array.
    """
    array = np.ascontiguousarray(array)
    there, runtime = allocate(cupy, array.shape, array.dtype), cupy.cuda.runtime
    if array.size:
        stream = cupy.cuda.get_current_stream()
        runtime.memcpyAsync(there.data.ptr, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()  # some devices read pageable memory directly, so wait before the caller may change it
    return there
