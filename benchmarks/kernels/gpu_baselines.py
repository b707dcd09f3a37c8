"""The single kernel against one launch a pivot and three launches a round, plain and as a captured graph; and bulks.

python -m benchmarks.kernels.gpu_baselines
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.gpu_timing import Record, milliseconds, random_weights
from engine.devices.cuda import launch
from engine.devices.cuda.code.kernel_set import KERNELS, Kernel, options, single_shared, source
from engine.devices.cuda.context import modules
from engine.devices.cuda.floyd_warshall import Solver

#: Milliseconds asked for: (graphs, n), and what the paper reports on a V100.
BULKS = {(2048, 64): (0.10, 0.644), (256, 256): (0.50, 3.74), (64, 1024): (5.8, 50.2)}


class ThreeKernels:
    """Blocked Floyd-Warshall by three launches a round, with tiles of ``side``."""

    def __init__(self, side: int) -> None:
        import cupy

        name = f"single{side}"
        launcher = launch.Launcher(modules(), "float32", nonnegative=True)
        code = source(KERNELS[name]) + Path(__file__).with_name("multi.cu").read_text(encoding="utf-8")
        module = cupy.RawModule(code=code, options=options(name, launcher.arithmetic))
        self.kernels = {k: module.get_function(k) for k in ("naive", "pivot", "panels", "rest")}
        self.side, self.shared, kernel = side, single_shared(side, 4), KERNELS[name]
        assert isinstance(kernel, Kernel)
        self.threads = kernel.threads
        for k in ("pivot", "panels", "rest"):
            self.kernels[k].max_dynamic_shared_size_bytes = self.shared

    def solve(self, d: Any) -> None:
        """Close ``d``, whose side is a multiple of the tile."""
        tiles = len(d) // self.side
        block = np.zeros((), launch._BLOCK)
        block["d"], block["ld"], block["n"], block["tiles"], block["aligned"] = d.data.ptr, len(d), len(d), tiles, 1
        for k in range(tiles):
            arguments, options = (block, np.int32(k)), {"shared_mem": self.shared}
            self.kernels["pivot"]((1,), (self.threads,), arguments, **options)
            if tiles > 1:
                self.kernels["panels"]((2 * tiles - 2,), (self.threads,), arguments, **options)
                self.kernels["rest"]((tiles - 1, tiles - 1), (self.threads,), arguments, **options)

    def naive(self, d: Any) -> None:
        """One launch a pivot, one thread an entry."""
        n = len(d)
        for k in range(n):
            self.kernels["naive"]((-(-n // 256), n), (256,), (d, np.int32(n), np.int32(k)))


def captured(run: Callable[[], None]) -> Any:
    """``run`` as a CUDA graph."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        run()
        return stream.end_capture()


def main() -> None:
    """Measure and record."""
    import cupy

    record, solver = Record("gpu_baselines"), Solver(modules(), "float32", nonnegative=True)
    sets = {side: ThreeKernels(side) for side in (32, 64)}
    for n in (64, 128, 256, 512, 1024, 2048, 4096):
        start = random_weights(n, "float32")
        d, want = start.copy(), start.copy()
        solver.close(want)

        def timed(run: Callable[[], object], d: Any = d, start: Any = start, want: Any = want) -> float:
            cupy.copyto(d, start)
            run()
            assert bool((d == want).all())
            return milliseconds(run, prepare=lambda: cupy.copyto(d, start), repeats=11)

        row = {"n": n, "ours_ms": timed(lambda: solver.close(d))}  # noqa: B023
        row["single_kernel_ms"] = timed(lambda: solver.ahead.close(d))  # noqa: B023
        if n <= 1024:
            row["launch_a_pivot_ms"] = timed(lambda: sets[64].naive(d))  # noqa: B023
        for side, three in sets.items():
            row[f"three_kernels_{side}_ms"] = timed(partial(three.solve, d))
            graph = captured(partial(three.solve, d))
            row[f"graph_{side}_ms"] = timed(graph.launch)
        plain, graph_ms = (min(row[f"{k}_{s}_ms"] for s in sets) for k in ("three_kernels", "graph"))
        best = min(row["ours_ms"], row["single_kernel_ms"])
        record.add(**row, over_three_kernels=plain / best, over_graph=graph_ms / best)
    for (graphs, n), (target, paper) in BULKS.items():
        some = cupy.stack([random_weights(n, "float32", seed=i) for i in range(8)])
        start = cupy.concatenate([some] * (graphs // 8))
        stack = start.copy()
        ms = milliseconds(partial(solver.ahead.close, stack), prepare=partial(cupy.copyto, stack, start))
        record.add(graphs=graphs, n=n, ms=ms, target_ms=target, paper_v100_ms=paper, rate_T=graphs * n**3 / ms * 1e-9)
    record.write()


if __name__ == "__main__":
    main()
