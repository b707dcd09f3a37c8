"""Times other libraries for distances of single pairs and for rows of one graph, to compare with a prepared graph.

``python -m benchmarks.prepared GRAPH --peers`` calls this module.  Each library runs in a process of its own: after the
import, its resident memory grows by the size of its graph or hierarchy.  A library that is not installed is left out.
Only benchmarks use these libraries: ``pip install pandana routingkit-cch networkit``.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.graph.partition import dissect
from storage.graph.graph import Graph

Distances = npt.NDArray[np.float64]
Ask = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], Distances]

#: Number of pairs for a library that has a hierarchy, and of rows for a library that searches.
PAIRS, ROWS = 20_000, 4


def resident() -> int:
    """Return the resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def tails_of(graph: Graph) -> npt.NDArray[np.int64]:
    """Return the tail of each arc, shape (arcs,)."""
    return np.repeat(np.arange(graph.n), np.diff(graph.indptr))


def scipy_rows(graph: Graph) -> Ask:
    """Return a function that answers pairs with SciPy's Dijkstra, from one source at a time."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return lambda u, v: np.array([dijkstra(arcs, indices=s)[t] for s, t in zip(u.tolist(), v.tolist(), strict=True)])


def networkit_rows(graph: Graph) -> Ask:
    """Return a function that answers pairs with NetworKit's Dijkstra, from one source at a time."""
    import networkit as nk

    made = nk.Graph(graph.n, weighted=True, directed=True)
    for tail, head, weight in zip(tails_of(graph).tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True):
        made.addEdge(tail, head, weight)

    def row(source: int, target: int) -> float:
        search = nk.distance.Dijkstra(made, source, storePaths=False)
        search.run()
        return float(search.getDistances(asarray=True)[target])

    return lambda u, v: np.array([row(s, t) for s, t in zip(u.tolist(), v.tolist(), strict=True)])


def pandana_pairs(graph: Graph) -> Ask:
    """Return a function that answers pairs with pandana's contraction hierarchy, many in one call, on all threads."""
    import pandana
    import pandas as pd

    rng = np.random.default_rng(0)
    x, y = (pd.Series(side) for side in rng.random((2, graph.n)))
    weights = pd.DataFrame({"length": graph.weights.astype(float)})
    made = pandana.Network(x, y, pd.Series(tails_of(graph)), pd.Series(graph.heads), weights, twoway=False)
    warnings.simplefilter("ignore")  # pandana warns of every pair without a path
    return lambda u, v: np.array(made.shortest_path_lengths(u, v))


def cch_pairs(graph: Graph) -> Ask:
    """Return a function that answers pairs with RoutingKit's customizable contraction hierarchy.

    Its order is the nested dissection that prepared graphs use.
    """
    import routingkit_cch as kit

    found = dissect(graph, 1 << 40)
    assert found is not None
    order = np.argsort(found[0]).tolist()
    hierarchy = kit.CCH(order, tails_of(graph).tolist(), graph.heads.tolist(), False)
    query = kit.CCHQuery(kit.CCHMetric(hierarchy, graph.weights.astype(int).tolist()))

    def pair(source: int, target: int) -> float:
        found = query.run(source, target).distance
        return np.inf if found is None else float(found)

    return lambda u, v: np.array([pair(s, t) for s, t in zip(u.tolist(), v.tolist(), strict=True)])


#: By name, the module of a library, the function that makes it ready for a graph, and the number of pairs to ask for.
PEERS: dict[str, tuple[str, Callable[[Graph], Ask], int]] = {
    "SciPy, a row each": ("scipy", scipy_rows, ROWS),
    "NetworKit, a row each": ("networkit", networkit_rows, ROWS),
    "pandana (CH)": ("pandana", pandana_pairs, PAIRS),
    "RoutingKit (CCH)": ("routingkit_cch", cch_pairs, PAIRS),
}


def measure(name: str, graph: Graph, answers: Any, wanted: tuple[Any, Any, Any]) -> None:
    """Make a library ready, ask it for distances, and compare these with ``wanted``; to be called in a new process.

    Args:
        name: a key of PEERS.
        graph: the graph.
        answers: a queue that receives the seconds to get ready (wall, processor), the growth of memory in bytes, the
            seconds of one pair (wall, processor), and the number of answers that differ.
        wanted: sources, targets and distances, inf for no path.
    """
    module, make, count = PEERS[name]
    importlib.import_module(module)  # before the measurement, so that the memory of the code is not counted
    u, v, want = (side[:count] for side in wanted)
    before, wall, cpu = resident(), time.perf_counter(), time.process_time()
    ask = make(graph)
    ready = (time.perf_counter() - wall, time.process_time() - cpu, resident() - before)
    wall, cpu = time.perf_counter(), time.process_time()
    found = ask(u, v)
    pair = ((time.perf_counter() - wall) / len(u), (time.process_time() - cpu) / len(u))
    there = np.isfinite(want)  # each library has its own number for no path
    answers.put((*ready, *pair, int(np.count_nonzero(found[there] != want[there]))))


def compare_peers(graph: Graph, u: Any, v: Any, distances: Distances) -> None:
    """Print the times and the memory of each installed library.

    Args:
        graph: the graph, whose weights are whole numbers.
        u, v: sources and targets of at least PAIRS pairs.
        distances: the distances of these pairs, inf for no path.
    """
    context = multiprocessing.get_context("spawn")
    for name, (module, _, count) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            print(f"  {name}: not installed")
            continue
        answers = context.Queue()
        child = context.Process(target=measure, args=(name, graph, answers, (u, v, distances)))
        child.start()
        try:
            wall, cpu, size, pair, used, wrong = answers.get(timeout=600)
            print(
                f"  {name:24s} ready {wall:7.2f} s wall {cpu:7.2f} s processor, {size / 1e6:7.1f} MB; "
                f"a pair {pair * 1e6:10.1f} us wall {used * 1e6:10.1f} us processor; {wrong} of {count} differ",
                flush=True,
            )
        except Exception as error:
            print(f"  {name}: {error!r}", flush=True)
        finally:
            child.kill()
            child.join()
