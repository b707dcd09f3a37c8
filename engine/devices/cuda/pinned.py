"""Page-locked host memory, which GPUs copy from and to at the full rate of the bus."""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.context import open_device, translated
from engine.model.backend import Array
from storage.errors import DoesNotFit, SolveFailed

#: cudaHostRegisterPortable: the pages count as locked for all devices.
_PORTABLE: Final = 1
#: Bytes of a page of memory; ranges that are locked begin at multiples of PAGE.
PAGE: Final = 4096
#: Locked ranges end at addresses that are multiples of this number of bytes.  Copies are cut there, because the driver
#: refuses a copy over two ranges that it locked in two calls.  While the driver locks a range, it accepts no other
#: call: locking 64 MiB took 6 ms with four H100, and 30 to 77 ms while threads filled other memory.
RANGE: Final = 2**27
#: Each task that touches pages gets at least this many bytes; the last task may get fewer.
_SHARE: Final = 2**23


class HostMemory:
    """Host memory whose pages are locked for the devices, as one range or in ranges that end at multiples of ``RANGE``.

    Args:
        raw: the whole memory as bytes, shape (bytes,).
        array: the same memory with the type and shape of the caller.
        touched: seconds that touching its pages took.
        runtime: cupy's CUDA runtime.

    Attributes:
        array: the memory in the caller's shape, not cleared.
        touched: seconds that touching its pages took.
        registered: seconds that locking the pages took, the sum over all ranges.
        refused: a sentence that says why some pages are not locked, or "".  Copies from or to such pages are slower.
    """

    def __init__(self, raw: npt.NDArray[np.uint8], array: Array, touched: float, runtime: Any) -> None:
        self.array, self.touched, self.registered, self.refused = array, touched, 0.0, ""
        self._raw, self._runtime = raw, runtime
        self._lock, self._locked = threading.Lock(), dict[int, int]()

    def lock_whole(self) -> None:
        """Lock all bytes as one range, so that copies need not be cut (see ``parts``)."""
        self._lock_range(self._raw.ctypes.data, len(self._raw))

    def lock(self, first: int = 0, last: int | None = None, *, pause: float = 0.0) -> None:
        """Lock bytes, one range after the other; several threads may call this for different bytes.

        A copy to or from these bytes must be cut by :func:`parts`.  If the driver refuses one range, the later ranges
        are not tried.

        Args:
            first: the first byte, a multiple of ``PAGE``.
            last: the byte after the last, a multiple of ``PAGE`` or the end; None for the end.
            pause: seconds after each range but the last, in which the driver accepts other calls.
        """
        place = self._raw.ctypes.data
        begin, end = place + first, place + (len(self._raw) if last is None else last)
        while begin < end and not self.refused:
            stop = min(end, (begin // RANGE + 1) * RANGE)
            self._lock_range(begin, stop - begin)
            begin = stop
            if pause and begin < end:
                time.sleep(pause)

    def _lock_range(self, place: int, size: int) -> None:
        began = time.perf_counter()
        try:
            self._runtime.hostRegister(place, size, _PORTABLE)
        except self._runtime.CUDARuntimeError as error:
            self.refused = f"the driver does not lock {size:,} bytes of host memory ({error}); copies will be slower"
            return
        with self._lock:
            self._locked[place] = size
            self.registered += time.perf_counter() - began

    def release(self, first: int = 0, last: int | None = None, *, pause: float = 0.0) -> None:
        """Unlock the ranges that lie within some bytes, by default all; several threads may call this.

        Args:
            first: the first byte.
            last: the byte after the last; None for the end.
            pause: seconds after each range, in which the driver accepts other calls.

        Raises:
            CUDARuntimeError: the driver refused a range, which stays locked; the others are unlocked.
        """
        begin, end = (self._raw.ctypes.data + at for at in (first, len(self._raw) if last is None else last))
        with self._lock:
            ranges = [place for place, size in self._locked.items() if begin <= place and place + size <= end]
        failed: Exception | None = None
        for place in ranges:
            with self._lock:
                size = self._locked.pop(place, None)
            if size is None:  # another thread unlocks this range
                continue
            try:
                self._runtime.hostUnregister(place)
            except self._runtime.CUDARuntimeError as error:
                failed = failed or error
                with self._lock:
                    self._locked[place] = size
            time.sleep(pause)
        try:
            if failed is not None:
                raise failed
        finally:
            del failed  # an error and a frame that refer to each other would keep the memory


def parts(address: int, shape: tuple[int, int], stride: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut a copy to or from the host into parts, each of which lies in one locked range.

    Args:
        address: the address of the copy's first byte in host memory.
        shape: number of rows, and bytes per row that are copied.
        stride: bytes from the beginning of a row to that of the next.

    Yields:
        For each part: its first row and number of rows, and its first byte and number of bytes within each row.
    """
    rows, width = shape
    row = 0
    while row < rows:
        at = address + row * stride
        left = RANGE - at % RANGE
        if width <= left:
            count = min(rows - row, (left - width) // stride + 1)
            yield row, count, 0, width
            row += count
            continue
        first = 0
        while first < width:
            size = min(left, width - first)
            yield row, 1, first, size
            first, left = first + size, RANGE
        row += 1


@contextmanager
def host_matrix(
    shape: tuple[int, int], dtype: npt.DTypeLike, *, threads: int = 1, ahead: bool = False
) -> Iterator[HostMemory]:
    """Allocate memory in huge pages, touch it with several threads, and lock it for the devices.

    This takes a fraction of the 0.35 s/GiB of ``cudaHostAlloc``.  If the driver refuses to lock the pages, the memory
    can still be used: each copy then passes through the driver's own buffers.

    Args:
        shape: rows and columns.
        dtype: type of the entries.
        threads: the number of threads that touch the pages.
        ahead: neither touch nor lock the pages: the caller fills the memory, and then locks it (``HostMemory.lock``),
            range by range, while devices use ranges that are locked already.

    Raises:
        DoesNotFit: the system does not provide the memory.
    """
    kind = np.dtype(dtype)
    size = shape[0] * shape[1] * kind.itemsize
    runtime: Any = open_device().cuda.runtime
    began = time.perf_counter()
    try:
        space = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as error:
        raise DoesNotFit(f"{size:,} bytes of host memory cannot be allocated ({error})", resource="memory", needed=size,
                         available=0) from error  # fmt: skip
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # not every kernel supports huge pages
            space.madvise(mmap.MADV_HUGEPAGE)
    raw: npt.NDArray[np.uint8] = np.frombuffer(space, np.uint8)
    if not ahead:
        _touch(raw, threads)
    memory = HostMemory(raw, raw[:size].view(kind).reshape(shape), time.perf_counter() - began, runtime)
    try:
        if not ahead:
            memory.lock_whole()
        yield memory
    finally:
        with suppress(runtime.CUDARuntimeError):  # a failed device: the caller's work is done or has raised an error
            memory.release()


class PinnedPool:
    """A pool of page-locked pieces of memory, all of one size; a piece returns to the pool once no array refers to it.

    It is used because ``cudaHostAlloc`` touches pages with one thread only, and cupy's pool rounds each request up to a
    power of two.

    Args:
        shape: rows and columns of a piece.
        dtype: type of its entries.
        threads: the number of threads that touch the pages of a new piece.
    """

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike, threads: int) -> None:
        self._shape, self._dtype, self._threads = shape, np.dtype(dtype), threads
        self._free: list[Array] = []
        self._made = ExitStack()

    def take(self, height: int) -> Array:
        """Return an array of ``height`` rows, at most the number of rows of a piece.  The array is not cleared.

        May be called from any thread that has a device current.

        Raises:
            DoesNotFit: the system does not provide the memory.
        """
        try:
            whole = self._free.pop()
        except IndexError:
            whole = self._made.enter_context(host_matrix(self._shape, self._dtype, threads=self._threads)).array
        lease = _Lease(whole[:height])
        weakref.finalize(lease, self._free.append, whole).atexit = False
        return np.asarray(lease)

    def release(self) -> None:
        """Unlock all pieces; arrays keep the memory that they refer to.  Errors of a failed device are ignored."""
        self._free.clear()
        with suppress(SolveFailed), translated(open_device()):
            self._made.close()


class _Lease:
    """The owner of a piece of memory.  All arrays over the piece, also views of views, refer to this object, so it
    lives until the last of these arrays is gone.
    """

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.__array_interface__ = rows.__array_interface__


def _touch(raw: npt.NDArray[np.uint8], threads: int) -> None:
    """Write to every page once, so that the system allocates it."""
    share = max(_SHARE, -(-len(raw) // (max(1, threads) * 2**21)) * 2**21)

    def touch(first: int) -> None:
        raw[first : first + share : PAGE] = 0

    with ThreadPoolExecutor(max(1, threads), "apsp-touch") as pool:
        list(pool.map(touch, range(0, len(raw), share)))
