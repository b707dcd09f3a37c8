"""Solves that are killed at any moment and gone on with: each finished store is compared, whole, with SciPy.

    python -m tests.gpu.kills [--kills 200] [--seconds 600] [--side 10] [--seed 1] [--device cuda] [--graph 3]

A case is one store.  Its solve runs in a process of its own, which commits all the time, and kills itself (SIGKILL) at
a random moment of a random phase, while its other threads read, copy, write or seal.  The next process goes on with
another tier, layout, number of slots or of devices, and so on; the last one is not killed.  A wrong entry ends the
program with status 1; ``--seed`` with the number of the case repeats it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.progress import Monitor
from engine.model.system import usable_processors
from engine.model.tiling import Tiling, device_bytes
from storage.errors import ApspError
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.several import several

#: Vertices, whether directed, and whether some arcs are negative.
GRAPHS: Final = (
    (900, True, False), (1500, True, True), (1500, False, False), (2000, True, False), (2500, False, False),
    (2500, True, False), (3200, True, False), (4000, True, False),
)  # fmt: skip
#: Phases, and the most seconds from their begin to the kill.
MOMENTS: Final = (("prepare", 0.3), ("ingest", 0.2), ("relax", 0.8), ("relax", 0.8), ("write", 0.2), ("seal", 0.1))
#: Seconds that the solving thread sleeps at each step, so that there is time to be killed in.
SLOW: Final = 0.002


def graph_of(number: int) -> Graph:
    """Return one of ``GRAPHS``."""
    n, directed, negative = GRAPHS[number]
    draw = np.random.default_rng(number)
    height = draw.integers(0, 30, n) * negative
    tails, heads = draw.integers(0, n, (2, 4 * n))
    weights = draw.integers(0, 90, 4 * n) + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def answer_of(number: int) -> np.ndarray:
    """Return its distances by SciPy, shape (n, n), infinity where there is no path."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n, directed, negative = GRAPHS[number]
    draw, graph = np.random.default_rng(number), graph_of(number)
    # the weights with the heights taken back are not negative; SciPy takes explicit zeros for arcs
    height = draw.integers(0, 30, n) * negative
    tails = np.repeat(np.arange(n), np.diff(graph.indptr))
    weights = graph.weights - height[tails] + height[graph.heads]
    arcs = csr_array((weights.astype(float), graph.heads, graph.indptr), shape=(n, n))
    return dijkstra(arcs, directed=directed) + height[:, None] - height


# ---- the process that is killed -----------------------------------------------------------------------------------


class Deadly(Monitor):
    """Kills the process some time after a phase has begun."""

    def __init__(self, phase: str, delay: float) -> None:
        self._phase, self._delay = phase, delay

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Set the clock."""
        print(phase, flush=True)
        if phase == self._phase:
            self._phase = ""
            clock = threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL))
            clock.daemon = True
            clock.start()

    def advance(self, amount: int) -> None:
        """Take some time."""
        time.sleep(SLOW)


def child(told: dict[str, Any]) -> None:
    """Solve, or go on, as ``told``."""
    from engine.api.solve import make_plan, solve_to_store
    from engine.execution import streamed
    from engine.model.problem import Options
    from engine.streaming import checkpoint, host_tier, loading

    checkpoint.INTERVAL, checkpoint.WORTH = told["interval"], 0.0  # type: ignore[misc]
    host_tier.COST = host_tier.IDLE_COST = 100.0  # type: ignore[misc]
    loading._PIECE = 2**20  # type: ignore[misc]
    graph, device = graph_of(told["graph"]), told["device"]
    options = Options(
        algorithm="blocked-floyd-warshall", dtype=told["dtype"], device=device, threads=min(4, usable_processors())
    )
    made = make_plan(graph, options)
    streaming = Tiling(symmetric=not graph.directed and told["half"], **told["cut"])
    streaming = replace(streaming, passes=not streaming.symmetric and told["passes"])
    size = device_bytes(streaming, graph.n, WORK_TYPES[made.dtype].itemsize) if device == "cuda" else 0
    plan: Plan = replace(
        made, tier=streaming.tier, streaming=streaming, device_memory=size, devices=told["devices"]
    )  # at most as many as there are
    if device == "cpu":
        streamed._devices = several(told["devices"])  # type: ignore[assignment]
    solve_to_store(graph, options, Path(told["out"]), plan=plan, resume=told["resume"], monitor=Deadly(*told["kill"]))


# ---- the process that asks ----------------------------------------------------------------------------------------


def attempt(chance: random.Random, number: int, dtype: str, device: str) -> dict[str, Any]:
    """Choose how the next process goes on."""
    group, height = chance.choice([1, 1, 2, 3]), chance.choice([64, 64, 128, 256])
    phase, most = chance.choice(MOMENTS)
    return {
        "graph": number, "dtype": dtype, "device": device,
        "half": chance.random() < 0.6, "passes": chance.random() < 0.8,
        "cut": {"tier": chance.choice(["host", "host", "store"]), "height": height, "width": group * height,
                "slots": chance.choice([2, 3, 4]) if device == "cuda" else 1},
        "devices": chance.choice([1, 1, 2, 3, 4]),
        "interval": chance.choice([0.01, 0.05, 0.3]), "kill": [phase, chance.random() * most],
    }  # fmt: skip


def case(seed: int, answers: list[np.ndarray], folder: Path, device: str, only: int | None) -> Counter[str]:
    """Run one case; return its counts of kills by phase, and of cases that were right.

    Raises:
        AssertionError: an entry of the finished store is wrong, or a process ended with an error.
    """
    chance, out = random.Random(seed), folder / f"{seed}.zarr"
    number = chance.randrange(len(GRAPHS)) if only is None else only
    negative = GRAPHS[number][2]
    dtype = chance.choice(["int32", "float64"] if negative else ["uint16", "int32", "float32", "float64"])
    counts, told = Counter[str](), list[str]()
    turns = chance.randint(2, 6)
    for turn in range(turns + 1):
        if out.exists():  # the last one was killed after it had put the store in its place
            break
        asked = {**attempt(chance, number, dtype, device), "out": str(out), "resume": turn > 0}
        if turn == turns:
            asked["kill"] = ["never", 0]
        told.append(json.dumps(asked))
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu.kills", "--child", told[-1]], capture_output=True, text=True, check=False
        )
        if done.returncode == -signal.SIGKILL:
            counts[(done.stdout.split() or ["start"])[-1]] += 1
            continue
        assert done.returncode == 0, f"case {seed}: status {done.returncode}\n" + "\n".join(
            [*told, done.stderr[-3000:]]
        )
        break
    kind = WORK_TYPES[dtype]
    answer = answers[number if only is None else 0]
    want = np.where(np.isinf(answer), kind.unreachable, answer).astype(kind.dtype)
    with open_matrix(out) as found:
        wrong = int((found.rows(found.sources) != want).sum())
    assert not wrong, f"case {seed}: {wrong} wrong entries\n" + "\n".join(told)
    shutil.rmtree(out)
    return counts + Counter(right=1)


def campaign(kills: int, seconds: float, side: int, seed: int, device: str, only: int | None = None) -> Counter[str]:
    """Run cases side by side until so many kills are done, or so many seconds are over; return the counts.

    Raises:
        AssertionError: a case is wrong.
    """
    found, until = Counter[str](), time.monotonic() + seconds
    numbers = list(range(len(GRAPHS))) if only is None else [only]
    with ProcessPoolExecutor(min(len(numbers), os.cpu_count() or 1)) as pool:
        answers = list(pool.map(answer_of, numbers))
    with tempfile.TemporaryDirectory(prefix="kills-", dir=os.environ.get("APSP_KILLS")) as place:
        left = itertools.count(seed)
        guard = threading.Lock()

        def worker(_: int) -> None:
            while time.monotonic() < until:
                with guard:
                    if found.total() - found["right"] >= kills or found["failed"]:
                        return
                    here = next(left)
                try:
                    counts = case(here, answers, Path(place), device, only)
                except (AssertionError, ApspError):
                    with guard:
                        found["failed"] += 1
                    raise
                with guard:
                    found.update(counts)
                print(f"case {here}: {dict(counts)}", flush=True)

        with ThreadPoolExecutor(side) as pool:
            list(pool.map(worker, range(side)))
    return found


def main() -> int:
    """Run the campaign, or be one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--side", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--graph", type=int, default=None, help="only this one of the graphs")
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        child(json.loads(given.child))
        return 0
    began = time.monotonic()
    found = campaign(given.kills, given.seconds, given.side, given.seed, given.device, given.graph)
    kills = found.total() - found["right"]
    print(json.dumps({"kills": kills, "cases": found["right"], "wrong": 0, "seed": given.seed, "device": given.device,
                      "seconds": round(time.monotonic() - began, 1), "last phase": dict(found)}))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
