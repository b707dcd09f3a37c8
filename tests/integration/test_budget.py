"""Tests that ``--memory`` bounds the peak memory of the whole process, even if the matrix is several times larger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks.graphs import road
from engine.api.prepared_matrix import open_result
from storage.matrix.reader import open_matrix

#: A matrix several times as large as its budget moves many times over the disk: minutes, so only when asked for.
LARGE = [(20_000, 512, 2)] if os.environ.get("APSP_BUDGET_LARGE") else []
#: the command line, and the peak of its process, which is not ru_maxrss: a child starts with that of its parent
RUN = """
import re, sys
from pathlib import Path
from service.cli.main import run
code = run(sys.argv[1:])
print("peak", int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
sys.exit(code)
"""


def made_within(memory: int, graph: Path, out: Path, *options: str, command: str = "solve") -> tuple[int, dict]:
    """Peak of the process, and what the command printed."""
    command = [sys.executable, "-c", RUN, command, str(graph), "--out", str(out), "--memory", str(memory), "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    printed, _, peak = done.stdout.rpartition("peak ")
    return int(peak), json.loads(printed)


def write_graph(path: Path, n: int) -> csr_array:
    """A ring with three times as many chords, undirected."""
    rng = np.random.default_rng(n)
    tails, heads = np.vstack(
        [np.column_stack([np.arange(n), np.roll(np.arange(n), 1)]), rng.integers(0, n, (3 * n, 2))]
    ).T
    tails, heads = np.minimum(tails, heads), np.maximum(tails, heads)
    keys, first = np.unique(tails * n + heads, return_index=True)
    keep = first[keys // n != keys % n]
    tails, heads, weights = tails[keep], heads[keep], rng.integers(1, 10_000, len(keep))
    np.savetxt(path, np.column_stack([tails, heads, weights]), fmt="%d")
    return csr_array((weights, (tails, heads)), shape=(n, n))


@pytest.mark.parametrize(("n", "mebibytes", "times"), [(5000, 400, 0), *LARGE])
def test_the_peak_stays_within_the_budget_in_the_store_tier(tmp_path, n, mebibytes, times):
    arcs, out = write_graph(tmp_path / "graph.txt", n), tmp_path / "d.zarr"
    options = ("--undirected", "--algorithm", "blocked-floyd-warshall", "--dtype", "int32")
    peak, facts = made_within(mebibytes * 2**20, tmp_path / "graph.txt", out, *options)
    print(n, peak / 2**20, facts["plan"]["memory"] / 2**20, facts["plan"]["seconds"], facts["seconds"])
    assert 4 * n * n > times * mebibytes * 2**20
    assert facts["plan"]["tier"] == "store"
    assert peak <= mebibytes * 2**20, facts["plan"]
    assert peak <= facts["plan"]["memory"]
    some = np.random.default_rng(1).integers(0, n, 20)
    with open_matrix(out) as matrix:
        rows = matrix.rows(some)
        order = np.argsort(matrix.labels.astype(np.int64))
    expected = dijkstra(arcs, directed=False, indices=matrix.labels.astype(np.int64)[some])
    np.testing.assert_array_equal(rows[:, order], expected)


def test_the_peak_stays_within_the_budget_where_tables_pass_through_files(tmp_path):
    """A prepared graph whose tables are larger than what is left beside the program."""
    graph = road(250_000)
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    once = tails < graph.heads
    np.savetxt(tmp_path / "graph.txt", np.column_stack([tails, graph.heads, graph.weights])[once], fmt="%d")
    memory = 640 * 2**20
    peak, facts = made_within(memory, tmp_path / "graph.txt", tmp_path / "p", "--undirected", command="prepare")
    print(peak / 2**20, facts["plan"]["memory"] / 2**20, facts["summary"], facts["plan"]["seconds"], facts["seconds"])
    assert facts["plan"]["tier"] == "store"
    assert facts["summary"]["bytes"] > memory
    assert peak <= facts["plan"]["memory"] <= memory
    some = np.random.default_rng(1).integers(0, graph.n, 3)
    with open_result(tmp_path / "p") as matrix:
        rows = matrix.rows(some)
        labels, unreachable = matrix.labels.astype(np.int64), matrix.unreachable
    arcs = csr_array((graph.weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
    expected = dijkstra(arcs, indices=labels[some])[:, labels]
    np.testing.assert_array_equal(rows, np.where(np.isinf(expected), unreachable, expected))
