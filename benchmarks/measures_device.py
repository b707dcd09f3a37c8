"""Times measures on a GPU: of hops counted during the search, of rows of searches, and of a prepared graph.

    python -m benchmarks.measures_device [GRAPH...] [--sources 131072] [--json FILE]

Two random graphs of a million vertices come first: hops are counted by level from ``--sources`` sources, hops are
measured by rows from a quarter of them, and weights from a sixteenth.  A GRAPH is a file of roads: it is prepared, and
all its rows are measured.  The program prints the seconds of whole calls, with planning, and of their searches: the
least of three calls after a first one that starts the GPU.  *Visits* are sources times arcs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import graphs
from engine.api.measuring import MeasureTable, measure
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.model.problem import Options
from storage.graph.graph import Graph
from storage.readers import read_graph

TIMES: Final = 3
SIZE: Final = 1_000_000
CLOSENESS: Final = ("closeness", "harmonic", "eccentricity")


def least(work: Callable[[], MeasureTable]) -> tuple[float, MeasureTable]:
    """Return the least seconds of ``TIMES`` calls, with planning, and the last result."""
    work()
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - began)
    return min(seconds), found


def searched(name: str, graph: Graph, count: int, kept: list[dict[str, Any]], measures: tuple[str, ...]) -> None:
    """Print the seconds of measures of the rows of ``count`` sources, and append them to ``kept``."""
    sources = tuple(np.random.default_rng(1).choice(graph.n, min(graph.n, count), replace=False).tolist())
    options = Options(device="cuda", sources=sources)
    whole, found = least(lambda: measure(graph, options, measures=measures))
    search = found.seconds["search"]
    visits = len(sources) * graph.arcs / search
    kept.append({
        "graph": name, "n": graph.n, "arcs": graph.arcs, "sources": len(sources), "measures": list(measures),
        "algorithm": found.plan.algorithm, "dtype": found.plan.dtype, "search": search, "call": whole, "visits": visits,
    })  # fmt: skip
    what = ", ".join(measures)
    print(f"{name:14s} {what:42s} {found.plan.algorithm:12s} search {search:7.3f} s, {visits / 1e9:6.0f} G visits/s; "
          f"call {whole:.3f} s", flush=True)  # fmt: skip


def prepared(path: str, kept: list[dict[str, Any]]) -> None:
    """Print the seconds of measures of all rows of a prepared graph, and append them to ``kept``."""
    graph = read_graph(path)[0]
    rng = np.random.default_rng(1)
    columns = {name: rng.integers(0, 100, graph.n).astype(float) for name in "abc"}
    limits = [300, 900, 1800, 3600]
    asked: dict[str, dict[str, Any]] = {
        "reached": {"measures": ["reached"]},
        "closeness, harmonic, eccentricity": {"measures": CLOSENESS},
        "all, 3 columns x 4 cutoffs": {"within": limits, "opportunities": columns},
        "3 columns, exponential": {"measures": [], "within": limits, "opportunities": columns, "decay": "exponential"},
        "3 quantiles": {"measures": [], "quantiles": [0.25, 0.5, 0.75]},
        "10 nearest": {"measures": [], "nearest": 10},
    }
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        prepare(graph, Path(folder) / "prepared")
        took = time.perf_counter() - began
        print(f"{path}: n = {graph.n:,}, prepared in {took:.2f} s", flush=True)
        with open_result(Path(folder) / "prepared", device="cuda") as there:
            assert isinstance(there, PreparedMatrix)
            for name, request in asked.items():
                seconds, _ = least(partial(measure, there, **request))
                kept.append({"graph": path, "n": graph.n, "prepared": took, "measures": name, "call": seconds})
                print(f"  {name:36s} {seconds:.3f} s, {graph.n**2 / seconds / 1e9:.0f} G entries/s", flush=True)


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--sources", type=int, default=131_072)
    parser.add_argument("--json", type=Path)
    given, kept = parser.parse_args(), list[dict[str, Any]]()
    for name in ("random", "rmat"):
        weighted = graphs.GENERATORS[name](SIZE)
        hops = graphs.hops(weighted)
        searched(f"{name}, hops", hops, given.sources, kept, CLOSENESS)
        searched(f"{name}, hops", hops, given.sources // 4, kept, (*CLOSENESS, "farthest"))
        searched(f"{name}, weights", weighted, given.sources // 16, kept, CLOSENESS)
    for path in given.graphs:
        prepared(path, kept)
    if given.json is not None:
        given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
