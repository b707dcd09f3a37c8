"""The CUDA kernels, their compilation, and the device: its properties, memory and errors.

The sources are package data (``engine/kernels``).  NVRTC compiles a kernel, through cupy, when it is first requested on
a device; cupy caches the result on disk.  Only the modules of this folder import cupy, which is an optional dependency.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.model.problem import Device
from storage.errors import DoesNotFit, InvalidRequest, SolveFailed

#: The oldest compute capability that the kernels are written for.
OLDEST: Final = (7, 0)

#: Updates a clock and multiprocessor that whole solves reach, measured on an H200 (docs/kernels.md).
HOPPER: Final = MappingProxyType({"uint16": 131.0, "int32": 68.0, "float32": 62.0, "float64": 19.0})
#: Cautious estimates of the same for chips without three-operand minima or with fewer float64 units.
OLDER: Final = MappingProxyType({"uint16": 50.0, "int32": 30.0, "float32": 30.0, "float64": 1.0})
_CLOCK_RATE: Final = 13  # cudaDevAttrClockRate, in kHz


@dataclass(frozen=True)
class Arithmetic:
    """How entries are added and compared: a struct in ``common.cuh``, with its tile in ``relax.cu``.

    Attributes:
        name: the struct.
        lanes: entries a word.
        word: bytes a word.
        tile: rows and columns (entries) of C that a thread block of relax computes.
        shared: bytes of shared memory that such a block needs.
    """

    name: str
    lanes: int
    word: int
    tile: tuple[int, int]
    shared: int


@dataclass(frozen=True)
class Kernel:
    """One entry point: its file, its name, the threads of a block and the macros that it is compiled with."""

    file: str
    entry: str
    threads: int
    defines: tuple[str, ...] = ()


_WORDS_32: Final = 4 * 16 * (128 + 128) * 4 + 16
_WORDS_64: Final = 4 * 8 * (128 + 64) * 8 + 16

#: By dtype name and whether entries may be negative.
ARITHMETICS: Final = MappingProxyType(
    {
        ("uint16", False): Arithmetic("Uint16", 2, 4, (128, 256), _WORDS_32),
        ("int32", False): Arithmetic("Int32", 1, 4, (128, 128), _WORDS_32),
        ("int32", True): Arithmetic("Int32", 1, 4, (128, 128), _WORDS_32),
        ("float32", False): Arithmetic("Float32Nonnegative", 1, 4, (128, 128), _WORDS_32),
        ("float32", True): Arithmetic("Float32Signed", 1, 4, (128, 128), _WORDS_32),
        ("float64", False): Arithmetic("Float64", 1, 8, (128, 64), _WORDS_64),
        ("float64", True): Arithmetic("Float64", 1, 8, (128, 64), _WORDS_64),
    }
)

KERNELS: Final = MappingProxyType(
    {
        "relax": Kernel("relax.cu", "relax", 256),
        "pack": Kernel("pack.cu", "pack", 256),
        "mirror": Kernel("pack.cu", "mirror", 256),
        **{name: Kernel("dense.cu", name, 256) for name in ("scatter", "settle", "restore", "facts", "histogram")},
        "tell": Kernel("tell.cu", "tell", 256),
        "single32": Kernel("single.cu", "single", 128, ("SIDE=32", "THREAD_ROWS=2", "BLOCKS=5")),
        **{name: Kernel("sweep.cu", name, 256) for name in ("seed", "gather", "emit")},
        # 8 rows a thread are best for many tiles, 4 (twice the threads) for the latency of few
        "single64": Kernel("single.cu", "single", 128, ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=4", "UNROLLED=2")),
        "single64wide": Kernel("single.cu", "single", 256, ("SIDE=64", "THREAD_ROWS=4", "BLOCKS=2", "BY_TILE=1")),
        "lone32": Kernel("single.cu", "lone", 128, ("SIDE=32", "THREAD_ROWS=2", "BLOCKS=5")),
        "lone64": Kernel("single.cu", "lone", 128, ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=4")),
        "power8": Kernel("power.cu", "power", 256, ("ROWS=8",)),
        "power16": Kernel("power.cu", "power", 256, ("ROWS=16",)),
        "search_sweep": Kernel("search.cu", "search_sweep", 256, ("FORM_SWEEP",)),
        "search_lists": Kernel("search.cu", "search_lists", 256, ("FORM_LISTS",)),
        # labels of 16 bits, a matrix of 32
        "search_sweep_widened": Kernel("search.cu", "search_sweep", 256, ("FORM_SWEEP", "WIDEN")),
        "search_lists_widened": Kernel("search.cu", "search_lists", 256, ("FORM_LISTS", "WIDEN")),
        "hops": Kernel("hops.cu", "hops", 256),
    }
)
#: With 64-bit entries the registers suffice for two blocks of 128 threads.
_FLOAT64: Final = MappingProxyType(
    {
        "single64": ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=2", "UNROLLED=2"),
        "single64wide": ("SIDE=64", "THREAD_ROWS=4", "BLOCKS=2"),  # with BY_TILE it is a third slower
        "lone64": ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=2"),
    }
)


def source(kernel: Kernel) -> str:
    """Return the source text of a kernel: ``common.cuh``, then its own file."""
    folder = resources.files("engine") / "kernels"
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("common.cuh", kernel.file)}
    return "\n".join(f'#line 1 "{name}"\n{text}' for name, text in texts.items())


def options(name: str, arithmetic: Arithmetic) -> tuple[str, ...]:
    """Return the compiler options of kernel ``name`` for one arithmetic, which suit NVRTC and nvcc."""
    defines = KERNELS[name].defines
    if arithmetic.word == 8:
        defines = _FLOAT64.get(name, defines)
    return ("--std=c++17", f"-DARITHMETIC={arithmetic.name}", *(f"-D{d}" for d in defines))


def single_shared(side: int, itemsize: int) -> int:
    """Return the bytes of shared memory of a block of the single kernel: A padded by four columns, B, and two words."""
    return side * (side + 4 + side) * max(itemsize, 4) + 16


#: Largest n of the power kernel.
POWER_MOST: Final = 256


def power_shared(rows: int, n: int, itemsize: int) -> int:
    """Return the bytes of shared memory of a block of the power kernel: strips of A and of B, or the warps' results.

    Args:
        rows: rows of the block's strip of A.
        n: vertices, a multiple of 32.
        itemsize: bytes an entry.
    """
    return (rows * (POWER_MOST + 4) + max(n * 32, 8 * rows * 32)) * max(itemsize, 4)


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
    """A sentence on why the CUDA runtime refuses: no driver, a driver too old for the wheel, or its own message."""
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
        InvalidRequest: cupy, the driver or the device is missing or too old; one sentence says which.
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
    """The compiled kernels of one device.

    Args:
        device: its index.
    """

    def __init__(self, device: int = 0) -> None:
        self.cupy = open_device(device)
        self.device = device
        from cupy_backends.cuda.api import driver

        self.driver: Any = driver
        self._built: dict[tuple[str, str], Any] = {}
        self._allowed: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        with translated(self.cupy), self.cupy.cuda.Device(device):
            # while any of its page-locked memory is in use, the driver keeps it for small requests; without this piece
            # the first request of each solve would take 1 ms
            self._piece = self.cupy.cuda.alloc_pinned_memory(512)
        properties = self.cupy.cuda.runtime.getDeviceProperties(device)
        self.multiprocessors = int(properties["multiProcessorCount"])

    def get(self, name: str, arithmetic: Arithmetic, shared: int = 0) -> Any:
        """Return a kernel, compiled at the first call.

        Args:
            name: a key of ``KERNELS``.
            arithmetic: what it is compiled for.
            shared: bytes of dynamic shared memory that a launch needs; the kernel is allowed at least as many.

        Raises:
            SolveFailed: it cannot be compiled for this device.
        """
        key = (name, arithmetic.name)
        with self._lock:
            if key not in self._built:
                self._built[key] = self._build(name, arithmetic)
            function = self._built[key]
            # more than 48 KiB, static memory included, must be requested
            if shared > max(40 * 1024, self._allowed.get(key, 0)):
                with self.cupy.cuda.Device(self.device), translated(self.cupy):
                    function.max_dynamic_shared_size_bytes = shared
                self._allowed[key] = shared
            return function

    def _build(self, name: str, arithmetic: Arithmetic) -> Any:
        kernel = KERNELS[name]
        try:
            with self.cupy.cuda.Device(self.device):
                module = self.cupy.RawModule(code=source(kernel), options=options(name, arithmetic))
                function = module.get_function(kernel.entry)
        except (self.cupy.cuda.compiler.CompileException, self.cupy.cuda.driver.CUDADriverError, RuntimeError) as error:
            raise SolveFailed(
                f"the CUDA kernel {name} could not be built for this device; the installed cupy and the driver's CUDA "
                f"version probably do not fit each other ({str(error).splitlines()[0]})"
            ) from error
        return function


@cache
def modules(device: int = 0) -> Modules:
    """Return the kernels of ``device``; one instance a process."""
    return Modules(device)


def alike(runtime: Any, index: int) -> int:
    """Return how many devices from ``index`` on, itself included, are of one model and reach each other's memory."""
    name, last = runtime.getDeviceProperties(index)["name"], index + 1
    while last < runtime.getDeviceCount() and runtime.getDeviceProperties(last)["name"] == name:
        if not (runtime.deviceCanAccessPeer(index, last) and runtime.deviceCanAccessPeer(last, index)):
            break
        last += 1
    return last - index


def find_device(budget: int | None, index: int = 0) -> Device:
    """Return the device as the planner sees it, after a kernel has been compiled for it.

    Args:
        budget: bytes of its memory that may be used; None for all that is free.
        index: which device.

    Raises:
        InvalidRequest: it cannot be used; one sentence says why.
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
    """Context manager: translates errors of the device into those of ``storage.errors``."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise _full(cupy, 0) from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise SolveFailed(f"the GPU failed: {error}") from error


@contextmanager
def held_device(memory: int | None) -> Iterator[tuple[Modules, int]]:
    """Context manager: makes the first device current, limits its memory, and translates its errors.

    It yields the kernels of the device and the bytes of its memory that may be used.

    Args:
        memory: bytes of device memory that may be used; None for all that is free.
    """
    found = modules()
    pool = found.cupy.get_default_memory_pool()
    pool.set_limit(size=memory or 0)
    try:
        with translated(found.cupy), found.cupy.cuda.Device(found.device):
            free = found.cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
            yield found, min(memory or free, free)
    finally:
        pool.set_limit(size=0)


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
        shape: of the array.
        dtype: type of its entries.

    Raises:
        DoesNotFit: it does not fit; the error names the bytes needed and free.
    """
    try:
        return cupy.empty(shape, dtype=dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        needed = cupy.dtype(dtype).itemsize
        for side in shape:
            needed *= side
        raise _full(cupy, needed) from error


def upload(cupy: Any, array: npt.NDArray[Any]) -> Any:
    """Copy ``array`` to the device, in order with the current stream; ``array`` may be changed after the return.

    The copy reads pageable memory through the driver's own buffers: page-locking as much memory would take longer.
    """
    array = np.ascontiguousarray(array)
    there, runtime = allocate(cupy, array.shape, array.dtype), cupy.cuda.runtime
    if array.size:
        stream = cupy.cuda.get_current_stream()
        runtime.memcpyAsync(there.data.ptr, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()  # a device that reads pageable memory directly may not have finished
    return there
