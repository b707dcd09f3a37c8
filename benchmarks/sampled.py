"""Times other libraries with distances from some sources, where the whole matrix would take too long.

Every library is called as its documentation recommends for many sources: SciPy's ``dijkstra`` (one thread), igraph's
``distances`` (one thread), NetworKit's ``SPSP`` (all threads), and rustworkx from one source after the other (one
thread).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.peers import coo
from storage.graph.graph import Graph

#: A function that returns the distances from some sources, a row for each, in the library's own form.
Search = Callable[[Sequence[int]], Any]


def scipy(graph: Graph, unit: bool, threads: int) -> Search:  # noqa: ARG001
    """Return SciPy's search, which has one thread."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    matrix = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return lambda sources: dijkstra(matrix, indices=sources, unweighted=unit)


def igraph(graph: Graph, unit: bool, threads: int) -> Search:  # noqa: ARG001
    """Return igraph's search, which has one thread."""
    import igraph as peer

    tails, heads, weights = coo(graph)
    made = peer.Graph(n=graph.n, edges=np.column_stack((tails, heads)), directed=graph.directed)
    length = None if unit else weights.astype(float).tolist()
    return lambda sources: made.distances(source=list(sources), weights=length)


def networkit(graph: Graph, unit: bool, threads: int) -> Search:
    """Return NetworKit's search, which uses all threads."""
    import networkit as peer

    peer.setNumberOfThreads(threads)
    tails, heads, weights = coo(graph)
    data = (tails, heads) if unit else (weights.astype(float), (tails, heads))
    made = peer.GraphFromCoo(data, graph.n, weighted=not unit, directed=graph.directed)

    def search(sources: Sequence[int]) -> Any:
        found = peer.distance.SPSP(made, list(sources))
        found.run()
        return found

    return search


def rustworkx(graph: Graph, unit: bool, threads: int) -> Search:  # noqa: ARG001
    """Return rustworkx's search, which runs from one source after the other."""
    import rustworkx as peer

    tails, heads, weights = coo(graph)
    made = peer.PyDiGraph() if graph.directed else peer.PyGraph()
    made.add_nodes_from(range(graph.n))
    lengths = np.ones(len(tails)) if unit else weights.astype(float)
    made.add_edges_from(list(zip(tails.tolist(), heads.tolist(), lengths.tolist(), strict=True)))
    return lambda sources: [peer.dijkstra_shortest_path_lengths(made, s, float) for s in sources]


PEERS: Final[dict[str, Callable[[Graph, bool, int], Search]]] = {
    "SciPy": scipy,
    "igraph": igraph,
    "NetworKit": networkit,
    "rustworkx": rustworkx,
}


@dataclass
class Timed:
    """One peer on one graph; ``best`` holds the least wall and processor seconds for each of ``sources``."""

    name: str
    search: Search
    sources: list[int] = field(default_factory=list)
    best: npt.NDArray[np.float64] = field(default_factory=lambda: np.full(2, np.inf))
    spent: float = 0.0

    @classmethod
    def of(cls, name: str, search: Search, threads: int, order: Sequence[int], budget: float) -> Timed:
        """Return a peer whose sources are so many of the first of ``order`` as take about ``budget`` seconds."""
        made = cls(name, search)
        few, took = list(order[: 2 * threads]), 0.0
        for _ in range(2):  # the first search is a warm-up, and its time is not used
            began = time.perf_counter()
            made.search(few)
            took = (time.perf_counter() - began) / len(few)
        made.sources = list(order[: max(len(few), min(len(order), int(budget / took)))])
        return made

    def run(self) -> None:
        """Search once from all ``sources``, and update ``best`` and ``spent``."""
        began, used = time.perf_counter(), time.process_time()
        self.search(self.sources)
        wall, processor = time.perf_counter() - began, time.process_time() - used
        self.spent += wall
        self.best = np.minimum(self.best, np.array([wall, processor]) / len(self.sources))
