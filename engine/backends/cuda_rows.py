"""Rows that leave the device for a sink, while other work goes on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import traffic
from engine.backends.cuda_host import LockedSink, host_matrix
from engine.summary import Sink


class Outgoing:
    """Copies rows from device arrays to the sink: through page-locked bands that threads write, or straight there.

    Bands have the height of the sink's tiles; two more of them than threads are held.  They are got ready meanwhile:
    :meth:`send` waits for them.  Rows go straight into a sink that is page-locked memory itself.
    """

    def __init__(self, cupy: Any, sink: Sink, shape: tuple[int, int], dtype: np.dtype[Any], threads: int) -> None:
        rows, columns = shape
        self._cupy, self._sink = cupy, sink
        self._locked = sink if isinstance(sink, LockedSink) else None
        self._band = min(sink.tile[0], max(1, rows))
        count = min(threads + 2, -(-rows // self._band)) if columns else 0
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = ThreadPoolExecutor(max(1, threads), "apsp-write")
        self._held = ExitStack()
        self._opened = self._pool.submit(self._open, count, columns, dtype, threads)
        self._pending: deque[Future[None]] = deque()
        self._turn = 0

    def send(self, rows: Any, first: int) -> Any:
        """Send ``rows`` (contiguous, ready on the device) as rows ``first``, ... of the matrix.

        Returns an event of the device: once it has passed, ``rows`` may be overwritten.
        """
        buffers = self._opened.result()
        if self._locked is not None and self._straight():
            self._copy(self._locked.array[first : first + len(rows)], rows)
        else:
            self._send_bands(buffers, rows, first)
        left = self._cupy.cuda.Event(disable_timing=True)
        left.record(self._stream)
        return left

    def finish(self) -> None:
        """Wait until everything that was sent is written; what a writer raised is raised here."""
        while self._pending:
            self._pending.popleft().result()
        self._stream.synchronize()

    def release(self) -> None:
        """Drop what was not written yet, end the threads, give the buffers back.  May be called again."""
        self._pool.shutdown(cancel_futures=True)
        self._stream.synchronize()
        self._pending.clear()
        self._held.close()

    def _open(self, count: int, columns: int, dtype: np.dtype[Any], threads: int) -> list[npt.NDArray[Any]]:
        if count == 0 or self._straight():
            return []
        memory = self._held.enter_context(host_matrix((count * self._band, columns), dtype, threads=threads))
        return [memory.array[i * self._band : (i + 1) * self._band] for i in range(count)]

    def _straight(self) -> bool:
        """Whether rows go into the sink's own memory; waits until it is known whether its pages could be locked."""
        if self._locked is None:
            return False
        self._locked.memory.wait()
        return not self._locked.memory.refused

    def _send_bands(self, buffers: list[npt.NDArray[Any]], rows: Any, first: int) -> None:
        for start in range(0, len(rows) if buffers else 0, self._band):
            if len(self._pending) == len(buffers):  # the oldest one holds the buffer that is next
                self._pending.popleft().result()
            part = rows[start : start + self._band]
            block = buffers[self._turn % len(buffers)][: len(part)]
            self._turn += 1
            self._copy(block, part)
            arrived = self._cupy.cuda.Event(disable_timing=True)
            arrived.record(self._stream)
            self._pending.append(self._pool.submit(self._write, first + start, block, arrived))

    def _copy(self, there: npt.NDArray[Any], rows: Any) -> None:
        runtime = self._cupy.cuda.runtime
        traffic.moved("read", int(rows.nbytes))
        runtime.memcpyAsync(there.ctypes.data, rows.data.ptr, rows.nbytes, runtime.memcpyDeviceToHost, self._stream.ptr)

    def _write(self, first: int, block: npt.NDArray[Any], arrived: Any) -> None:
        arrived.synchronize()
        self._sink.write(first, 0, block)
