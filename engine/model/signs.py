"""When sums of both signs need weights that are reduced by potentials."""

from __future__ import annotations

from engine.model.dtypes import REACH, WorkType
from engine.model.problem import Problem


def needs_potentials(kind: WorkType, *, negative: bool, integral: bool, bound: float) -> bool:
    """Whether products relax weights reduced by potentials, not the weights themselves (decisions 006 and 088).

    With negative arcs, sums that the working type rounds would carry cycles of length zero below it, and lengths would
    run away.  Sums are exact where all walks that a product may meet are whole numbers that the type holds exactly.
    Those are at most ``REACH`` times the bound on distances: a longer one never comes back below the bound, for what
    follows it is a walk, too, and at least -bound long.

    Args:
        kind: the working type.
        negative, integral: whether some arc is negative, whether all weights are whole numbers.
        bound: proven bound on the absolute value of every distance, as ``engine.graph.analysis.distance_bound`` finds
        it.
    """
    return negative and not kind.integer and not (integral and REACH * bound <= kind.exact)


def relaxes_reduced(kind: WorkType, problem: Problem) -> bool:
    """:func:`needs_potentials` for a problem that is being planned."""
    return needs_potentials(kind, negative=problem.negative, integral=problem.integral, bound=problem.bound)
