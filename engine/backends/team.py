"""Threads that share one kernel, and the atomic counter that hands them work.

numba's own parallel loops spin while they wait, which on a busy machine makes two threads slower than one.  Here the
threads are ordinary ones that sleep on a condition variable, the kernels release the GIL, and work is handed out from
an atomic counter, so a thread that is descheduled holds nobody up for longer than its present piece.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def fetch_add(typingctx, address, amount):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Atomically add ``amount`` to the int64 at ``address``; returns the value before."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]  # noqa: ARG001
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.intp, types.int64), codegen


def available_threads() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Team:
    """A fixed number of threads that run the same kernel together; the caller is one of them.

    Not re-entrant: one ``run`` at a time.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_threads()
        self._pool = ThreadPoolExecutor(self.threads - 1, "apsp-team") if self.threads > 1 else None

    def run(self, kernel: Callable[..., object], *args: object) -> None:
        """Call ``kernel(worker, *args)`` once for each worker 0 … threads - 1, and wait for all of them."""
        if self._pool is None:
            kernel(0, *args)
            return
        others = [self._pool.submit(kernel, worker, *args) for worker in range(1, self.threads)]
        kernel(0, *args)
        for other in others:
            other.result()

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown()
