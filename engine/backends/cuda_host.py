"""Host memory that GPUs copy from and to at the full rate of the bus."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.backends.base import Array
from engine.backends.cuda_modules import open_device
from engine.summary import ArraySink
from storage.errors import DoesNotFit

#: cudaHostRegisterPortable: for all devices.
_PORTABLE: Final = 1
_PAGE: Final = 4096
#: Bytes that a thread touches at a time.
_PIECE: Final = 2**26
#: Since Linux 5.14; elsewhere it is refused.
_MADV_POPULATE_WRITE: Final = 23


class HostMemory:
    """Some host memory.

    Attributes:
        array: the memory, in the shape asked for, not cleared.
        touched, registered: seconds that it took to get the pages, and to lock them; both at once, if they were.
        refused: why the pages are not locked, in a sentence; the bus is slower then.  All known after :meth:`wait`.
    """

    def __init__(self, raw: npt.NDArray[np.uint8], array: Array, runtime: Any, *, threads: int, ahead: bool) -> None:
        self.array, self.touched, self.registered, self.refused = array, 0.0, 0.0, ""
        self._raw, self._runtime = raw, runtime
        work: list[Callable[[], None]] = [self._lock]
        if ahead and _populate(raw[:_PAGE]):
            # from the front on, so that the driver finds most pages there when it comes to lock them
            work.append(partial(self._touch, _populate, threads))
        else:
            self._touch(_write, threads)
        self._working = [threading.Thread(target=each, name="apsp-lock", daemon=True) for each in work]
        for thread in self._working:
            thread.start()

    def wait(self) -> None:
        """Until the pages are locked, or are known not to be."""
        for thread in self._working:
            thread.join()

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

    def _touch(self, touch: Callable[[npt.NDArray[np.uint8]], object], threads: int) -> None:
        """Have the system hand out every page, piece by piece."""
        began = time.perf_counter()
        with ThreadPoolExecutor(max(1, threads), "apsp-touch") as pool:
            list(pool.map(touch, (self._raw[first : first + _PIECE] for first in range(0, len(self._raw), _PIECE))))
        self.touched = time.perf_counter() - began


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
    filled while its pages are handed out and locked, both at once; the caller waits before the devices use it.

    Raises:
        DoesNotFit: the system has not the memory.
    """
    kind = np.dtype(dtype)
    size = shape[0] * shape[1] * kind.itemsize
    runtime: Any = open_device().cuda.runtime
    try:
        space = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as error:
        raise DoesNotFit(f"{size:,} bytes of host memory cannot be had ({error})", resource="memory", needed=size,
                         available=0) from error  # fmt: skip
    if hasattr(mmap, "MADV_HUGEPAGE"):
        space.madvise(mmap.MADV_HUGEPAGE)
    raw: npt.NDArray[np.uint8] = np.frombuffer(space, np.uint8)
    memory = HostMemory(raw, raw[:size].view(kind).reshape(shape), runtime, threads=threads, ahead=ahead)
    if not ahead:
        memory.wait()
    try:
        yield memory
    finally:
        memory.release()


def _write(piece: npt.NDArray[np.uint8]) -> None:
    """Touch every page of what nobody uses yet; one write a page is enough."""
    piece[::_PAGE] = 0


def _populate(piece: npt.NDArray[np.uint8]) -> bool:
    """Touch every page without a change, so that somebody else may fill them meanwhile; False if that is not known."""
    call = ctypes.CDLL(None).madvise
    return bool(call(ctypes.c_void_p(piece.ctypes.data), ctypes.c_size_t(len(piece)), _MADV_POPULATE_WRITE) == 0)
