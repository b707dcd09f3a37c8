"""Measures the speed and memory of readers: ``python benchmarks/readers.py [--arcs 10000000] [--json FILE]``.

Writes one random graph in several formats to a temporary folder, and reads each file in a new process on one core.
The speed is the number of entries of the file that are read in a second of processor time.  Memory is the growth of
the resident size to its peak during the read, divided by the bytes of the graph's arrays.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: The aims of issue 1: arcs read in a second on one core, and peak memory divided by the size of the result.
WANTED_RATE, WANTED_MEMORY = 2e6, 3.0

_CHILD = """
import json, resource, sys, time
from pathlib import Path
from storage.readers import read_graph
import polars, scipy.sparse
warm = Path(sys.argv[1]).with_name("warm.txt")
warm.write_text("1 2 3\\n2 3 4\\n")
read_graph(warm, format="edges")

def status(key):
    return next(int(x.split()[1]) * 1024 for x in open("/proc/self/status") if x.startswith(key))

Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
start = time.process_time()
graph, receipt = read_graph(sys.argv[1], directed=None if sys.argv[2] == "-" else sys.argv[2] == "directed")
seconds = time.process_time() - start
peak = status("VmHWM")
arrays = (graph.indptr, graph.heads, graph.weights, graph.labels)
size = sum(a.nbytes for a in arrays)
print(json.dumps({"format": receipt.format, "entries": receipt.entries, "n": graph.n, "arcs": graph.arcs,
                  "seconds": seconds, "result": size, "peak": peak - before}))
"""


def main() -> None:
    """Write, read, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arcs", type=int, default=10_000_000)
    parser.add_argument("--only", nargs="*", default=None, choices=sorted(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.arcs, options.only)
    print(f"{'case':22} {'arcs/s':>12} {'peak/result':>12} {'result MB':>10}")
    for row in rows:
        print(f"{row['case']:22} {row['rate']:12,.0f} {row['memory']:12.2f} {row['result'] / 1e6:10.1f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(arcs: int, only: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the rate and the memory of each case."""
    rng = np.random.default_rng(1)
    n = max(4, arcs // 4)
    tails, heads = rng.integers(0, n, arcs), rng.integers(0, n, arcs)
    weights = rng.integers(1, 10_000, arcs)
    rows: list[dict[str, Any]] = []
    for name in only or CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            direction = CASES[name](path, n, tails, heads, weights)
            rows.append({"case": name, **run(path, direction)})
    return rows


def run(path: Path, direction: str) -> dict[str, float | str]:
    """Read ``path`` in a new process on one core; return its figures."""
    env = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), direction], cwd=root, env=env, check=True, capture_output=True
    )
    row = json.loads(done.stdout)
    return {**row, "rate": row["entries"] / row["seconds"], "memory": row["peak"] / row["result"]}


def _write(path: Path, columns: list[np.ndarray], separator: str = " ", head: str = "") -> None:
    import polars as pl

    with path.open("wb") as file:
        file.write(head.encode())
        frame = pl.DataFrame({str(i): column for i, column in enumerate(columns)})
        frame.write_csv(file, include_header=False, separator=separator)


Arrays = np.ndarray


def edges(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:  # noqa: ARG001
    """Write an edge list with whole weights, separated by blanks; return how the file is to be read."""
    _write(path, [tails, heads, weights])
    return "-"


def csv_header(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:  # noqa: ARG001
    """Write a CSV file with a header and fractions as weights."""
    _write(path, [tails, heads, np.round(weights / 7, 4)], ",", "from,to,length\n")
    return "-"


def undirected(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:  # noqa: ARG001
    """Write an edge list that is read as undirected, so that every line makes two arcs."""
    _write(path, [tails, heads, weights])
    return "undirected"


def dimacs(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:
    """Write a DIMACS file."""
    _write(path, [np.full(len(tails), "a"), tails + 1, heads + 1, weights], head=f"p sp {n} {len(tails)}\n")
    return "-"


def dimacs_gzip(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:
    """Write a DIMACS file compressed with gzip."""
    dimacs(path, n, tails, heads, weights)
    packed = gzip.compress(path.read_bytes(), 1)
    path.write_bytes(packed)
    return "-"


def openstreetmap(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:
    """Write a CSV file with ids of vertices beyond 2^32, as in OpenStreetMap, and fractions as weights."""
    ids = np.sort(np.random.default_rng(2).integers(0, 2**34, n))
    _write(path, [ids[tails], ids[heads], np.round(weights / 7, 3)], ",", "from_osmid,to_osmid,length_m\n")
    return "-"


def names(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:
    """Write a CSV file whose vertices are text labels; they are few compared with the arcs, as in tables of flights."""
    text = np.array([f"V{i:05d}" for i in range(min(n, 50_000))])
    _write(path, [text[tails % len(text)], text[heads % len(text)], weights], ",", "src,dst,km\n")
    return "-"


def matrix_market(path: Path, n: int, tails: Arrays, heads: Arrays, weights: Arrays) -> str:
    """Write a Matrix Market file in coordinate form, with whole weights."""
    head = f"%%MatrixMarket matrix coordinate integer general\n{n} {n} {len(tails)}\n"
    _write(path, [tails + 1, heads + 1, weights], head=head)
    return "-"


CASES: dict[str, Callable[[Path, int, Arrays, Arrays, Arrays], str]] = {
    "edges.txt": edges,
    "undirected.txt": undirected,
    "fractions.csv": csv_header,
    "openstreetmap.csv": openstreetmap,
    "names.csv": names,
    "dimacs.gr": dimacs,
    "dimacs.gr.gz": dimacs_gzip,
    "matrix.mtx": matrix_market,
}

if __name__ == "__main__":
    main()
