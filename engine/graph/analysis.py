"""Finds the facts about a graph that planning needs, above all a proven bound on the distances."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from engine.graph.hubs import hub_bound
from engine.graph.ordering import hops_across
from engine.model.decimals import in_units
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Problem, Statistics
from storage.graph.graph import Graph

#: Larger cutoffs count as no cutoff, because no type holds such distances exactly.
LARGEST_EXACT: Final = 2.0**53
#: The largest distances of the types that hold whole numbers exactly: only a bound up to one of them changes the type.
_LASTS: Final = (int(WORK_TYPES["uint16"].largest), int(WORK_TYPES["int32"].largest), int(LARGEST_EXACT))


def describe(
    graph: Graph,
    *,
    rows: int | None = None,
    targets: int | None = None,
    max_hops: int | None = None,
    cutoff: float | None = None,
) -> Problem:
    """Find the facts about ``graph`` that planning uses, in O(m) plus at most four searches for the bound by hubs.

    Args:
        graph: the clean graph.
        rows: number of sources; None for all vertices.
        targets: number of targets; None for all vertices.
        max_hops: most arcs of a path; a limit of n - 1 or more is no limit.
        cutoff: the largest distance wanted; None for no limit.
    """
    hops = None if max_hops is None or max_hops >= graph.n - 1 else max_hops
    low, high = _weight_range(graph)
    # with floats of both signs potentials are needed, which are lengths of walks of any number of arcs
    bound, proof = _bound(graph, None if low < 0 and not graph.integral else hops, cutoff, signed=low < 0)
    return Problem(
        n=graph.n,
        arcs=graph.arcs,
        rows=graph.n if rows is None else rows,
        directed=graph.directed,
        integral=graph.integral,
        unit=graph.arcs > 0 and low == high == 1,
        min_weight=low,
        max_weight=high,
        smallest_weight=_smallest(graph),
        bound=bound,
        bound_proof=proof,
        max_hops=hops,
        targets=targets,
        cutoff=cutoff,
        decimal=not graph.integral and low >= 0 and in_units(graph.indptr, graph.weights) is not None,
    )


def statistics(graph: Graph, problem: Problem) -> Statistics:
    """Return the shape of ``graph`` in numbers, with the parts from ``problem``, in O(m)."""
    degrees = np.diff(graph.indptr)
    return Statistics(
        vertices=graph.n,
        arcs=graph.arcs,
        least_degree=int(degrees.min(initial=graph.arcs)),
        mean_degree=graph.arcs / max(1, graph.n),
        largest_degree=int(degrees.max(initial=0)),
        degree_deviation=float(degrees.std()) if graph.n else 0.0,
        hops_across=hops_across(graph.indptr, graph.heads),
        parts=problem.parts,
        no_parts="" if problem.parts else problem.no_parts,
    )


def _bound(graph: Graph, hops: int | None, cutoff: float | None, *, signed: bool) -> tuple[float, str]:
    """Return a bound on the distances that the result holds, and its proof.

    Where no arc is negative, lengths beyond the cutoff need not fit the type: they may become unreachable on the way.
    """
    if cutoff is None or signed or cutoff > LARGEST_EXACT:
        return distance_bound(graph, hops)
    last: float = math.floor(cutoff) if graph.integral else cutoff
    proof = "what is beyond the cutoff is unreachable"
    if graph.integral and last <= WORK_TYPES["uint16"].largest:
        return last, proof  # no type is narrower
    bound, other = distance_bound(graph, hops)
    return (last, proof) if last < bound else (bound, other)


def _weight_range(graph: Graph) -> tuple[float, float]:
    if graph.arcs == 0:
        return 0, 0
    return graph.weights.min().item(), graph.weights.max().item()


def _smallest(graph: Graph) -> float:
    """Return the smallest absolute weight that is not zero; 0 where there is none, and for whole numbers."""
    if graph.integral:
        return 0
    sizes = np.abs(graph.weights)
    return float(np.min(sizes, where=sizes > 0, initial=np.inf)) if graph.arcs else 0


def distance_bound(graph: Graph, max_hops: int | None) -> tuple[float, str]:
    """Return a proven bound on |d(u, v)| over all reachable pairs, and its proof in words.

    There are two proofs, and the smaller bound counts.  *Arcs*: a shortest path leaves each vertex at most once, so its
    length is at most the sum of the n - 1 (or ``max_hops``) largest of the vertices' heaviest arcs.  *Hubs*: where no
    weight is negative, ways through one hub of each strongly connected component (``engine.graph.hubs``).  The hubs'
    searches are made only where they can lead to a narrower type, and end where they cannot any more.
    """
    if graph.arcs == 0:
        return 0, "there is no arc"
    low, high = _weight_range(graph)
    heaviest = _heaviest_out_arcs(graph, signed=low < 0)
    most = min(graph.n - 1, max_hops or graph.n)
    if most < len(heaviest):
        heaviest = np.partition(heaviest, len(heaviest) - most)[len(heaviest) - most :]
    with np.errstate(over="ignore"):  # callers refuse an infinite bound
        bound = _whole_sum(heaviest, max(high, -low)) if graph.integral else float(np.sum(heaviest, dtype=np.float64))
    proof = f"the {most} heaviest arcs out of different vertices sum to {bound:g}"
    if not graph.integral or max_hops is not None or low < 0:
        return bound, proof
    limit = max((last for last in _LASTS if last < bound), default=0)
    hub = hub_bound(graph, limit) if limit else None
    if hub is not None:
        return hub, f"ways through one hub of each strongly connected component are at most {hub:g} long"
    return bound, proof


def _heaviest_out_arcs(graph: Graph, *, signed: bool) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """Return the largest absolute weight out of each vertex that has arcs."""
    starts = graph.indptr[:-1][np.diff(graph.indptr) > 0]
    if not signed:
        return np.maximum.reduceat(graph.weights, starts)  # type: ignore[no-any-return]
    weights = graph.weights.astype(np.int64) if graph.integral else graph.weights
    return np.maximum.reduceat(np.abs(weights), starts)


def _whole_sum(weights: np.ndarray[tuple[int], np.dtype[np.generic]], largest: float) -> int:
    """Return the exact sum of whole numbers of at most ``largest``, even if it is beyond int64."""
    if len(weights) * largest < 2**62:
        return int(np.sum(weights, dtype=np.int64))
    return sum(weights.tolist())
