"""From a graph in memory to the sealed store through the GPU: seconds of each phase beside the plan's prediction.

python -m benchmarks.kernels.gpu_store FOLDER [largest n]
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.kernels.gpu_timing import Record
from engine.api.solve import make_plan, solve_to_store
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph


def random_graph(n: int, *, degree: int = 4) -> Graph:
    """``degree`` random arcs out of every vertex, weights 1 ... 100."""
    rng = np.random.default_rng(n)
    tails, heads = np.repeat(np.arange(n), degree), rng.integers(0, n, degree * n)
    return build_graph(tails, heads, rng.integers(1, 101, degree * n), n=n, directed=True)[0]


def main(folder: str, largest: int = 32768) -> None:
    """Measure and record."""
    record, out = Record("gpu_store"), Path(folder) / "d.zarr"
    for n, dtype in ((1024, "auto"), (8192, "auto"), (16384, "float32"), (32768, "auto"), (32768, "float32")):
        if n > largest:
            continue
        graph = random_graph(n)
        for device in ("cuda", "auto"):
            options = Options(device=device, dtype=dtype)
            began = time.perf_counter()
            plan = make_plan(graph, options, out=out)
            planned = time.perf_counter() - began
            outcome = solve_to_store(graph, options, out, plan=plan)
            shutil.rmtree(out)
            phases = {f"{name}_s": round(seconds, 4) for name, seconds in outcome.seconds.items()}
            record.add(
                n=n, dtype=plan.dtype, asked=device, device=plan.device, algorithm=plan.algorithm, plan_s=planned,
                predicted_s=plan.seconds, solved_s=sum(outcome.seconds.values()), **phases,
                device_memory=plan.device_memory,
            )  # fmt: skip
    record.write()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
