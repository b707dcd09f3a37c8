"""Writes the list of the kernels that solves use, ``engine/execution/kernels.jsonl``, with their compile times.

    python -m benchmarks.kernel_list [--check]

Each *use*, such as ``dijkstra int32``, solves small graphs in its own process, in a copy of the program in which no
kernel is compiled, and does so twice: the second solve also calls kernels for which the first one did not wait.

``--check`` writes nothing, and ends with status 1 if a use needs a kernel that is not in the list.  Write the list
again if the kernels change, or the types with which they are called.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from storage.graph.graph import Graph

ROOT: Final = Path(__file__).resolve().parents[1]
VERTICES, ARCS = 200, 800
TYPES: Final = ("uint16", "int32", "float32", "float64")
DENSE: Final = ("recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring")
#: Kinds of float weights whose sums searches compute as integers of 16 and of 32 bits.
DECIMALS: Final = ["decimals", "heavy-decimals"]


def make_graph(kind: str, *, directed: bool = True, vertices: int = VERTICES, arcs: int = ARCS) -> Graph:
    """Return a random graph with the weights of a kind: ``whole``, ``heavy``, ``fractions``, ``decimals``,
    ``heavy-decimals``, ``far-decimals`` (int32 may not hold their lengths in whole units), ``unit``, ``below``,
    ``below-fractions`` (with negative arcs, no negative cycle) or ``chain`` (acyclic).
    """
    from storage.graph.graph import build_graph

    draw = np.random.default_rng(1)
    tails, heads = draw.integers(0, vertices, (2, arcs))
    ring = np.arange(vertices)
    tails, heads = np.append(tails, ring), np.append(heads, np.roll(ring, -1))
    if kind == "chain":
        tails, heads = np.minimum(tails, heads), np.maximum(tails, heads)
    weights: Any = draw.integers(1, 100, len(tails))
    if kind in ("heavy", "heavy-decimals"):
        weights = draw.integers(5000, 10**6, len(tails))
        weights = weights if kind == "heavy" else weights / 10
    elif kind == "unit":
        weights = np.ones(len(tails), np.int64)
    elif kind in ("fractions", "below-fractions"):
        weights = draw.random(len(tails)) + 0.5
    elif kind == "decimals":
        weights = weights / 4
    elif kind == "far-decimals":
        weights = weights / 4 + 2**19
    if kind.startswith("below"):
        height = draw.integers(0, 500, vertices) / (3 if kind == "below-fractions" else 1)
        weights = weights + (height[heads] - height[tails]).astype(weights.dtype)
    graph, _ = build_graph(tails, heads, weights, directed=directed)
    return graph


def solve(graph: Graph, **options: Any) -> None:
    """Plan and solve into a store that is removed again."""
    from engine.api.solve import solve_to_store
    from engine.model.problem import Options

    with tempfile.TemporaryDirectory() as folder:
        solve_to_store(graph, Options(device="cpu", **options), Path(folder) / "store.zarr")


def _planning() -> None:
    from engine.api.solve import make_plan
    from engine.model.problem import Options

    for graph in (
        *(make_graph("whole", directed=directed) for directed in (True, False)),
        *(make_graph(kind) for kind in ("chain", "unit", "below", "heavy")),
        make_graph("whole", arcs=10),
        # paths may be so long that a bound by the heaviest arcs does not prove that the narrowest type is wide enough
        make_graph("whole", vertices=2000, arcs=8000),
        make_graph("chain", vertices=2000, arcs=8000),
        make_graph("chain", vertices=2000, arcs=3000),
    ):
        make_plan(graph, Options(device="cpu"))


def _weights(dtype: str, *, below: bool = False) -> str:
    whole = dtype in ("uint16", "int32")
    return ("below" if below else "whole") if whole else "below-fractions" if below else "fractions"


def _basic(algorithm: str, dtype: str) -> None:
    kinds = ["unit"] if algorithm == "bfs" else [_weights(dtype)]
    if algorithm == "johnson":
        kinds = [_weights(dtype, below=True)]
    elif algorithm == "dijkstra" and dtype == "int32":
        kinds.append("heavy")
    elif algorithm == "dijkstra" and dtype == "float32":
        kinds += DECIMALS
    for kind in kinds:
        solve(make_graph(kind), algorithm=algorithm, dtype=dtype)


def _in_memory(algorithm: str, dtype: str) -> None:
    from engine.api.in_memory import solve as solve_in_memory
    from engine.api.solve import make_plan
    from engine.api.solve import solve as solve_into
    from engine.devices.cpu.atonce import calls
    from engine.model.problem import Options
    from engine.model.rows import ArraySink

    kinds = ["unit"] if algorithm == "bfs" else [_weights(dtype)]
    kinds += {"dijkstra int32": ["heavy"], "dijkstra float32": DECIMALS}.get(f"{algorithm} {dtype}", [])
    for kind in kinds:
        graph, options = make_graph(kind), Options(device="cpu", algorithm=algorithm, dtype=dtype)
        # short solves use these kernels only if they are compiled, so this test is switched off
        with mock.patch.object(calls, "only_ready", contextlib.nullcontext):
            solve_in_memory(graph, options)
            plan = make_plan(graph, options)
            solve_into(graph, plan, options, ArraySink(plan.shape, dtype))


def _rectangles(algorithm: str, dtype: str) -> None:
    graph = make_graph("unit" if algorithm == "bfs" else _weights(dtype, below=algorithm == "johnson"))
    some = tuple(range(5))
    solve(graph, algorithm=algorithm, dtype=dtype, sources=some)
    solve(graph, algorithm=algorithm, dtype=dtype, targets=some)
    solve(graph, algorithm=algorithm, dtype=dtype, cutoff=150.0)


def _below(dtype: str) -> None:
    for algorithm in (*DENSE[1:], "partitioned"):
        solve(make_graph(_weights(dtype, below=True)), algorithm=algorithm, dtype=dtype)


def _counted(dtype: str) -> None:
    solve(make_graph("unit"), algorithm="dijkstra", dtype=dtype)
    solve(make_graph("unit"), algorithm="dijkstra", dtype=dtype, sources=(1, 2, 3))
    solve(make_graph("whole" if dtype in ("uint16", "int32") else "fractions"), dtype=dtype, max_hops=3)


def _measures(dtype: str) -> None:
    from engine.api.measuring import measure
    from engine.model.problem import Options

    graph = make_graph("whole" if dtype in ("uint16", "int32") else "fractions")
    few, every = np.arange(VERTICES) == 1, np.ones(VERTICES)
    options = Options(dtype=dtype, algorithm="dijkstra")
    measure(graph, options, within=[9], quantiles=[0.5], nearest=2, opportunities={"few": few})
    measure(graph, options, within=[9], opportunities={"every": every}, decay="exponential")


def _measured_hops() -> None:
    from engine.api.measuring import measure
    from engine.model.problem import Options

    graph, some = make_graph("unit"), np.arange(VERTICES) % 3
    measure(graph, Options(), within=[2], quantiles=[0.5], nearest=2, opportunities={"some": some})
    measure(graph, Options(), within=[2], opportunities={"some": some / 2}, decay="exponential")


def _sums(dtype: str) -> None:
    from engine.api.solve import solve_to_store
    from engine.model.problem import Options

    with tempfile.TemporaryDirectory() as folder:
        for kind in ("fractions", "far-decimals") if dtype == "float64" else ("whole", "unit"):
            graph = make_graph(kind)
            quantities = {"whole": np.ones(graph.arcs, np.int32), "fraction": np.full(graph.arcs, 0.5)}
            # Many sources are searched together, few one by one.  Sums over hops hold distances in 8 bits for more than
            # 32 rows, and in 16 bits for 17 to 32 rows.
            for sources in (None, tuple(range(25)), (1, 2, 3)):
                options = Options(dtype=dtype, algorithm="dijkstra", sources=sources, also=("whole", "fraction"))
                path = Path(folder, "sums.zarr")
                solve_to_store(replace(graph, quantities=quantities), options, path, overwrite=True)


#: For each use that only sums along the paths of rows: the weights of the graphs for whole numbers and for float64, and
#: how many rows are summed at a time.  Sums over hops hold distances in 8 bits for more than 32 rows, in 16 bits for 17
#: to 32 rows, and in 32 bits for fewer.
SUMMING: Final = {
    "sums of hops": (["unit"], ["unit"], (64, 25, 10)),
    "sums of weights": (["whole"], ["decimals"], (16,)),
    "sums one by one": (["whole"], ["fractions", "decimals"], (3,)),
}


def _summing(use: str, dtype: str) -> None:
    """Sum along the paths of rows that SciPy finds, because a solve would also call the kernels of searches."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    from engine.model.dtypes import WORK_TYPES
    from engine.rows.sums import PathSums, sum_types

    whole, fractions, counts = SUMMING[use]
    for kind in fractions if dtype == "float64" else whole:
        graph = make_graph(kind)
        quantities = {"whole": np.ones(graph.arcs, np.int32), "fraction": np.full(graph.arcs, 0.5)}
        graph = replace(graph, quantities=quantities)
        matrix = csr_array((graph.weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
        sources = np.arange(max(counts))
        rows = dijkstra(matrix, indices=sources).astype(dtype)  # a ring makes all distances finite
        sums = PathSums(graph, sum_types(graph, tuple(quantities)), WORK_TYPES[dtype], limited=False, targets=None)
        for count in counts:
            sums.of(sources[:count], rows[:count])


def _floats_of_units(dtype: str) -> None:
    """Write rows that were searched in whole units as floats."""
    from engine.model.dtypes import WORK_TYPES
    from engine.model.rows import ArraySink
    from engine.rows.floats import UnitsToFloats

    kind = WORK_TYPES[dtype]
    for floats in ("float32", "float64"):
        sink = ArraySink((2, 3), floats)
        UnitsToFloats(sink, 10, kind, WORK_TYPES[floats], 3).write(0, 0, np.ones((2, 3), dtype))


def _measured_tables(dtype: str) -> None:
    from engine.api.from_tables.summary import summarize
    from engine.api.measuring import measure
    from engine.api.prepared import prepare
    from engine.api.prepared_matrix import PreparedMatrix, open_result
    from engine.model.problem import Options

    graph, few = make_graph("whole" if dtype in ("uint16", "int32") else "fractions"), np.arange(VERTICES) == 1
    with tempfile.TemporaryDirectory() as folder:
        prepare(graph, f"{folder}/p", Options(dtype=dtype))
        with open_result(f"{folder}/p") as matrix:
            assert isinstance(matrix, PreparedMatrix)
            measure(matrix, within=[9], quantiles=[0.5], nearest=2, opportunities={"few": few}, direction="in")
            measure(matrix, within=[9], opportunities={"few": few}, decay="exponential")
            summarize(matrix)


def _streamed(dtype: str) -> None:
    from engine.devices.cpu.backend import CpuBackend

    backend, side = CpuBackend(1), np.ones((64, 64), dtype)
    try:
        backend.relax(side.copy(), side, side, nonnegative=True)
        backend.transpose(side.copy(), side)
        backend.close(side.copy(), nonnegative=True)
    finally:
        backend.shutdown()


def _doors() -> None:
    from scipy.sparse import csr_array

    from engine.interop import scipy_csgraph as door

    for kind in ("whole", "fractions", "unit", "below", "below-fractions", "heavy", "decimals"):
        graph = make_graph(kind)
        matrix = csr_array((graph.weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
        door.shortest_path(matrix, return_predecessors=True)
        door.shortest_path(matrix, unweighted=True, return_predecessors=True)
        door.shortest_path(matrix, method="FW", return_predecessors=True)
        if not kind.startswith("below"):
            door.shortest_path(matrix, method="D", return_predecessors=True)
            door.dijkstra(matrix, indices=[1, 2], limit=100, return_predecessors=True)
            door.dijkstra(matrix, indices=[1, 2], min_only=True, return_predecessors=True)


def _near() -> None:
    from engine.api.near import near_pairs
    from engine.model.problem import Options

    for kind in ("whole", "heavy", "fractions"):
        for directed in (True, False):
            near_pairs(make_graph(kind, directed=directed), Options(cutoff=100, threads=1), nearest=3)


def _betweenness() -> None:
    from engine.algorithms.betweenness.small import SIZE
    from engine.api.betweenness.assignment import assign
    from engine.api.betweenness.centrality import betweenness
    from engine.model.problem import Options
    from storage.graph.demand_table import Demands
    from storage.graph.graph import build_graph

    few, trips = tuple(range(9)), Demands(np.arange(5), np.arange(5) + 9, np.ones(5))
    for kind in ("unit", "whole", "heavy", "decimals", "fractions", "chain"):
        graph = make_graph(kind)
        for arcs in (True, False):
            for sources in (None, few):  # many sources are searched sixteen at a time, few sources one by one
                betweenness(graph, Options(sources=sources, threads=1), arcs=arcs)
        with mock.patch("engine.api.betweenness.small.SIZE", 0):  # as a graph that is not small
            betweenness(graph, Options(threads=1))
        assign(graph, trips, Options(threads=1))
    ring = np.arange(VERTICES)  # a large world, in which near sources are searched for
    with mock.patch("engine.api.betweenness.small.SIZE", 0):
        betweenness(build_graph(ring, np.roll(ring, -1), None, directed=True)[0], Options(threads=1))
    below = np.arange(1, 1000)  # a tree, which is folded
    for size in (SIZE, 0):
        with mock.patch("engine.api.betweenness.small.SIZE", size):
            betweenness(build_graph(below // 2, below, None, directed=False)[0], Options(threads=1))


def _semirings() -> None:
    for directed in (True, False):
        graph = make_graph("whole", directed=directed)
        for semiring in ("max-min", "min-max", "lor-land"):
            kept = replace(graph, parallel="greatest" if semiring == "max-min" else "least")
            for dtype in ("auto",) if semiring == "lor-land" else ("float32", "float64"):
                solve(kept, semiring=semiring, dtype=dtype)
                solve(kept, semiring=semiring, dtype=dtype, targets=(3, 1))
                if semiring == "min-max":
                    solve(make_graph("unit", directed=directed), semiring=semiring, dtype=dtype)
        solve(_chances(directed=directed), semiring="max-times")


def _chances(*, directed: bool, vertices: int = VERTICES) -> Graph:
    graph = make_graph("whole", directed=directed, vertices=vertices)
    return replace(graph, weights=graph.weights / 100.0, parallel="greatest")


def _products() -> None:
    for directed in (True, False):
        solve(_chances(directed=directed), semiring="max-times", algorithm="partitioned")
        large = _chances(directed=directed, vertices=3 * VERTICES)  # too large to be closed as one block
        solve(large, semiring="max-times", algorithm="floyd-warshall")


def _tiles() -> None:
    from engine.streaming.tile_files import try_put

    try_put()


def uses() -> dict[str, Callable[[], None]]:
    """Return the uses by name, each with a function that calls all kernels that the use needs."""
    found: dict[str, Callable[[], None]] = {"plan": _planning}
    for algorithm in ("dijkstra", "bfs", "johnson", "partitioned", *DENSE):
        for dtype in TYPES:
            if algorithm == "johnson" and dtype == "uint16":
                continue  # this type holds no negative distances
            found[f"{algorithm} {dtype}"] = partial(_basic, algorithm, dtype)
            if algorithm in ("dijkstra", "bfs"):
                found[f"{algorithm} {dtype} in memory"] = partial(_in_memory, algorithm, dtype)
            if algorithm not in DENSE:
                found[f"{algorithm} {dtype} rectangle"] = partial(_rectangles, algorithm, dtype)
    for dtype in TYPES:
        found[f"streamed {dtype}"] = partial(_streamed, dtype)
        found[f"counted {dtype}"] = partial(_counted, dtype)
        found[f"measures {dtype}"] = partial(_measures, dtype)
        if dtype != "float32":
            found[f"sums {dtype}"] = partial(_sums, dtype)
            found |= {f"{use} {dtype}": partial(_summing, use, dtype) for use in SUMMING}
        if dtype in ("uint16", "int32"):
            found[f"floats of units {dtype}"] = partial(_floats_of_units, dtype)
        found[f"measures of tables {dtype}"] = partial(_measured_tables, dtype)
        if dtype != "uint16":
            found[f"negative {dtype}"] = partial(_below, dtype)
    found["measures of hops"] = _measured_hops
    return {
        **found,
        "doors": _doors,
        "near": _near,
        "betweenness": _betweenness,
        "semirings": _semirings,
        "products": _products,
        "tiles": _tiles,
    }


def record(use: str) -> None:
    """Run the function of ``use``, and print each kernel that is called, with the seconds of its compilation."""
    from engine.execution import compiling
    from engine.execution.kernel_list import ListedKernel, types_text
    from engine.graph import kernels
    from engine.model.progress import WAITING

    compiling._abreast = lambda *_: 1  # only this process compiles, because it cannot time other processes
    asked: dict[tuple[str, str, str], float] = {}
    last = threading.local()  # threads call kernels at the same time

    def note(name: tuple[str, str], signature: Any) -> None:
        key = (*name, types_text(signature))
        asked.setdefault(key, 0.0)
        last.key = key

    @contextlib.contextmanager
    def timed(_: str) -> Iterator[None]:
        key, began = last.key, time.thread_time()
        yield
        asked[key] = max(asked[key], round(time.thread_time() - began, 2))  # a thread that only waited took no time

    compile_it = kernels.CompiledKernel.compile

    def told(self: Any, signature: Any) -> Any:  # sets the hooks in the calling thread, which may be any
        WAITING.asked, WAITING.announce = note, timed
        return compile_it(self, signature)

    kernels.CompiledKernel.compile = told  # type: ignore[method-assign]
    for kernel in kernels.KERNELS.values():  # kernels that were imported before have kept the former method
        kernel.dispatcher.compile = partial(told, kernel)
    uses()[use]()
    for (module, name, types), seconds in list(asked.items()):
        listed = ListedKernel(module, name, types, seconds, ())
        if not listed.is_ready():  # the use did not wait for this kernel, as planning does not
            listed.compile()
    for (module, name, types), seconds in asked.items():
        print(
            json.dumps({"module": module, "name": name, "types": json.loads(types), "seconds": seconds, "uses": [use]})
        )


def record_each(names: list[str]) -> None:
    """Record several uses, each in a forked process, in which the common modules are imported already."""
    import engine.api.solve
    import engine.execution.kernel_list
    import engine.interop.scipy_csgraph  # noqa: F401

    for use in names:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                record(use)
                sys.stdout.flush()
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{use} failed")


def recorded(program: Path, *names: str) -> list[dict[str, Any]]:
    """Return the kernels of some uses, each recorded in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.kernel_list", "--record", *names]
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    kept["PYTHONPATH"] = str(program)
    done = subprocess.run(command, cwd=program, env=kept, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    """Write the list, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", metavar="USE", nargs="+")
    options = parser.parse_args()
    if options.record:
        record_each(options.record)
        return 0
    from engine.execution.kernel_list import FILE, ListedKernel, listed_kernels

    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "program"
        ignored = shutil.ignore_patterns("__pycache__", ".venv", ".git", "build", "tests", "docs")
        shutil.copytree(ROOT, copy, ignore=ignored)
        names = [*uses(), *uses()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for use, fields_of_all in zip(names, pool.map(partial(recorded, copy), names), strict=True):
                for fields in fields_of_all:
                    key = (fields["module"], fields["name"], json.dumps(fields["types"]))
                    one = found.setdefault(key, {**fields, "uses": []})
                    one["uses"] = list(dict.fromkeys([*one["uses"], use]))
                    one["seconds"] = max(one["seconds"], fields["seconds"])
                print(f"{use}: {len(found)} kernels so far", file=sys.stderr, flush=True)
    lines = [ListedKernel.of_line(json.dumps(fields)).line() for _, fields in sorted(found.items())]
    if options.check:
        known = {(one.module, one.name, one.types) for one in listed_kernels()}
        lost = sorted(key for key in found if key not in known)
        print(*lost, sep="\n")
        return int(bool(lost))
    FILE.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} kernels, {sum(one['seconds'] for one in found.values()):.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
