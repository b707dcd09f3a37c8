"""NetworkX's measures over all pairs, computed from statistics of rows, without making the matrix."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any, Final

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from engine.interop.networkx_backend import BackendGraph, Node, Weighted, answers, exceptions
from engine.interop.rows import Floats, RowStatistics, gather
from storage.graph.graph import build_graph


def _connected(weighted: Weighted, facts: RowStatistics) -> bool:
    return bool((facts.reached == len(weighted.nodes) - 1).all())


def _eccentricities(G: BackendGraph, weight: Any, some: list[Node] | None = None) -> tuple[Weighted, Floats]:
    """Return the weighted graph and the eccentricity of each vertex, shape (n,).

    Raises NetworkXError if some vertex of ``some`` (of all vertices for None) does not reach every vertex.
    """
    weighted = G.under(weight).nonnegative()
    facts = weighted.statistics()
    asked = set(weighted.nodes if some is None else some)
    reached = dict(zip(weighted.nodes, facts.reached.tolist(), strict=True))
    if any(reached[node] < len(weighted.nodes) - 1 for node in asked):
        what = "digraph is not strongly connected" if weighted.directed else "graph is not connected"
        raise nx.NetworkXError(f"Found infinite path length because the {what}")
    return weighted, facts.largest


@answers
def eccentricity(G: BackendGraph, v: Any = None, sp: Any = None, weight: Any = None) -> Any:  # noqa: ARG001
    """Return the eccentricity (the largest distance) of each vertex, or of the vertices in ``v``."""
    some = None if v is None else list(G.original.nbunch_iter(v))
    weighted, largest = _eccentricities(G, weight, some)
    every = dict(zip(weighted.nodes, largest.tolist(), strict=True))
    found = {node: weighted.number(every[node]) for node in (weighted.nodes if some is None else some)}
    return found[v] if isinstance(v, Hashable) and v in every else found


@answers
def diameter(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:  # noqa: ARG001
    """Return the largest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return weighted.number(largest.max())


@answers
def radius(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:  # noqa: ARG001
    """Return the smallest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return weighted.number(largest.min())


@answers
def center(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Node]:  # noqa: ARG001
    """Return the vertices of smallest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return [weighted.nodes[i] for i in np.flatnonzero(largest == largest.min()).tolist()]


@answers
def periphery(G: BackendGraph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Node]:  # noqa: ARG001
    """Return the vertices of largest eccentricity."""
    weighted, largest = _eccentricities(G, weight)
    return [weighted.nodes[i] for i in np.flatnonzero(largest == largest.max()).tolist()]


@answers
def barycenter(G: BackendGraph, weight: Any = None, attr: Any = None, sp: Any = None) -> list[Node]:  # noqa: ARG001
    """Return the vertices of smallest sum of lengths."""
    weighted = G.under(weight).nonnegative()
    facts = weighted.statistics()
    if not _connected(weighted, facts):
        raise nx.NetworkXNoPath(
            f"Input graph {G.original} is disconnected, so every induced subgraph has infinite barycentricity."
        )
    return [weighted.nodes[i] for i in np.flatnonzero(facts.sums == facts.sums.min()).tolist()]


@answers
def average_shortest_path_length(G: BackendGraph, weight: Any = None, method: str | None = None) -> float:
    """Return the mean length over all ordered pairs."""
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
    """Return the sum of the lengths of all pairs; in undirected graphs each unordered pair counts once."""
    weighted = G.under(weight).nonnegative()
    facts = weighted.statistics()
    if not _connected(weighted, facts):
        return math.inf
    total = weighted.number(math.fsum(facts.sums))
    return total if weighted.directed else total / 2


@answers
def global_efficiency(G: BackendGraph) -> float:
    """Return the mean of 1 / hops over all pairs."""
    if G.is_directed():
        raise NotImplementedError("NetworkX refuses directed graphs")
    n = len(G.nodes)
    facts = G.under(None).statistics(inverse=True)
    return math.fsum(facts.inverse) / (n * (n - 1)) if n > 1 else 0


#: Several neighbourhoods are searched together as one graph.  All pairs of this graph are searched, so it has at most
#: this number of vertices; a larger neighbourhood is searched alone.
_UNION: Final = 2048


@answers
def local_efficiency(G: BackendGraph) -> float:
    """Return the mean, over all vertices, of the efficiency of the graph that the vertex's neighbours induce."""
    if G.is_directed():
        raise NotImplementedError("NetworkX refuses directed graphs")
    place = {node: i for i, node in enumerate(G.nodes)}
    around = [[place[w] for w in G.original.adj[v]] for v in G.nodes]
    arcs = G.under(None).graph
    adjacency = csr_array((np.ones(arcs.arcs, np.int8), arcs.heads, arcs.indptr), shape=(arcs.n, arcs.n))
    total = 0.0
    for group in _unions([near for near in around if len(near) > 1]):
        total += _efficiencies(adjacency, group)
    return total / len(G.nodes)


def _unions(around: list[list[int]]) -> Iterator[list[list[int]]]:
    """Yield groups of neighbourhoods that are searched together, as one graph of up to ``_UNION`` vertices."""
    group: list[list[int]] = []
    for near in around:
        if group and sum(map(len, group)) + len(near) > _UNION:
            yield group
            group = []
        group.append(near)
    if group:
        yield group


def _efficiencies(adjacency: Any, group: list[list[int]]) -> float:
    """Return the sum of the efficiencies of the subgraphs that the lists of vertices induce."""
    parts = [adjacency[near][:, near].tocoo() for near in group]
    sizes = np.array([len(near) for near in group])
    first = np.concatenate([[0], np.cumsum(sizes)])
    tails = np.concatenate([part.coords[0] + at for part, at in zip(parts, first, strict=False)])
    heads = np.concatenate([part.coords[1] + at for part, at in zip(parts, first, strict=False)])
    with exceptions():
        facts = gather(build_graph(tails, heads, None, n=int(first[-1]), directed=True)[0], inverse=True)
    return math.fsum(np.add.reduceat(facts.inverse, first[:-1]) / (sizes * (sizes - 1)))


@answers
def harmonic_diameter(G: BackendGraph, sp: Any = None, *, weight: Any = None) -> float:  # noqa: ARG001
    """Return the harmonic mean of the lengths between all pairs; pairs without a path count as infinitely far apart."""
    n = len(G.nodes)
    inverse = G.under(weight).nonnegative().statistics(inverse=True).inverse
    try:
        total = math.fsum(inverse)
    # the sum of inverses of lengths near 1e-308 exceeds float64
    except OverflowError:
        total = math.inf
    if total:
        return n * (n - 1) / total
    return math.inf if n > 1 else math.nan


@answers
def closeness_centrality(
    G: BackendGraph, u: Node | None = None, distance: Any = None, wf_improved: bool = True
) -> dict[Node, float]:
    """Return the inverse of the mean length from the other vertices to each vertex."""
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
    """Return, for each vertex, the sum of 1 / length over the shortest paths from all other vertices to it."""
    if nbunch is not None or sources is not None:
        raise NotImplementedError("some vertices only")
    weighted = G.under(distance).nonnegative()
    facts = weighted.statistics(inward=True, inverse=True)
    return dict(zip(weighted.nodes, facts.inverse.tolist(), strict=True))
