"""Finds a proven bound on the distances of a graph, from which their type is selected."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from engine.graph.hubs import NARROWEST, hub_bound
from engine.graph.terminals import opened
from engine.model.backend import Arcs, Array, heaviest_out
from engine.model.dtypes import WORK_TYPES
from storage.graph.graph import Graph

#: The largest distances of the types that hold whole numbers exactly.  A search for a tighter bound can lead to a
#: narrower type only if one of these numbers is below the bound that is already known.
_LASTS: Final = (int(WORK_TYPES["uint16"].largest), int(WORK_TYPES["int32"].largest), 2**53)


def distance_bound(graph: Graph, max_hops: int | None, arcs: Arcs | None = None) -> tuple[float, str]:
    """Return a proven bound on |d(u, v)| over all reachable pairs, and its proof in words.

    There are two proofs, and the smaller bound is returned.  *Arcs*: a shortest path leaves each vertex at most once.
    So, if the heaviest arc out of each vertex is taken, the sum of the n - 1 (or ``max_hops``) heaviest of these arcs
    is a bound.  *Hubs*: if no weight is negative, walks through one hub of each strongly connected component give a
    bound (``engine.graph.hubs``).  The searches from hubs are made only if they may lead to a narrower type, and end as
    soon as they cannot.

    Args:
        graph: the graph.
        max_hops: the largest number of arcs of a path; None for no limit.
        arcs: the arcs of ``graph`` as an object that caches facts about them; None to make a new one.
    """
    if graph.arcs == 0:
        return 0, "there is no arc"
    arcs = arcs or Arcs(graph.indptr, graph.heads, graph.weights)
    low = graph.weights.min().item()
    heaviest = _heaviest_in_size(graph) if low < 0 else arcs.form(heaviest_out)
    largest = heaviest.max().item()
    most = min(graph.n - 1, max_hops or graph.n)
    if most < len(heaviest):
        heaviest = np.partition(heaviest, len(heaviest) - most)[len(heaviest) - most :]
    with np.errstate(over="ignore"):  # callers refuse an infinite bound
        bound = _whole_sum(heaviest, largest) if graph.integral else float(np.sum(heaviest, dtype=np.float64))
    proof = f"the {most:,} heaviest arcs out of different vertices sum to {bound:,g}"
    if not graph.integral or max_hops is not None or low < 0:
        return bound, proof
    limit = max((last for last in _LASTS if last < bound), default=0)
    hub = hub_bound(graph, limit, arcs) if limit else None
    if hub is not None:
        return hub, f"ways through one hub of each strongly connected component are at most {hub:,g} long"
    return bound, proof


def arcs_bound(graph: Graph, limit: int, arcs: Arcs | None = None) -> int | None:
    """Return a proven bound on the number of arcs of all paths that have the fewest arcs of any path between their
    ends, in O((n + m) log n).

    Args:
        graph: the graph; no path passes through its terminals.
        limit: the largest useful bound.
        arcs: the arcs of ``graph`` as an object that caches facts about them, if all weights are 1 and there are no
            terminals; None to make a new one.

    Returns:
        The bound; None if it would be above ``limit``, or above ``NARROWEST``.
    """
    if arcs is not None:
        return hub_bound(graph, min(limit, NARROWEST), arcs)
    return hub_bound(opened(replace(graph, weights=np.ones(graph.arcs, np.int32))), min(limit, NARROWEST))


def _heaviest_in_size(graph: Graph) -> Array:
    """Return, for each vertex that has arcs, the largest absolute weight of the arcs out of it."""
    weights = graph.weights.astype(np.int64) if graph.integral else graph.weights
    return heaviest_out(Arcs(graph.indptr, graph.heads, np.abs(weights)))


def _whole_sum(weights: Array, largest: float) -> int:
    """Return the exact sum of whole numbers of at most ``largest``, even if it is beyond int64."""
    if len(weights) * largest < 2**62:
        return int(np.sum(weights, dtype=np.int64))
    return sum(weights.tolist())
