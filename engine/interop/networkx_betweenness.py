"""NetworkX's betweenness of vertices and edges: between all vertices, from a sample of sources, and between two sets.

Graphs with weights of zero or below are left to NetworkX, because NetworkX's counts of paths over such edges depend on
its order of vertices.  So are graphs with weights so small that a sum of floats may not change when they are added.
Lengths are sums of floats; they are added in the order in which NetworkX adds them, so that two paths are equally long
here if and only if they are in NetworkX.

``edge_betweenness_centrality_subset`` is left to NetworkX, too.  By definition this measure counts paths, as the engine
does.  But NetworkX's code, and a test of NetworkX, divide the flow through a vertex equally among the edges into this
vertex, unless the vertex is a target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from engine.api.betweenness.centrality import Centrality
from engine.interop.networkx_backend import BackendGraph, Node, Weighted, answers, exceptions
from engine.model.problem import Options

Floats = npt.NDArray[np.float64]


def _positive(G: BackendGraph, weight: Any) -> Weighted:
    """Return the graph with the weights under the key ``weight``.

    Raises:
        NotImplementedError: a weight is not positive, or so small that adding it may leave a length unchanged.
    """
    weighted = G.under(weight)
    if weight is None:
        return weighted
    graph = weighted.graph
    least = [data.get(weight, 1) for _, _, data in nx.selfloop_edges(G.original, data=True)]
    longest = 0.0
    if graph.arcs:
        least.append(graph.weights.min())
        longest = (graph.n - 1) * float(graph.weights.max())
    if min(least, default=1) <= 0:
        raise NotImplementedError("weights that are not above zero")
    if not weighted.whole and min(least, default=1) <= np.spacing(longest):
        raise NotImplementedError("weights that vanish in sums of floats")
    return weighted


def _places(weighted: Weighted, vertices: Any) -> tuple[int, ...]:
    """Return the indices of ``vertices``; leave the call to NetworkX if there are unknown, repeated or no vertices."""
    if isinstance(vertices, str) or not isinstance(vertices, Iterable):
        raise NotImplementedError("no collection of vertices")
    place = {node: i for i, node in enumerate(weighted.nodes)}
    listed = list(vertices)
    if len(set(listed)) < len(listed) or not listed or any(node not in place for node in listed):
        raise NotImplementedError("vertices that are none, come twice, or are not in the graph")
    return tuple(place[node] for node in listed)


def _sampled(G: BackendGraph, k: int | None, seed: Any) -> list[Node] | None:
    """Return the sample of ``k`` vertices that NetworkX would draw; None for all vertices."""
    if k is None:
        return None
    found: list[Node] = nx.utils.create_py_random_state(seed).sample(list(G.original.nodes()), k)
    if not found:
        raise NotImplementedError("a sample without vertices")
    return found


def _counted(
    weighted: Weighted, sources: Any = None, targets: Any = None, *, edges: bool = False, endpoints: bool = False
) -> tuple[Centrality, Any]:
    """Return the request for betweenness without normalization, and its result.

    Args:
        weighted: the graph.
        sources, targets: NetworkX's vertices; None for all.
        edges: whether to count for edges instead of vertices.
        endpoints: whether a path also counts at its two ends.
    """
    sides = (None if side is None else _places(weighted, side) for side in (sources, targets))
    options = Options(sources=next(sides), targets=next(sides))
    with exceptions():
        asked = Centrality(weighted.graph, options, arcs=edges, normalized=False, endpoints=endpoints, decimal=False)
        return asked, asked.run()


def _raw(asked: Centrality, table: Any) -> Floats:
    """Return sums over ordered pairs: the values of ``table``, divided by the scale that ``asked`` applied to them."""
    found: Floats = table.values / asked.scale
    return found


def _scales(n: int, *, normalized: bool, directed: bool, ends: bool, sampled: int | None) -> tuple[float, float]:
    """Return the factors by which NetworkX scales the sums: for vertices of the sample, and for all other vertices.

    Args:
        n: number of vertices of the graph.
        normalized: whether to divide by the number of pairs that may count.
        directed: whether pairs have a direction.
        ends: whether a path also counts for the two vertices at its ends.  True for edges, and with ``endpoints``.
        sampled: number of vertices of the sample; None for all.
    """
    size = n if ends else n - 1
    if size < 2:
        return 1.0, 1.0
    drawn, sides = size if sampled is None else sampled, 1 if directed else 2
    other = 1 / (drawn * (size - 1)) if normalized else size / (drawn * sides)
    if sampled is None or ends:
        return other, other
    if drawn == 1:
        return math.nan, other
    return (1 / ((drawn - 1) * (size - 1)) if normalized else size / ((drawn - 1) * sides)), other


def _by_edge(G: BackendGraph, weighted: Weighted, table: Any, values: Floats, weight: Any) -> dict[Any, float]:
    """Return a dictionary from NetworkX's edges to ``values``.

    The shortest of parallel edges share their value equally; longer parallel edges get 0.
    """
    nodes, original = weighted.nodes, G.original
    found = {}
    for u, v, value in zip(table.tails.tolist(), table.heads.tolist(), values.tolist(), strict=True):
        found[nodes[u], nodes[v]] = value
        if not weighted.directed:
            found[nodes[v], nodes[u]] = value
    if not original.is_multigraph():
        # self loops are not in ``found``, because they lie on no shortest path
        return {edge: found.get(edge, 0.0) for edge in original.edges()}
    listed = original.edges(keys=True, data=True)
    lengths = {(u, v, key): 1 if weight is None else data.get(weight, 1) for u, v, key, data in listed}
    least: dict[Any, float] = {}
    for (u, v, _), length in lengths.items():
        least[u, v] = min(length, least.get((u, v), math.inf))
    shared = Counter((u, v) for (u, v, _), length in lengths.items() if length == least[u, v])
    return {
        (u, v, key): found.get((u, v), 0.0) / shared[u, v] if length == least[u, v] else 0.0
        for (u, v, key), length in lengths.items()
    }


@answers
def betweenness_centrality(
    G: BackendGraph,
    k: int | None = None,
    normalized: bool = True,
    weight: Any = None,
    endpoints: bool = False,
    seed: Any = None,
) -> dict[Node, float]:
    """Return the share of shortest paths that pass through each vertex."""
    weighted = _positive(G, weight)
    drawn = _sampled(G, None if k == len(weighted.nodes) else k, seed)
    values = _raw(*_counted(weighted, drawn, endpoints=endpoints))
    own, other = _scales(
        len(weighted.nodes),
        normalized=normalized,
        directed=weighted.directed,
        ends=endpoints,
        sampled=None if drawn is None else len(drawn),
    )
    mine = set(drawn or ())
    return {
        node: value * (own if node in mine else other)
        for node, value in zip(weighted.nodes, values.tolist(), strict=True)
    }


@answers
def edge_betweenness_centrality(
    G: BackendGraph, k: int | None = None, normalized: bool = True, weight: Any = None, seed: Any = None
) -> dict[Any, float]:
    """Return the share of shortest paths that pass over each edge."""
    weighted = _positive(G, weight)
    drawn = _sampled(G, k, seed)
    asked, table = _counted(weighted, drawn, edges=True)
    scale, _ = _scales(
        len(weighted.nodes),
        normalized=normalized,
        directed=weighted.directed,
        ends=True,
        sampled=None if drawn is None else len(drawn),
    )
    return _by_edge(G, weighted, table, _raw(asked, table) * scale, weight)


@answers
def betweenness_centrality_subset(
    G: BackendGraph, sources: Any, targets: Any, normalized: bool = False, weight: Any = None
) -> dict[Node, float]:
    """Return the share of shortest paths from ``sources`` to ``targets`` that pass through each vertex."""
    weighted = _positive(G, weight)
    values = _raw(*_counted(weighted, sources, targets))
    scale, _ = _scales(len(weighted.nodes), normalized=normalized, directed=weighted.directed, ends=False, sampled=None)
    return dict(zip(weighted.nodes, (values * scale).tolist(), strict=True))
