"""Rows that leave the device for a sink: band by band through page-locked buffers, while other work goes on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import traffic
from engine.summary import Sink


class Outgoing:
    """Copies rows from device arrays into page-locked bands and lets threads write these to the sink.

    Bands have the height of the sink's tiles; two more of them than threads are held.
    """

    def __init__(self, cupy: Any, sink: Sink, shape: tuple[int, int], dtype: np.dtype[Any], threads: int) -> None:
        rows, columns = shape
        self._cupy, self._sink = cupy, sink
        self._band = min(sink.tile[0], max(1, rows))
        count = min(threads + 2, -(-rows // self._band)) if columns else 0
        self._buffers = [self._pinned(dtype, columns) for _ in range(count)]
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = ThreadPoolExecutor(max(1, threads), "apsp-write")
        self._pending: deque[Future[None]] = deque()
        self._turn = 0

    def send(self, rows: Any, first: int) -> Any:
        """Send ``rows`` (contiguous, ready on the device) as rows ``first``, ... of the matrix.

        Returns an event of the device: once it has passed, ``rows`` may be overwritten.
        """
        runtime = self._cupy.cuda.runtime
        for start in range(0, len(rows) if self._buffers else 0, self._band):
            if len(self._pending) == len(self._buffers):  # the oldest one holds the buffer that is next
                self._pending.popleft().result()
            part = rows[start : start + self._band]
            block = self._buffers[self._turn % len(self._buffers)][: len(part)]
            self._turn += 1
            to_host = runtime.memcpyDeviceToHost
            traffic.moved("read", int(block.nbytes))
            runtime.memcpyAsync(block.ctypes.data, part.data.ptr, block.nbytes, to_host, self._stream.ptr)
            arrived = self._cupy.cuda.Event(disable_timing=True)
            arrived.record(self._stream)
            self._pending.append(self._pool.submit(self._write, first + start, block, arrived))
        left = self._cupy.cuda.Event(disable_timing=True)
        left.record(self._stream)
        return left

    def finish(self) -> None:
        """Wait until everything that was sent is written; what a writer raised is raised here."""
        while self._pending:
            self._pending.popleft().result()

    def release(self) -> None:
        """Drop what was not written yet, end the threads, give the buffers back."""
        self._pool.shutdown(cancel_futures=True)
        self._stream.synchronize()
        self._pending.clear()
        self._buffers.clear()

    def _write(self, first: int, block: npt.NDArray[Any], arrived: Any) -> None:
        arrived.synchronize()
        self._sink.write(first, 0, block)

    def _pinned(self, dtype: np.dtype[Any], columns: int) -> npt.NDArray[Any]:
        count = self._band * columns
        memory = self._cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)
        return np.frombuffer(memory, dtype, count).reshape(self._band, columns)
