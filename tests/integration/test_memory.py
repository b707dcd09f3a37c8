"""Tests that the measured peaks of memory and disk of a solve stay below those that the plan predicts."""

import json
import subprocess
import sys

import pytest

SOLVE = """
import json, re, sys, tempfile
from pathlib import Path
import numpy as np
from engine.model.problem import Options
from engine.api.solve import make_plan, solve_to_store
from storage.graph.graph import build_graph

n, algorithm, dtype, directed = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "directed"
rng = np.random.default_rng(n)
arcs = rng.integers(0, n, (2, 4 * n))
weights = rng.integers(-1 if algorithm == "johnson" else 1, 2 if dtype == "uint16" else 9, 4 * n)
if algorithm == "johnson":  # potentials that no cycle can beat
    height = rng.integers(0, 100, n)
    weights = np.abs(weights) + height[arcs[0]] - height[arcs[1]]
if algorithm == "bfs":
    weights = np.ones_like(weights)
if dtype.startswith("float"):
    weights = weights / 4
graph, _ = build_graph(arcs[0], arcs[1], weights, n=n, directed=directed)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "d.zarr"
    options = Options(algorithm=algorithm, dtype=dtype, threads=2, max_hops=4 if "squaring" in algorithm else None)
    plan = make_plan(graph, options, out=path)
    solve_to_store(graph, options, path, plan=plan)
    size = sum(f.stat().st_blocks * 512 for f in path.rglob("*"))
# not ru_maxrss: a child starts with that of its parent
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"planned": plan.memory, "peak": peak,
                  "disk": plan.disk, "size": size, "matrix": plan.shape[0] * plan.shape[1]}))
"""

#: The sizes that take longest, by algorithm; only the long suite takes them.
LONG = {
    ("recursive-floyd-warshall", 6000),
    ("blocked-floyd-warshall", 4000),
    ("repeated-squaring", 2500),
    ("partitioned", 6000),
}
CASES = [
    pytest.param(n, algorithm, dtype, direction, marks=[pytest.mark.long] if (algorithm, n) in LONG else [])
    for algorithm, dtype, direction, sizes in [
        ("dijkstra", "int32", "directed", (100, 1000, 4000, 7000)),
        ("dijkstra", "uint16", "undirected", (1000, 6000)),
        ("bfs", "uint16", "directed", (1000, 6000)),
        ("johnson", "int32", "directed", (1000, 4000)),
        ("recursive-floyd-warshall", "float32", "directed", (100, 1000, 3000, 6000)),
        ("recursive-floyd-warshall", "int32", "undirected", (3000,)),
        ("blocked-floyd-warshall", "float32", "directed", (1000, 4000)),
        ("blocked-floyd-warshall", "int32", "undirected", (3000,)),
        ("repeated-squaring", "float64", "directed", (1000, 2500)),
        ("partitioned", "int32", "undirected", (1000, 6000)),
    ]
    for n in sizes
]


@pytest.mark.parametrize(("n", "algorithm", "dtype", "direction"), CASES)
def test_measured_peak_stays_below_the_projection(n: int, algorithm: str, dtype: str, direction: str) -> None:
    command = [sys.executable, "-c", SOLVE, str(n), algorithm, dtype, direction]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["peak"] <= facts["planned"], facts
    # a projection that is many times too large would refuse what fits
    assert facts["planned"] <= facts["peak"] + 320 * 2**20 + 0.35 * facts["peak"], facts
    # so is the disk: tiles, arcs, labels and whole file-system blocks
    assert facts["size"] <= facts["disk"] <= facts["size"] * 1.02 + 2**20, facts
