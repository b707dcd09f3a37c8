"""Times exact betweenness beside NetworKit and igraph, with equally many threads, and checks that all agree.

    python -m benchmarks.betweenness [FOLDER] [--threads 1,2] [--seconds 25] [--graphs NAME,...] [--gpu]

FOLDER has the graph files.  All contenders take one graph in turns, up to three times as long as ``--seconds`` lasts;
medians of wall seconds and of processor seconds are printed as a table.  igraph has one thread, so it runs where one is
asked for; with ``--gpu`` a GPU counts, too.
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

#: Files, and whether their weights are left out.  Weights are whole: of decimals, others count other ties.
GRAPHS: Final = {
    "power.graph": True,
    "PGPgiantcompo.graph": True,
    "3elt.mtx": True,
    "p2p-Gnutella08.txt": True,
    "rome99.gr": False,
}
RUNS: Final = 3

Scores = Any


def contenders(graph: Graph, threads: int, gpu: bool = False) -> dict[str, Callable[[], Scores]]:
    """Return what finds the betweenness of all vertices, not normalized, by name; conversions are done already."""
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


def measured(graph: Graph, threads: int, seconds: float, gpu: bool = False) -> dict[str, tuple[float, float, int]]:
    """Return the medians of wall and of processor seconds of each contender, and of how many runs.

    Args:
        graph: the graph.
        threads: of each contender.
        seconds: no run of a contender begins after so many seconds of its runs.
        gpu: whether a GPU is a contender.

    Raises:
        SystemExit: two contenders do not agree.
    """
    runs = contenders(graph, threads, gpu)
    right = runs["apsp"]()  # compiles, too
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(RUNS):
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
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--gpu", action="store_true")
    asked = parser.parse_args()
    print("| graph | threads | contender | wall s | processor s | runs | processor time beside apsp |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in asked.graphs.split(","):
        graph, _ = read_graph(asked.folder / name, unweighted=GRAPHS[name])
        what = f"{name}, n = {graph.n:,}, {graph.arcs:,} arcs, {'hops' if GRAPHS[name] else 'weights'}"
        for threads in map(int, asked.threads.split(",")):
            found = measured(graph, threads, asked.seconds, asked.gpu)
            for contender, (wall, used, runs) in found.items():
                beside = used / found["apsp"][1]
                row = f"{wall:.2f} | {used:.2f} | {runs} | {beside:.1f} x"
                print(f"| {what} | {threads} | {contender} | {row} |", flush=True)


if __name__ == "__main__":
    main()
