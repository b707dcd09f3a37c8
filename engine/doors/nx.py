"""A NetworkX backend: its functions over all pairs, answered by this engine.

``nx.diameter(G, backend="apsp")``, or ``NETWORKX_BACKEND_PRIORITY=apsp`` for a program that knows nothing of us.
Results and exceptions are NetworkX's.  What is not done here raises ``NotImplementedError``, and NetworkX answers
itself: weights that are no finite numbers, negative arcs where it would refuse or loop, graphs without vertices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from inspect import signature
from typing import Any, Final

import networkx as nx
import numpy as np
import numpy.typing as npt

from engine.doors.nx_info import FUNCTIONS
from engine.doors.rows import Floats, RowStatistics, distance_rows, gather
from storage.errors import InvalidGraph, InvalidRequest, NegativeCycle
from storage.graph import Graph, build_graph

Node = Hashable
#: How often each function really ran here, in this process.
CALLS: Final[Counter[str]] = Counter()
#: Most matrix entries that are held at once while rows become dictionaries.
_ENTRIES: Final = 1 << 24


class BackendGraph:
    """A NetworkX graph together with its arcs in compressed rows, made when they are first asked for."""

    __networkx_backend__ = "apsp"

    def __init__(self, original: Any) -> None:
        self.original = original
        self._graphs: dict[Any, Weighted] = {}

    def is_directed(self) -> bool:
        """Whether arcs have a direction."""
        return bool(self.original.is_directed())

    def is_multigraph(self) -> bool:
        """Whether parallel edges are allowed; the shortest counts."""
        return bool(self.original.is_multigraph())

    @cached_property
    def nodes(self) -> list[Node]:
        """The vertices in NetworkX's order; their positions are our indices."""
        return list(self.original)

    def under(self, weight: Any) -> Weighted:
        """The graph with its weights under the key ``weight`` (None: every edge counts 1)."""
        if callable(weight):
            raise NotImplementedError("functions of edges are not asked here")
        if weight not in self._graphs:
            self._graphs[weight] = Weighted(self, weight)
        return self._graphs[weight]


class Weighted:
    """A graph under one weight: ours, and how its lengths become NetworkX's numbers."""

    def __init__(self, backend_graph: BackendGraph, weight: Any) -> None:
        original, self.nodes = backend_graph.original, backend_graph.nodes
        if not self.nodes:
            raise NotImplementedError("a graph without vertices")
        self.directed = backend_graph.is_directed()
        place = {node: i for i, node in enumerate(self.nodes)}
        edges = list(original.edges(data=True if weight is None else weight, default=1))
        tails = np.fromiter((place[u] for u, _, _ in edges), np.int64, len(edges))
        heads = np.fromiter((place[v] for _, v, _ in edges), np.int64, len(edges))
        weights = None if weight is None else _numbers([w for _, _, w in edges])
        self.whole = weights is None or weights.dtype.kind == "i"
        with _exceptions():
            self.graph: Graph = build_graph(tails, heads, weights, n=len(self.nodes), directed=self.directed)[0]

    @property
    def negative(self) -> bool:
        """Whether some arc is negative."""
        return self.graph.arcs > 0 and bool(self.graph.weights.min() < 0)

    def nonnegative(self) -> Weighted:
        """Itself; NetworkX has its own ways with negative arcs where it does not expect any."""
        if self.negative:
            raise NotImplementedError("negative weights")
        return self

    def numbers(self, lengths: Floats) -> list[Any]:
        """Finite lengths as NetworkX's numbers."""
        return (lengths.astype(np.int64) if self.whole else lengths).tolist()  # type: ignore[no-any-return]

    def number(self, length: float) -> Any:
        """One finite length."""
        return int(length) if self.whole else float(length)

    def reversed(self) -> Graph:
        """The graph with every arc turned round."""
        graph = self.graph
        if not self.directed:
            return graph
        tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
        return build_graph(graph.heads, tails, graph.weights, n=graph.n, directed=True)[0]

    def statistics(self, *, inward: bool = False) -> RowStatistics:
        """Facts of each row (of each column with ``inward``), without holding the matrix."""
        with _exceptions():
            return gather(self.reversed() if inward else self.graph)

    def rows(self, *, trees: bool = False) -> Iterator[tuple[range, Floats, npt.NDArray[np.int32] | None]]:
        """Rows of distances, and predecessors with ``trees``, some at a time."""
        n = self.graph.n
        height = max(1, _ENTRIES // n)
        for first in range(0, n, height):
            some = range(first, min(n, first + height))
            with _exceptions():
                block, before = distance_rows(self.graph, np.arange(some.start, some.stop), trees=trees)
            yield some, block, before


def _numbers(values: list[Any]) -> npt.NDArray[Any]:
    """Weights as int64 or float64; what is no finite number is left to NetworkX."""
    try:
        array = np.array(values) if values else np.zeros(0, np.int64)
    except ValueError as error:
        raise NotImplementedError("weights that are no numbers") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise NotImplementedError("weights that are no finite numbers")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


@contextmanager
def _exceptions() -> Iterator[None]:
    """The engine's refusals as NetworkX's exceptions."""
    try:
        yield
    except NegativeCycle as error:
        raise nx.NetworkXUnbounded("Negative cycle detected.") from error
    except (InvalidGraph, InvalidRequest) as error:
        raise NotImplementedError(str(error)) from error


class Backend:
    """What NetworkX calls; its methods carry NetworkX's names and signatures."""

    @staticmethod
    def convert_from_nx(graph: Any, **_: Any) -> BackendGraph:
        """Our form of a NetworkX graph."""
        return BackendGraph(graph)

    @staticmethod
    def convert_to_nx(result: Any, **_: Any) -> Any:
        """NetworkX's form of what we returned."""
        return result.original if isinstance(result, BackendGraph) else result

    @staticmethod
    def can_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:
        """Whether a call can be answered here, or why not."""
        asked = signature(getattr(Backend, name)).bind(*args, **kwargs).arguments
        graph = asked["G"]
        if len(getattr(graph, "original", graph)) == 0:
            return "the graph has no vertices"
        if callable(asked.get("weight")) or callable(asked.get("distance")):
            return "weights are functions"
        left = [key.strip() for key in FUNCTIONS[name].split(",")]
        given = [key for key in left if asked.get(key) not in (None, False)]
        return f"{', '.join(given)} is left to NetworkX" if given else True


BACKEND: Final = Backend()


def answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` part of the backend, under its name, and count its answers."""

    @wraps(function)
    def call(G: Any, *args: Any, **kwargs: Any) -> Any:
        found = function(G if isinstance(G, BackendGraph) else BackendGraph(G), *args, **kwargs)
        CALLS[function.__name__] += 1
        return found

    setattr(Backend, function.__name__, staticmethod(call))
    return call


# ---- lengths and paths between all pairs ----------------------------------------------------------------------------


def _lengths(weighted: Weighted, cutoff: float | None = None) -> Iterator[tuple[Node, dict[Node, Any]]]:
    """Each vertex with the lengths to what it reaches, nearest first as NetworkX has them."""
    for some, block, _ in weighted.rows():
        for i, row in zip(some, block, strict=True):
            near = np.flatnonzero(row < np.inf if cutoff is None else row <= cutoff)
            near = near[np.argsort(row[near], kind="stable")]
            names = [weighted.nodes[v] for v in near.tolist()]
            yield weighted.nodes[i], dict(zip(names, weighted.numbers(row[near]), strict=True))


def _paths(weighted: Weighted, cutoff: float | None = None) -> Iterator[tuple[Node, dict[Node, Any], dict[Node, Any]]]:
    """Each vertex with lengths and paths to what it reaches."""
    nodes = weighted.nodes
    for some, block, trees in weighted.rows(trees=True):
        if trees is None:
            raise AssertionError
        for i, row, tree in zip(some, block, trees, strict=True):
            near = np.flatnonzero(row < np.inf if cutoff is None else row <= cutoff)
            near = near[np.argsort(row[near], kind="stable")]
            names = [nodes[v] for v in near.tolist()]
            lengths = dict(zip(names, weighted.numbers(row[near]), strict=True))
            yield nodes[i], lengths, _walk(nodes, i, near.tolist(), tree.tolist())


def _walk(nodes: list[Node], source: int, wanted: list[int], tree: list[int]) -> dict[Node, list[Node]]:
    """Paths from ``source`` to the vertices ``wanted``; each extends the path to the vertex before."""
    paths = {source: [nodes[source]]}
    for v in wanted:
        back = []
        at = v
        while at not in paths:
            back.append(at)
            at = tree[at]
        for at in reversed(back):
            paths[at] = [*paths[tree[at]], nodes[at]]
    return {nodes[v]: paths[v] for v in wanted}


def _started(iterator: Iterator[Any]) -> Iterator[Any]:
    """The same iterator, its first piece of work done: what cannot be answered is said at the call."""
    first = next(iterator)

    def everything() -> Iterator[Any]:
        yield first
        yield from iterator

    return everything()


@answers
def all_pairs_dijkstra(G: BackendGraph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[Any]:
    """(vertex, (lengths, paths)) for each vertex."""
    weighted = G.under(weight).nonnegative()
    return _started((node, (lengths, paths)) for node, lengths, paths in _paths(weighted, cutoff))


@answers
def all_pairs_dijkstra_path_length(
    G: BackendGraph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[Any]:
    """(vertex, lengths) for each vertex."""
    return _started(_lengths(G.under(weight).nonnegative(), cutoff))


@answers
def all_pairs_dijkstra_path(G: BackendGraph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[Any]:
    """(vertex, paths) for each vertex."""
    weighted = G.under(weight).nonnegative()
    return _started((node, paths) for node, _, paths in _paths(weighted, cutoff))


@answers
def all_pairs_bellman_ford_path_length(G: BackendGraph, weight: Any = "weight") -> Iterator[Any]:
    """(vertex, lengths) for each vertex; arcs of any sign."""
    return _started(_lengths(G.under(weight)))


@answers
def all_pairs_bellman_ford_path(G: BackendGraph, weight: Any = "weight") -> Iterator[Any]:
    """(vertex, paths) for each vertex; arcs of any sign."""
    return _started((node, paths) for node, _, paths in _paths(G.under(weight)))


@answers
def all_pairs_shortest_path_length(G: BackendGraph, cutoff: float | None = None) -> Iterator[Any]:
    """(vertex, hops) for each vertex."""
    return _started(_lengths(G.under(None), cutoff))


@answers
def all_pairs_shortest_path(G: BackendGraph, cutoff: float | None = None) -> Iterator[Any]:
    """(vertex, paths of fewest edges) for each vertex."""
    return _started((node, paths) for node, _, paths in _paths(G.under(None), cutoff))


@answers
def johnson(G: BackendGraph, weight: Any = "weight") -> dict[Node, Any]:
    """Paths between all pairs; arcs of any sign."""
    return {node: paths for node, _, paths in _paths(G.under(weight))}


@answers
def floyd_warshall(G: BackendGraph, weight: Any = "weight") -> dict[Node, dict[Node, Any]]:
    """Lengths between all pairs, inf where there is no path."""
    weighted, found = G.under(weight), {}
    for some, block, _ in weighted.rows():
        for i, row in zip(some, block, strict=True):
            values = [weighted.number(x) if x < math.inf else math.inf for x in row.tolist()]
            found[weighted.nodes[i]] = dict(zip(weighted.nodes, values, strict=True))
    return found


@answers
def floyd_warshall_numpy(G: BackendGraph, nodelist: list[Node] | None = None, weight: Any = "weight") -> Floats:
    """Lengths between all pairs as an array, in the order of ``nodelist``."""
    weighted = G.under(weight)
    order = np.arange(len(weighted.nodes))
    if nodelist is not None:
        place = {node: i for i, node in enumerate(weighted.nodes)}
        if not len(nodelist) == len(place) == len(set(nodelist)) or not set(nodelist) <= place.keys():
            raise NotImplementedError("a list that is not every vertex once")
        order = np.array([place[node] for node in nodelist])
    whole = np.concatenate([block for _, block, _ in weighted.rows()])
    return whole[np.ix_(order, order)]


@answers
def floyd_warshall_predecessor_and_distance(G: BackendGraph, weight: Any = "weight") -> tuple[Any, Any]:
    """Predecessors and lengths between all pairs."""
    weighted, before, found = G.under(weight), {}, {}
    nodes = weighted.nodes
    for some, block, trees in weighted.rows(trees=True):
        if trees is None:
            raise AssertionError
        for i, row, tree in zip(some, block, trees, strict=True):
            values = [weighted.number(x) if x < math.inf else math.inf for x in row.tolist()]
            found[nodes[i]] = dict(zip(nodes, values, strict=True))
            if (tree >= 0).any():
                before[nodes[i]] = {nodes[v]: nodes[tree[v]] for v in np.flatnonzero(tree >= 0).tolist()}
    return before, found


# ---- facts about all pairs, from statistics of rows -----------------------------------------------------------------


def _connected(weighted: Weighted, facts: RowStatistics) -> bool:
    return bool((facts.reached == len(weighted.nodes) - 1).all())


def _eccentricities(G: BackendGraph, weight: Any) -> tuple[Weighted, Floats]:
    weighted = G.under(weight).nonnegative()
    facts = weighted.statistics()
    if not _connected(weighted, facts):
        what = "digraph is not strongly connected" if weighted.directed else "graph is not connected"
        raise nx.NetworkXError(f"Found infinite path length because the {what}")
    return weighted, facts.largest


@answers
def eccentricity(G: BackendGraph, v: Any = None, sp: Any = None, weight: Any = None) -> Any:  # noqa: ARG001
    """The largest length from each vertex, or from those named."""
    weighted, largest = _eccentricities(G, weight)
    every = dict(zip(weighted.nodes, weighted.numbers(largest), strict=True))
    if v is None:
        return every
    if isinstance(v, Hashable) and v in every:
        return every[v]
    return {node: every[node] for node in G.original.nbunch_iter(v)}


@answers
def diameter(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:  # noqa: ARG001
    """The largest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return weighted.number(largest.max())


@answers
def radius(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:  # noqa: ARG001
    """The smallest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return weighted.number(largest.min())


@answers
def center(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Node]:  # noqa: ARG001
    """The vertices of smallest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return [weighted.nodes[i] for i in np.flatnonzero(largest == largest.min()).tolist()]


@answers
def periphery(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Node]:  # noqa: ARG001
    """The vertices of largest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return [weighted.nodes[i] for i in np.flatnonzero(largest == largest.max()).tolist()]


@answers
def barycenter(G: BackendGraph, weight: Any = None, attr: Any = None, sp: Any = None) -> list[Node]:  # noqa: ARG001
    """The vertices of smallest sum of lengths."""
    weighted = G.under(weight).nonnegative()
    facts = weighted.statistics()
    if not _connected(weighted, facts):
        raise nx.NetworkXNoPath(
            f"Input graph {G.original} is disconnected, so every induced subgraph has infinite barycentricity."
        )
    return [weighted.nodes[i] for i in np.flatnonzero(facts.sums == facts.sums.min()).tolist()]


@answers
def average_shortest_path_length(G: BackendGraph, weight: Any = None, method: str | None = None) -> float:
    """The mean length over all ordered pairs."""
    signed = ("bellman-ford", "floyd-warshall", "floyd-warshall-numpy")
    if method not in (None, "unweighted", "dijkstra", *signed):
        raise NotImplementedError(f"method {method}")
    n = len(G.nodes)
    weighted = G.under(None if method == "unweighted" else weight)
    if method not in signed:
        weighted.nonnegative()
    if n == 1:
        return 0
    facts = weighted.statistics()
    if not _connected(weighted, facts):
        raise nx.NetworkXError(f"Graph is not {'strongly ' if weighted.directed else ''}connected.")
    return float(math.fsum(facts.sums) / (n * (n - 1)))


@answers
def wiener_index(G: BackendGraph, weight: Any = None) -> Any:
    """The sum of the lengths of all pairs, each unordered pair once where edges have no direction."""
    weighted = G.under(weight).nonnegative()
    facts = weighted.statistics()
    if not _connected(weighted, facts):
        return math.inf
    total = weighted.number(math.fsum(facts.sums))
    return total if weighted.directed else total / 2


@answers
def global_efficiency(G: BackendGraph) -> float:
    """The mean of 1 / hops over all pairs."""
    if G.is_directed():
        raise NotImplementedError("NetworkX refuses graphs with directions")
    n = len(G.nodes)
    facts = G.under(None).statistics()
    return math.fsum(facts.inverse) / (n * (n - 1)) if n > 1 else 0


@answers
def closeness_centrality(
    G: BackendGraph, u: Node | None = None, distance: Any = None, wf_improved: bool = True
) -> dict[Node, float]:
    """The inverse of the mean length to each vertex (from the others), scaled by how many there are."""
    if u is not None:
        raise NotImplementedError("one vertex")
    weighted = G.under(distance).nonnegative()
    facts, n = weighted.statistics(inward=True), len(weighted.nodes)
    found = {}
    for node, reached, total in zip(weighted.nodes, facts.reached.tolist(), facts.sums.tolist(), strict=True):
        value = reached / total if total > 0 and n > 1 else 0.0
        found[node] = value * (reached / (n - 1)) if wf_improved and value else value
    return found


@answers
def harmonic_centrality(
    G: BackendGraph, nbunch: Any = None, distance: Any = None, sources: Any = None
) -> dict[Node, float]:
    """The sum of 1 / length to each vertex, from all others."""
    if nbunch is not None or sources is not None:
        raise NotImplementedError("some vertices only")
    weighted = G.under(distance).nonnegative()
    facts = weighted.statistics(inward=True)
    return dict(zip(weighted.nodes, facts.inverse.tolist(), strict=True))
