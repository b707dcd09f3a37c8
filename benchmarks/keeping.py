"""Measures what commits cost, and what it costs to solve from the disk, with whole solves into sealed stores.

Run ``python -m benchmarks.keeping [--n 12288] [--turns 3] [--folder FOLDER] [--interval SECONDS] [--only WORD]``; it
prints Markdown tables and writes JSON to ``benchmarks/results/``.  Four ways to solve alternate, in reverse order every
other time, so that other work of the machine disturbs all of them alike: in memory (recursive Floyd-Warshall), in
rounds over host memory without and with commits, and in rounds over the working store with commits, where host memory
holds a quarter of the matrix.

*Seconds* are wall seconds.  *Processor* means the seconds that all threads computed, with system calls; they can be
compared even while other programs run.  Ways are compared turn by turn, and the tables show medians over the turns.
The cost of commits is measured in two ways.  The processor seconds of the committing threads are exact, but leave out
the delay of other threads, whose caches they use.  The difference of solves with and without commits includes that
delay, and the noise of two solves.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.kernels.common import RESULTS, facts
from engine.api.solve import make_plan, solve_to_store
from engine.execution.rates import disk_rates
from engine.execution.survey import survey
from engine.execution.trials import relax_rate
from engine.graph.analysis import describe
from engine.model.blocks import PACK_BYTES
from engine.model.dtypes import work_type
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.tiling import Tiling
from engine.planning.constants import PROCESS_BYTES, TILE_THREADS_BYTES
from engine.planning.cost import Setting
from engine.planning.cost_streaming import from_store
from engine.streaming import checkpoint
from engine.streaming.checkpoint import Journal
from storage.graph.graph import Graph, build_graph

NEVER: Final = 1e9
DTYPE: Final = "float32"


@dataclass
class Way:
    """One way to solve, and the measurements of its turns: ``seconds``, ``processor``, ``commits`` and others."""

    name: str
    plan: Plan
    interval: float
    turns: list[dict[str, float]] = field(default_factory=list)

    def middle(self, what: str) -> float:
        """Return the median of the measurement ``what`` over all turns."""
        return median(turn[what] for turn in self.turns)

    def against(self, base: Way, what: str) -> float:
        """Return the median of the ratios, turn by turn, of the measurement ``what`` to that of the way ``base``."""
        return median(one[what] / other[what] for one, other in zip(self.turns, base.turns, strict=True))


def sample(n: int) -> Graph:
    """Return a random directed graph with four arcs for each vertex."""
    rng = np.random.default_rng(n)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, rng.random(4 * n).astype(np.float32), n=n, directed=True)[0]


def quarter(graph: Graph, folder: Path) -> Tiling:
    """Return the tiling that the planner selects if panels and buffers may take a quarter of the matrix's bytes."""
    problem, machine, kind = describe(graph), survey(out=folder), work_type(np.dtype(DTYPE))
    measured: dict[str, Any] = dict(disk_rates(folder, machine.threads))  # the planner measures the same rates
    machine = replace(machine, relax_rate={kind.name: relax_rate(kind, machine.threads)}, **measured)
    beside = machine.resident + PROCESS_BYTES + TILE_THREADS_BYTES + machine.threads * PACK_BYTES
    matrix = graph.n**2 * kind.itemsize
    chosen = from_store(Setting(problem, replace(machine, memory=beside + matrix // 4), kind, matrix))
    if chosen.memory > beside + matrix // 4:
        raise SystemExit(f"n = {graph.n} is too small: a quarter of the matrix does not hold the buffers")
    if chosen.streaming is None:
        raise TypeError("the store tier streams")
    return chosen.streaming


def ways_for(graph: Graph, folder: Path, interval: float) -> list[Way]:
    """Return the four ways to solve that are compared; ``interval`` is the seconds between two commits."""
    memory = make_plan(
        graph, Options(algorithm="recursive-floyd-warshall", dtype=DTYPE, device="cpu"), out=folder / "d"
    )
    rounds = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype=DTYPE, device="cpu"), out=folder / "d")
    host = replace(rounds, tier="host", streaming=Tiling("host", 512, 1024, passes=True))
    store = replace(rounds, tier="store", streaming=quarter(graph, folder))
    return [
        Way("in memory", memory, interval),
        Way("host, no commits", host, NEVER),
        Way("host, commits", host, interval),
        Way("store, a quarter of the matrix", store, interval),
    ]


def turn(way: Way, graph: Graph, path: Path) -> None:
    """Solve once, and append the measurements to the turns of ``way``; the store at ``path`` is removed again."""
    journals: list[Journal] = []
    real = Journal.__init__

    def noting(self: Journal, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        self.interval = way.interval
        journals.append(self)

    checkpoint.Journal.__init__ = noting  # type: ignore[method-assign]
    began, spent = time.perf_counter(), time.process_time()
    try:
        outcome = solve_to_store(graph, Options(dtype=DTYPE), path, plan=way.plan)
    finally:
        checkpoint.Journal.__init__ = real  # type: ignore[method-assign]
    seconds, processor = time.perf_counter() - began, time.process_time() - spent
    relax = sum(outcome.seconds.get(name, 0.0) for name in ("relax", "close"))
    found = {"seconds": seconds, "processor": processor, "relax": relax, "commits": float(journals[0].commits)}
    way.turns.append({**found, "commit_seconds": journals[0].spent, "commit_processor": journals[0].work})
    shutil.rmtree(path)


def bare_disk(folder: Path, size: int = 2**28) -> dict[str, float]:
    """Return the bytes a second that one thread writes and syncs, and that it reads again from the disk."""
    path, data = folder / "probe", np.zeros(size, np.uint8)
    began = time.perf_counter()
    with path.open("wb") as file:
        file.write(data.data)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    written = time.perf_counter()
    path.read_bytes()
    read = time.perf_counter()
    path.unlink()
    return {"write": size / (written - began), "read": size / (read - written)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=12_288)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--interval", type=float, default=checkpoint.INTERVAL)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", help="ways whose names have this word, beside that in memory")
    arguments = parser.parse_args()
    graph = sample(arguments.n)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        ways = ways_for(graph, folder, arguments.interval)
        ways = [way for way in ways if way is ways[0] or arguments.only in way.name]
        disk = bare_disk(folder)
        small = sample(1500)
        for way in ways:  # compile the kernels with a small graph
            plan = replace(way.plan, shape=(small.n, small.n))
            solve_to_store(small, Options(dtype=DTYPE), folder / way.name, plan=plan)
        for count in range(arguments.turns):
            for way in reversed(ways) if count % 2 else ways:
                turn(way, graph, folder / "d.zarr")
                print(way.name, way.turns[-1], flush=True)
    tell(ways, arguments.n, disk, arguments.interval)


def tell(ways: list[Way], n: int, disk: dict[str, float], interval: float) -> None:
    """Print the tables, and write the results into a file."""
    print("\n".join(rates_table(ways, n)))
    cost = costs(ways)
    lines = [
        "| way | processor, a commit | of all | waited in the background, a commit |",
        "|---|---|---|---|",
    ]
    for name, of in cost.items():
        if "share" in of:
            lines.append(f"| {name} | {of['processor']:.3f} s | {of['share']:.2%} | {of['seconds']:.2f} s |")
        else:
            lines.append(f"\n{name}: {of['processor']:+.1%} processor, {of['seconds']:+.1%} by the clock")
    print("\n".join(["", *lines]))
    results = {
        "n": n,
        "dtype": DTYPE,
        "interval": interval,
        "matrix_bytes": n * n * np.dtype(DTYPE).itemsize,
        "layout_of_the_store_way": _cut(ways[-1].plan),
        "disk_bytes_a_second": disk,
        "cost_of_commits": cost,
        "ways": {w.name: w.turns for w in ways},
    }
    made = facts()
    path = RESULTS / f"keeping-{made['date']}-{made['commit'][:8]}-{n}.json"
    path.write_text(json.dumps({"facts": made, **results}, indent=1) + "\n")
    print(path.name)


def rates_table(ways: list[Way], n: int) -> list[str]:
    """Return a table of the medians of whole solves, and of their ratios to the same turns in memory."""
    lines = [
        "| way | seconds | processor | 10^9 updates/s | share of in memory: seconds, processor | commits |",
        "|---|---|---|---|---|---|",
    ]
    for way in ways:
        seconds, processor = way.middle("seconds"), way.middle("processor")
        shares = ", ".join(f"{1 / way.against(ways[0], what):.1%}" for what in ("seconds", "processor"))
        rate, commits = n**3 / seconds / 1e9, max(turn["commits"] for turn in way.turns)
        lines.append(f"| {way.name} | {seconds:.1f} | {processor:.1f} | {rate:.1f} | {shares} | {commits:.0f} |")
    return lines


def costs(ways: list[Way]) -> dict[str, dict[str, float]]:
    """Return the cost of commits: seconds of the committing threads, and how much more solves with commits take."""
    found: dict[str, dict[str, float]] = {}
    for way in ways:
        if turns := [turn for turn in way.turns if turn["commits"]]:
            found[way.name] = {
                "processor": median(turn["commit_processor"] / turn["commits"] for turn in turns),
                "share": median(turn["commit_processor"] / turn["processor"] for turn in turns),
                "seconds": median(turn["commit_seconds"] / turn["commits"] for turn in turns),
            }
    named = {way.name: way for way in ways}
    kept, unkept = named.get("host, commits"), named.get("host, no commits")
    if kept and unkept:
        found["with commits against without"] = {w: kept.against(unkept, w) - 1 for w in ("seconds", "processor")}
    return found


def _cut(plan: Plan) -> list[int]:
    return [] if plan.streaming is None else [plan.streaming.height, plan.streaming.width]


if __name__ == "__main__":
    main()
