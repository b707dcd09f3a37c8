"""A proven bound on the distances of a graph, which decides the type that holds them."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from engine.model.dtypes import WORK_TYPES
from storage.graph.graph import Graph


def distance_bound(graph: Graph, max_hops: int | None) -> tuple[float, str]:
    """Return a proven bound on |d(u, v)| over all reachable pairs, and its proof in words.

    There are two proofs, and the smaller bound counts.  *Arcs*: a shortest path leaves each vertex at most once, so its
    length is at most the sum of the n - 1 (or ``max_hops``) largest of the vertices' heaviest arcs.  *Hub*: where every
    weak component is strongly connected and no weight is negative, d(u, v) <= d(u, h) + d(h, v) for a hub h of their
    component.  The hub's two searches are made only where they can lead to a narrower type.
    """
    if graph.arcs == 0:
        return 0, "there is no arc"
    heaviest = _heaviest_out_arcs(graph)
    most = min(graph.n - 1, max_hops or graph.n)
    if most < len(heaviest):
        heaviest = np.partition(heaviest, len(heaviest) - most)[len(heaviest) - most :]
    # Python integers: a sum of int64 weights may pass 2^63.
    with np.errstate(over="ignore"):  # callers refuse an infinite bound
        bound = sum(heaviest.tolist()) if graph.integral else float(np.sum(heaviest, dtype=np.float64))
    proof = f"the {most} heaviest arcs out of different vertices sum to {bound:g}"
    if bound <= WORK_TYPES["uint16"].largest or not graph.integral or max_hops is not None or graph.weights.min() < 0:
        return bound, proof
    hub = _hub_bound(graph)
    if hub is not None and hub < bound:
        return hub, f"every vertex and its component's hub are at most {hub:g} apart, there and back"
    return bound, proof


def _heaviest_out_arcs(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """Return the largest absolute weight out of each vertex that has arcs."""
    starts = graph.indptr[:-1][np.diff(graph.indptr) > 0]
    weights = graph.weights.astype(np.int64) if graph.integral else graph.weights
    return np.maximum.reduceat(np.abs(weights), starts)


def _hub_bound(graph: Graph) -> float | None:
    """Return max d(u, h) + max d(h, v) over one hub h a component; None if a component is not strongly connected."""
    matrix = csr_array((graph.weights.astype(np.float64), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    pieces, label = connected_components(matrix, directed=True, connection="strong")
    if graph.directed and connected_components(matrix, directed=True, connection="weak", return_labels=False) != pieces:
        return None
    by_degree = np.argsort(np.diff(graph.indptr), kind="stable")
    hubs = np.empty(pieces, np.int64)
    hubs[label[by_degree]] = by_degree  # the last write to a component, that of its vertex of highest degree, stays
    out = dijkstra(matrix, indices=hubs, min_only=True).max()
    back = out if not graph.directed else dijkstra(matrix.T.tocsr(), indices=hubs, min_only=True).max()
    return float(out + back)
