"""Times how a GPU answers from a prepared graph: pairs, whole rows, blocks; compares them with the processors' answers.

    python -m benchmarks.prepared_device GRAPH... [--json FILE] [--rows 100] [--folder FOLDER]

A GRAPH is a file, or ``road:N`` for ``benchmarks.graphs.road``.  The least time of several calls counts.  *On the
device* means that questions and answers are in device memory.  *From the host* and *to the host* mean that both are
NumPy arrays.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.graphs import road
from engine.api.from_tables.on_device import DevicePreparedMatrix
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.reference import Reference
from engine.devices.cuda.context import modules, upload
from engine.devices.cuda.tables.resident import DeviceTables
from storage.graph.graph import Graph
from storage.readers import read_graph

#: Number of pairs in one question: on the device, and from the host.
PAIRS, SENT = 1 << 25, 1 << 24
#: Rows and columns of the largest block.
BLOCK = 10_000
TIMES = 5
#: The most vertices of a graph whose rows are all computed, and of a graph whose rows are searched in one process.
MOST_WHOLE, MOST_ALONE = 300_000, 500_000


class Clock:
    """Times calls that queue work on the device, prints the figures, and keeps them in ``kept``."""

    def __init__(self, tables: DeviceTables) -> None:
        self.tables, self.cupy, self.kept = tables, modules().cupy, dict[str, dict[str, float]]()

    def least(self, name: str, work: Callable[[], Any], count: float, times: int = TIMES) -> float:
        """Return the least seconds of ``times`` calls with ``count`` answers each; print them, and answers a second."""
        work()
        seconds = []
        for _ in range(times):
            self.cupy.cuda.runtime.deviceSynchronize()
            began = time.perf_counter()
            work()
            self.cupy.cuda.runtime.deviceSynchronize()
            seconds.append(time.perf_counter() - began)
        self.kept[name] = {"seconds": min(seconds), "answers": count}
        print(f"  {name:44s} {min(seconds) * 1e3:10.3f} ms {count / min(seconds) / 1e9:9.3f} G/s", flush=True)
        return min(seconds)


def ask(there: DevicePreparedMatrix) -> dict[str, Any]:
    """Print and return the times of questions."""
    n, rng = there.n, np.random.default_rng(0)
    began = time.perf_counter()
    with there._tables_here.whole():  # reads the tables, which then stay in memory
        pass
    read = time.perf_counter() - began
    tables = there._resident()
    sent = time.perf_counter() - began - read
    print(f"  tables read in {read:.2f} s, on the device in {sent:.2f} s more, {tables.bytes:,} bytes", flush=True)
    clock = Clock(tables)
    u, v = rng.integers(0, n, (2, PAIRS))
    with tables._working():
        some, others = upload(clock.cupy, u), upload(clock.cupy, v)
        out = clock.cupy.empty(PAIRS, there.dtype)
        clock.least("random pairs, on the device", lambda: tables.merge(some, others, out), PAIRS)
        some = upload(clock.cupy, u[np.argsort(there._row_places[u], kind="stable")])
        clock.least("pairs sorted by source, on the device", lambda: tables.merge(some, others, out), PAIRS)
        some = others = out = None
    clock.least("random pairs, from the host", lambda: there.entries(u[:SENT], v[:SENT]), SENT, 2)
    everything = rng.permutation(n)
    few = everything[: min(n, 65_536)]

    def drop(vertices: Any) -> None:
        for _ in tables.swept(vertices):
            pass

    if n <= MOST_WHOLE:
        clock.least("all rows, dropped on the device", lambda: drop(everything), float(n) ** 2, 1)
    clock.least("rows at random, dropped on the device", lambda: drop(few), float(n) * len(few), 1)
    clock.least("columns, dropped on the device", lambda: [0 for _ in tables.swept(few[:8192], forward=False)],
                float(n) * len(few[:8192]), 2)  # fmt: skip
    for rows in (1, 64, 1024):
        clock.least(f"{rows} rows, to the host", partial(there.rows, few[:rows]), float(n) * rows, 3)
    side = min(n, BLOCK)
    rows, columns = rng.integers(0, n, (2, side))
    with tables._working():
        to, _ = tables._sorted(columns, tables._column_lines)
        out = clock.cupy.empty((side, side), there.dtype)
        clock.least(f"{side:,} x {side:,}, product, on the device", lambda: tables.multiply(rows, to, out), side**2)
        out = None
    clock.least(f"{side:,} x {side:,}, product, to the host", lambda: tables.block(rows, columns), side**2, 3)
    clock.least(f"{side:,} x {side:,}, to the host", lambda: there.block(rows, columns), side**2, 3)
    clock.least("1,000 x 1,000, to the host", lambda: there.block(rows[:1000], columns[:1000]), 1e6, 3)
    return {"bytes": tables.bytes, "read_seconds": read, "send_seconds": sent, "answers": clock.kept}


def compare(there: DevicePreparedMatrix, here: PreparedMatrix) -> int:
    """Return how many entries of pairs, rows, columns and blocks differ between the GPU and the processors."""
    rng, n = np.random.default_rng(7), here.n
    u, v = rng.integers(0, n, (2, 2_000_000))
    wrong = int(np.count_nonzero(there.entries(u, v) != here.entries(u, v)))
    count = len(u)
    asked: list[Callable[[DevicePreparedMatrix | PreparedMatrix], Any]] = [
        lambda m: m.rows(u[:200]), lambda m: m.rows_towards(u[:64]), lambda m: m.block(u[:2000], v[:3000]),
    ]  # fmt: skip
    for ask in asked:
        one, two = ask(there), ask(here)
        wrong, count = wrong + int(np.count_nonzero(one != two)), count + two.size
    one, two = there._resident().block(u[:500], np.arange(n)), here.rows(u[:500])
    wrong, count = wrong + int(np.count_nonzero(one != two)), count + two.size
    print(f"  {wrong} of {count:,} entries differ from those of the processors", flush=True)
    return wrong


def searched(name: str, sources: Any) -> Any:
    """Return the rows of some sources by the reference, which uses SciPy."""
    return Reference(graph_of(name)).trees(sources)[0]


def search(there: DevicePreparedMatrix, name: str, rows: int) -> int:
    """Return how many entries of ``rows`` rows differ from the reference, which searches the graph."""
    alone = there.n <= MOST_ALONE
    pieces = np.array_split(np.linspace(0, there.n - 1, rows).astype(np.int64), 1 if alone else there.threads)
    if alone:
        found = [searched(name, pieces[0])]
    else:
        with ProcessPoolExecutor(there.threads, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(searched, [name] * len(pieces), pieces))
    wrong = 0
    for some, distances in zip(pieces, found, strict=True):
        want = np.where(np.isinf(distances), float(there.unreachable), distances).astype(there.dtype)
        wrong += int(np.count_nonzero(there.rows(some) != want))
    print(f"  {wrong} of {rows * there.n:,} entries of {rows} rows differ from searches", flush=True)
    return wrong


def graph_of(name: str) -> Graph:
    """Return a graph by its name on the command line."""
    return road(int(name[5:])) if name.startswith("road:") else read_graph(name)[0]


def answered(folder: Path, graph_name: str, rows: int) -> dict[str, Any]:
    """Print the times of a GPU's answers from a prepared graph, and return the figures.

    Args:
        folder: the prepared graph.
        graph_name: the file of the graph, or ``road:N``.
        rows: how many rows are compared with searches.
    """
    there, here = (open_result(folder, device=device) for device in ("cuda", "cpu"))
    assert isinstance(there, DevicePreparedMatrix)
    assert isinstance(here, PreparedMatrix)
    with there, here:
        asked = ask(there)
        # the two open matrices ``there`` and ``here`` hold the tables twice in host memory
        twice = psutil.virtual_memory().available > 2 * there._resident().bytes
        if not twice:
            print("memory holds the tables once: not every kind of answer is compared with the processors'")
        wrong = (compare(there, here) if twice else 0) + search(there, graph_name, rows)
        return {"dtype": str(here.dtype), "wrong": wrong, **asked}


def main() -> None:
    """Print a table for each graph, and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int, default=20, help="rows that are compared with searches")
    args = parser.parse_args()
    found = modules()
    runtime = found.cupy.cuda.runtime
    name = runtime.getDeviceProperties(0)["name"].decode()
    figures: dict[str, Any] = {
        "device": name, "cupy": found.cupy.__version__, "driver": runtime.driverGetVersion(),
        "python": platform.python_version(), "graphs": {},
    }  # fmt: skip
    print(f"{name}, cupy {found.cupy.__version__}, CUDA driver {runtime.driverGetVersion()}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for graph_name in args.graphs:
            graph = graph_of(graph_name)
            began = time.perf_counter()
            outcome = prepare(graph, Path(folder) / "p", overwrite=True)
            seconds = time.perf_counter() - began
            phases = ", ".join(f"{phase} {spent:.2f}" for phase, spent in outcome.seconds.items())
            print(f"{graph_name}: {graph.n:,} vertices, {graph.arcs:,} arcs; prepared in {seconds:.2f} s ({phases})")
            figures["graphs"][Path(graph_name).name] = {
                "vertices": graph.n, "arcs": graph.arcs, "prepare_seconds": seconds, "phases": outcome.seconds,
                **answered(Path(folder) / "p", graph_name, args.rows),
            }  # fmt: skip
            if args.json:
                args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
