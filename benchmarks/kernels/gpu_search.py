"""Batched searches on the GPU, all sources: device time by graph, beside Floyd-Warshall; and into host memory.

python -m benchmarks.kernels.gpu_search [largest n] [folder of a saved graph ...]

Device time is the sum over batches between events, labels transposed into rows included, the best of three runs (one
from a second on).  The others are wall times of whole solves into memory of the host, arcs sorted, sent and searched:
page-locked memory got ready before (what that takes: ``locking_s``), an array whose pages exist, a fresh one, and the
first one of the process, for which a virtual machine may have to be given memory.  ``plan_s``: planning, partition
included, for a graph of which nothing is known.  The bound is the time that the bytes take over the bus alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

import numpy as np

from benchmarks import graphs
from benchmarks.kernels.gpu_timing import Record, milliseconds, random_weights
from benchmarks.kernels.locked_sink import LockedSink
from engine.api.solve import make_plan, solve
from engine.devices.cuda.context import modules
from engine.devices.cuda.floyd_warshall import Solver
from engine.devices.cuda.pinned import host_matrix
from engine.devices.cuda.search import device_search
from engine.graph.ordering import hop_radius
from engine.graph.profile import GraphProfile
from engine.model.backend import Arcs
from engine.model.device_layout import form_of
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink
from storage.graph.graph import Graph, load_graph

#: Bytes a second from the device to page-locked memory of the host, copies alone.
BUS = 55.4e9
#: Milliseconds asked for.
TARGETS = {("random", 32768): 120.0, ("random", 65536): 450.0, ("unweighted", 65536): 150.0}


def unweighted(n: int) -> Graph:
    """Random arcs that all weigh 1."""
    return graphs.hops(graphs.one_way(n))


def device_time(graph: Graph, dtype: str) -> tuple[float, str, int]:
    """Milliseconds of searches from all vertices, their form, and the sources of a batch."""
    import cupy

    kind, arcs = WORK_TYPES[dtype], Arcs(graph.indptr, graph.heads, graph.weights)
    unit = bool((graph.weights == 1).all())
    form = form_of(unit=unit, hops=hop_radius(graph.indptr, graph.heads)[0], n=graph.n, arcs=graph.arcs)
    best = np.inf
    with device_search(arcs, kind, form, np.arange(graph.n)) as search:
        search.begin(search.batches[0])
        if search.finish() is None:  # labels are as wide as they have to be from here on
            return np.inf, form.name, search.batch
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
    import cupy

    solver = Solver(modules(), "float32", nonnegative=True)
    start = random_weights(n, "float32")
    d = start.copy()
    solver.close(d)
    ms = milliseconds(lambda: solver.close(d), prepare=lambda: cupy.copyto(d, start), repeats=3)
    solver.release()
    cupy.get_default_memory_pool().free_all_blocks()
    return ms


def host_time(graph: Graph) -> dict[str, object]:
    """Whole solves into memory of the host: what was planned, and what it took by the kind of memory."""
    options = Options(device="cuda", dtype="int32")
    make_plan(graph, options)  # compiles
    began = time.perf_counter()
    plan = make_plan(graph, options)  # by a profile of its own: nothing about the graph is known yet
    planned = time.perf_counter() - began
    profile = GraphProfile(graph)
    warm = make_plan(profile, options)

    def took(sink: ArraySink) -> float:
        began = time.perf_counter()
        solve(copy(profile), warm, options, sink)
        return time.perf_counter() - began

    first = took(ArraySink(warm.shape, warm.dtype))
    sink = ArraySink(warm.shape, warm.dtype)
    fresh, bound = took(sink), sink.array.nbytes / BUS
    array = min(took(sink) for _ in range(2))
    del sink
    with host_matrix(warm.shape, warm.dtype, threads=warm.threads) as memory:
        straight = min(took(LockedSink(memory)) for _ in range(3))
        ready = memory.touched + memory.registered
    return {
        "algorithm": warm.algorithm, "plan_s": planned, "predicted_s": plan.seconds,
        "locked_s": straight, "array_s": array, "fresh_s": fresh, "first_s": first, "locking_s": ready,
        "bus_bound_s": bound, "bus_share": bound / straight,
    }  # fmt: skip


def measure(record: Record, name: str, make: Callable[[int], Graph], n: int, dtype: str, *, host: bool = False) -> None:
    """One row."""
    import cupy

    graph = make(n)
    ms, form, batch = device_time(graph, dtype)
    whole = host_time(graph) if host else {}
    record.add(
        graph=name, n=graph.n, arcs=graph.arcs, dtype=dtype, form=form, batch=batch, ms=ms,
        target_ms=TARGETS.get((name, n)), **whole,
    )  # fmt: skip
    cupy.get_default_memory_pool().free_all_blocks()


def measure_saved(record: Record, folder: Path) -> None:
    """Whole solves of a saved graph."""
    graph = load_graph(folder)[0]
    record.add(graph=folder.name, n=graph.n, arcs=graph.arcs, dtype="int32", **host_time(graph))


def main(largest: int = 131072, saved: tuple[Path, ...] = ()) -> None:
    """Measure and record."""
    record = Record("gpu_search")
    try:
        _all(record, largest, saved)
    finally:  # what was measured before somebody lost patience is kept
        record.write()


def _all(record: Record, largest: int, saved: tuple[Path, ...]) -> None:
    for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072):
        if n <= largest:
            measure(record, "random", graphs.one_way, n, "int32", host=n in (32768, 65536))
    if largest >= 65536:
        measure(record, "unweighted", unweighted, 65536, "int32", host=True)
        measure(record, "grid", graphs.grid, 65536, "int32", host=True)
        measure(record, "ring", graphs.ring, 65536, "int32", host=True)
    for folder in saved:
        measure_saved(record, folder)
    if largest >= 65536:
        measure(record, "rmat", graphs.rmat, 65536, "int32")
        measure(record, "unweighted", unweighted, 32768, "int32")
        measure(record, "unweighted", unweighted, 65536, "uint16")
        measure(record, "random", graphs.one_way, 65536, "float32")
        measure(record, "random", graphs.one_way, 32768, "float64")
    for n in (1024, 4096, 16384):
        record.add(graph="any", n=n, form="floyd-warshall", dtype="float32", ms=floyd_warshall(n))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 131072, tuple(map(Path, sys.argv[2:])))
