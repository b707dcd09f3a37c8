"""Shows where solves on many threads spend time: python -m benchmarks.phases [--threads 1,16] [--only WORD ...].

Each graph of ``benchmarks.cores`` is solved into memory by its algorithm.  For each graph the program prints the phases
of the fastest run as a JSON object on one line.  A phase has its seconds, its processor seconds, and facts about the
kernels that a team of threads shared: ``runs``; ``shared``, their wall seconds; ``busy``, the processor seconds of all
threads; ``waiting``, the seconds that threads waited for the last thread or for a processor.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from benchmarks.cores import CASES
from engine.api.solve import make_plan, solve
from engine.devices.cpu.team import Team
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink


class Phases(Monitor):
    """Counts seconds and processor seconds of each phase, and of the kernels that a team of threads shared in it."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._name, self._wall, self._used = "begin", time.perf_counter(), time.process_time()

    def begin(self, phase: str, total: int, unit: str) -> None:  # noqa: ARG002
        """Begin a phase.

        Args:
            phase: the name of the phase.
            total: ignored.
            unit: ignored.
        """
        now, used = time.perf_counter(), time.process_time()
        self.found[self._name]["seconds"] += now - self._wall
        self.found[self._name]["processor seconds"] += used - self._used
        self._name, self._wall, self._used = phase, now, used

    def shared(self, wall: float, threads: int, busy: float, kernel: str) -> None:
        """Count one run of a kernel by a team of threads.

        Args:
            wall: the wall seconds of the run.
            threads: the number of threads that took part.
            busy: processor seconds of all these threads.
            kernel: the name of the kernel.
        """
        for name in ("", f" {kernel}"):
            row = self.found[self._name]
            row[f"runs{name}"] += 1
            row[f"shared{name}"] += wall
            row[f"busy{name}"] += busy
            row[f"waiting{name}"] += wall * threads - busy


@contextlib.contextmanager
def watched(phases: Phases) -> Iterator[None]:
    """Context manager: within it, report all runs of teams of threads to ``phases``."""
    plain = Team.run

    def run(team: Team, kernel: Callable[..., object], *args: object, most: int | None = None) -> None:
        used: list[float] = []

        def timed(worker: int, *rest: object) -> None:
            start = time.thread_time()
            kernel(worker, *rest)
            used.append(time.thread_time() - start)

        start = time.perf_counter()
        plain(team, timed, *args, most=most)
        name = getattr(kernel, "__name__", "kernel")
        phases.shared(time.perf_counter() - start, len(used), sum(used), name)

    with mock.patch.object(Team, "run", run):
        yield


def profile(name: str, threads: int, runs: int) -> dict[str, Any]:
    """Return the phases of the fastest of ``runs`` + 1 solves of the case ``name``."""
    make, algorithm = CASES[name]
    graph, options = make(), Options(device="cpu", algorithm=algorithm, threads=threads)
    plan, best = make_plan(graph, options), (float("inf"), Phases())
    for _ in range(runs + 1):
        sink, phases = ArraySink(plan.shape, WORK_TYPES[plan.dtype].dtype), Phases()
        sink.array.fill(0)
        with watched(phases):
            began = time.perf_counter()
            phases.begin("before", 0, "")
            solve(graph, plan, options, sink, phases)
            took = time.perf_counter() - began
        phases.begin("end", 0, "")
        best = min(best, (took, phases), key=lambda pair: pair[0])
    found = {phase: {key: round(x, 5) for key, x in row.items()} for phase, row in best[1].found.items()}
    return {"graph": name, "threads": threads, "type": plan.dtype, "seconds": round(best[0], 4), "phases": found}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,16")
    parser.add_argument("--only", nargs="*", default=["grid 90", "grid 128", "dense"])
    parser.add_argument("--runs", type=int, default=4)
    args = parser.parse_args()
    for name in CASES:
        if any(word in name for word in args.only):
            for threads in map(int, args.threads.split(",")):
                print(json.dumps(profile(name, threads, args.runs)), flush=True)


if __name__ == "__main__":
    main()
