"""Times each semiring beside searches of distances: python -m benchmarks.semirings DATA [NAME ...].

DATA is the folder of the real graphs.  Each graph is solved into memory from some sources, once without a clock and
then several times; all cases alternate.  The program prints the median processor seconds, with planning, as rows per
second and as nanoseconds for each entry, and the seconds of preparing before the first row.  Distances are solved by
the algorithm and in the type that the planner selects.  Products are also compared with lengths of the same paths in
the same type, which are sums of negative logarithms: by the algorithm that the planner selects, by the algorithm by
which the products are found, and by searches.  For this comparison, graphs whose arcs all weigh the same get different
weights.  ``complete`` stands for a complete graph of 2,048 vertices.
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
from engine.api.planning import make_plan
from engine.model.problem import Options
from storage.graph.graph import Graph, build_graph
from storage.readers import read_graph
from storage.semirings import SEMIRINGS
from tests.reference_options import read_arguments

#: Two road networks, a network of links between hosts, and an undirected social network.
NAMES: Final = ("rome99.gr", "delhi-roads.gr.gz", "p2p-Gnutella31.txt.gz", "PGPgiantcompo.graph")
#: Default number of sources, and of timed solves.
SOURCES, RUNS = 512, 5


def suited(graph: Graph, semiring: str) -> Graph:
    """Return the graph as a semiring needs it; for ``max-times`` its weights become probabilities."""
    parallel = SEMIRINGS[semiring].parallel or "least"
    if semiring == "max-times":
        weights = np.exp(-graph.weights / float(max(1, graph.weights.max())))
        return replace(graph, weights=weights, parallel=parallel)
    return replace(graph, parallel=parallel)


def drawn(graph: Graph) -> Graph:
    """Return the graph, with new weights if all its arcs weigh the same; both arcs of an edge get the same weight."""
    if graph.weights.min() != graph.weights.max():
        return graph
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    ends = np.sort([tails, graph.heads], axis=0) if not graph.directed else np.stack([tails, graph.heads])
    return replace(graph, weights=1 + (ends[0] * 2654435761 + ends[1] * 40503) % 9973)


def complete(n: int = 2048) -> Graph:
    """Return a complete directed graph of ``n`` vertices with drawn weights."""
    tails, heads = np.nonzero(~np.eye(n, dtype=np.bool_))
    return build_graph(tails, heads, np.random.default_rng(1).integers(1, 100, len(tails)), n=n, directed=True)[0]


def cases(graph: Graph, options: Options) -> dict[str, tuple[Graph, Options]]:
    """Return the timed cases by name: each semiring; products, and the lengths with which they are compared."""
    found = {name: (suited(graph, name), replace(options, semiring=name)) for name in SEMIRINGS}
    chances = suited(drawn(graph), "max-times")
    lengths = replace(graph, weights=-np.log(chances.weights))
    double, products = replace(options, dtype="float64"), replace(options, semiring="max-times")
    alike = {"partitioned": "partitioned", "floyd-warshall": "recursive-floyd-warshall", "product-search": "dijkstra"}
    return found | {
        "products": (chances, products),
        "searched": (chances, replace(products, algorithm="product-search")),
        "their lengths": (lengths, double),
        "alike": (lengths, replace(double, algorithm=alike[make_plan(chances, products).algorithm])),
        "by searches": (lengths, replace(double, algorithm="dijkstra")),
    }


def measured(asked: dict[str, tuple[Graph, Options]], runs: int) -> dict[str, tuple[float, float, str]]:
    """Return, of each case, the median processor seconds of a solve into memory, the median seconds of its preparing
    phase, and its algorithm.
    """
    seconds, preparing = ({name: list[float]() for name in asked} for _ in range(2))
    algorithms = {}
    for run in range(runs + 1):
        for name, (graph, options) in asked.items():
            began = time.process_time()
            _, outcome = solve(graph, options)
            if run:
                seconds[name].append(time.process_time() - began)
                preparing[name].append(outcome.seconds.get("prepare", 0.0))
            algorithms[name] = f"{outcome.plan.algorithm} {outcome.plan.dtype}"
    median = statistics.median
    return {name: (median(seconds[name]), median(preparing[name]), algorithms[name]) for name in asked}


def _read(path: Path, **more: bool) -> Graph:
    return read_graph(path, **read_arguments(path.name) | more)[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--sources", type=int, default=SOURCES)
    parser.add_argument("--only", nargs="+", help="names of cases; the first one is what the others are compared with")
    given = parser.parse_args()
    for name in given.names:
        for directed in (None, False):
            graph = complete() if name == "complete" else _read(given.data / name)
            if directed is False:
                if name == "complete" or not graph.directed:
                    continue
                graph = _read(given.data / name, directed=False)
            sources = tuple(np.linspace(0, graph.n - 1, min(given.sources, graph.n)).astype(int).tolist())
            print(
                f"{name}: {graph.n:,} vertices, {graph.arcs:,} arcs, {'directed' if graph.directed else 'undirected'}"
            )
            asked = cases(graph, Options(device="cpu", threads=1, sources=sources))
            asked = {what: asked[what] for what in given.only or asked}
            first, found = next(iter(asked)), measured(asked, given.runs)
            for what, (seconds, before, algorithm) in found.items():
                rate, entry = len(sources) / seconds, 1e9 * seconds / len(sources) / graph.n
                ratio = seconds / found[first][0]
                print(f"  {what:13} {algorithm:25} {rate:10,.0f} rows/s  {entry:6.2f} ns an entry, {ratio:.2f} of "
                      f"{first}, {before:.3f} s before", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
