"""Chains: in a chain, one solve is killed, stopped, resumed and begun anew at random until it is done.

The seed of a chain determines the graph with its type and signs, and for each step the tier (memory, host, store), the
executor, the layout, the threads, the interval of commits, and how the step ends.  The whole store that the last step
seals is compared with SciPy's distances.

Run as a program: ``python -m tests.faults.chains FOLDER FIRST COUNT`` runs the chains of COUNT seeds from FIRST on and
prints, as JSON, what happened in all of them.  The steps of a chain that goes wrong are printed, and
``python -m tests.faults.chains FOLDER SEED 1`` repeats it, except for the timing of threads.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, johnson

from engine.algorithms import dijkstra as searches
from engine.api.solve import make_plan, solve_to_store
from engine.distributed import run
from engine.distributed.dense import commits
from engine.execution import compiling, streamed
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from engine.streaming import checkpoint, host_tier, tile_files
from storage.errors import Cancelled, Conflict
from storage.files import memory
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint
from tests.faults.crash_store import Trap
from tests.several import several
from tests.spreading import ToyCluster
from tests.stores import verify_matrix

TYPES = ("uint16", "int32", "float32", "float64")
TIERS = ("store", "host", "memory", "dask")
CUTS = ((64, 64), (64, 128), (64, 192), (64, 256), (128, 128), (128, 256))
#: exit status of a child: done, stopped when it was asked to, refused
DONE, STOPPED, REFUSED = 0, 7, 8


@dataclass(frozen=True)
class Sample:
    """A graph, by what it is made from."""

    n: int
    directed: bool
    dtype: str
    negative: bool
    whole: bool
    searched: bool
    seed: int

    def graph(self) -> Graph:
        rng = np.random.default_rng(self.seed)
        count = self.n * 3
        tails, heads = rng.integers(0, self.n, (2, count))
        weights = rng.integers(0, 1000 if self.dtype != "uint16" else 60, count).astype(np.float64)
        if not self.whole:
            weights += rng.random(count)
        if self.negative:
            height = rng.integers(0, 600, self.n) + (0 if self.whole else rng.random(self.n))
            weights += height[tails] - height[heads]
        weights = weights.astype(np.int64) if self.whole else weights
        return build_graph(tails, heads, weights, n=self.n, directed=self.directed)[0]


@dataclass(frozen=True)
class Step:
    """One process: what it does, and how it ends.

    Attributes:
        tier, height, width, half, algorithm, threads: how it solves; the tier ``dask`` is over workers.
        interval: seconds from commit to commit.
        anew: whether it overwrites instead of going on.
        end: ``units`` killed after that share of the work it has, ``operation`` before that file operation or in the
            middle of it, ``stop`` asked to stop after a share of the work, ``refuse`` asked for what a checkpoint
            cannot honour; ``done`` nothing.
        at: the share, or the number of the operation.
        devices: number of devices that stream.
    """

    tier: str
    height: int
    width: int
    half: bool
    algorithm: str
    threads: int
    interval: float
    anew: bool
    end: str
    at: float
    devices: int = 1


def chain_of(seed: int) -> tuple[Sample, list[Step]]:
    """The graph and the steps of a chain; the last step is not interrupted."""
    chance = random.Random(seed)
    directed, dtype = chance.random() < 0.6, chance.choice(TYPES)
    whole = dtype in ("uint16", "int32") or chance.random() < 0.3
    negative = directed and dtype != "uint16" and chance.random() < 0.5
    searched = chance.random() < 0.2
    sample = Sample(chance.randint(150, 420), directed, dtype, negative, whole, searched, seed)
    count, often = chance.randint(2, 7), ("units", "units", "operation", "operation", "stop", "stop", "stop", "refuse")
    cuts = chance.sample(CUTS, 2)  # few, so that a chain comes back to one that it had
    # the first one leaves something more often than not
    ends = [chance.choice(("stop", "stop", "units", "operation")), *(chance.choice(often) for _ in range(count - 1))]
    steps = [_step(chance, sample, end, cuts) for end in ends]
    steps.append(_step(chance, sample, "done", cuts))
    draw = random.Random(-1 - seed)  # one of its own, so that a seed has the same steps as before it
    return sample, [replace(step, devices=draw.choice((1, 1, 2, 3))) for step in steps]


def _step(chance: random.Random, sample: Sample, end: str, cuts: Sequence[tuple[int, int]]) -> Step:
    height, width = chance.choice(cuts)
    # without potentials the rounds of the store know no floats of both signs
    tiers = [t for t in TIERS if t != "store" or sample.whole or not sample.negative]
    tier = chance.choice(tiers)
    if sample.searched:
        tier, algorithm = chance.choice(("memory", "dask")), "johnson" if sample.negative else "dijkstra"
    elif tier == "memory":
        algorithm = chance.choice(("blocked-floyd-warshall", "recursive-floyd-warshall", "repeated-squaring"))
    else:
        algorithm = "blocked-floyd-warshall"
    half = not sample.directed and tier in ("host", "store") and chance.random() < 0.6
    at = int(20 * 30 ** chance.random()) if end == "operation" else chance.random()
    interval = chance.choice((0.0, 0.0, 0.005, 9e9))
    return Step(tier, height, width, half, algorithm, chance.randint(1, 3), interval, chance.random() < 0.1, end, at)


def plan_of(graph: Graph, sample: Sample, step: Step) -> Plan:
    """The plan that the step follows."""
    plan = replace(base_plan(graph, sample.dtype, step.algorithm), threads=step.threads)
    if sample.searched or step.tier == "memory":
        return plan
    if step.tier == "dask":
        return replace(plan, tier="host", streaming=Tiling("host", step.width, step.width), workers=2)
    streaming = Tiling(step.tier, step.height, step.width, symmetric=step.half, passes=not step.half)
    return replace(plan, tier=step.tier, streaming=streaming)


def base_plan(graph: Graph, dtype: str, algorithm: str) -> Plan:
    """A plan without tier or layout."""
    return replace(make_plan(graph, Options(algorithm=algorithm, dtype=dtype, device="cpu")), from_targets=False)


class Ends(Monitor):
    """Kills the process, or asks it to stop, at a share of the work of a phase."""

    def __init__(self, step: Step) -> None:
        self._kill, self._stop = step.end == "units", step.end == "stop"
        # the share runs over the phases that change tiles, one after the other
        self._share, self._before = 1.3 * step.at, 0.0
        self._total = self._done = 0
        self._counts = False

    def begin(self, phase: str, total: int, unit: str) -> None:
        if self._counts:
            self._before += 1
        self._counts, self._total, self._done = phase in ("relax", "search", "write", "finish"), total, 0

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._kill and self._is_time():
            os.kill(os.getpid(), signal.SIGKILL)

    def cancelled(self) -> bool:
        return self._stop and self._is_time()

    def _is_time(self) -> bool:
        return self._counts and self._before + self._done / max(1, self._total) >= self._share


def work(graph: Graph, sample: Sample, step: Step, path: Path) -> int:
    """What a child does; returns its exit status."""
    checkpoint.INTERVAL, checkpoint.WORTH = step.interval, 0.0
    searches.BATCH_SECONDS = searches.BUSY_SECONDS = 0.0
    searches.FIRST_ENTRIES = searches.BUSY_ENTRIES = 0
    host_tier.COST, commits.COST = 100.0, 1e9
    plan, options = plan_of(graph, sample, step), Options(dtype=sample.dtype)
    if step.end == "refuse":
        return refused(graph, sample, step, path)
    if step.tier == "dask":
        options = replace(options, executor="dask", scheduler="toy", algorithm=step.algorithm)
        use_toy_cluster(sample, step)
    if step.devices > 1:
        streamed._devices = several(step.devices)
    if step.end == "operation":
        Trap(int(step.at)).arm(exchange=True)
    try:
        how = {"overwrite": True} if step.anew else {"resume": True}
        solve_to_store(graph, options, path, plan=plan, monitor=Ends(step), **how)
    except Cancelled:
        return STOPPED
    return DONE


def refused(graph: Graph, sample: Sample, step: Step, path: Path) -> int:
    """Ask for another type, or for rows where there are rounds: a checkpoint refuses it and stays as it is."""
    found = find_checkpoint(path)
    if found is None:
        return REFUSED
    other = "float64" if sample.dtype != "float64" else "float32"
    by_rows = "johnson" if sample.negative else "dijkstra"
    algorithm = "recursive-floyd-warshall" if sample.searched else by_rows
    asked = Options(dtype=other) if step.at < 0.5 else Options(algorithm=algorithm, dtype=sample.dtype)
    try:
        solve_to_store(graph, asked, path, resume=True)
    except Conflict:
        after = find_checkpoint(path)
        return REFUSED if after is not None and after.record == found.record else 1
    return 1


def use_toy_cluster(sample: Sample, step: Step) -> None:
    """Workers in this process, some of which are lost; few stripes fit, so that most are left in the store at once."""
    chance = random.Random(step.at)
    small = 8 * step.width * sample.n * np.dtype(sample.dtype).itemsize
    cluster = ToyCluster(2, seed=int(step.at * 1000), memory=chance.choice((small, 2**30)))
    found = {event.worker: event.info for event in cluster.news}  # type: ignore[union-attr]
    cluster.news.clear()

    def mischief(_: ToyCluster) -> None:
        if chance.random() < 0.03 and len(cluster.workers) > 1:
            cluster.kill(chance.choice(sorted(cluster.workers)), zombie=chance.random() < 0.5)
        if chance.random() < 0.05 and len(cluster.workers) < 3:
            cluster.add()

    cluster.mischief = mischief
    run.Cluster = lambda address: cluster  # type: ignore[assignment,misc]
    run.gather = lambda *_: found  # type: ignore[assignment]


def in_child(call: Callable[[], int]) -> int:
    """The exit status of a child, or the number of the signal that ended it, negative."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = call()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def oracle(graph: Graph, *, negative: bool) -> np.ndarray:
    """SciPy's distances."""
    weights = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return johnson(weights) if negative else dijkstra(weights)


def differing(path: Path, expected: np.ndarray, *, whole: bool) -> int:
    """How many entries of the sealed store are not the expected ones."""
    verify_matrix(path)
    with open_matrix(path) as matrix:
        rows = matrix.rows(range(len(expected)))
        found = rows.astype(np.float64)
        found[rows == matrix.unreachable] = np.inf
    if whole:
        return int((found != expected).sum())
    finite = np.isfinite(expected)
    allowed = 1e-5 * max(1.0, float(np.abs(expected[finite]).max()))
    close = np.abs(np.where(finite, found, 0) - np.where(finite, expected, 0)) <= allowed
    return int((~(close & (finite == np.isfinite(found)))).sum())


def describe(seed: int, steps: list[str]) -> str:
    """A chain in words."""
    sample, _ = chain_of(seed)
    return "\n".join([f"chain {seed}: {sample}", *steps])


@cache
def warm(dtype: str, directed: bool) -> None:
    """Load what is compiled once, not in every child."""
    folder = Path(os.environ.get("APSP_CHAINS_WARM", "/tmp")) / f"chains-warm-{os.getpid()}"
    folder.mkdir()
    try:
        sample = Sample(70, directed, dtype, False, dtype in ("uint16", "int32"), False, 0)
        graph = sample.graph()
        for tier in ("memory", "host", "store"):
            step = Step(
                tier, 64, 64, not directed and tier != "memory", "blocked-floyd-warshall", 1, 9e9, False, "done", 0
            )
            solve_to_store(graph, Options(dtype=dtype), folder / f"{tier}.zarr", plan=plan_of(graph, sample, step))
    finally:
        shutil.rmtree(folder)


IN_MEMORY = memory.KINDS


def run_chain(seed: int, folder: Path) -> Counter[str]:
    """Run one chain; SystemExit, with its steps, if anything is not as it should be.

    Every other chain writes as it would on a disk, although the folder may be in memory; the others use the kernel that
    writes tiles.
    """
    compiling.MANY_TILES = 0
    tile_files.try_put()  # compiles it
    memory.KINDS = () if seed % 2 else IN_MEMORY
    sample, steps = chain_of(seed)
    graph, path = sample.graph(), folder / "d.zarr"
    warm(sample.dtype, sample.directed)
    expected = oracle(graph, negative=sample.negative)
    facts, told = Counter[str](chains=1), list[str]()
    for step in steps:
        before = find_checkpoint(path)
        status = in_child(lambda step=step: work(graph, sample, step, path))
        after = None if path.exists() else find_checkpoint(path)
        record = after and {
            k: after.record.get(k) for k in ("rows", "height", "width", "symmetric", "levels", "potentials")
        }
        told.append(f"  {asdict(step)}\n    -> {status}, record {record}")
        facts.update(steps=1, killed=status == -signal.SIGKILL, resumed=before is not None and status != REFUSED)
        facts.update(
            kept=after is not None and status == -signal.SIGKILL, refused=status == REFUSED and before is not None
        )
        if status not in (DONE, STOPPED, REFUSED, -signal.SIGKILL):
            raise SystemExit(f"a step failed\n{describe(seed, told)}")
        if path.exists():
            break
    wrong = differing(path, expected, whole=sample.whole)
    if wrong:
        raise SystemExit(f"{wrong} of {expected.size} entries are wrong\n{describe(seed, told)}")
    # a process killed after it has sealed leaves its lock file, which the next writer takes over
    left = {p.name for p in folder.iterdir()} - {"d.zarr", ".d.zarr.working", ".d.zarr.writing"}
    if left:
        raise SystemExit(f"left behind: {left}\n{describe(seed, told)}")
    return facts


def main(folder: Path, first: int, count: int) -> dict[str, Any]:
    facts = Counter[str]()
    for seed in range(first, first + count):
        place = folder / str(seed)
        place.mkdir(parents=True)
        facts += run_chain(seed, place)
        shutil.rmtree(place)
    return dict(facts)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
