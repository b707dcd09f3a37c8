"""Times how a prepared graph is made, answers and gets new weights; the answers are compared with SciPy's.

    python -m benchmarks.prepared GRAPH... [--threads 2] [--folder FOLDER] [--peers] [--gpu]

A GRAPH is a file, or ``road:N`` for ``benchmarks.graphs.road``.  Wall seconds and processor seconds are printed; on a
shared machine, processor seconds say more.  They include the process in which METIS runs for large graphs.  A service
also solves and prepares files of up to 25,000 vertices, and answers distances from both results over HTTP.  With
``--gpu``, the times of a GPU follow (``benchmarks.prepared_device``).
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import apsp
from benchmarks.graphs import road
from benchmarks.prepared_http import MOST, over_http
from benchmarks.prepared_peers import PAIRS, compare_peers
from engine.algorithms.both_ways import find_tables
from engine.algorithms.part_lengths import PartWork
from engine.algorithms.reweighting import change_tables
from engine.api.from_tables.reweighting import reweight
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix
from engine.api.prepared_planning import plan_prepared
from engine.api.reference import Reference
from engine.devices.cpu.backend import CpuBackend
from engine.graph.profile import GraphProfile
from engine.model.dtypes import work_type
from engine.model.problem import Options
from engine.model.progress import Monitor
from storage.graph.graph import Graph
from storage.readers import read_graph

#: Number of arcs that get a new weight, one after the other.
ARCS = 60
#: Number of sources whose rows and pairs are compared with searches.
COMPARED = 4
#: Rows and columns of the largest block that is asked for, if the graph has so many vertices.
BLOCK = 10_000


def processor() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


Found = TypeVar("Found")


def timed(name: str, work: Callable[[], Found], count: int = 1, unit: str = "s", scale: float = 1.0) -> Found:
    """Print the seconds of a call for each of its ``count`` answers, and return its result.

    A call with several answers is made three times, and the least time counts.
    """
    walls, used = list[float](), list[float]()
    for _ in range(1 if count == 1 else 3):
        wall, cpu = time.perf_counter(), processor()
        found = work()
        walls.append(time.perf_counter() - wall)
        used.append(processor() - cpu)
    per = scale / count
    print(f"  {name:38s} {min(walls) * per:10.3f} {unit} wall {min(used) * per:10.3f} {unit} processor", flush=True)
    return found


def make(graph: Graph, folder: Path, threads: int) -> PreparedMatrix:
    """Prepare a graph, print the phases, and open it."""
    profile, options = GraphProfile(graph), Options(threads=threads)
    plan = timed("plan, with finding the parts", lambda: plan_prepared(profile, options, out=folder))
    outcome = timed("prepare", lambda: prepare(profile, folder, options, plan=plan, overwrite=True))
    phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in outcome.seconds.items())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"  phases, wall: {phases}; on disk {size / 1e6:.1f} MB, {plan.dtype}, predicted {plan.seconds:.2f} s")
    matrix = timed("open", lambda: apsp.open(folder))
    assert isinstance(matrix, PreparedMatrix)
    return matrix


def ask(matrix: PreparedMatrix, threads: int) -> None:
    """Print the times of questions."""
    n, rng = matrix.n, np.random.default_rng(0)
    u, v = rng.integers(0, n, (2, 1_000_000))
    timed("first distance, tables read", lambda: matrix.entries([0], [0]))
    for count in sorted({1, threads}):
        matrix.threads = count
        timed(f"a pair of a million, {count} threads", lambda: matrix.entries(u, v), len(u), "us", 1e6)
    timed("a pair alone", lambda: [matrix.entries(u[k : k + 1], v[k : k + 1]) for k in range(1000)], 1000, "us", 1e6)
    timed("first row, sweep made ready", lambda: matrix.rows([0]))
    for rows in (1, 64, 256):
        twice = partial(lambda some: [matrix.rows(some) for _ in range(2)], u[:rows])
        timed(f"a row of {rows}", twice, 2 * rows, "ms", 1e3)
    timed("first column", lambda: matrix.columns([0]))
    timed("an entry of 1,000 x 1,000", lambda: matrix.block(u[:1000], v[:1000]), 1_000_000, "us", 1e6)
    if n >= BLOCK:
        some, others = rng.integers(0, n, (2, BLOCK))
        timed(f"an entry of {BLOCK:,} x {BLOCK:,}", lambda: matrix.block(some, others), BLOCK**2, "ns", 1e9)
    timed("a chunk of Zarr with its band", lambda: matrix.zarr_store.read("distances/c/1/0"))


def compare(matrix: PreparedMatrix, graph: Graph, rows: int) -> None:
    """Compare rows and pairs of some sources with searches of the reference, which uses SciPy."""
    wrong = count = 0
    reference = Reference(graph)
    for some in np.array_split(np.linspace(0, graph.n - 1, rows).astype(np.int64), max(1, rows // COMPARED)):
        found, _ = reference.trees(some)
        want = np.where(np.isinf(found), float(matrix.unreachable), found).astype(matrix.dtype)
        pairs = [matrix.entries(np.full(graph.n, source), matrix.targets) for source in some]
        wrong += int(np.count_nonzero(matrix.rows(some) != want)) + int(np.count_nonzero(np.array(pairs) != want))
        count += 2 * want.size
    print(f"  {wrong} of {count:,} entries of {rows} rows differ from searches", flush=True)


def in_xarray(matrix: PreparedMatrix) -> None:
    """Open the matrix in xarray, and compare the entries of two slices: in the middle, and at a corner."""
    import xarray

    n, middle = matrix.n, matrix.n // 2
    data = xarray.open_zarr(matrix.zarr_store, chunks=None)["distances"]
    began = time.perf_counter()
    slices = [(slice(middle, middle + 5), slice(middle, middle + 500)), (slice(n - 2, n), slice(0, 2))]
    wrong = sum(
        int((data[rows, columns].values != matrix.block(range(n)[rows], range(n)[columns])).sum())
        for rows, columns in slices
    )
    took = time.perf_counter() - began
    print(
        f"  opened in xarray: {data.shape[0]:,} x {data.shape[1]:,} {data.dtype}, {data.nbytes / 1e12:.2g} TB; "
        f"slices of 5 x 500 and 2 x 2 in {took:.2f} s, {wrong} entries differ",
        flush=True,
    )


def beside(matrix: PreparedMatrix, graph: Graph) -> None:
    """Print the times of other libraries for random pairs, whose distances are compared."""
    u, v = np.random.default_rng(1).integers(0, graph.n, (2, PAIRS))
    found = matrix.entries(u, v)
    compare_peers(graph, u, v, np.where(found == matrix.unreachable, np.inf, found.astype(float)))


def change(matrix: PreparedMatrix, graph: Graph, folder: Path, threads: int) -> None:
    """Print the times of new weights for all arcs and for one arc: with reading and writing, and computing alone."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    named, options = (graph.labels[tails], graph.labels[graph.heads]), Options(threads=threads)
    weights = graph.weights.copy()
    weights[:] = np.random.default_rng(1).permutation(graph.weights) if graph.directed else 2 * graph.weights
    outcome = timed("all weights new, written", lambda: reweight(folder, (*named, weights), out=folder.with_name("q"),
                                                                 overwrite=True, options=options))  # fmt: skip
    print(f"  phases, wall: {', '.join(f'{name} {seconds:.2f}' for name, seconds in outcome.seconds.items())}")
    arc = graph.arcs // 3
    one = (named[0][arc : arc + 1], named[1][arc : arc + 1], graph.weights[arc : arc + 1] * 2)
    outcome = timed("one arc new, written", lambda: reweight(folder, one, out=folder.with_name("q"), changed=True,
                                                             overwrite=True, options=options))  # fmt: skip
    print(f"  phases, wall: {', '.join(f'{name} {seconds:.2f}' for name, seconds in outcome.seconds.items())}")
    if graph.weights.min(initial=0) >= 0 and not graph.terminals:
        change_in_memory(matrix, graph, tails, threads)


def change_in_memory(matrix: PreparedMatrix, graph: Graph, tails: Any, threads: int) -> None:
    """Print the times of computing new tables in memory: all tables, and those that change with a single arc."""
    parts, backend, kind = matrix.parts(), CpuBackend(threads), work_type(matrix.dtype)

    def work(weights: Any) -> PartWork:
        return PartWork(backend, replace(graph, weights=weights), parts, kind, True, Monitor())

    weights, rng = graph.weights.copy(), np.random.default_rng(0)
    for _ in range(3):
        tables = timed("all tables, in memory", lambda: find_tables(work(weights)))
    figures = []
    for arc in rng.integers(0, graph.arcs, ARCS):
        head = graph.heads[arc]
        back = [arc] if graph.directed else [arc, graph.indptr[head] + np.searchsorted(
            graph.heads[graph.indptr[head] : graph.indptr[head + 1]], tails[arc])]  # fmt: skip
        weights[back] = max(1, int(weights[arc] * rng.choice([0.5, 2.0, 5.0])))
        holds = np.zeros(parts.count, np.bool_)
        holds[parts.owner()[min(parts.position[tails[arc]], parts.position[head])]] = True
        wall, cpu = time.perf_counter(), processor()
        touched = change_tables(work(weights), tables, holds)
        figures.append((time.perf_counter() - wall, processor() - cpu, int(touched.forward.sum())))
    walls, used, differ = (np.array(column) for column in zip(*figures, strict=True))
    for name, values in (("wall", 1e3 * walls), ("processor", 1e3 * used)):
        print(f"  one arc of {ARCS}, in memory, {name}: median {np.median(values):.1f} ms, most {values.max():.0f} ms")
    print(f"  tables that differ: median {np.median(differ):.0f}, most {differ.max()} of {parts.count}", flush=True)
    backend.shutdown()


def main() -> None:
    """Print a table for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--peers", action="store_true", help="measure other libraries, too")
    parser.add_argument("--gpu", action="store_true", help="measure what a GPU answers, too")
    parser.add_argument("--rows", type=int, default=COMPARED, help="rows that are compared with searches")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        small = make(road(400), Path(folder) / "p", args.threads)  # compiles the kernels
        ask(small, args.threads)
        small.close()
        for name in args.graphs:
            graph = road(int(name[5:])) if name.startswith("road:") else read_graph(name)[0]
            kind = "directed" if graph.directed else "undirected"
            load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
            print(f"{name}: {graph.n:,} vertices, {graph.arcs:,} arcs, {kind}; {args.threads} threads, load {load}")
            matrix = make(graph, Path(folder) / "p", args.threads)
            ask(matrix, args.threads)
            in_xarray(matrix)
            if graph.integral:
                compare(matrix, graph, args.rows)
                if args.peers:
                    beside(matrix, graph)
            if graph.n <= MOST and not name.startswith("road:"):
                over_http(Path(name), graph)
            if args.gpu:
                from benchmarks.prepared_device import answered

                answered(Path(folder) / "p", name, args.rows)
            change(matrix, graph, Path(folder) / "p", args.threads)
            matrix.close()


if __name__ == "__main__":
    main()
