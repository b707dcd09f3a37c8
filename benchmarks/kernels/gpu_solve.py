"""Whole graphs in device memory: the solver against its targets, directed and undirected, by type.

python -m benchmarks.kernels.gpu_solve [largest n]
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.kernels.gpu_timing import Record, milliseconds, random_weights
from engine.devices.cuda.context import modules
from engine.devices.cuda.floyd_warshall import Solver

#: Milliseconds asked for, float32 without negative arcs, directed.
TARGETS = {
    64: 0.010,
    128: 0.028,
    256: 0.043,
    512: 0.110,
    1024: 0.245,
    2048: 0.88,
    4096: 5.7,
    8192: 36.5,
    16384: 270.0,
    32768: 2150.0,
}


def measure(record: Record, n: int, dtype: str = "float32", *, signed: bool = False, symmetric: bool = False) -> None:
    """One row: n, type, direction."""
    import cupy

    solver = Solver(modules(), dtype, nonnegative=not signed)
    start = random_weights(n, dtype, symmetric=symmetric)
    d = start.copy()
    solver.close(d, symmetric=symmetric)
    repeats = 21 if n <= 2048 else 5 if n <= 8192 else 3 if n <= 16384 else 1
    run, prepare = partial(solver.close, d, symmetric=symmetric), partial(cupy.copyto, d, start)
    ms = milliseconds(run, prepare=prepare, repeats=repeats)
    target = TARGETS.get(n) if (dtype, signed, symmetric) == ("float32", False, False) else None
    record.add(n=n, dtype=dtype, signed=signed, undirected=symmetric, ms=ms, rate_T=n**3 / ms * 1e-9, target_ms=target)
    solver.release()
    del d, start, run, prepare
    cupy.get_default_memory_pool().free_all_blocks()


def main(largest: int = 32768) -> None:
    """Measure and record."""
    record = Record("gpu_solve")
    for n in TARGETS:
        if n <= largest:
            measure(record, n)
    for n in (8192, 16384, 32768):
        if n <= largest:
            measure(record, n, symmetric=True)
    for dtype, signed in (("uint16", False), ("int32", False), ("float32", True), ("float64", True)):
        for n in (1024, 4096, 32768):
            if n <= largest:
                measure(record, n, dtype, signed=signed)
    record.write()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
