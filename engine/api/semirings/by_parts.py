"""Chooses how products are found: by searches, over the parts of a graph, or over the whole graph as one part.

The choice follows from counts and constants, not from measured times or threads, because products over parts may differ
from those of searches in their last digits.  So the same request gets the same numbers again.  Memory matters only
where it is too small for parts: products are searched then.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

import numpy as np

from engine.algorithms.semirings.products import without_null
from engine.algorithms.semirings.solving import PRODUCT
from engine.graph.analysis import describe, with_shape
from engine.graph.hubs import hub_bound
from engine.graph.partition import ENTRY_BYTES, with_bridges, with_parts, with_trial
from engine.graph.profile import GraphProfile
from engine.model.problem import Machine, Options, Problem, changed, with_threads
from engine.planning.planner import choose
from storage.graph.graph import Graph
from storage.semirings import DENSE, PARTS

#: Lengths of arcs are rounded up to multiples of 1 / UNITS, where an arc of weight 2 ** -x has the length x.
UNITS: Final = 2**16
#: The largest length of a path whose product parts may hold: 2 ** -1021 is twice the least normal float64, so it stays
#: normal however its factors are rounded.
LONGEST: Final = 1021 * UNITS
#: If searches are predicted to take less than this many seconds, products are found by searches: another algorithm
#: would save no noticeable time, and only searches multiply arc by arc.
SHORT: Final = 0.01
#: Names of the algorithms of distances that compute whole matrices.
_WHOLE: Final = ("recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring")


def algorithm_for(profile: GraphProfile, rows: int, machine: Machine) -> tuple[str, Problem]:
    """Return the name of the algorithm for products, and the problem with the sizes of the parts, if it has some.

    The algorithm is the one that the planner would choose for lengths of the same paths in float64 on one thread.

    Args:
        profile: the graph, in which no path passes through a terminal.
        rows: number of sources.
        machine: rates and memory.
    """
    problem = _problem(profile, rows)
    alone = changed(with_threads(machine, 1), memory=sys.maxsize, disk=None)
    limited = changed(alone, memory=machine.memory)  # the search for parts may use the memory there is
    options = Options(device="cpu", dtype="float64", threads=1)
    plan = choose(problem, alone, options)
    searches = next(candidate.seconds for candidate in plan.candidates if candidate.algorithm == "dijkstra")
    if searches < SHORT:
        return PRODUCT, problem
    tried = with_bridges(profile, problem, plan, limited, wait=True)
    if tried is problem:
        shaped = with_shape(profile, problem, plan, alone)
        plan = choose(shaped, alone, options)
        tried = with_trial(profile, shaped, plan, limited, wait=True)
    if tried.parts is not None:
        plan = choose(tried, alone, options)
    name = PARTS if plan.algorithm == PARTS else DENSE if plan.algorithm in _WHOLE else PRODUCT
    return (name, tried) if name == PRODUCT or holds_products(profile.graph) else (PRODUCT, tried)


def problem_for(profile: GraphProfile, rows: int, machine: Machine, algorithm: str) -> Problem | None:
    """Return the problem with the sizes of the parts that ``algorithm`` needs; None if it does not suit the graph.

    Args:
        profile, rows, machine: as for :func:`algorithm_for`.
        algorithm: ``PRODUCT``, ``PARTS`` or ``DENSE``.
    """
    problem = _problem(profile, rows)
    if algorithm == PRODUCT:
        return problem
    if not profile.graph.arcs or not holds_products(profile.graph):
        return None
    if algorithm == DENSE:
        return problem
    found = with_parts(profile, problem, machine.memory // ENTRY_BYTES, device=False)
    return None if found.parts is None else found


def holds_products(graph: Graph) -> bool:
    """Return whether the greatest product of every pair that has a path is proven to be at least 2 ** -1021.

    Then a product that is too small for float64 is never the greatest of its pair, and 0 always means no path.  The
    proof bounds the lengths of paths as for distances (``engine.graph.hubs``).

    Args:
        graph: weights lie in (0, 1], apart from the arcs of terminals to their own arrivals.
    """
    graph = without_null(graph)
    if not graph.arcs:
        return True
    lengths = np.ceil(np.log2(graph.weights.astype(np.float64)) * -UNITS).astype(np.int32)
    if int(lengths.max()) * (graph.n - 1) <= LONGEST:
        return True
    return hub_bound(replace(graph, weights=lengths), LONGEST) is not None


def _problem(profile: GraphProfile, rows: int) -> Problem:
    """Return the facts of the graph, as if it had weights that differ: products of ones take the same searches."""
    return changed(describe(profile, rows=rows), unit=False, integral=False, decimal=False)
