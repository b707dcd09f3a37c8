"""Measures what planning costs beside the solve that follows, step by step, in processor time and in counted work.

    python -m benchmarks.planning [--graphs FOLDER] [--threads 2,16] [--only WORD ...] [--runs 5] [--json FILE]

The graphs are the generated ones of ``benchmarks.waits``, and the real ones that its ``--prepare`` has written to
FOLDER.  Each run plans a graph and solves it into memory, and then solves it again by the same plan, but without the
facts that planning has found.  The least of each time over the runs counts.  *Not kept* is the time of planning and
the solve after it, minus the time of the solve alone: the cost of the choice.  Processor seconds are those of all
threads together, so there may be more threads than processors: the work that planning does for so many threads is
measured, and not how long it takes.

*Rows tried* are the rows that trials search, *thrown away* are those of them that the solve searches again, and *parts*
says whether planning made a partition.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from benchmarks.contenders import load
from benchmarks.waits import MADE, save
from engine.api import planning
from engine.api.solve import make_plan, solve
from engine.execution import survey, trials
from engine.graph import kernels, partition
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.rows import ArraySink
from storage.graph.graph import Graph

#: The steps of planning: the module that calls the step's function, the function, and the name of the step in tables.
STEPS: Final = (
    (planning, "describe", "describe"),
    (planning, "survey", "machine"),
    (planning, "choose", "estimates"),
    (planning, "with_bridges", "bridges"),
    (planning, "calibrate", "decide trials"),
    (planning, "with_trial", "decide parts"),
    (planning, "statistics", "statistics"),
    (planning, "bind_plan", "bind"),
    (partition, "find_parts", "parts"),
    (trials, "relax_rate", "products"),
)


class Steps:
    """Counts processor seconds of the steps of planning, each without nested steps, and the rows that trials search."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.rows = self.parts = 0
        self._inside: list[float] = []

    def timed(self, plain: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return ``plain`` with its time counted under ``name``."""

        def run(*args: Any, **given: Any) -> Any:
            began = time.process_time()
            self._inside.append(0.0)
            try:
                return plain(*args, **given)
            finally:
                took = time.process_time() - began
                self.seconds[name] += took - self._inside.pop()
                self.parts += name == "parts"
                if self._inside:
                    self._inside[-1] += took

        return run

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Context manager: within it, all steps of planning are counted."""
        search = trials.SearchTrial._search

        def one(trial: Any, backend: Any, count: int, **given: Any) -> float:
            self.rows += min(count, len(trial._order))
            form = "hops" if type(backend).__name__ == "BreadthFirst" else "search"
            timed = self.timed(search, f"try {form}")
            return float(timed(trial, backend, count, **given))

        with ExitStack() as stack:
            for module, name, told in STEPS:
                stack.enter_context(mock.patch.object(module, name, self.timed(getattr(module, name), told)))
            stack.enter_context(mock.patch.object(trials.SearchTrial, "_search", one))
            yield


def once(graph: Graph, options: Options) -> dict[str, Any]:
    """Plan and solve a graph, then only solve it; return the processor seconds of each, and what planning did."""
    steps, profile = Steps(), GraphProfile(graph)
    began = time.process_time()
    with steps.watch():
        plan = make_plan(profile, options)
    planned = time.process_time()
    kept = 0 if profile.known is None else profile.known.count
    after, alone = _solved(profile, plan, options), _solved(GraphProfile(graph), plan, options)
    return {
        "planning": planned - began,
        "after": after,
        "alone": alone,
        "steps": dict(steps.seconds),
        "algorithm": plan.algorithm,
        "tried": steps.rows,
        "kept": kept,
        "parts": steps.parts > 0,
        "choice": {c.algorithm: c.seconds for c in plan.candidates if c.feasible and c.streaming is None},
    }


def _solved(profile: GraphProfile, plan: Plan, options: Options) -> float:
    sink = ArraySink(plan.shape, WORK_TYPES[plan.dtype].dtype)
    sink.array.fill(0)  # touches new memory before the clock starts, so that page faults are not timed
    began = time.process_time()
    solve(profile, plan, options, sink)
    return time.process_time() - began


def measure(name: str, graph: Graph, threads: int, runs: int) -> dict[str, Any]:
    """Return the least processor seconds of ``runs`` runs, and facts about them, such as the rows tried."""
    options = Options(device="cpu", threads=threads)
    with (
        mock.patch.object(survey, "usable_processors", return_value=threads),
        # this first run, which is not timed, also compiles the kernels for which planning would not wait
        mock.patch.object(trials, "only_ready", ExitStack),
        mock.patch.object(partition, "only_ready", ExitStack),
        mock.patch.object(kernels, "only_ready", ExitStack),
    ):
        once(graph, options)
    found = []
    with mock.patch.object(survey, "usable_processors", return_value=threads):
        began = time.perf_counter()
        for k in range(runs):
            found.append(once(replace(graph), options))  # a new object, for which nothing has been prepared
            if k > 1 and time.perf_counter() - began > 8:
                break
    least = {key: min(each[key] for each in found) for key in ("planning", "after", "alone")}
    names = {name for each in found for name in each["steps"]}
    typical = sorted(found, key=lambda each: each["planning"])[len(found) // 2]
    return {
        "graph": name,
        "n": graph.n,
        "arcs": graph.arcs,
        "threads": threads,
        **least,
        "not kept": max(0.0, least["planning"] + least["after"] - least["alone"]),
        "median not kept": float(np.median([e["planning"] + e["after"] - e["alone"] for e in found])),
        "algorithms": sorted({each["algorithm"] for each in found}),
        "steps": {step: min(each["steps"].get(step, 0.0) for each in found) for step in sorted(names)},
        "tried": typical["tried"],
        "thrown away": typical["tried"] - typical["kept"],
        "parts": typical["parts"],
        "choice": typical["choice"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown; times are milliseconds of processor time."""
    head = (
        "graph",
        "threads",
        "algorithm",
        "solve, ms",
        "planning, ms",
        "not kept, ms",
        "share",
        "rows tried",
        "thrown away",
        "parts",
        "steps, ms",
    )
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for row in rows:
        steps = sorted(row["steps"].items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {1000 * took:.1f}" for name, took in steps if took > 2e-4)
        cells = [row["graph"], str(row["threads"]), "/".join(row["algorithms"]), f"{1000 * row['alone']:.1f}"]
        cells += [
            f"{1000 * row['planning']:.1f}",
            f"{1000 * row['not kept']:.1f}",
            f"{row['not kept'] / row['alone']:.0%}",
        ]
        cells += [f"{row['tried']:,}", f"{row['thrown away']:,}", "yes" if row["parts"] else "", told]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, help="folder of the real graphs as .npz")
    parser.add_argument("--threads", default="2,16")
    parser.add_argument("--only", nargs="*", default=[""], help="words; graphs are kept whose name has one of them")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    files = {file.stem: file for file in sorted(given.graphs.glob("*.npz"))} if given.graphs is not None else {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in (*MADE, *files):
            if not any(word in name for word in given.only):
                continue
            if name in MADE:
                files[name] = Path(folder) / f"{name}.npz"
                save(files[name], MADE[name]())
            graph = load(str(files[name]))
            for threads in map(int, given.threads.split(",")):
                rows.append(measure(name, graph, threads, given.runs))
                print(table(rows[-1:]).splitlines()[-1], flush=True)
                if given.json is not None:
                    given.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
