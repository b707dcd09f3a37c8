"""Threads that share one kernel, and the atomic counter from which they take work.

numba's own parallel loops spin while they wait, which on a busy machine makes two threads slower than one.  Here the
threads are ordinary ones that sleep on a condition variable, the kernels release the GIL, and threads take items from
an atomic counter, so a thread that is descheduled delays the others by one item at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.model.system import usable_processors


@intrinsic
def fetch_add(typingctx, address, amount):  # type: ignore[no-untyped-def]
    """Add ``amount`` to the int64 at ``address`` atomically, and return the value before.

    Args:
        typingctx: numba's typing context.
        address: address of the counter, intp.
        amount: int64.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.intp, types.int64), codegen


#: Wall seconds of shared work after which ``worth_sharing`` judges it.
JUDGED: Final = 0.05
#: Seconds for which the caller works alone after sharing was not worth while.
PAUSE: Final = 0.5
#: Processor seconds a wall second that several threads must get together to be faster than one.
WORTH: Final = 1.1


class Team:
    """A fixed number of threads that run the same kernel together; the caller is one of them.

    Not re-entrant: one ``run`` at a time.

    Args:
        threads: the number of threads, the caller included; None for one a usable processor.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_processors()
        self._pool = ThreadPoolExecutor(self.threads - 1, "apsp-team") if self.threads > 1 else None
        self._wall = self._used = self._alone_until = 0.0

    def run(self, kernel: Callable[..., object], *args: object) -> None:
        """Call ``kernel(worker, *args)`` once for each worker 0 … threads - 1, and wait for all of them."""
        if self._pool is None:
            kernel(0, *args)
            return
        start = time.perf_counter()
        others = [self._pool.submit(_timed, kernel, worker, args) for worker in range(1, self.threads)]
        try:
            used = _timed(kernel, 0, args)
        finally:
            wait(others)
        self._used += used + sum(other.result() for other in others)
        self._wall += time.perf_counter() - start

    def worth_sharing(self) -> bool:
        """Whether work that either one thread or all threads can do should be shared now.

        Where other processes use all processors but one, threads only wait for each other.  So the processor time of
        all threads in recent runs is compared with the wall time; if the ratio is below ``WORTH``, the caller works
        alone for ``PAUSE`` seconds.
        """
        if self._pool is None or time.perf_counter() < self._alone_until:
            return False
        if self._wall < JUDGED:
            return True
        worth = self._used >= WORTH * self._wall
        self._wall = self._used = 0.0
        if not worth:
            self._alone_until = time.perf_counter() + PAUSE
        return worth

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _timed(kernel: Callable[..., object], worker: int, args: tuple[object, ...]) -> float:
    """Run one worker's share; returns the processor seconds it took."""
    start = time.thread_time()
    kernel(worker, *args)
    return time.thread_time() - start
