"""What the counters of the multiprocessor say of each kernel: pipes, issue slots, stalls.

    ncu --clock-control none --csv --page raw --metrics $(python -m benchmarks.kernels.gpu_counters --metrics) \\
        --cache-control none --target-processes all \\
        -k 'regex:^(relax|single|lone|power|pivot|panels|rest)$' \\
        python -m benchmarks.kernels.gpu_counters > counters.csv
    python -m benchmarks.kernels.gpu_counters --table counters.csv

Every launch runs once for the profiler, which repeats it for as many passes as the metrics need.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

PIPES = {"ALU": "alu", "FMA": "fma", "LSU": "lsu", "float64": "fp64"}
STALLS = (
    "barrier", "dispatch_stall", "math_pipe_throttle", "mio_throttle", "short_scoreboard", "long_scoreboard", "wait",
    "not_selected",
)  # fmt: skip
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_PIPE = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"
METRICS = {
    "ns": "gpu__time_duration.sum",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.per_cycle_active",
    **{name: _PIPE.format(pipe) for name, pipe in PIPES.items()},
    **{f"stall {name.replace('_', ' ')}": _STALL.format(name) for name in STALLS},
}


def launches() -> list[tuple[str, Any]]:
    """A name and a launch for each kernel that is looked at."""
    import cupy

    from benchmarks.kernels.gpu_baselines import ThreeKernels
    from benchmarks.kernels.gpu_timing import random_weights
    from engine.devices.cuda.context import modules
    from engine.devices.cuda.launch import Launcher

    found: list[tuple[str, Any]] = []
    side = 8192
    for dtype, signed in (("float32", False), ("float32", True), ("int32", False), ("uint16", False)):
        launcher = Launcher(modules(), dtype, nonnegative=not signed)
        rng = cupy.random.RandomState(1)
        c, a, b = (rng.randint(1, 1000, s).astype(dtype) for s in ((side, side), (side, 1024), (1024, side)))
        found.append((f"relax {dtype}{' signed' if signed else ''}", lambda w=launcher, x=(c, a, b): w.relax(*x)))
    launcher = Launcher(modules(), "float32", nonnegative=True)
    for n in (64, 128, 256, 1024):
        d = random_weights(n, "float32")
        found.append((f"single n = {n:,}", lambda d=d: launcher.close(d)))
    for n in (128, 256):
        d = random_weights(n, "float32")
        found.append((f"squaring n = {n:,}", lambda d=d: launcher.squares(d)))
    for n, tile in ((64, 64), (256, 32), (1024, 64)):
        three, d = ThreeKernels(tile), random_weights(n, "float32")
        found.append((f"three kernels n = {n:,}", lambda d=d, t=three: t.solve(d)))
    return found


def run() -> None:
    """Each launch once for the profiler, and their names in order on standard error."""
    import cupy

    for name, launch in launches():
        launch()
        cupy.cuda.runtime.deviceSynchronize()
        print(f"launches of {name}", file=sys.stderr)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Kernel and metrics of each profiled launch, from ncu's CSV of raw metrics."""
    lines = [line for line in path.read_text().splitlines() if line.startswith('"')]
    reader = csv.DictReader(lines)
    next(reader)  # units
    found = []
    for row in reader:
        values = {name: float(row[metric].replace(",", "")) for name, metric in METRICS.items() if row.get(metric)}
        found.append({"kernel": row["Kernel Name"], "grid": row.get("Grid Size", ""), **values})
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", action="store_true", help="print the metrics that ncu is to collect")
    parser.add_argument("--table", type=Path, help="print the table of this CSV")
    arguments = parser.parse_args()
    if arguments.metrics:
        print(",".join(METRICS.values()))
    elif arguments.table:
        for row in rows_of(arguments.table):
            print("| " + " | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()) + " |")
    else:
        run()


if __name__ == "__main__":
    main()
