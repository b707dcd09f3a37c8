"""The doors beside the libraries whose functions they carry: NetworkX and SciPy.

    python -m benchmarks.doors [--out FILE.json]

Each function is timed once cold and then three times, the best counts; conversions of the NetworkX graph are part of
ours.  Threads are all that the process may use, except NetworkX's and SciPy's one.  nx-parallel 0.3 cannot
be imported with NetworkX 3.6.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse.csgraph as theirs
from scipy.sparse import csr_array

from benchmarks.graphs import random
from engine.interop import scipy_csgraph as ours

FUNCTIONS = {
    "average_shortest_path_length": {"weight": "weight"},
    "diameter": {"weight": "weight"},
    "closeness_centrality": {"distance": "weight"},
    "all_pairs_dijkstra_path_length": {"weight": "weight"},
    "all_pairs_dijkstra_path": {"weight": "weight"},
    "global_efficiency": {},
}


def best(call: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of some calls, iterators used up."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = call()
        if hasattr(found, "__next__"):
            for _ in found:
                pass
        times.append(time.perf_counter() - began)
    return min(times)


def networkx_rows(n: int) -> list[dict[str, Any]]:
    """Every function on a random graph of n vertices and 4 n edges."""
    graph = random(n)
    tails = np.repeat(np.arange(n), np.diff(graph.indptr))
    original = nx.Graph()
    original.add_weighted_edges_from(zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True))
    original = nx.Graph(original.subgraph(max(nx.connected_components(original), key=len)))
    rows = []
    for name, options in FUNCTIONS.items():
        function = getattr(nx, name)
        row: dict[str, Any] = {"n": len(original), "m": original.size(), "function": name}
        row["apsp"] = best(lambda f=function, o=options: f(nx.Graph(original), **o, backend="apsp"))
        row["networkx"] = best(lambda f=function, o=options: f(original, **o, backend="networkx"), 1)
        rows.append(row)
        print(row, flush=True)
    return rows


def scipy_rows(n: int) -> list[dict[str, Any]]:
    """SciPy's functions on the same kind of graph."""
    graph = random(n)
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(n, n))
    dense = arcs.toarray()
    cases = {
        "dijkstra": lambda door: door.dijkstra(arcs),
        "dijkstra, predecessors": lambda door: door.dijkstra(arcs, return_predecessors=True),
        "johnson": lambda door: door.johnson(arcs),
        "floyd_warshall": lambda door: door.floyd_warshall(dense),
    }
    rows = []
    for name, call in cases.items():
        row = {
            "n": n,
            "function": name,
            "apsp": best(lambda c=call: c(ours)),
            "scipy": best(lambda c=call: c(theirs), 1),
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    for n in (500, 100):  # compile
        networkx_rows(n)
        scipy_rows(n)
    print("measured:", flush=True)
    results = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip(),
        "processor": platform.processor() or platform.machine(),
        "networkx": [row for n in (300, 1000) for row in networkx_rows(n)],
        "scipy": [row for n in (1000, 4000) for row in scipy_rows(n)],
    }
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
