"""The benchmark set on the GPU: every applicable algorithm on each graph, the planner's choice, and what the CPU takes.

    python -m benchmarks.kernels.gpu_set [--graphs FOLDER] [--reference FILE] [--only WORD ...] [--seconds MOST]
    python -m benchmarks.kernels.gpu_set --print    the table of the recorded run, in Markdown

Rows arrive in page-locked memory and are dropped, so that no disk is measured; all else of a solve counts.  *Regret* is
the time of the choice by that of the best.  Algorithms that are predicted to take long and many times as long as the
choice are not run.  Facts are compared with the reference: over all pairs, or of the 50 sources that it samples.

The processors' columns are searches from some sources, times n by their number: ours with a heap (one Dijkstra a
source) and as the planner would search, all threads; SciPy's, which has one.  ``FOLDER`` holds saved graphs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks import graphs
from engine.api.solve import Outcome, make_plan, solve
from engine.devices.cpu import search
from engine.devices.cpu.backend import CpuBackend
from engine.graph.profile import GraphProfile
from engine.model.backend import Arcs
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Candidate, Plan
from engine.model.problem import Options
from storage.graph.graph import Graph, load_graph

RESULT: Final = Path(__file__).resolve().parents[1] / "results" / "gpu_set.json"
Make = Callable[[int], Graph]


def _unweighted(n: int) -> Graph:
    return graphs.hops(graphs.one_way(n))


#: Made graphs.
MADE: Final[tuple[tuple[str, Make, int], ...]] = (
    *(("random", graphs.one_way, n) for n in (65536, 32768, 131072)),
    *(("unweighted", _unweighted, 65536), ("rmat", graphs.rmat, 65536)),
    *(("ring", graphs.ring, 65536), ("grid", graphs.grid, 65536), ("dense", graphs.dense, 4096)),
)
#: The same, less telling: after the real ones.
SMALL: Final[tuple[tuple[str, Make, int], ...]] = (
    *(("random", graphs.one_way, n) for n in (1024, 2048, 4096, 8192, 16384)),
    *(("rmat", graphs.rmat, n) for n in (4096, 16384)),
    *(("ring", graphs.ring, n) for n in (4096, 16384)),
    *(("grid", graphs.grid, n) for n in (4096, 16384)),
    *(("dense", graphs.dense, 1024), ("unweighted", _unweighted, 16384)),
)
#: Real graphs, the most telling first.
REAL: Final = (
    *("seattle-roads.gr.gz", "delaunay_n16.mtx.gz", "p2p-Gnutella31.txt.gz", "as-caida20070917.txt"),
    *("sx-askubuntu.txt.gz", "bremen_dist.gr.gz", "Sydney_net.tntp.gz", "cal.cedge.gz", "delhi-roads.gr.gz"),
    *("bremen_time.gr.gz", "ChicagoRegional_net.tntp.gz", "rome99.gr", "graph_23rd.gr", "minnesota_km.mtx"),
    *("north-bayreuth_drive.csv", "helsinki_drive.csv", "krems_drive.csv", "monaco_drive.csv", "munich_net.tntp"),
)
#: Predicted seconds that are run in any case.
PATIENCE: Final = 0.6
#: Above that, algorithms that are predicted to take less than so many times as long as the choice.
HOPELESS: Final = 4.0
#: Runs of an algorithm: at least two, the first one compiles; until so many seconds or so many runs have passed.
ENOUGH_SECONDS: Final = 0.5
ENOUGH_RUNS: Final = 4
#: Turns of all algorithms on graphs that take no longer than PATIENCE: the first one finds a device that sleeps.
TURNS: Final = 3
#: Sources of the processors' samples, for each thread, and of SciPy's.
SAMPLE: Final = 64
PEER_SAMPLE: Final = 4


def worth(candidate: Candidate, chosen: Candidate) -> bool:
    """Whether to run it."""
    on_device = candidate.feasible and candidate.device == "cuda"
    return on_device and (candidate.seconds < PATIENCE or candidate.seconds < HOPELESS * chosen.seconds)


class Kept:
    """A sink that keeps the rows of some vertices and drops the others."""

    def __init__(self, plan: Plan, vertices: list[int]) -> None:
        self.tile = (64, max(1, plan.shape[1]))
        self.rows: dict[int, npt.NDArray[np.generic]] = {}
        self._vertices = vertices

    def write(self, row: int, column: int, block: npt.NDArray[np.generic]) -> None:  # noqa: ARG002 - whole rows
        """Keep what is to be kept: matrix row i is that of vertex i."""
        for vertex in self._vertices:
            if row <= vertex < row + len(block):
                self.rows[vertex] = block[vertex - row].copy()


def agrees(outcome: Outcome, kept: Kept, reference: dict[str, Any] | None) -> bool | None:
    """Whether facts, or the sampled rows, are those of the reference; None where there is none."""
    if reference is None:
        return None
    if "apsp" in reference:
        facts, want = outcome.summary, reference["apsp"]
        # not the radius: the reference's is over all sources that reach any vertex, dead ends too
        names = {"reached": "reachable_pairs", "sum": "distance_sum", "diameter": "diameter"}
        return all(math.isclose(float(str(facts[a])), want[b], rel_tol=2e-6) for a, b in names.items())
    kind, digest = WORK_TYPES[outcome.plan.dtype], hashlib.sha256()
    for vertex in sorted(kept.rows):
        row = kept.rows[vertex].astype(np.int64)
        row[row >= int(kind.unreachable)] = -1
        digest.update(row.astype("<i8").tobytes())
    return digest.hexdigest() == reference["sampled"]["sha256_int64"] and len(kept.rows) == 50


def sampled(graph: Graph, reference: dict[str, Any] | None) -> list[int]:
    """Indices of the sources that a reference samples."""
    if reference is None or "sampled" not in reference:
        return []
    return [int(np.flatnonzero(graph.labels == source)[0]) for source in reference["sampled"]["sources"]]


def run(
    profile: GraphProfile, plan: Plan, options: Options, reference: dict[str, Any] | None
) -> tuple[float, bool | None]:
    """Best seconds of some solves, and whether the result is right."""
    wanted, best, total, runs = sampled(profile.graph, reference), math.inf, 0.0, 0
    while runs < 2 or (runs < ENOUGH_RUNS and total < ENOUGH_SECONDS):
        kept = Kept(plan, wanted)
        began = time.perf_counter()
        outcome = solve(copy(profile), plan, options, kept)
        took = time.perf_counter() - began
        best, total, runs = min(best, took), total + took, runs + 1
    return best, agrees(outcome, kept, reference)


def on_processors(graph: Graph, threads: int) -> dict[str, float]:
    """Seconds of all searches, from those of a sample."""
    rng = np.random.default_rng(4)
    arcs = Arcs(graph.indptr, graph.heads, graph.weights)
    dtype = "int32" if graph.integral else "float64"
    sources = np.sort(rng.permutation(graph.n)[: SAMPLE * threads])
    unit = bool((graph.weights == 1).all())
    backend = CpuBackend(threads)
    found = {}
    for name, least in (("searches", search.LEAST_LANES), ("dijkstra", 2**62)):
        with mock.patch.object(search, "LEAST_LANES", least):
            few, out = sources[: 2 * threads], np.empty((len(sources), graph.n), dtype)
            backend.search(arcs, few, out[: len(few)], unit=unit)  # compiles, prepares
            began = time.perf_counter()
            backend.search(arcs, sources, out, unit=unit)
            found[name] = (time.perf_counter() - began) * graph.n / len(sources)
    backend.shutdown()
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    few = sources[:: max(1, len(sources) // PEER_SAMPLE)][:PEER_SAMPLE]
    began = time.perf_counter()
    dijkstra(matrix, indices=few)
    found["scipy"] = (time.perf_counter() - began) * graph.n / len(few)
    return found


def compare(name: str, graph: Graph, reference: dict[str, Any] | None) -> dict[str, Any]:
    """All algorithms of the device that suit and are worth it, and the processors."""
    options = Options(device="cuda")
    profile = GraphProfile(graph)
    make_plan(profile, options)  # compiles what calibrating and partitioning need
    began = time.perf_counter()
    plan = make_plan(graph, options)  # by a profile of its own: nothing about the graph is known yet
    planning = time.perf_counter() - began
    chosen = plan.candidates[0]
    taken, right = dict[str, float](), dict[str, bool | None]()
    for _ in range(TURNS if chosen.seconds < PATIENCE else 1):
        for candidate in plan.candidates:
            if worth(candidate, chosen):
                which, own = candidate.algorithm, replace(options, algorithm=candidate.algorithm)
                took, right[which] = run(profile, make_plan(profile, own), own, reference)
                taken[which] = min(took, taken.get(which, math.inf))
    best = min(taken, key=taken.__getitem__)
    return {
        "graph": name, "n": graph.n, "arcs": graph.arcs, "dtype": plan.dtype,
        "choice": plan.algorithm, "planning": planning, "best": best, "regret": taken[plan.algorithm] / taken[best],
        "seconds": taken, "agrees": right, "processors": on_processors(graph, plan.threads),
        "predicted": {c.algorithm: c.seconds for c in plan.candidates if c.device == "cuda" and c.feasible},
        "rejected": {c.algorithm: c.rejected for c in plan.candidates if c.device == "cuda"},
        "bytes": graph.n**2 * WORK_TYPES[plan.dtype].itemsize, "threads": plan.threads,
    }  # fmt: skip


def cases(folder: Path | None, reference: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Graph], Any]]:
    """Names, how to come by the graphs, and what is known of them."""
    for shape, make, n in MADE:
        yield f"{shape} {n:,}", partial(make, n), None
    for name in REAL if folder is not None else ():
        saved = Path(str(folder)) / name
        if saved.exists():
            yield name.partition(".")[0], partial(_load, saved), reference.get(name)
    for shape, make, n in SMALL:
        yield f"{shape} {n:,}", partial(make, n), None


def _load(saved: Path) -> Graph:
    return load_graph(saved)[0]


def markdown(record: dict[str, Any]) -> str:
    """The table."""
    head = ["graph", "n", "arcs", "type", "choice", "s", "regret", "others, s", "GB/s", "one Dijkstra a source, s", "×"]
    head += ["SciPy, s", "agrees"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in record["rows"]:
        seconds, cpu = dict(row["seconds"]), row["processors"]
        own = seconds.pop(row["choice"])
        others = ", ".join(f"{name} {took:.3g}" for name, took in sorted(seconds.items(), key=lambda item: item[1]))
        says = {None: "–", True: "yes", False: "NO"}
        cells = [row["graph"], f"{row['n']:,}", f"{row['arcs']:,}", row["dtype"], row["choice"], f"{own:.3g}"]
        cells += [f"{row['regret']:.2f}", others, f"{row['bytes'] / own / 1e9:.3g}", f"{cpu['dijkstra']:.3g}"]
        cells += [f"{cpu['dijkstra'] / own:.3g}", f"{cpu['scipy']:.3g}"]
        cells += ["/".join(sorted({says[x] for x in row["agrees"].values()}))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and record, or print what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs")
    parser.add_argument("--reference", type=Path, help="facts about them")
    parser.add_argument("--only", nargs="*", help="words; graphs are kept whose name has one of them")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no other graph after so long")
    parser.add_argument("--print", action="store_true", help="print the recorded table")
    options = parser.parse_args()
    if options.print:
        print(markdown(json.loads(RESULT.read_text())))
        return
    import cupy

    from benchmarks.kernels.gpu_timing import Record

    record, began = Record("gpu_set"), time.perf_counter()
    reference = json.loads(options.reference.read_text()) if options.reference else {}
    try:
        for name, make, known in cases(options.graphs, reference.get("graphs", reference)):
            if time.perf_counter() - began > options.seconds:
                print("time is over before", name)
            elif not options.only or any(word in name for word in options.only):
                record.add(**compare(name, make(), known))
                cupy.get_default_memory_pool().free_all_blocks()
    finally:  # what was measured before somebody lost patience is kept
        record.write()


if __name__ == "__main__":
    main()
