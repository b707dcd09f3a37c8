"""What other libraries take for distances of single pairs and rows of one graph, beside a prepared graph.

``python -m benchmarks.prepared GRAPH --peers`` calls this.  Each library runs in a process of its own, so that the
growth of its resident memory, once it is imported, is what its hierarchy takes; a library that is not installed is
left out.  Nothing but this benchmark uses them: ``pip install pandana routingkit-cch networkit``.
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

#: Pairs that are asked of a hierarchy, and rows of a library that searches.
PAIRS, ROWS = 20_000, 4


def resident() -> int:
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def tails_of(graph: Graph) -> npt.NDArray[np.int64]:
    """Tails of the arcs."""
    return np.repeat(np.arange(graph.n), np.diff(graph.indptr))


def scipy_rows(graph: Graph) -> Ask:
    """SciPy: Dijkstra from one source at a time."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return lambda u, v: np.array([dijkstra(arcs, indices=s)[t] for s, t in zip(u.tolist(), v.tolist(), strict=True)])


def networkit_rows(graph: Graph) -> Ask:
    """NetworKit: Dijkstra from one source at a time."""
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
    """pandana: a contraction hierarchy; many pairs in one call, by all threads."""
    import pandana
    import pandas as pd

    rng = np.random.default_rng(0)
    x, y = (pd.Series(side) for side in rng.random((2, graph.n)))
    weights = pd.DataFrame({"length": graph.weights.astype(float)})
    made = pandana.Network(x, y, pd.Series(tails_of(graph)), pd.Series(graph.heads), weights, twoway=False)
    warnings.simplefilter("ignore")  # it lists every pair without a path
    return lambda u, v: np.array(made.shortest_path_lengths(u, v))


def cch_pairs(graph: Graph) -> Ask:
    """RoutingKit: a customizable contraction hierarchy, in the order by nested dissection that prepared graphs use."""
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


#: Module, what makes it ready, and how many pairs are asked.
PEERS: dict[str, tuple[str, Callable[[Graph], Ask], int]] = {
    "SciPy, a row each": ("scipy", scipy_rows, ROWS),
    "NetworKit, a row each": ("networkit", networkit_rows, ROWS),
    "pandana (CH)": ("pandana", pandana_pairs, PAIRS),
    "RoutingKit (CCH)": ("routingkit_cch", cch_pairs, PAIRS),
}


def measure(name: str, graph: Graph, answers: Any, wanted: tuple[Any, Any, Any]) -> None:
    """In a process of its own: make a library ready, ask it, and compare what it says.

    Args:
        name: a key of PEERS.
        graph: the graph.
        answers: a queue, which receives seconds to get ready (wall, processor), bytes, seconds a pair (wall,
            processor), and how many answers differ.
        wanted: sources, targets and distances, inf for no path.
    """
    module, make, count = PEERS[name]
    importlib.import_module(module)  # its own code is not counted
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
    """Print what each installed library takes.

    Args:
        graph: the graph; whole numbers as weights.
        u, v: pairs, PAIRS of them at least.
        distances: theirs, inf for no path.
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
