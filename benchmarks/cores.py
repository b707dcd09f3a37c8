"""Measures how solves scale with threads: python -m benchmarks.cores [--threads 1,4,16] [--only WORD ...].

Each graph is planned and solved into memory by a given algorithm, with the summary.  For each graph and number of
threads the program prints a line with a JSON object: the least and the median seconds of the solves, and the seconds of
planning with ``algorithm="auto"``.  ``PYTHONPATH=OTHER python benchmarks/cores.py`` measures another checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from engine.api.solve import make_plan, solve
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink
from storage.graph.graph import Graph, build_graph


def random(n: int, heaviest: int = 100) -> Graph:
    """A random digraph of 4 n arcs."""
    rng = np.random.default_rng(1)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, rng.integers(1, heaviest, 4 * n), n=n, directed=True)[0]


def grid(side: int) -> Graph:
    """An undirected grid with random weights."""
    place = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([place[:, :-1].ravel(), place[:-1].ravel()])
    heads = np.concatenate([place[:, 1:].ravel(), place[1:].ravel()])
    weights = np.random.default_rng(2).integers(1, 100, len(tails))
    return build_graph(tails, heads, weights, n=side * side, directed=False)[0]


def social(n: int, edges: int) -> Graph:
    """An undirected graph in which a few vertices have most of the edges; every edge weighs 1."""
    rng = np.random.default_rng(3)
    share = rng.pareto(1.5, n) + 1
    tails, heads = (rng.choice(n, edges, p=share / share.sum()) for _ in range(2))
    kept = tails != heads
    return build_graph(tails[kept], heads[kept], np.ones(int(kept.sum()), np.int64), n=n, directed=False)[0]


def dense(n: int) -> Graph:
    """A digraph with all arcs."""
    tails, heads = np.divmod(np.arange(n * n), n)
    kept = tails != heads
    weights = np.random.default_rng(4).integers(1, 1000, int(kept.sum()))
    return build_graph(tails[kept], heads[kept], weights, n=n, directed=True)[0]


#: By name, the function that makes a graph, and the algorithm that solves it.
CASES: Final[dict[str, tuple[Callable[[], Graph], str]]] = {
    "random 8,000": (lambda: random(8_000), "dijkstra"),
    "random 16,000": (lambda: random(16_000), "dijkstra"),
    "random 8,000, heavy": (lambda: random(8_000, 10**6), "dijkstra"),
    "hops 6,440": (lambda: social(6_440, 300_000), "bfs"),
    "hops 16,000": (lambda: social(16_000, 160_000), "bfs"),
    "grid 90": (lambda: grid(90), "partitioned"),
    "grid 128": (lambda: grid(128), "partitioned"),
    "grid 128, searches": (lambda: grid(128), "dijkstra"),
    "dense 4,096": (lambda: dense(4_096), "recursive-floyd-warshall"),
}


def measure(graph: Graph, algorithm: str, threads: int, runs: int = 6) -> dict[str, object]:
    """Return the seconds of solves and of a plan.

    Args:
        graph: the graph.
        algorithm: the algorithm of the solves.
        threads: threads of the solves.
        runs: the number of timed solves, after a first one that is not timed.
    """
    options = Options(device="cpu", algorithm=algorithm, threads=threads)
    plan = make_plan(graph, options)
    began = time.perf_counter()
    make_plan(graph, Options(device="cpu", threads=threads))
    planning, times = time.perf_counter() - began, []
    for _ in range(runs + 1):
        sink = ArraySink(plan.shape, WORK_TYPES[plan.dtype].dtype)
        sink.array.fill(0)
        began = time.perf_counter()
        solve(graph, plan, options, sink)
        times.append(time.perf_counter() - began)
    times = times[1:]
    return {"least": min(times), "median": statistics.median(times), "planning": planning, "type": plan.dtype}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,4,16")
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--json", type=Path, help="for benchmarks.pictures, which draws the last results/cores-*.json")
    parser.add_argument("--commit", default="", help="the commit that is measured, for the record")
    args = parser.parse_args()
    rows = []
    for name, (make, algorithm) in CASES.items():
        if any(word in name for word in args.only):
            graph = make()
            for threads in map(int, args.threads.split(",")):
                found = measure(graph, algorithm, threads, args.runs)
                rows.append({"graph": name, "algorithm": algorithm, "threads": threads, **found})
                print(json.dumps(rows[-1]), flush=True)
    if args.json is not None:
        run = {"commit": args.commit, "rows": rows}
        what = "seconds of a solve into memory, least of some runs, and of planning"
        record = {"what": what, "date": time.strftime("%Y-%m-%d"), "processors": os.cpu_count(), "runs": [run]}
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
