"""Batched searches on the GPU, all sources: device time by graph, beside Floyd-Warshall; and into host memory.

python -m benchmarks.kernels.gpu_search [largest n]

Device time is the sum over batches between events, labels transposed into rows included, the best of three runs (one
from a second on).  *Host* is the wall time of a whole solve into memory of the host whose pages exist, the better of
two, and the bound is the time that the bytes take over the bus alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import cupy
import numpy as np

from benchmarks import graphs
from benchmarks.kernels.gpu_timing import Record, milliseconds, random_weights
from engine.algorithms.bellman_ford import form_of
from engine.backends.base import Arcs
from engine.backends.cuda_batches import device_search
from engine.backends.cuda_modules import modules
from engine.backends.cuda_solve import Solver
from engine.near import hop_radius
from engine.problem import Options
from engine.solve import make_plan, solve
from engine.summary import ArraySink
from engine.types import WORK_TYPES
from storage.graph import Graph, build_graph

#: Bytes a second from the device to page-locked memory of the host, copies alone.
BUS = 55.4e9
#: Milliseconds asked for.
TARGETS = {("random", 32768): 120.0, ("random", 65536): 450.0, ("unweighted", 65536): 150.0}


def random(n: int) -> Graph:
    """Four arcs a vertex, between vertices drawn evenly; weights 1 to 1,000."""
    rng = np.random.default_rng(1)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    return build_graph(tails, heads, rng.integers(1, 1001, 4 * n), n=n, directed=True)[0]


def unweighted(n: int) -> Graph:
    """The same arcs, all of weight 1."""
    graph = random(n)
    return replace(graph, weights=np.ones_like(graph.weights))


def device_time(graph: Graph, dtype: str) -> tuple[float, str, int]:
    """Milliseconds of searches from all vertices, their form, and the sources of a batch."""
    kind, arcs = WORK_TYPES[dtype], Arcs(graph.indptr, graph.heads, graph.weights)
    unit = bool((graph.weights == 1).all())
    form = form_of(unit=unit, hops=hop_radius(graph.indptr, graph.heads))
    best = np.inf
    with device_search(arcs, kind, form, np.arange(graph.n)) as search:
        for _ in range(3):
            total = 0.0
            for rows in search.batches:
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                search.begin(rows)
                end.record()
                end.synchronize()
                total += cupy.cuda.get_elapsed_time(begin, end)
                if search.finish() is None:
                    return np.inf, form.name, search.batch
            best = min(best, total)
            if total > 1000:
                break
        return best, form.name, search.batch


def floyd_warshall(n: int) -> float:
    """Milliseconds of Floyd-Warshall in float32, whatever the graph."""
    solver = Solver(modules(), "float32", nonnegative=True)
    start = random_weights(n, "float32")
    d = start.copy()
    solver.close(d)
    ms = milliseconds(lambda: solver.close(d), prepare=lambda: cupy.copyto(d, start), repeats=3)
    solver.release()
    cupy.get_default_memory_pool().free_all_blocks()
    return ms


def host_time(graph: Graph) -> dict[str, object]:
    """A whole solve into memory: what was planned and what it took."""
    options = Options(device="cuda", dtype="int32")
    began = time.perf_counter()
    plan = make_plan(graph, options)
    planned = time.perf_counter() - began
    sink = ArraySink(plan.shape, plan.dtype)
    sink.array[:] = 0
    times = []
    for _ in range(2):
        began = time.perf_counter()
        solve(graph, plan, options, sink)
        times.append(time.perf_counter() - began)
    return {
        "algorithm": plan.algorithm, "plan_s": planned, "search_predicted_s": plan.phases[-2].seconds,
        "host_s": min(times), "bus_bound_s": sink.array.nbytes / BUS,
    }  # fmt: skip


def measure(record: Record, name: str, make: Callable[[int], Graph], n: int, dtype: str, *, host: bool = False) -> None:
    """One row."""
    graph = make(n)
    ms, form, batch = device_time(graph, dtype)
    whole = host_time(graph) if host else {}
    record.add(
        graph=name, n=graph.n, arcs=graph.arcs, dtype=dtype, form=form, batch=batch, ms=ms,
        target_ms=TARGETS.get((name, n)), **whole,
    )  # fmt: skip
    cupy.get_default_memory_pool().free_all_blocks()


def main(largest: int = 131072) -> None:
    """Measure and record."""
    record = Record("gpu_search")
    for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072):
        if n <= largest:
            measure(record, "random", random, n, "int32", host=n in (32768, 65536))
    if largest >= 65536:
        for dtype in ("float32", "float64"):
            measure(record, "random", random, 65536 if dtype == "float32" else 32768, dtype)
        measure(record, "unweighted", unweighted, 32768, "int32")
        measure(record, "unweighted", unweighted, 65536, "int32", host=True)
        measure(record, "unweighted", unweighted, 65536, "uint16")
        measure(record, "rmat", graphs.rmat, 65536, "int32")
        measure(record, "grid", graphs.grid, 65536, "int32", host=True)
        measure(record, "ring", graphs.ring, 65536, "int32", host=True)
    for n in (1024, 4096, 16384):
        record.add(graph="any", n=n, form="floyd-warshall", dtype="float32", ms=floyd_warshall(n))
    record.write()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
