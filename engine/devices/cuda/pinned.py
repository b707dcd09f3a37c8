"""Host memory that GPUs copy from and to at the full rate of the bus."""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.context import open_device
from engine.model.backend import Array
from engine.model.rows import ArraySink
from storage.errors import DoesNotFit

#: cudaHostRegisterPortable: for all devices.
_PORTABLE: Final = 1
_PAGE: Final = 4096
#: Bytes that a thread is begun for.
_SHARE: Final = 2**23


class HostMemory:
    """Some host memory.

    Attributes:
        array: the memory, in the shape asked for, not cleared.
        touched, registered: seconds that it took to get the pages, and to lock them.
        refused: why the pages are not locked, in a sentence; the bus is slower then.  Known after :meth:`wait`.
    """

    def __init__(self, raw: npt.NDArray[np.uint8], array: Array, touched: float, runtime: Any) -> None:
        self.array, self.touched, self.registered, self.refused = array, touched, 0.0, ""
        self._raw, self._runtime = raw, runtime
        self._locking = threading.Thread(target=self._lock, name="apsp-lock", daemon=True)
        self._locking.start()

    def wait(self) -> None:
        """Until the pages are locked, or are known not to be."""
        self._locking.join()

    def release(self) -> None:
        """Unlock the pages."""
        self.wait()
        if not self.refused:
            self._runtime.hostUnregister(self._raw.ctypes.data)

    def _lock(self) -> None:
        began, size = time.perf_counter(), len(self._raw)
        try:
            self._runtime.hostRegister(self._raw.ctypes.data, size, _PORTABLE)
        except self._runtime.CUDARuntimeError as error:
            self.refused = f"the driver does not lock {size:,} bytes of host memory ({error}); copies will be slower"
        self.registered = time.perf_counter() - began


class LockedSink(ArraySink):
    """A sink that is memory from :func:`host_matrix`: a device copies whole rows straight into it."""

    def __init__(self, memory: HostMemory) -> None:
        self.memory, self.array = memory, memory.array
        self.tile = (64, max(1, memory.array.shape[1]))


@contextmanager
def host_matrix(
    shape: tuple[int, int], dtype: npt.DTypeLike, *, threads: int = 1, ahead: bool = False
) -> Iterator[HostMemory]:
    """Memory in large pages, touched by several threads and then locked for the devices.

    ``cudaHostAlloc`` takes 0.35 s/GiB, this way a fraction of that.  Where the driver refuses to lock so much, the
    memory is used all the same: each copy then goes through the driver's own buffers.  With ``ahead`` the memory can be
    filled while it is being locked; the caller waits before the devices use it.

    Raises:
        DoesNotFit: the system has not the memory.
    """
    kind = np.dtype(dtype)
    size = shape[0] * shape[1] * kind.itemsize
    runtime: Any = open_device().cuda.runtime
    began = time.perf_counter()
    try:
        space = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as error:
        raise DoesNotFit(f"{size:,} bytes of host memory cannot be had ({error})", resource="memory", needed=size,
                         available=0) from error  # fmt: skip
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # not every kernel has them
            space.madvise(mmap.MADV_HUGEPAGE)
    raw: npt.NDArray[np.uint8] = np.frombuffer(space, np.uint8)
    _touch(raw, threads)
    memory = HostMemory(raw, raw[:size].view(kind).reshape(shape), time.perf_counter() - began, runtime)
    if not ahead:
        memory.wait()
    try:
        yield memory
    finally:
        memory.release()


def _touch(raw: npt.NDArray[np.uint8], threads: int) -> None:
    """Have the system hand out every page; one write a page is enough."""
    share = max(_SHARE, -(-len(raw) // (max(1, threads) * 2**21)) * 2**21)

    def touch(first: int) -> None:
        raw[first : first + share : _PAGE] = 0

    with ThreadPoolExecutor(max(1, threads), "apsp-touch") as pool:
        list(pool.map(touch, range(0, len(raw), share)))
