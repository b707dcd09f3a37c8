"""NetworkX's lengths and paths between all pairs of vertices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.interop.networkx_backend import BackendGraph, Node, Weighted, answers, walk
from engine.interop.rows import Floats


def _lengths(weighted: Weighted, cutoff: float | None = None) -> Iterator[tuple[Node, dict[Node, Any]]]:
    """Yield each vertex with the lengths to the vertices that it reaches."""
    for some, block, _ in weighted.rows():
        for i, row in zip(some, block, strict=True):
            yield weighted.nodes[i], weighted.nearest(row, cutoff)[1]


def _paths(weighted: Weighted, cutoff: float | None = None) -> Iterator[tuple[Node, dict[Node, Any], dict[Node, Any]]]:
    """Yield each vertex with lengths and paths to the vertices that it reaches."""
    for some, block, trees in weighted.rows(trees=True):
        if trees is None:
            raise AssertionError
        for i, row, tree in zip(some, block, trees, strict=True):
            near, lengths = weighted.nearest(row, cutoff)
            yield weighted.nodes[i], lengths, walk(weighted.nodes, [i], near, tree.tolist())


def _started(iterator: Iterator[Any]) -> Iterator[Any]:
    """Compute the first item and return an iterator of all items, so that errors are raised at the call."""
    first = next(iterator)

    def everything() -> Iterator[Any]:
        yield first
        yield from iterator

    return everything()


@answers
def all_pairs_dijkstra(G: BackendGraph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[Any]:
    """Yield (vertex, (lengths, paths)) for each vertex."""
    weighted = G.under(weight).nonnegative()
    return _started((node, (lengths, paths)) for node, lengths, paths in _paths(weighted, cutoff))


@answers
def all_pairs_dijkstra_path_length(
    G: BackendGraph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[Any]:
    """Yield (vertex, lengths) for each vertex."""
    return _started(_lengths(G.under(weight).nonnegative(), cutoff))


@answers
def all_pairs_dijkstra_path(G: BackendGraph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[Any]:
    """Yield (vertex, paths) for each vertex."""
    weighted = G.under(weight).nonnegative()
    return _started((node, paths) for node, _, paths in _paths(weighted, cutoff))


@answers
def all_pairs_bellman_ford_path_length(G: BackendGraph, weight: Any = "weight") -> Iterator[Any]:
    """Yield (vertex, lengths) for each vertex; arcs may be negative."""
    return _started(_lengths(G.under(weight)))


@answers
def all_pairs_bellman_ford_path(G: BackendGraph, weight: Any = "weight") -> Iterator[Any]:
    """Yield (vertex, paths) for each vertex; arcs may be negative."""
    return _started((node, paths) for node, _, paths in _paths(G.under(weight)))


@answers
def all_pairs_shortest_path_length(G: BackendGraph, cutoff: float | None = None) -> Iterator[Any]:
    """Yield (vertex, hops) for each vertex."""
    return _started(_lengths(G.under(None), cutoff))


@answers
def all_pairs_shortest_path(G: BackendGraph, cutoff: float | None = None) -> Iterator[Any]:
    """Yield (vertex, paths of fewest edges) for each vertex."""
    return _started((node, paths) for node, _, paths in _paths(G.under(None), cutoff))


@answers
def johnson(G: BackendGraph, weight: Any = "weight") -> dict[Node, Any]:
    """Return paths between all pairs; arcs may be negative."""
    return {node: paths for node, _, paths in _paths(G.under(weight))}


@answers
def floyd_warshall(G: BackendGraph, weight: Any = "weight") -> dict[Node, dict[Node, Any]]:
    """Return lengths between all pairs, inf where there is no path."""
    weighted, found = G.under(weight), {}
    for some, block, _ in weighted.rows():
        for i, row in zip(some, block, strict=True):
            values = [weighted.number(x) if x < math.inf else math.inf for x in row.tolist()]
            found[weighted.nodes[i]] = dict(zip(weighted.nodes, values, strict=True))
    return found


@answers
def floyd_warshall_numpy(G: BackendGraph, nodelist: list[Node] | None = None, weight: Any = "weight") -> Floats:
    """Return lengths between all pairs as an array, in the order of ``nodelist``."""
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
    """Return predecessors and lengths between all pairs."""
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
