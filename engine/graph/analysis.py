"""Computes the facts about a graph that planning needs, above all a proven bound on the distances."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.graph.bound import distance_bound
from engine.graph.partition import LONG_WORTHWHILE, TRIAL_SECONDS, saved_by_parts
from engine.graph.profile import GraphProfile
from engine.model.decimals import units_of
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Machine, Problem, Statistics, changed
from engine.planning.constants import LATTICE
from engine.planning.cost_dijkstra import lattice_passes
from storage.graph.graph import Graph

#: Larger cutoffs count as no cutoff, because no type holds such distances exactly.
LARGEST_EXACT: Final = 2.0**53
#: Three searches find the hops across a graph.  ACROSS_SECONDS: seconds that they take for each vertex and arc
#: (measured: 1e-9 to 2e-8).  ACROSS_SHARE: share of a solve's time that they may take if only the description of the
#: graph needs their result.
ACROSS_SECONDS: Final = 2e-8
ACROSS_SHARE: Final = 0.002
#: Seconds that the searches for the hops across may take even if ``ACROSS_SHARE`` of the solve's time is less.
ACROSS_LEAST: Final = 1e-4


def describe(
    graph: Graph | GraphProfile,
    *,
    rows: int | None = None,
    targets: int | None = None,
    max_hops: int | None = None,
    cutoff: float | None = None,
) -> Problem:
    """Return the ``Problem`` that a graph poses, in O(m) time plus at most four searches for the bound by hubs.

    Args:
        graph: the clean graph, or its profile, which caches what is computed here.
        rows: number of sources; None for all vertices.
        targets: number of targets; None for all vertices.
        max_hops: the largest number of arcs of a path; a limit of n - 1 or more is no limit.
        cutoff: the largest distance wanted; None for no limit.
    """
    profile = GraphProfile.of(graph)
    graph, (low, high) = profile.graph, profile.weight_range
    hops = None if max_hops is None or max_hops >= graph.n - 1 else max_hops
    # float weights of both signs are reduced by potentials, which are lengths of walks of any number of arcs; the bound
    # must hold for these lengths, too, so it ignores the limit on hops
    bound, proof = _bound(profile, None if low < 0 and not graph.integral else hops, cutoff, signed=low < 0)
    return Problem(
        n=graph.n,
        arcs=graph.arcs,
        rows=graph.n if rows is None else rows,
        directed=graph.directed,
        integral=graph.integral,
        unit=profile.unit,
        min_weight=low,
        max_weight=high,
        smallest_weight=_smallest(graph, low),
        bound=bound,
        bound_proof=proof,
        max_hops=hops,
        targets=targets,
        cutoff=cutoff,
        decimal=not graph.integral and low >= 0 and units_of(profile.arcs) is not None,
    )


def statistics(profile: GraphProfile, problem: Problem, seconds: float = math.inf) -> Statistics:
    """Return statistics of the shape of a graph, with the parts from ``problem``, in O(m) time.

    Args:
        profile: the graph.
        problem: the facts about the graph.
        seconds: the seconds of the solve.  If the hops across are not known, they are searched only if that takes at
            most ``ACROSS_SHARE`` of this time.
    """
    graph = profile.graph
    degrees = graph.indptr[1:] - graph.indptr[:-1]  # np.diff takes five times as long
    searched = "hops_across" in profile.__dict__ or ACROSS_SECONDS * (graph.n + graph.arcs) <= max(
        ACROSS_LEAST, ACROSS_SHARE * seconds
    )
    return Statistics(
        vertices=graph.n,
        arcs=graph.arcs,
        least_degree=int(np.minimum.reduce(degrees, initial=graph.arcs)),
        mean_degree=graph.arcs / max(1, graph.n),
        largest_degree=int(np.maximum.reduce(degrees, initial=0)),
        degree_deviation=_deviation(degrees),
        hops_across=profile.hops_across if searched else None,
        parts=problem.parts,
        no_parts="" if problem.parts else problem.no_parts,
    )


def _deviation(numbers: npt.NDArray[np.int64]) -> float:
    """Return ``numbers.std()``, the same to the last bit, in a fifth of the time; 0 if there are no numbers."""
    if len(numbers) == 0:
        return 0.0
    off = numbers - np.add.reduce(numbers, dtype=np.float64) / len(numbers)
    return math.sqrt(np.add.reduce(off * off) / len(numbers))


def with_shape(profile: GraphProfile, problem: Problem, plan: Plan, machine: Machine) -> Problem:
    """Find the hops across a sparse graph (about its diameter in hops) if they may decide whether it is partitioned.

    A lattice has many hops across and small separators, and Dijkstra's searches take longer on it, so parts pay.
    This is decided before searches are tried, because a partitioned solve does not use the rows that a trial finds.

    Args:
        profile: the graph.
        problem: the facts about the graph.
        plan: the plan without a partition.
        machine: rates and memory.

    Returns:
        ``problem`` with the hops across; ``problem`` itself if they were not searched for.
    """
    if plan.algorithm != "dijkstra" or plan.device != "cpu" or problem.parts is not None or problem.unit:
        return problem
    took = TRIAL_SECONDS * (problem.n + problem.arcs)
    # assume the shortest lattice with this number of vertices, because searches take longest on it
    longest = changed(problem, across=math.ceil(LATTICE * problem.n**0.5))
    if saved_by_parts(problem, plan, machine, passes=lattice_passes(longest)) < LONG_WORTHWHILE * took:
        return problem
    return changed(problem, across=profile.hops_across)


def _bound(profile: GraphProfile, hops: int | None, cutoff: float | None, *, signed: bool) -> tuple[float, str]:
    """Return a bound on the distances in the result, and its proof in words.

    If no arc is negative, lengths beyond the cutoff need not fit the type, because algorithms may replace them by
    *unreachable* at any time.
    """
    graph = profile.graph
    if cutoff is None or signed or cutoff > LARGEST_EXACT:
        return distance_bound(graph, hops, profile.arcs)
    last: float = math.floor(cutoff) if graph.integral else cutoff
    proof = "what is beyond the cutoff is unreachable"
    if graph.integral and last <= WORK_TYPES["uint16"].largest:
        return last, proof  # uint16 holds such distances, and no type is narrower
    bound, other = distance_bound(graph, hops, profile.arcs)
    return (last, proof) if last < bound else (bound, other)


def _smallest(graph: Graph, low: float) -> float:
    """Return the smallest absolute weight that is not zero; 0 if all weights are zero or all are whole numbers.

    Args:
        graph: the graph.
        low: the smallest weight of the graph.
    """
    if graph.integral or low > 0:
        return 0 if graph.integral else low
    sizes = np.abs(graph.weights)
    return float(np.min(sizes, where=sizes > 0, initial=np.inf)) if graph.arcs else 0
