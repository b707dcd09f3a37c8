"""relax at M = N = 32,768 for each arithmetic and depth, packing included, against the targets of the design.

python -m benchmarks.kernels.gpu_relax [side]
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.kernels.gpu_timing import Record, milliseconds
from engine.devices.cuda.context import modules
from engine.devices.cuda.launch import Launcher
from engine.model.dtypes import WORK_TYPES

#: T updates/s at K = 1,024 asked for, by dtype and sign.
TARGETS = {
    ("float32", False): 16.5,
    ("int32", False): 17.8,
    ("uint16", False): 34.0,
    ("float32", True): 13.6,
    ("float64", True): None,
}


def main(side: int = 32768) -> None:
    """Measure and record."""
    import cupy

    record = Record("gpu_relax")
    for (dtype, signed), target in TARGETS.items():
        launcher = Launcher(modules(), dtype, nonnegative=not signed)
        rng = cupy.random.RandomState(1)

        def random(shape: tuple[int, int], dtype: str = dtype, rng: cupy.random.RandomState = rng) -> cupy.ndarray:
            out = cupy.empty(shape, dtype)
            for i in range(0, shape[0], 2048):
                out[i : i + 2048] = rng.randint(1, 1000, (min(2048, shape[0] - i), shape[1]), dtype="i4")
            out[::7, ::5] = WORK_TYPES[dtype].sentinel()
            return out

        c, a, b = random((side, side)), random((side, 1024)), random((1024, side))
        launcher.relax(c, a, b)
        for depth in (256, 1024):
            left, right = a[:, :depth], b[:depth]
            ms = milliseconds(partial(launcher.relax, c, left, right), repeats=3)
            rate = side * side * depth / ms * 1e-9
            record.add(dtype=dtype, signed=signed, m=side, n=side, k=depth, ms=ms, rate_T=rate, target_T=target)
            del left, right
        c = a = b = None
        launcher.release()
        cupy.get_default_memory_pool().free_all_blocks()
    record.write()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
