"""Measures independent solves on all processors at once: python -m benchmarks.copies [--copies 16] [--only WORD ...].

A solve on one thread is timed alone.  Then as many processes as there are copies solve at the same time, each on one
thread with its own graph; they share only the machine.  The ratio of the two times is the share of a processor's rate
that remains when all processors work, because clock rates fall, and caches and memory are shared.  One solve on as many
threads can hardly have a better efficiency, so compare the results of ``benchmarks/cores.py`` with this share.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from multiprocessing.synchronize import Barrier
from typing import Any

from benchmarks.cores import CASES
from engine.api.solve import make_plan, solve
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink


def timed(name: str, runs: int, barrier: Barrier | None, found: Any) -> None:
    """Solve a case several times on one thread, and put the seconds of each run into ``found``.

    Args:
        name: a case of ``benchmarks.cores``.
        runs: the number of timed solves, after a first one that is not timed.
        barrier: where copies wait for each other before every run; None if there is one copy.
        found: a queue that takes the list of seconds.
    """
    make, algorithm = CASES[name]
    graph, options = make(), Options(device="cpu", algorithm=algorithm, threads=1)
    plan, times = make_plan(graph, options), []
    for _ in range(runs + 1):
        sink = ArraySink(plan.shape, WORK_TYPES[plan.dtype].dtype)
        sink.array.fill(0)
        if barrier is not None:
            barrier.wait()
        began = time.perf_counter()
        solve(graph, plan, options, sink)
        times.append(time.perf_counter() - began)
    found.put(times[1:])


def together(name: str, copies: int, runs: int) -> float:
    """Return the median seconds of the solves of ``copies`` processes that run at the same time."""
    spawn = multiprocessing.get_context("spawn")
    found, barrier = spawn.Queue(), spawn.Barrier(copies) if copies > 1 else None
    processes = [spawn.Process(target=timed, args=(name, runs, barrier, found)) for _ in range(copies)]
    for process in processes:
        process.start()
    times = [seconds for _ in processes for seconds in found.get()]
    for process in processes:
        process.join()
    return float(statistics.median(times))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[""])
    args = parser.parse_args()
    for name in CASES:
        if any(word in name for word in args.only):
            alone, beside = together(name, 1, args.runs), together(name, args.copies, args.runs)
            print(
                json.dumps(
                    {"graph": name, "copies": args.copies, "alone": alone, "together": beside, "rate": alone / beside}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
