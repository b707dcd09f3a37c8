"""Solves a small graph many times: kills the solve in a child process at random instants, and lets another resume it.

Run as a program: ``crash_solve.py FOLDER WAY COUNT SEED`` with WAY one of ``WAYS``.  Prints five numbers as JSON: the
kills of a running solve (at least COUNT), those that left a checkpoint, those of a solve that had been resumed from a
checkpoint, the solves that were completed, and the results that were wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.algorithms import dijkstra
from engine.api.semirings import planning
from engine.api.solve import make_plan, solve_to_store
from engine.execution import compiling
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.tiling import Tiling
from engine.streaming import checkpoint, host_tier, tile_files
from storage.errors import NotFound
from storage.files import memory
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from storage.semirings import EVERY, MIN_PLUS, needed_parallel
from tests.faults.crash_store import in_child
from tests.stores import verify_matrix

N = 600
WAYS = (
    "store", "store undirected", "host", "host undirected", "search", "search also", "semiring max-min",
    "semiring min-max undirected", "semiring max-times", "semiring lor-land",
)  # fmt: skip


def semiring_of(way: str) -> str:
    return way.split(" ")[1] if way.startswith("semiring") else MIN_PLUS


def sample(directed: bool, semiring: str = MIN_PLUS) -> Graph:
    rng = np.random.default_rng(5)
    tails, heads = rng.integers(0, N, (2, 4 * N))
    weights = rng.integers(0, 1000, 4 * N)
    quantities = {"toll": rng.integers(0, 99, 4 * N), "far": rng.random(4 * N)}
    if semiring != MIN_PLUS:
        chances = (weights + 1) / 1000 if semiring == "max-times" else weights
        kept = needed_parallel(semiring) or "least"
        return build_graph(tails, heads, chances, n=N, directed=directed, parallel=kept)[0]
    return build_graph(tails, heads, weights, n=N, directed=directed, quantities=quantities)[0]


def plan_of(graph: Graph, way: str, height: int, width: int) -> Plan:
    tier = way.partition(" ")[0]
    if tier == "semiring":
        return make_plan(graph, Options(semiring=semiring_of(way)))
    if tier == "search":
        return make_plan(graph, Options(algorithm="dijkstra", dtype="int32", also=also_of(way)))
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype="int32"))
    streaming = Tiling(tier, height, width, symmetric=not graph.directed, passes=graph.directed)
    return replace(plan, tier=tier, streaming=streaming)


def also_of(way: str) -> tuple[str, ...]:
    return ("toll", "far") if way.endswith("also") else ()


def solve(graph: Graph, plan: Plan, path: Path) -> None:
    also = ("toll", "far") if any(phase.name == "sum" for phase in plan.phases) else ()
    options = Options(dtype="int32", also=also) if plan.semiring == MIN_PLUS else Options(semiring=plan.semiring)
    solve_to_store(graph, options, path, plan=plan, resume=True)


def killed(work, after: float) -> bool:
    """Run ``work`` in a child and kill it after some seconds; whether it was still running."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status not in (0, signal.SIGKILL):
        raise SystemExit(f"the solve failed with status {status}")
    return status == signal.SIGKILL


def rows_of(path: Path) -> np.ndarray | None:
    try:
        with open_matrix(path, semiring=EVERY) as matrix:
            return np.stack([matrix.rows(range(N)), *(found.rows(range(N)) for found in matrix.also.values())])
    except NotFound:
        return None


def ways_on(graph: Graph, way: str) -> list[Plan]:
    """The plan of ``way`` first; then others that may go on: more threads, the other tier, other stripes."""
    tier = way.partition(" ")[0]
    first = plan_of(graph, way, 64, 128)
    if tier in ("search", "semiring"):
        return [first, replace(first, threads=3)]
    other = "host" if tier == "store" else "store"
    return [
        first,
        replace(first, threads=3),
        plan_of(graph, other, 64, 128),
        plan_of(graph, tier, 128, 256),
        replace(plan_of(graph, other, 64, 192), threads=1),
    ]


def main(folder: Path, way: str, count: int, seed: int) -> None:
    compiling.MANY_TILES = 0  # stores in memory are written by the kernel
    tile_files.try_put()  # compiles it, or Python would write them
    checkpoint.INTERVAL = 0.0 if way.startswith("semiring") else 0.01
    planning.batch_rows = lambda *_, **__: 1  # rows of a tile
    dijkstra.BATCH_SECONDS = dijkstra.BUSY_SECONDS = 0.0
    dijkstra.FIRST_ENTRIES = dijkstra.BUSY_ENTRIES = 0
    host_tier.COST = 100.0
    graph = sample(not way.endswith("undirected"), semiring_of(way))
    plans, path = ways_on(graph, way), folder / "d.zarr"
    solve(graph, plans[0], path)  # compiles
    expected, whole = rows_of(path), float("inf")
    for _ in range(3):
        shutil.rmtree(path)
        began = time.perf_counter()
        finish(graph, plans[0], path)
        whole = min(whole, time.perf_counter() - began)
    chance, in_memory = random.Random(seed), memory.KINDS
    facts = {"kills": 0, "resumed": 0, "again": 0, "solves": 0, "wrong": 0}
    while facts["kills"] < count or facts["resumed"] < count // 4:
        shutil.rmtree(path)
        memory.KINDS = in_memory if chance.random() < 0.5 else ()  # or written as on a disk, wherever the folder is
        plan, alive = plans[0], False
        for turn in range(3):  # whoever goes on may be killed, too
            met = killed(lambda plan=plan: solve(graph, plan, path), chance.random() * whole)
            facts["kills"] += met
            kept_it = met and find_checkpoint(path) is not None
            facts["again"] += met and alive
            if path.exists():
                break
            facts["resumed"] += kept_it
            alive, plan = alive or kept_it, chance.choice(plans)
            if turn == 0 and chance.random() < 0.5:
                break
        if not path.exists():
            finish(graph, plan, path)
        verify_matrix(path)
        facts["solves"] += 1
        facts["wrong"] += not np.array_equal(rows_of(path), expected)
        # a process killed after it has sealed leaves its lock file, which the next writer takes over
        left = {p.name for p in folder.iterdir()} - {"d.zarr", ".d.zarr.working", ".d.zarr.writing"}
        if left:
            raise SystemExit(f"left behind: {left}")
    print(json.dumps(facts))


def finish(graph: Graph, plan: Plan, path: Path) -> None:
    if in_child(lambda: solve(graph, plan, path)):
        raise SystemExit(f"going on in tier {plan.tier} with {plan.threads} threads failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
