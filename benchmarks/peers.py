"""Compares apsp with SciPy, igraph, NetworKit, rustworkx and NetworkX, on the same graphs in one run.

Run ``python -m benchmarks.peers [--threads 2] [--data FOLDER] [--only WORD ...]``; it prints Markdown tables and
writes JSON to ``benchmarks/results/``.  Every library is measured in a new process, so that its peak memory is its own.
The figures are the best wall seconds of several runs after a warm-up, and the growth of memory to its peak after the
graph has the library's own form.  A run must leave the whole matrix in memory, in the form that the library uses; some
rows are compared with ours.  On a busy machine compare processor seconds of all threads together (``--by processor``),
which favour libraries that leave processors idle.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks import graphs
from storage.graph.graph import Graph

#: The seconds, and the number of runs, after which a measurement is not repeated; the most seconds to wait for a peer.
ENOUGH_SECONDS: Final = 2.0
ENOUGH_RUNS: Final = 5
PATIENCE_SECONDS: Final = 300

#: Real graphs in the folder ``--data``: the file, and whether every arc counts 1.
REAL: Final = {
    "rome99": ("rome99.gr", False),
    "graph_23rd": ("graph_23rd.gr", False),
    "4elt hops": ("4elt.graph", True),
}


@dataclass(frozen=True)
class Case:
    """One graph: its file, or the name of its generator with ``n`` vertices, and whether every arc counts 1 (unit)."""

    name: str
    n: int
    unit: bool = False
    file: str | None = None

    def load(self) -> Graph:
        """Make or read the graph."""
        if self.file is None:
            graph = graphs.GENERATORS[self.name.split()[0]](self.n)
        else:
            from storage.readers import read_graph

            graph = read_graph(self.file)[0]
        return graphs.hops(graph) if self.unit else graph


@dataclass(frozen=True)
class Result:
    """The best wall and processor seconds, the peak of memory in bytes above that before the runs, and some rows."""

    seconds: float
    processor: float
    peak: int
    rows: list[list[float]]


def sample(n: int) -> list[int]:
    """Return the sources whose rows are compared."""
    return [0, n // 3, n - 1]


def coo(graph: Graph) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return tails, heads and weights, with each edge of an undirected graph once."""
    tails, heads = np.repeat(np.arange(graph.n), np.diff(graph.indptr)), graph.heads.astype(np.int64)
    keep = np.ones(graph.arcs, bool) if graph.directed else tails < heads
    return tails[keep], heads[keep], graph.weights[keep]


# Each solver: (graph, unit, threads) -> (solve, row).  ``solve()`` is timed; ``row(answer, u)`` gives distances from u.
Solver = Callable[[Graph, bool, int], tuple[Callable[[], Any], Callable[[Any, int], Any]]]


def searches(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:
    """Return the solver of apsp that searches from each source."""
    from engine.devices.cpu.backend import CpuBackend
    from engine.model.backend import Arcs

    backend = CpuBackend(threads)
    kind = np.int32 if graph.integral else np.float32

    def solve() -> npt.NDArray[Any]:
        out = np.empty((graph.n, graph.n), kind)
        # a new object Arcs in each run, so that preparing the arcs is timed
        arcs = Arcs(graph.indptr, graph.heads, graph.weights)
        backend.search(arcs, np.arange(graph.n), out, unit=unit)
        return out

    return solve, lambda out, u: np.where(out[u] == 2**30 - 1, np.inf, out[u])


def dense(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
    """Return the solver of apsp that uses the recursive Floyd-Warshall."""
    from engine.algorithms import floyd_warshall
    from engine.devices.cpu.backend import CpuBackend
    from engine.model.dtypes import WORK_TYPES
    from engine.model.progress import Monitor
    from engine.rows.dense import weight_matrix

    backend = CpuBackend(threads)
    kind = WORK_TYPES["int32" if graph.integral else "float32"]

    def solve() -> npt.NDArray[Any]:
        matrix = weight_matrix(graph, kind, Monitor())
        floyd_warshall.recursive(backend, matrix, nonnegative=True, symmetric=not graph.directed, monitor=Monitor())
        return matrix

    return solve, lambda out, u: np.where(out[u] == 2**30 - 1, np.inf, out[u])


def _scipy(method: str) -> Solver:
    def make(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import shortest_path

        matrix = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
        return lambda: shortest_path(matrix, method=method, unweighted=unit), lambda out, u: out[u]

    return make


def igraph(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
    """igraph's ``distances``."""
    import igraph as peer

    tails, heads, weights = coo(graph)
    made = peer.Graph(n=graph.n, edges=np.column_stack((tails, heads)), directed=graph.directed)
    length = None if unit else weights.astype(float).tolist()
    return lambda: made.distances(weights=length), lambda out, u: out[u]


def networkit(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:
    """NetworKit's ``APSP``; it keeps the matrix inside, in C++."""
    import networkit as peer

    peer.setNumberOfThreads(threads)
    tails, heads, weights = coo(graph)
    data = (tails, heads) if unit else (weights.astype(float), (tails, heads))
    made = peer.GraphFromCoo(data, graph.n, weighted=not unit, directed=graph.directed)

    def solve() -> Any:
        apsp = peer.distance.APSP(made)
        apsp.run()
        return apsp

    def row(apsp: Any, u: int) -> npt.NDArray[np.float64]:
        found = np.array([apsp.getDistance(u, v) for v in range(graph.n)])
        return np.where(found > 1e300, np.inf, found)

    return solve, row


def rustworkx(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
    """rustworkx: ``distance_matrix`` for hops, all pairs of Dijkstra for weights."""
    import rustworkx as peer

    tails, heads, weights = coo(graph)
    made = peer.PyDiGraph() if graph.directed else peer.PyGraph()
    made.add_nodes_from(range(graph.n))
    made.add_edges_from(list(zip(tails.tolist(), heads.tolist(), weights.astype(float).tolist(), strict=True)))
    if unit:
        infinite = {"null_value": np.inf}
        return lambda: peer.distance_matrix(made, parallel_threshold=1, **infinite), lambda out, u: out[u]

    def row(out: Any, u: int) -> npt.NDArray[np.float64]:
        found = np.full(graph.n, np.inf)
        lengths = dict(out[u])
        found[list(lengths)] = list(lengths.values())
        found[u] = 0
        return found

    return lambda: peer.all_pairs_dijkstra_path_lengths(made, float), row


def networkx(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
    """NetworkX, pure Python."""
    import networkx as peer

    tails, heads, weights = coo(graph)
    made = peer.DiGraph() if graph.directed else peer.Graph()
    made.add_nodes_from(range(graph.n))
    made.add_weighted_edges_from(zip(tails.tolist(), heads.tolist(), weights.tolist(), strict=True))
    method = peer.all_pairs_shortest_path_length if unit else peer.all_pairs_dijkstra_path_length
    return lambda: dict(method(made)), lambda out, u: [out[u].get(v, np.inf) for v in range(graph.n)]


def _rustworkx_dense(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
    import rustworkx as peer

    made = peer.PyDiGraph() if graph.directed else peer.PyGraph()
    made.add_nodes_from(range(graph.n))
    tails, heads, weights = coo(graph)
    made.add_edges_from(list(zip(tails.tolist(), heads.tolist(), weights.astype(float).tolist(), strict=True)))
    return lambda: peer.floyd_warshall_numpy(made, weight_fn=float), lambda out, u: out[u]


def _networkx_dense(graph: Graph, unit: bool, threads: int) -> tuple[Callable[[], Any], Callable[[Any, int], Any]]:  # noqa: ARG001
    import networkx as peer

    made = peer.Graph()
    made.add_weighted_edges_from(zip(*(x.tolist() for x in coo(graph)), strict=True))
    return lambda: peer.floyd_warshall_numpy(made, nodelist=range(graph.n)), lambda out, u: out[u]


SPARSE: Final[dict[str, Solver]] = {
    "apsp": searches,
    "SciPy": _scipy("D"),
    "igraph": igraph,
    "NetworKit": networkit,
    "rustworkx": rustworkx,
    "NetworkX": networkx,
}
DENSE: Final[dict[str, Solver]] = {
    "apsp": dense,
    "SciPy": _scipy("FW"),
    "rustworkx": _rustworkx_dense,
    "NetworkX": _networkx_dense,
}

#: The most vertices for each peer: with more, it takes minutes, or its matrix of Python objects exceeds the memory.
LIMITS: Final = {"NetworkX": 1_200, "rustworkx": 8_200, "igraph": 8_200, "SciPy": 8_200, "NetworKit": 17_000}


def resident(field: str) -> int:
    """Return the bytes of memory of this process: ``VmRSS`` at present, ``VmHWM`` at the peak since ``forget_peak``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak() -> None:
    """Return freed memory to the system, so that its next use counts in ``VmHWM``, and reset ``VmHWM``."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def measure(solver: Solver, case: Case, threads: int) -> Result:
    """Warm up on a small graph, then return the best of several runs; to be called in a new process."""
    small = graphs.random(200)
    solver(graphs.hops(small) if case.unit else small, case.unit, threads)[0]()
    graph = case.load()
    solve, row = solver(graph, case.unit, threads)
    forget_peak()
    before = resident("VmRSS")
    wall, processor, peak, answer = float("inf"), float("inf"), 0, None
    began = time.perf_counter()
    for run in range(ENOUGH_RUNS):
        answer = None
        start, used = time.perf_counter(), time.process_time()
        answer = solve()
        wall, processor = min(wall, time.perf_counter() - start), min(processor, time.process_time() - used)
        peak = resident("VmHWM") - before if run == 0 else peak
        # a short first run is always repeated, because it may include the loading of code
        if time.perf_counter() - began > (ENOUGH_SECONDS if run else 10 * ENOUGH_SECONDS):
            break
    return Result(wall, processor, peak, [[float(x) for x in row(answer, u)] for u in sample(graph.n)])


def _child(pipe: Any, table: str, name: str, case: Case, threads: int) -> None:
    pipe.send(measure({"sparse": SPARSE, "dense": DENSE}[table][name], case, threads))


def attempt(table: str, name: str, case: Case, threads: int) -> Result | None:
    """Measure in a new process; return None if the peer is not installed, fails or takes too long."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, table, name, case, threads))
    process.start()
    send.close()
    try:
        return receive.recv() if receive.poll(PATIENCE_SECONDS) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def cases(data: Path | None) -> dict[str, list[Case]]:
    """Return the graphs of the two tables, ``sparse`` and ``dense``."""
    sparse = [Case(f"{kind}", n) for kind in ("random", "rmat", "grid", "road") for n in (1_000, 4_000, 16_000)]
    sparse += [Case("ring", 4_000)]
    if data is not None:
        sparse += [Case(name, 0, unit, str(data / file)) for name, (file, unit) in REAL.items()]
    sparse += [
        Case(f"{kind} hops", n, unit=True) for kind in ("random", "rmat", "grid", "ring") for n in (1_000, 4_000)
    ]
    return {"sparse": sparse, "dense": [Case("dense", n) for n in (512, 1_024, 2_048)]}


def compare(table: str, case: Case, threads: int) -> dict[str, Any]:
    """Return one row of a table: seconds and memory of each library, and whether its rows agree with ours."""
    graph = case.load()
    row: dict[str, Any] = {"case": case.name, "n": graph.n, "arcs": graph.arcs, "result": 4 * graph.n**2, "solvers": {}}
    ours = attempt(table, "apsp", case, threads)
    if ours is None:
        raise RuntimeError(f"apsp failed on {case}")
    for name in {"sparse": SPARSE, "dense": DENSE}[table]:
        if graph.n > LIMITS.get(name, graph.n):
            continue
        found = ours if name == "apsp" else attempt(table, name, case, threads)
        if found is not None:
            agrees = bool(np.allclose(found.rows, ours.rows, rtol=1e-6))
            row["solvers"][name] = {
                "seconds": found.seconds,
                "processor": found.processor,
                "peak": found.peak,
                "agrees": agrees,
            }
    return row


def facts(threads: int) -> dict[str, Any]:
    """Return the facts that later readers of a result need: commit, processor, threads, date and versions."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    names = ("numba", "scipy", "igraph", "networkit", "rustworkx", "networkx")
    found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    return {
        "commit": commit,
        "cpu": model,
        "processors": os.cpu_count(),
        "threads": threads,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {name: found[name] for name in names if name in found},
    }


def markdown(title: str, rows: Sequence[dict[str, Any]], names: Sequence[str], by: str = "seconds") -> str:
    """Return a table: our seconds, other seconds divided by ours, and our peak memory divided by the matrix's bytes.

    ``by`` selects ``seconds`` (wall) or ``processor`` (processor seconds of all threads together).
    """
    head = ["graph", "n", "arcs", "apsp, s", *(f"{name}" for name in names if name != "apsp"), "memory / result"]
    lines = [f"\n### {title}\n", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        solvers = row["solvers"]
        own = solvers["apsp"]
        cells = [row["case"], f"{row['n']:,}", f"{row['arcs']:,}", f"{own[by]:.4g}"]
        for name in names:
            if name != "apsp":
                other = solvers.get(name)
                wrong = "" if other is None or other["agrees"] else " (differs)"
                cells.append("–" if other is None else f"{other[by] / own[by]:.1f}×{wrong}")
        cells.append(f"{own['peak'] / row['result']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder of the real graphs")
    parser.add_argument("--only", nargs="*", help="words; cases are kept whose name and n have one of them")
    parser.add_argument(
        "--by", choices=["seconds", "processor"], default="seconds", help="compare wall or processor time"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)
    record: dict[str, Any] = {"facts": facts(options.threads), "tables": {}}
    for table, chosen in cases(options.data).items():
        wanted = [c for c in chosen if not options.only or any(w in f"{table} {c.name} {c.n}" for w in options.only)]
        rows = []
        for case in wanted:
            print(f"{table}: {case.name} {case.n or ''}", file=sys.stderr, flush=True)
            rows.append(compare(table, case, options.threads))
        if rows:
            record["tables"][table] = rows
            print(markdown(table, rows, list({"sparse": SPARSE, "dense": DENSE}[table]), options.by), flush=True)
    digest = hashlib.sha256(json.dumps(record).encode()).hexdigest()[:8]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"peers-{record['facts']['date']}-{digest}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{path}")


if __name__ == "__main__":
    main()
