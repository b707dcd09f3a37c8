"""Times *doors*, modules of apsp that offer NetworkX's and SciPy's functions, beside these libraries and the engine.

    python -m benchmarks.doors [--out FILE.json] [--beside-engine]

After a first run that compiles, each door is timed three times, and the best time counts; it includes the conversion of
a NetworkX graph.  The library's own function is timed once.  Doors use all threads that the process may use; NetworkX
and SciPy use one.  nx-parallel 0.3 is left out, because it cannot be imported with NetworkX 3.6.

With ``--beside-engine`` only SciPy's door is timed, beside planning and solving the same graph into an array, whose
type is float64 for fractions, else that of the plan.  Door and engine alternate; medians of seven calls are printed, in
wall seconds and processor seconds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse.csgraph as theirs
from scipy.sparse import csr_array

import apsp
from benchmarks.graphs import random, rmat
from engine.api.solve import make_plan, solve
from engine.graph.profile import GraphProfile
from engine.interop import scipy_csgraph as ours
from engine.model.problem import Options
from engine.model.rows import ArraySink
from storage.graph.graph import Graph, build_graph

EXAMPLES = Path(__file__).parents[1] / "examples"

FUNCTIONS = {
    "average_shortest_path_length": {"weight": "weight"},
    "diameter": {"weight": "weight"},
    "closeness_centrality": {"distance": "weight"},
    "all_pairs_dijkstra_path_length": {"weight": "weight"},
    "all_pairs_dijkstra_path": {"weight": "weight"},
    "global_efficiency": {},
}


def best(call: Callable[[], Any], repeats: int = 3) -> float:
    """Return the seconds of the fastest of ``repeats`` calls; an iterator that a call returns is read to its end."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = call()
        if hasattr(found, "__next__"):
            for _ in found:
                pass
        times.append(time.perf_counter() - began)
    return min(times)


def by_apsp(function: Callable[..., Any], graph: Any, options: dict[str, Any]) -> Any:
    """Return the answer of the door of a NetworkX function, for a copy of a graph, for which nothing is cached."""
    return function(nx.Graph(graph), **options, backend="apsp")


def networkx_rows(n: int) -> list[dict[str, Any]]:
    """Return the times of every function on a random graph of n vertices and 4 n edges."""
    graph = random(n)
    tails = np.repeat(np.arange(n), np.diff(graph.indptr))
    original = nx.Graph()
    original.add_weighted_edges_from(zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True))
    original = nx.Graph(original.subgraph(max(nx.connected_components(original), key=len)))
    rows = []
    for name, options in FUNCTIONS.items():
        function = getattr(nx, name)
        row: dict[str, Any] = {"n": len(original), "m": original.size(), "function": name}
        row["apsp"] = best(partial(by_apsp, function, original, options))
        row["networkx"] = best(partial(function, original, **options, backend="networkx"), 1)
        rows.append(row)
        print(row, flush=True)
    return rows


def scipy_rows(n: int) -> list[dict[str, Any]]:
    """Return the times of SciPy's functions on a random graph of n vertices and 4 n edges."""
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
            "apsp": best(partial(call, ours)),
            "scipy": best(partial(call, theirs), 1),
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def beside_engine() -> list[dict[str, Any]]:
    """Return the times of SciPy's door and of the engine, on graphs of 1,000 to 8,000 vertices."""
    return [
        door_row("random, n = 1,000", random(1000)),
        door_row("random, n = 4,000", random(4000)),
        door_row("random, n = 8,000", random(8000)),
        door_row("R-MAT, n = 4,096", rmat(4096)),
        door_row("roads of Minnesota", apsp.read_graph(EXAMPLES / "minnesota_km.mtx")[0]),
        door_row("complete, n = 1,032", complete(1032), dense=True),
        door_row("complete, n = 2,048", complete(2048), dense=True),
    ]


def complete(n: int) -> Graph:
    """Return the graph with all arcs between n vertices, and weights from 1 to 999."""
    tails, heads = np.divmod(np.arange(n * n), n)
    return build_graph(tails, heads, np.random.default_rng(1).integers(1, 1000, n * n), n=n, directed=True)[0]


def door_row(name: str, graph: Graph, *, dense: bool = False) -> dict[str, Any]:
    """Time the engine and SciPy's door in turn.

    Args:
        name: the name of the graph.
        graph: the graph.
        dense: whether the door gets the graph as a dense matrix.
    """
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    given = arcs.toarray() if dense else arcs

    def engine() -> Any:
        profile, options = GraphProfile(graph), Options(dtype="auto" if graph.integral else "float64")
        plan = make_plan(profile, options)
        sink = ArraySink(plan.shape, plan.dtype)
        return solve(profile, plan, options, sink), sink.array

    times: dict[str, list[tuple[float, float]]] = {"engine": [], "door": []}
    for k in range(8):
        for which, call in (("engine", engine), ("door", lambda: ours.shortest_path(given))):
            began = time.perf_counter(), time.process_time()
            found = call()
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            del found
            if k:  # the first call is not counted, because it compiles
                times[which].append(took)
    row: dict[str, Any] = {"graph": name, "n": graph.n, "arcs": graph.arcs}
    for which, found in times.items():
        row[which], row[f"{which}, processor"] = (median(each) for each in zip(*found, strict=True))
    row["engine / door"] = row["engine"] / row["door"]
    print(row, flush=True)
    return row


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--beside-engine", action="store_true")
    given = parser.parse_args()
    out = given.out
    if given.beside_engine:
        rows = beside_engine()
        if out:
            out.write_text(json.dumps(rows, indent=1) + "\n")
        return
    for n in (500, 100):  # these runs compile the kernels; their times are not recorded
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
