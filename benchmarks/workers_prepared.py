"""Compares preparing by two workers and in one process: python -m benchmarks.workers_prepared FOLDER FILE ...

Each graph file is prepared into FOLDER, alternately in one process with two threads and by two workers with one thread
each; the parts are found once, before that.  The least processor seconds of all processes are compared, because wall
seconds mean little where processors are shared.  The files of both results are compared, too.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.workers import ADDRESS, Record, processor_seconds, running
from engine.api.prepared import prepare
from engine.api.prepared_planning import plan_prepared
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from storage.readers import read_graph

TURNS = 3


def measure(record: Record, folder: Path, file: Path, watched: list[int]) -> None:
    """Prepare one graph in one process and by workers, in alternation, and record the times."""
    profile = GraphProfile(read_graph(file)[0])
    ways = {
        "one process": (Options(threads=2), [os.getpid()]),
        "workers": (Options(executor="dask", scheduler=ADDRESS, threads=1), [os.getpid(), *watched]),
    }
    plans = {name: plan_prepared(profile, options, out=folder / "p") for name, (options, _) in ways.items()}
    record.add(what="plan", graph=file.name, n=profile.graph.n, reason=plans["workers"].device_reason,
               driver_memory=plans["workers"].memory, disk=plans["workers"].disk)  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, (options, processes) in ways.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            before, began = processor_seconds(processes), perf_counter()
            outcome = prepare(profile, folder / name, options, plan=plans[name])
            work, wall = processor_seconds(processes) - before, perf_counter() - began
            if turn:  # the first turn is left out, because it compiles, imports and fills caches
                times[name].append(work)
            record.add(what=name, graph=file.name, turn=turn, processor_s=work, wall_s=wall, phases=outcome.seconds)
    names = sorted(str(path.relative_to(folder / "workers")) for path in (folder / "workers").rglob("c/*"))
    same = all((folder / "workers" / k).read_bytes() == (folder / "one process" / k).read_bytes() for k in names)
    record.add(what="least", graph=file.name, **{name.replace(" ", "_"): min(found) for name, found in times.items()},
               ratio=min(times["workers"]) / min(times["one process"]), files=len(names), same=same)  # fmt: skip
    for name in ways:
        shutil.rmtree(folder / name)


def main() -> None:
    """Measure all files."""
    folder, record = Path(sys.argv[1]), Record("workers_prepared")
    with running("cpu", 2, 1) as workers:
        for file in sys.argv[2:]:
            measure(record, folder, Path(file), [worker.pid for worker in workers])
    record.write()


if __name__ == "__main__":
    main()
