"""Kills solves with sums along paths at random instants, and lets others go on, until the store is sealed.

Run as a program: ``python -m tests.faults.crash_sums FOLDER KIND FIRST COUNT`` runs a chain of kills for each of COUNT
seeds from FIRST on, and for further seeds until COUNT / 2 kills have left rows in a checkpoint.  If KIND is ``memory``,
the folder has to be in memory, where a kernel writes the tiles of distances and sums; if it is ``disk``, files are
written as on a disk, wherever the folder is.

The seed of a chain determines the graph, its two quantities, the compression, and for each step the threads, the
interval of commits, and the share of the time of an undisturbed solve after which it is killed.  All files of the
sealed store are compared with those of the undisturbed solve.  Prints as JSON: the chains, the kills of a running
solve, those that left rows in a checkpoint, the steps that went on from such a checkpoint with another number of
threads than the step before, and the chains whose tiles a kernel wrote.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.algorithms import dijkstra
from engine.api.solve import solve_to_store
from engine.execution import compiling
from engine.model.problem import Options
from engine.streaming import checkpoint, tile_files
from storage.files import memory
from storage.graph.graph import Graph, build_graph
from storage.matrix.working import find_checkpoint
from tests.faults.crash_solve import killed
from tests.faults.crash_store import in_child
from tests.stores import verify_matrix

#: Least and most kills of a chain; it has fewer if a solve ends before it is killed.
KILLS = (2, 4)
#: So many times the chains that are asked for are the most that are run.
MORE = 10


@dataclass(frozen=True)
class Sample:
    """A graph with quantities, by what it is made from, and what is asked of it.

    Attributes:
        n: number of vertices; no arc leaves a quarter of them if the graph is directed.
        directed: whether it is directed.
        weights: ``hops`` (every arc counts 1), ``whole`` or ``decimal``.
        also: two quantities.
        picked: whether there are targets, and sources in an order of their own.
        compression: of the store.
        seed: of the random numbers.
    """

    n: int
    directed: bool
    weights: str
    also: tuple[str, ...]
    picked: bool
    compression: str
    seed: int

    def graph(self) -> Graph:
        draw, arcs = np.random.default_rng(self.seed), 4 * self.n
        tails = draw.integers(0, 3 * self.n // 4 if self.directed else self.n, arcs)
        weights = np.ones(arcs, np.int64) if self.weights == "hops" else draw.integers(1, 1000, arcs)
        # over hops, the first two fit 2 and 4 bytes
        quantities = {
            "few": draw.integers(0, 9, arcs),
            "many": draw.integers(0, 10**5, arcs),
            "part": draw.random(arcs),
        }
        given = weights / 8 if self.weights == "decimal" else weights
        ends = tails, draw.integers(0, self.n, arcs)
        return build_graph(*ends, given, n=self.n, directed=self.directed, quantities=quantities)[0]

    def options(self, threads: int) -> Options:
        if not self.picked:
            return Options(also=self.also, threads=threads, device="cpu")
        draw = np.random.default_rng(self.seed)
        sources, targets = (tuple(draw.permutation(self.n)[: self.n * 3 // 4].tolist()) for _ in range(2))
        return Options(also=self.also, threads=threads, device="cpu", sources=sources, targets=targets)


def sample_of(seed: int) -> Sample:
    """The graph of a chain; odd seeds have sums over hops, the others over weights."""
    chance = random.Random(seed)
    weights = "hops" if seed % 2 else chance.choice(("whole", "whole", "decimal"))
    also = tuple(chance.sample(("few", "many", "part"), 2))
    # no kernel writes compressed tiles, so few are
    picked, compression = chance.random() < 0.25, "zstd" if seed % 5 == 4 else "none"
    return Sample(chance.randint(450, 900), chance.random() < 0.7, weights, also, picked, compression, seed)


def solve(graph: Graph, sample: Sample, threads: int, path: Path) -> None:
    options = sample.options(threads)
    solve_to_store(graph, options, path, resume=True, compression=sample.compression)


def files_of(store: Path) -> dict[str, bytes]:
    """The content of each file of a sealed store; of the document at the top all but the plan, and the seal over it."""
    found = {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    document = json.loads(found["zarr.json"])
    for name in ("plan", "seal"):
        del document["attributes"][name]
    return found | {"zarr.json": json.dumps(document).encode()}


def run_chain(seed: int, folder: Path) -> Counter[str]:
    """Run one chain; SystemExit, with its steps, if anything is not as it should be."""
    sample, chance = sample_of(seed), random.Random(-1 - seed)
    graph, path, even = sample.graph(), folder / "d.zarr", folder / "even.zarr"
    checkpoint.INTERVAL = 9e9
    solve(graph, sample, 2, even)  # loads what children would load
    began = time.perf_counter()
    solve(graph, sample, 1, path)
    whole = time.perf_counter() - began
    expected = files_of(even)
    check(path, expected, [f"chain {seed}: {sample}"])
    shutil.rmtree(path)
    told, facts, before, kept = [f"chain {seed}: {sample}"], Counter[str](chains=1), 0, False
    facts["kernel"] = sample.compression == "none" and memory.in_memory(folder) and tile_files.ready_put() is not None
    for _ in range(chance.randint(*KILLS)):
        threads, checkpoint.INTERVAL, share = chance.randint(1, 2), chance.choice((0.0, 0.0, 0.01)), chance.random()
        facts["changed"] += kept and threads != before
        met = killed(lambda threads=threads: solve(graph, sample, threads, path), share * whole)
        found = None if path.exists() else find_checkpoint(path)
        rows = found.record["rows"] if found else 0
        before, kept = threads, rows > 0
        told.append(f"  {threads} threads, {share:.2f} of the time: killed {met}, rows in a checkpoint: {rows}")
        facts.update(kills=met, kept=met and kept)
        if path.exists():
            break
    if not path.exists() and in_child(lambda: solve(graph, sample, chance.randint(1, 2), path)):
        raise SystemExit("\n".join(["the last step failed", *told]))
    check(path, expected, told)
    # a process killed after it has sealed leaves its lock file, which the next writer takes over
    left = {p.name for p in folder.iterdir()} - {"d.zarr", "even.zarr", ".d.zarr.working", ".d.zarr.writing"}
    if left:
        raise SystemExit("\n".join([f"left behind: {left}", *told]))
    return facts


def check(path: Path, expected: dict[str, bytes], told: list[str]) -> None:
    """SystemExit, with the steps of the chain, if a store has other files than expected."""
    verify_matrix(path)
    found = files_of(path)
    wrong = sorted(name for name in found | expected if found.get(name) != expected.get(name))
    if wrong:
        raise SystemExit("\n".join([f"files that differ: {wrong}", *told]))


def main(folder: Path, kind: str, first: int, count: int) -> None:
    if kind == "disk":
        memory.KINDS = ()
    elif not memory.in_memory(folder):
        raise SystemExit(f"{folder} is not in memory")
    compiling.MANY_TILES = 0  # stores in memory are written by the kernel
    tile_files.try_put()  # compiles it, or Python would write them
    dijkstra.BATCH_SECONDS = dijkstra.BUSY_SECONDS = 0.0  # batches of one row of tiles
    dijkstra.FIRST_ENTRIES = dijkstra.BUSY_ENTRIES = 0
    facts = Counter[str]()
    for seed in range(first, first + MORE * count):
        if seed >= first + count and facts["kept"] >= count // 2:
            break
        place = folder / str(seed)
        place.mkdir()
        facts += run_chain(seed, place)
        shutil.rmtree(place)
    print(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
