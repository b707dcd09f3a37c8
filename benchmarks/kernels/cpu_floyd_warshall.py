"""Floyd-Warshall, directed and undirected, in both orders, against the ceilings and against SciPy.

Run ``python -m benchmarks.kernels.cpu_floyd_warshall [--n 1024 2048 4096 8192] [--threads 2] [--scipy 1024 4096]``;
SciPy takes about a minute at n = 4,096, so it runs once at each n it is asked for.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.csgraph import floyd_warshall as scipy_floyd_warshall

from benchmarks.kernels.common import KINDS, RESULTS, best, clock_of, facts, markdown, random_matrix, save
from benchmarks.kernels.cpu_ceiling import ceiling
from engine.algorithms import floyd_warshall
from engine.devices.cpu.backend import CpuBackend


def closures(n: int, name: str, dtype: str, *, nonnegative: bool, threads: int, seconds: float) -> dict[str, Any]:
    """One row: seconds of each order, directed and (where no arc is negative) undirected, and the ceilings (10^9/s)."""
    backend = CpuBackend(threads)
    weights = random_matrix(n, dtype, nonnegative=nonnegative)
    if nonnegative:
        weights = np.minimum(weights, weights.T)
    d = np.empty_like(weights)
    row: dict[str, Any] = {"kind": name, "n": n, "threads": threads}
    for textbook in (True, False):
        limit = ceiling(dtype, nonnegative=nonnegative, threads=threads, textbook=textbook, seconds=0.5)
        row["textbook" if textbook else "tile"] = limit / 1e9
    for order in (floyd_warshall.recursive, floyd_warshall.blocked):
        for symmetric in (False, True) if nonnegative else (False,):
            row[f"{order.__name__}, {'undirected' if symmetric else 'directed'}"] = best(
                lambda order=order, symmetric=symmetric: order(  # type: ignore[misc]
                    backend, d, nonnegative=nonnegative, symmetric=symmetric
                ),
                before=lambda: np.copyto(d, weights),
                seconds=seconds,
                least=2,
                clock=clock_of(threads),
            )
    backend.shutdown()
    return row


def peer(n: int) -> float:
    """Seconds of SciPy, whose closure of a sample is compared with ours."""
    weights = random_matrix(n, "float64", nonnegative=True)
    ours = weights.copy()
    backend = CpuBackend()
    floyd_warshall.recursive(backend, ours, nonnegative=True)
    backend.shutdown()
    theirs = weights.copy()

    def run() -> None:
        scipy_floyd_warshall(theirs, overwrite=True)

    took = best(run, seconds=0, least=1)
    if not np.array_equal(ours, theirs):
        raise AssertionError(f"n = {n}: SciPy has other distances")
    return took


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--scipy", type=int, nargs="*", default=[1024, 4096], help="sizes at which SciPy runs too")
    parser.add_argument("--only", nargs="*", help="words; types are kept that have one of them")
    parser.add_argument("--seconds", type=float, default=3.0, help="spent on each figure")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if not options.only or any(word in kind[0] for word in options.only)]
    peers = {n: peer(n) for n in options.scipy}
    rows = [
        closures(n, name, dtype, nonnegative=nonnegative, threads=threads, seconds=options.seconds)
        for name, dtype, nonnegative in kinds
        for n in options.n
        for threads in options.threads
    ]
    head = ["type", "n", "threads", "recursive, s", "of textbook ceiling", "of tile's ceiling"]
    head += ["blocked, s", "undirected : directed", "x SciPy"]
    table = []
    for r in rows:
        took, rate = r["recursive, directed"], r["n"] ** 3 / r["recursive, directed"] / 1e9
        half = r.get("recursive, undirected")
        table.append(
            [
                *(r[key] for key in ("kind", "n", "threads")),
                took,
                f"{rate / r['textbook']:.0%}",
                f"{rate / r['tile']:.0%}",
                r["blocked, directed"],
                f"{half / took:.2f}" if half else "",
                f"{peers[r['n']] / took:.0f}" if r["n"] in peers else "",
            ]
        )
    print(markdown(f"Floyd-Warshall on {facts()['processor']}", head, table))
    print(f"\n{save('cpu-floyd-warshall', {'closures': rows, 'scipy': peers}, options.out)}")


if __name__ == "__main__":
    main()
