"""Threads that share one kernel, and the atomic counter that hands them work.

numba's own parallel loops spin while they wait, which on a busy machine makes two threads slower than one.  Here the
threads are ordinary ones that sleep on a condition variable, the kernels release the GIL, and work is handed out from
an atomic counter, so a thread that is descheduled holds nobody up for longer than its present piece.
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
    """Atomically add ``amount`` to the int64 at ``address``; returns the value before."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.intp, types.int64), codegen


#: Wall seconds of shared work after which it is judged, and seconds for which the caller then works alone.
JUDGED: Final = 0.05
PAUSE: Final = 0.5
#: Processors' worth of time that several threads must get together to be better than one.
WORTH: Final = 1.1


class Team:
    """A fixed number of threads that run the same kernel together; the caller is one of them.

    Not re-entrant: one ``run`` at a time.
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
        """Whether work that either one thread or all can do should be shared now.

        Where other processes leave this one hardly more than one processor, threads only wait for each other.  So the
        processor time that all of them got lately is compared with the time that passed, and while it was little the
        caller works alone, and looks again after a pause.
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
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown()


def _timed(kernel: Callable[..., object], worker: int, args: tuple[object, ...]) -> float:
    """Run one worker's share; the processor seconds it took."""
    start = time.thread_time()
    kernel(worker, *args)
    return time.thread_time() - start
