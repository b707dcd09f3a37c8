"""The tables of published papers with our column beside theirs.

    python -m benchmarks.papers            print the tables from the recorded results
    python -m benchmarks.papers --measure  on a GPU: measure every size, record, print

Ours: device time between events, median, on graphs of the papers' kind: every vertex has four arcs to random others
(m = 4n), whole numbers from 1 to 100 in float32.  Theirs: as printed, on their hardware, which is named.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results" / "gpu_papers.json"
PAPER: Final = "Takafuji, Nakano, Ito: single-kernel blocked Floyd-Warshall, NVIDIA V100"

#: Takafuji et al., Table I: n -> milliseconds of the single kernel, one graph.  65,536 is not in the paper.
TABLE_1: Final[dict[int, float | None]] = {
    64: 0.0388,
    128: 0.0737,
    256: 0.146,
    512: 0.388,
    1024: 1.36,
    2048: 7.04,
    4096: 48.3,
    8192: 378.0,
    16384: 3020.0,
    32768: 24897.0,
    65536: None,
}
#: Takafuji et al., Table II: (graphs, n) -> milliseconds of one launch; only rows whose figure we hold have theirs.
TABLE_2: Final[dict[tuple[int, int], float | None]] = {
    (4, 64): None,
    (64, 64): None,
    (2048, 64): 0.644,
    (4, 256): None,
    (64, 256): None,
    (256, 256): 3.74,
    (4, 1024): None,
    (64, 1024): 50.2,
}
#: Rates that other papers report for their fastest GPU code, 10^12 updates a second a GPU; two operations an update.
RATES: Final = (
    ("DSNAPSHOT (Kannan et al., SC 2020), distributed, 24,576 V100, 136 PF/s", 136e15 / 24576 / 2e12),
    ("Sao et al. (HPDC 2021), with host offload, V100, about 5.3 TF/s a GPU", 5.3 / 2),
    ("Matsumoto et al. (IEICE 2012), hybrid, distances and paths, i7-2600K with HD 6970, 1.1 TF/s", 1.1 / 2),
)


def sparse_weights(n: int, *, seed: int = 1, degree: int = 4) -> Any:
    """The weight matrix of a graph with ``degree`` random arcs out of every vertex, float32, on the device."""
    import cupy

    rng = cupy.random.RandomState(seed)
    d = cupy.full((n, n), cupy.inf, "f4")
    rows = cupy.arange(n)
    for _ in range(degree):
        d[rows, rng.randint(0, n, n)] = rng.randint(1, 101, n).astype("f4")
    d[rows, rows] = 0
    return d


def measure() -> None:
    """Measure all sizes and write ``RESULTS``."""
    import cupy

    from benchmarks.kernels.gpu_timing import Record, milliseconds
    from engine.backends.cuda_modules import modules
    from engine.backends.cuda_solve import Solver

    record = Record("gpu_papers")
    solver = Solver(modules(), "float32", nonnegative=True)
    pool = cupy.get_default_memory_pool()
    for n in TABLE_1:
        start = sparse_weights(n)
        d = start.copy()
        if n <= 32768:
            solver.close(d)  # builds kernels, allocates panels
        repeats = 21 if n <= 2048 else 5 if n <= 8192 else 3 if n <= 16384 else 1
        ms = milliseconds(lambda d=d: solver.close(d), prepare=lambda d=d, s=start: cupy.copyto(d, s), repeats=repeats)
        record.add(table=1, n=n, ms=ms, rate_T=n**3 / ms * 1e-9)
        del d, start
        solver.release()
        pool.free_all_blocks()
    for graphs, n in TABLE_2:
        start = cupy.stack([sparse_weights(n, seed=i % 8 + 1) for i in range(graphs)])
        d = start.copy()
        solver.ahead.close(d)
        ms = milliseconds(lambda d=d: solver.ahead.close(d), prepare=lambda d=d, s=start: cupy.copyto(d, s), repeats=11)
        record.add(table=2, graphs=graphs, n=n, ms=ms, rate_T=graphs * n**3 / ms * 1e-9)
    record.write()


def tables(record: dict[str, Any]) -> list[str]:
    """Markdown, from a recorded result."""
    ones = {row["n"]: row for row in record["rows"] if row["table"] == 1}
    many = {(row["graphs"], row["n"]): row for row in record["rows"] if row["table"] == 2}
    clock = "-".join(map(str, sorted(set(record["sm_clock_mhz_under_load"]))))
    lines = [
        f"Ours: {record['gpu']}, {clock} MHz, driver {record['driver']}, commit {record['commit']}, {record['date']}.",
        "",
        f"Table I ({PAPER}): one graph, milliseconds",
        "",
        "| n | theirs | ours | times faster | ours, 10^12 updates/s |",
        "| --- | --- | --- | --- | --- |",
        *(_row(f"{n:,}", theirs, ones[n]) for n, theirs in TABLE_1.items() if n in ones),
        "",
        "Table II (the same): many graphs in one launch, milliseconds",
        "",
        "| graphs x n | theirs | ours | times faster | ours, 10^12 updates/s |",
        "| --- | --- | --- | --- | --- |",
        *(_row(f"{m:,} x {n:,}", theirs, many[m, n]) for (m, n), theirs in TABLE_2.items() if (m, n) in many),
        "",
        "Rates that others report, 10^12 updates/s a GPU, against ours at n = 32,768",
        "",
        "| whose | theirs | ours |",
        "| --- | --- | --- |",
    ]
    if 32768 in ones:
        lines += [f"| {whose} | {rate:.2f} | {ones[32768]['rate_T']:.1f} |" for whose, rate in RATES]
    return lines


def _row(name: str, theirs: float | None, ours: dict[str, float]) -> str:
    printed, faster = ("-", "-") if theirs is None else (f"{theirs:,g}", f"{theirs / ours['ms']:.1f}")
    return f"| {name} | {printed} | {ours['ms']:,.4g} | {faster} | {ours['rate_T']:.3g} |"


def main() -> None:
    """Measure if asked to, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure on the GPU and record first")
    if parser.parse_args().measure:
        measure()
        from benchmarks.kernels.gpu_timing import results_folder

        print("\n".join(tables(json.loads((results_folder() / RESULTS.name).read_text()))))
        return
    print("\n".join(tables(json.loads(RESULTS.read_text()))))


if __name__ == "__main__":
    main()
