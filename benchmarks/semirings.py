"""Rows per second of each semiring beside searches of distances: python -m benchmarks.semirings DATA [NAME ...].

DATA is the folder of the real graphs.  Of each graph some sources are solved into memory, several times after a solve
that is not timed.  What is printed is the median of the processor seconds, planning included, as rows per second and as
nanoseconds an entry, and the seconds before the first row.  Distances are solved by what the planner selects.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from engine.api.in_memory import solve
from engine.model.problem import Options
from storage.graph.graph import Graph
from storage.readers import read_graph
from storage.semirings import SEMIRINGS
from tests.reference_options import read_arguments

#: A road network, directed and read as undirected; a network of links between hosts; an undirected social network.
NAMES: Final = ("rome99.gr", "delhi-roads.gr.gz", "p2p-Gnutella31.txt.gz", "PGPgiantcompo.graph")
#: Sources that are solved, and solves that are timed.
SOURCES, RUNS = 512, 5


def suited(graph: Graph, semiring: str) -> Graph:
    """Return the graph as a semiring needs it; for products its weights become probabilities."""
    parallel = SEMIRINGS[semiring].parallel or "least"
    if semiring == "max-times":
        weights = np.exp(-graph.weights / float(max(1, graph.weights.max())))
        return replace(graph, weights=weights, parallel=parallel)
    return replace(graph, parallel=parallel)


def measured(graph: Graph, options: Options) -> tuple[float, float, str]:
    """Return the median processor seconds of a solve into memory, those of its preparing phase in wall time, and its
    algorithm.
    """
    _, outcome = solve(graph, options)
    work, before = [], []
    for _ in range(RUNS):
        began = time.process_time()
        _, outcome = solve(graph, options)
        work.append(time.process_time() - began)
        before.append(outcome.seconds.get("prepare", 0.0))
    return statistics.median(work), statistics.median(before), outcome.plan.algorithm


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    given = parser.parse_args()
    for name in given.names:
        for directed in (None, False):
            reading = read_arguments(name) | ({} if directed is None else {"directed": directed})
            graph, _ = read_graph(given.data / name, **reading)
            if directed is False and not read_graph(given.data / name, **read_arguments(name))[0].directed:
                continue
            sources = tuple(np.linspace(0, graph.n - 1, min(SOURCES, graph.n)).astype(int).tolist())
            print(
                f"{name}: {graph.n:,} vertices, {graph.arcs:,} arcs, {'directed' if graph.directed else 'undirected'}"
            )
            for semiring in SEMIRINGS:
                options = Options(device="cpu", threads=1, sources=sources, semiring=semiring)
                seconds, before, algorithm = measured(suited(graph, semiring), options)
                rate, entry = len(sources) / seconds, 1e9 * seconds / len(sources) / graph.n
                print(f"  {semiring:9} {algorithm:18} {rate:10,.0f} rows/s  {entry:6.2f} "
                      f"ns an entry, {before:.3f} s before")  # fmt: skip


if __name__ == "__main__":
    main()
