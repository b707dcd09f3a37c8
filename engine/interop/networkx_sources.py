"""NetworkX's functions for lengths and paths from one vertex, or from the nearest of several vertices.

This includes ``shortest_path`` and ``shortest_path_length``, which select one of the other functions by their
arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from engine.interop import networkx_pairs
from engine.interop.networkx_backend import BackendGraph, Node, Weighted, answers, exceptions, walk
from engine.interop.rows import nearest_row
from storage.errors import NegativeCycle
from storage.graph.graph import Graph, build_graph

Lengths = dict[Node, Any]
Paths = dict[Node, list[Node]]


def _indices(G: BackendGraph, sources: Iterable[Node], message: str) -> list[int]:
    """Return the indices of ``sources``; raise NodeNotFound for the first unknown vertex, whose name replaces {} in
    ``message``.
    """
    if isinstance(sources, str) or not isinstance(sources, Iterable):
        raise NotImplementedError("sources that are no collection of vertices")
    wanted = list(dict.fromkeys(sources))
    for source in wanted:
        if source not in G.original:
            raise nx.NodeNotFound(message.format(source))
    place = {node: i for i, node in enumerate(G.nodes)}
    return [place[source] for source in wanted]


def _search(
    weighted: Weighted, sources: list[int], *, paths: bool, cutoff: float | None = None, inward: bool = False
) -> tuple[Lengths, Paths]:
    """Return lengths from the nearest of ``sources`` to each vertex, and paths if wanted.

    With ``inward``, the lengths and paths are from each vertex to the nearest of ``sources``.
    """
    graph = weighted.reversed() if inward else weighted.graph
    with exceptions():
        row, tree, _ = _nearest(graph, np.array(sources), paths=paths)
    near, lengths = weighted.nearest(row, cutoff)
    found = walk(weighted.nodes, sources, near, tree.tolist()) if tree is not None else {}
    return lengths, {node: path[::-1] for node, path in found.items()} if inward else found


def _nearest(graph: Graph, sources: npt.NDArray[np.int64], *, paths: bool) -> Any:
    """Return the result of ``nearest_row``; as in NetworkX, negative cycles that no source reaches are ignored."""
    try:
        return nearest_row(graph, sources, trees=paths)
    except NegativeCycle:
        rest = _reached(graph, sources)
        if rest.arcs == graph.arcs:
            raise
        return nearest_row(rest, sources, trees=paths)


def _reached(graph: Graph, sources: npt.NDArray[np.int64]) -> Graph:
    """Return ``graph`` without the arcs out of vertices that no source reaches."""
    arcs = csr_array((np.ones(graph.arcs, np.int8), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    reached = np.zeros(graph.n, np.bool_)
    for source in sources.tolist():
        if not reached[source]:
            reached[breadth_first_order(arcs, source, return_predecessors=False)] = True
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    kept = reached[tails]
    rest, _ = build_graph(tails[kept], graph.heads[kept], graph.weights[kept], n=graph.n, directed=True)
    return replace(rest, weighted=graph.weighted)


# ---- hops ------------------------------------------------------------------------------------------------------------


@answers
def single_source_shortest_path_length(G: BackendGraph, source: Node, cutoff: float | None = None) -> Lengths:
    """Return hops from ``source`` to each vertex."""
    sources = _indices(G, [source], "Source {} is not in G")
    return _search(G.under(None), sources, paths=False, cutoff=cutoff)[0]


@answers
def single_source_shortest_path(G: BackendGraph, source: Node, cutoff: float | None = None) -> Paths:
    """Return paths of fewest edges from ``source`` to each vertex."""
    sources = _indices(G, [source], "Source {} not in G")
    return _search(G.under(None), sources, paths=True, cutoff=cutoff)[1]


@answers
def single_target_shortest_path_length(G: BackendGraph, target: Node, cutoff: float | None = None) -> Lengths:
    """Return hops from each vertex to ``target``."""
    targets = _indices(G, [target], "Target {} is not in G")
    return _search(G.under(None), targets, paths=False, cutoff=cutoff, inward=True)[0]


@answers
def single_target_shortest_path(G: BackendGraph, target: Node, cutoff: float | None = None) -> Paths:
    """Return paths of fewest edges from each vertex to ``target``."""
    targets = _indices(G, [target], "Target {} not in G")
    return _search(G.under(None), targets, paths=True, cutoff=cutoff, inward=True)[1]


# ---- weights that are not negative -----------------------------------------------------------------------------------


@answers
def multi_source_dijkstra_path_length(
    G: BackendGraph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> Lengths:
    """Return lengths from the nearest of ``sources`` to each vertex."""
    if not sources:
        raise ValueError("sources must not be empty")
    found = _indices(G, sources, "Node {} not found in graph")
    return _search(G.under(weight).nonnegative(), found, paths=False, cutoff=cutoff)[0]


@answers
def multi_source_dijkstra(
    G: BackendGraph, sources: Any, target: Any = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Return (lengths, paths) from the nearest of ``sources`` to each vertex, or (length, path) to ``target`` alone."""
    if not sources:
        raise ValueError("sources must not be empty")
    found = _indices(G, sources, "Node {} not found in graph")
    if target in sources:
        return 0, [target]
    lengths, paths = _search(G.under(weight).nonnegative(), found, paths=True, cutoff=cutoff)
    return _to_target(lengths, paths, target, f"No path to {target}.")


def _to_target(lengths: Lengths, paths: Paths, target: Any, message: str) -> tuple[Any, Any]:
    """Return (lengths, paths) unchanged if ``target`` is None, else the length and the path of ``target`` alone.

    Raises NetworkXNoPath, with ``message``, if there is no path to ``target``.
    """
    if target is None:
        return lengths, paths
    if target not in lengths:
        raise nx.NetworkXNoPath(message)
    return lengths[target], paths[target]


@answers
def multi_source_dijkstra_path(
    G: BackendGraph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> Paths:
    """Return paths from the nearest of ``sources`` to each vertex."""
    return multi_source_dijkstra(G, sources, None, cutoff, weight)[1]  # type: ignore[no-any-return]


@answers
def single_source_dijkstra(
    G: BackendGraph, source: Node, target: Any = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Return (lengths, paths) from ``source`` to each vertex, or (length, path) to ``target`` alone."""
    return multi_source_dijkstra(G, {source}, target, cutoff, weight)  # type: ignore[no-any-return]


@answers
def single_source_dijkstra_path(
    G: BackendGraph, source: Node, cutoff: float | None = None, weight: Any = "weight"
) -> Paths:
    """Return paths from ``source`` to each vertex."""
    return multi_source_dijkstra(G, {source}, None, cutoff, weight)[1]  # type: ignore[no-any-return]


@answers
def single_source_dijkstra_path_length(
    G: BackendGraph, source: Node, cutoff: float | None = None, weight: Any = "weight"
) -> Lengths:
    """Return lengths from ``source`` to each vertex."""
    return multi_source_dijkstra_path_length(G, {source}, cutoff, weight)  # type: ignore[no-any-return]


# ---- weights of any sign ---------------------------------------------------------------------------------------------


@answers
def single_source_bellman_ford(
    G: BackendGraph, source: Node, target: Any = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Return (lengths, paths) from ``source`` to each vertex, or to ``target`` alone; arcs may be negative."""
    if source == target:
        _indices(G, [source], "Node {} is not found in the graph")
        return 0, [source]
    found = _indices(G, [source], "Source {} not in G")
    lengths, paths = _search(G.under(weight), found, paths=True)
    return _to_target(lengths, paths, target, f"Target {target} cannot be reached from given sources")


@answers
def single_source_bellman_ford_path(G: BackendGraph, source: Node, weight: Any = "weight") -> Paths:
    """Return paths from ``source`` to each vertex; arcs may be negative."""
    return single_source_bellman_ford(G, source, None, weight)[1]  # type: ignore[no-any-return]


@answers
def single_source_bellman_ford_path_length(G: BackendGraph, source: Node, weight: Any = "weight") -> Lengths:
    """Return lengths from ``source`` to each vertex; arcs may be negative."""
    return _search(G.under(weight), _indices(G, [source], "Source {} not in G"), paths=False)[0]


# ---- functions that select an algorithm by their arguments -----------------------------------------------------------


def _method(weight: Any, method: str) -> str:
    if method not in ("dijkstra", "bellman-ford"):
        raise ValueError(f"method not supported: {method}")
    return "unweighted" if weight is None else method


def _one_end(
    G: BackendGraph, source: Any, target: Any, weight: Any, method: str, *, paths: bool
) -> tuple[Lengths, Paths]:
    """Return lengths, and paths if wanted, from ``source`` or to ``target``, whichever is given."""
    if source is not None and target is not None:
        raise NotImplementedError("one pair of vertices")
    kind, end = _method(weight, method), target if source is None else source
    what = {"dijkstra": "Node {} not found in graph", "bellman-ford": "Source {} not in G"}
    hops = "Source {} not in G" if paths else "Source {} is not in G"
    found = _indices(G, [end], what.get(kind, hops))
    weighted = G.under(weight) if kind == "bellman-ford" else G.under(weight).nonnegative()
    return _search(weighted, found, paths=paths, inward=source is None)


@answers
def shortest_path(
    G: BackendGraph, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> Any:
    """Return paths between all pairs, from ``source`` or to ``target``; single pairs are left to NetworkX."""
    kind = _method(weight, method)
    if source is not None or target is not None:
        return _one_end(G, source, target, weight, method, paths=True)[1]
    if kind == "unweighted":
        return networkx_pairs.all_pairs_shortest_path(G)
    if kind == "dijkstra":
        return networkx_pairs.all_pairs_dijkstra_path(G, weight=weight)
    return networkx_pairs.all_pairs_bellman_ford_path(G, weight=weight)


@answers
def shortest_path_length(
    G: BackendGraph, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> Any:
    """Return lengths between all pairs, from ``source`` or to ``target``; single pairs are left to NetworkX."""
    kind = _method(weight, method)
    if source is not None or target is not None:
        return _one_end(G, source, target, weight, method, paths=False)[0]
    if kind == "unweighted":
        return networkx_pairs.all_pairs_shortest_path_length(G)
    if kind == "dijkstra":
        return networkx_pairs.all_pairs_dijkstra_path_length(G, weight=weight)
    return networkx_pairs.all_pairs_bellman_ford_path_length(G, weight=weight)
