"""The min-plus product of two n x n matrices, against its ceilings and against tropical-gemm.

Run ``python -m benchmarks.kernels.cpu_relax [--n 1024 2048] [--threads 1 2]``.  Ceilings are measured right before and
after each product, the higher counts; shares are of the ceiling of the same number of threads.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.kernels.common import KINDS, RESULTS, best, clock_of, facts, markdown, random_matrix, save
from benchmarks.kernels.cpu_ceiling import ceiling
from engine.devices.cpu.backend import CpuBackend

#: The names of tropical-gemm's products.
PEERS: Final = {"float32": "minplus_matmul_2d", "int32": "minplus_matmul_2d_i32"}


def product(n: int, name: str, dtype: str, *, nonnegative: bool, threads: int, seconds: float) -> dict[str, Any]:
    """One row: updates a second (10^9) of ours, of the ceilings, and of the peer where it has the type."""
    backend = CpuBackend(threads)
    a, b, c = (random_matrix(n, dtype, nonnegative=nonnegative, seed=seed) for seed in range(3))
    c[:] = np.iinfo(dtype).max // 2 if c.dtype.kind in "iu" else np.inf

    def limits() -> dict[bool, float]:
        return {
            textbook: ceiling(dtype, nonnegative=nonnegative, threads=threads, textbook=textbook, seconds=0.2)
            for textbook in (True, False)
        }

    def ours() -> None:
        backend.relax(c, a, b, nonnegative=nonnegative)

    ours()
    before, took = limits(), best(ours, seconds=seconds, clock=clock_of(threads))
    after = limits()
    peer = None
    if dtype in PEERS and threads > 1:
        multiply = getattr(importlib.import_module("tropical_gemm"), PEERS[dtype])
        found = multiply(a, b)
        if not np.array_equal(np.asarray(found).reshape(n, n), c):
            raise AssertionError(f"{name}, n = {n}: the peer has another product")
        peer = best(lambda: multiply(a, b), seconds=seconds)
    backend.shutdown()
    return {
        "kind": name,
        "n": n,
        "threads": threads,
        "rate": n**3 / took / 1e9,
        "textbook": max(before[True], after[True]) / 1e9,
        "tile": max(before[False], after[False]) / 1e9,
        "peer": None if peer is None else n**3 / peer / 1e9,
    }


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2.0, help="spent on each figure")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [
        product(n, name, dtype, nonnegative=nonnegative, threads=threads, seconds=options.seconds)
        for name, dtype, nonnegative in KINDS
        for n in options.n
        for threads in options.threads
    ]
    head = ["type", "n", "threads", "10^9 updates/s", "of textbook ceiling", "of tile's ceiling", "x tropical-gemm"]
    table = [
        [
            r["kind"],
            r["n"],
            r["threads"],
            r["rate"],
            f"{r['rate'] / r['textbook']:.0%}",
            f"{r['rate'] / r['tile']:.0%}",
            r["rate"] / r["peer"] if r["peer"] else "",
        ]
        for r in rows
    ]
    print(markdown(f"Min-plus product on {facts()['processor']}", head, table))
    print(f"\n{save('cpu-relax', {'products': rows}, options.out)}")


if __name__ == "__main__":
    main()
