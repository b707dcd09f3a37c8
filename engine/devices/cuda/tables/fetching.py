"""Copies of answers from the device into arrays of the caller, through page-locked buffers that threads empty."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.devices.cuda.pinned import host_matrix

#: _BUFFER: bytes of a buffer.  _SMALL: up to this number of bytes, a plain copy by the driver is faster.
_BUFFER: Final = 8 << 20
_SMALL: Final = 1 << 20
#: The largest number of threads; more threads would only wait for memory.
_MOST: Final = 8


class AnswerFetcher:
    """Copies device arrays to the host.  Memory is page-locked at the first large copy.  Not thread-safe.

    Args:
        cupy: the module.
        threads: the number of threads that may be used.
    """

    def __init__(self, cupy: Any, threads: int) -> None:
        self._cupy, self._threads = cupy, max(1, min(threads, _MOST))
        self._held = ExitStack()
        self._buffers: list[npt.NDArray[np.uint8]] = []
        self._pool: ThreadPoolExecutor | None = None

    def fetch(self, there: Any, out: npt.NDArray[Any]) -> None:
        """Copy ``there`` to ``out`` after the work that is queued on the current stream, and wait for it.

        Args:
            there: in device memory, contiguous.
            out: of the same shape and type, contiguous.
        """
        if out.nbytes <= _SMALL:
            there.get(out=out)
            return
        pool, to = self._opened(), out.reshape(-1).view(np.uint8)
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
        pending: list[Future[None]] = []
        try:
            for k, first in enumerate(range(0, len(to), _BUFFER)):
                if k >= len(self._buffers):
                    pending[k - len(self._buffers)].result()
                piece = to[first : first + _BUFFER]
                buffer = self._buffers[k % len(self._buffers)][: len(piece)]
                runtime.memcpyAsync(buffer.ctypes.data, there.data.ptr + first, len(piece),
                                    runtime.memcpyDeviceToHost, stream.ptr)  # fmt: skip
                arrived = self._cupy.cuda.Event(disable_timing=True)
                arrived.record(stream)
                pending.append(pool.submit(_copy, arrived, buffer, piece))
            for done in range(len(pending)):
                pending[done].result()
        finally:
            wait(pending)
            pending.clear()  # an error and a frame that refer to each other would keep the arrays

    def release(self) -> None:
        """Unlock the buffers and end the threads."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None
        self._buffers = []
        self._held.close()

    def _opened(self) -> ThreadPoolExecutor:
        if self._pool is None:
            count = self._threads + 2
            memory = self._held.enter_context(host_matrix((count, _BUFFER), np.uint8, threads=self._threads))
            self._buffers = list(memory.array)
            self._pool = ThreadPoolExecutor(self._threads, "apsp-fetch")
        return self._pool


def _copy(arrived: Any, buffer: npt.NDArray[np.uint8], piece: npt.NDArray[np.uint8]) -> None:
    arrived.synchronize()
    piece[:] = buffer
