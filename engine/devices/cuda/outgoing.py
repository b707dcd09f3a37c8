"""Copies of finished rows from the device to a sink, overlapped with the kernels that compute the next rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.pinned import HostMemory, host_matrix
from engine.model import traffic
from engine.model.rows import Sink


@dataclass(frozen=True)
class Outlet:
    """Where finished rows are written: a sink, and the number of threads that write to it."""

    sink: Sink
    threads: int


class Outgoing:
    """Copies rows from device arrays to page-locked buffers, called *bands*, which threads then write to a sink.

    A band is as high as the sink's tiles, and there are two more bands than threads.  A thread allocates the bands
    while the device computes; :meth:`send` waits until they are allocated.  If the sink has an attribute ``memory``, a
    :class:`engine.devices.cuda.pinned.HostMemory` with locked pages, rows are copied directly into that memory.

    Args:
        cupy: the module.
        outlet: where rows are written.
        shape: rows and columns of the matrix.
        dtype: type of its entries.

    Attributes:
        band: the number of rows of a band.
        stream: the stream on which rows are copied.
        told: called with the number of rows that have been written, in the thread that calls ``send`` or ``finish``.
    """

    def __init__(self, cupy: Any, outlet: Outlet, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        (rows, columns), sink, threads = shape, outlet.sink, outlet.threads
        self.told: Callable[[int], None] = told_nobody
        self._cupy, self._sink = cupy, sink
        memory = getattr(sink, "memory", None)
        self._locked = memory if isinstance(memory, HostMemory) else None
        self.band = min(sink.tile[0], max(1, rows))
        count = min(threads + 2, -(-rows // self.band)) if columns else 0
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = ThreadPoolExecutor(max(1, threads), "apsp-write")
        self._held = ExitStack()
        self._opened = self._pool.submit(self._open, count, columns, dtype, threads)
        self._pending: deque[Future[int]] = deque()
        self._next_buffer, self._straightly = 0, 0

    def send(self, rows: Any, first: int) -> Any:
        """Queue the copy of ``rows`` to rows ``first``, ... of the matrix.

        Args:
            rows: on the device, shape (rows, columns); either complete, or completed by work queued on ``stream``.
            first: the row of the matrix at which ``rows`` begin.

        Returns:
            An event of the device; after it ``rows`` may be overwritten.
        """
        buffers = self._opened.result()
        if self._locked is not None and not self._locked.refused:
            self._copy(self._locked.array[first : first + len(rows)], rows)
            self._straightly += len(rows)
        else:
            self._send_bands(buffers, rows, first)
        left = self._cupy.cuda.Event(disable_timing=True)
        left.record(self.stream)
        return left

    def finish(self) -> None:
        """Wait until all rows that were sent are written; raise the exception of a writing thread, if there was one."""
        while self._pending:
            self.told(self._pending.popleft().result())
        self.stream.synchronize()
        straightly, self._straightly = self._straightly, 0
        if straightly:
            self.told(straightly)

    def release(self) -> None:
        """Discard rows that are not written yet, end the threads and free the bands; a second call does nothing."""
        self._pool.shutdown(cancel_futures=True)
        try:
            self.stream.synchronize()
        finally:
            self._pending.clear()
            self._opened = Future()  # the old future would keep the page-locked bands in memory
            self._opened.set_exception(ValueError("rows were sent after the release"))
            self._held.close()

    def _open(self, count: int, columns: int, dtype: np.dtype[Any], threads: int) -> list[npt.NDArray[Any]]:
        if count == 0 or self._straight():
            return []
        memory = self._held.enter_context(host_matrix((count * self.band, columns), dtype, threads=threads))
        return [memory.array[i * self.band : (i + 1) * self.band] for i in range(count)]

    def _straight(self) -> bool:
        """Return whether rows are copied into the sink's own memory, which needs locked pages."""
        return self._locked is not None and not self._locked.refused

    def _send_bands(self, buffers: list[npt.NDArray[Any]], rows: Any, first: int) -> None:
        for start in range(0, len(rows) if buffers else 0, self.band):
            if len(self._pending) == len(buffers):  # the oldest write may still read the next buffer
                self.told(self._pending.popleft().result())
            part = rows[start : start + self.band]
            block = buffers[self._next_buffer % len(buffers)][: len(part)]
            self._next_buffer += 1
            self._copy(block, part)
            arrived = self._cupy.cuda.Event(disable_timing=True)
            arrived.record(self.stream)
            self._pending.append(self._pool.submit(self._write, first + start, block, arrived))

    def _copy(self, there: npt.NDArray[Any], rows: Any) -> None:
        runtime, kind, size = self._cupy.cuda.runtime, self._cupy.cuda.runtime.memcpyDeviceToHost, there.nbytes
        traffic.moved("read", size)
        pitch, width = int(rows.strides[0]), size // max(1, len(there))
        if pitch == width:
            runtime.memcpyAsync(there.ctypes.data, rows.data.ptr, size, kind, self.stream.ptr)
        else:
            args = (there.ctypes.data, width, rows.data.ptr, pitch, width, len(there), kind, self.stream.ptr)
            runtime.memcpy2DAsync(*args)

    def _write(self, first: int, block: npt.NDArray[Any], arrived: Any) -> int:
        arrived.synchronize()
        self._sink.write(first, 0, block)
        return len(block)


def told_nobody(rows: int) -> None:
    """Do nothing with a number of rows: the default of ``told``."""
