"""Times exact betweenness beside NetworKit and igraph, with equally many threads, and checks that all agree.

    python -m benchmarks.betweenness [FOLDER] [--threads 1,2] [--runs 3] [--seconds 25] [--graphs NAME,...] [--gpu]

FOLDER has the graph files.  The contenders alternate on each graph.  A contender runs up to ``--runs`` times, and not
again after its runs have taken ``--seconds``; medians of wall seconds and of processor seconds are printed as a table.
Small graphs take milliseconds, which other processes disturb, so they need more runs.
Kernels that the set-up compiles are compiled first, because without them plain Python walks over small graphs.
igraph has one thread, so it is timed only with one thread.  With ``--gpu`` a GPU is a contender, too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from storage.graph.graph import Graph
from storage.readers import read_graph

#: Files, and whether their weights are left out.  Weights are whole numbers, or decimals without ties, because sums of
#: decimals are rounded differently in other programs, which then count different ties.
GRAPHS: Final = {
    "power.graph": True,
    "PGPgiantcompo.graph": True,
    "3elt.mtx": True,
    "p2p-Gnutella08.txt": True,
    "rome99.gr": False,
    "monaco_drive.csv": False,
    "mediumEWD.txt": False,
    "celegansneural.gml": False,
    "celegans_metabolic.graph": True,
    "netscience.mtx": True,
    "EVA.mtx": True,
}

Scores = Any


def contenders(graph: Graph, threads: int, gpu: bool = False) -> dict[str, Callable[[], Scores]]:
    """Return functions that compute the betweenness of all vertices, not normalized, by the name of the program.

    The graph has been converted for each program already.
    """
    import igraph
    import networkit

    from engine.api.betweenness.centrality import betweenness
    from engine.model.problem import Options

    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    kept = np.ones(graph.arcs, np.bool_) if graph.directed else tails < graph.heads
    ends, weights = (tails[kept], graph.heads[kept]), graph.weights[kept]
    unit = bool((weights == 1).all())
    networkit.setNumberOfThreads(threads)
    theirs = networkit.Graph(graph.n, weighted=not unit, directed=graph.directed)
    for u, v, weight in zip(ends[0].tolist(), ends[1].tolist(), weights.tolist(), strict=True):
        theirs.addEdge(u, v, weight)

    def by_networkit() -> Scores:
        found = networkit.centrality.Betweenness(theirs)
        found.run()
        return np.array(found.scores()) * (1 if graph.directed else 0.5)

    found: dict[str, Callable[[], Scores]] = {
        "apsp": lambda: betweenness(graph, Options(threads=threads), normalized=False).values,
        "NetworKit": by_networkit,
    }
    if gpu:
        there = Options(threads=threads, device="cuda")
        found["apsp, GPU"] = lambda: betweenness(graph, there, normalized=False).values
    if threads == 1:
        other = igraph.Graph(
            graph.n, list(zip(*(side.tolist() for side in ends), strict=True)), directed=graph.directed
        )
        listed = None if unit else weights.tolist()
        found["igraph"] = lambda: np.array(other.betweenness(weights=listed))
    return found


def measured(
    graph: Graph, threads: int, runs_each: int, seconds: float, gpu: bool = False
) -> dict[str, tuple[float, float, int]]:
    """Return for each contender the medians of wall and of processor seconds, and the number of its runs.

    Args:
        graph: the graph.
        threads: the threads of each contender.
        runs_each: the number of runs of each contender.
        seconds: a contender whose runs have taken more than these seconds begins no further run.
        gpu: whether a GPU is a contender.

    Raises:
        SystemExit: two contenders do not agree.
    """
    runs = contenders(graph, threads, gpu)
    right = runs["apsp"]()  # this run also compiles the kernels
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(runs_each):
        for name, run in runs.items():
            if taken[name] and sum(wall for wall, _ in taken[name]) > seconds:
                continue
            used, began = time.process_time(), time.perf_counter()
            values = run()
            taken[name].append((time.perf_counter() - began, time.process_time() - used))
            if not np.allclose(values, right, rtol=1e-6, atol=1e-6):
                raise SystemExit(f"{name} found another betweenness")
    return {
        name: (statistics.median(wall for wall, _ in each), statistics.median(used for _, used in each), len(each))
        for name, each in taken.items()
    }


def main() -> None:
    """Print a row for each graph and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("data"))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--gpu", action="store_true")
    asked = parser.parse_args()
    from engine.execution.kernel_list import missing_for

    for kernel in missing_for("betweenness"):
        kernel.compile()
    print("| graph | threads | contender | wall s | processor s | runs | processor time beside apsp |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in asked.graphs.split(","):
        graph, _ = read_graph(asked.folder / name, unweighted=GRAPHS[name])
        what = f"{name}, n = {graph.n:,}, {graph.arcs:,} arcs, {'hops' if GRAPHS[name] else 'weights'}"
        for threads in map(int, asked.threads.split(",")):
            found = measured(graph, threads, asked.runs, asked.seconds, asked.gpu)
            for contender, (wall, used, runs) in found.items():
                beside = used / found["apsp"][1]
                row = f"{wall:.4f} | {used:.4f} | {runs} | {beside:.1f} x"
                print(f"| {what} | {threads} | {contender} | {row} |", flush=True)


if __name__ == "__main__":
    main()
