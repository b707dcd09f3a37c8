"""The algorithms by name: titles, whether they finish rows one by one, and why a problem may not suit them.

The dashboard, the command line and the API offer these algorithms.  ``engine.planning`` predicts the costs of
each algorithm, and ``engine.algorithms`` and ``engine.execution`` run it.  Tests check that they use the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the command line and the page import this module without NumPy
    from engine.model.problem import Problem


def _never(_: Problem) -> str | None:
    return None


def _negative(problem: Problem) -> str | None:
    return f"some arcs are negative (the least is {problem.min_weight:g})" if problem.negative else None


def _nothing_negative(problem: Problem) -> str | None:
    return None if problem.negative else "no arc is negative, so there is nothing to reweight"


def _no_hops(problem: Problem) -> str | None:
    from engine.model.device_layout import STEPS

    if problem.negative:
        return _negative(problem)
    if not problem.unit:
        return "the arcs do not all weigh 1"
    if problem.hops > STEPS:
        return f"some vertex lies {problem.hops} arcs away, and steps are counted up to 255"
    return None


def _no_parts(problem: Problem) -> str | None:
    return problem.no_parts if problem.parts is None else None


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    Attributes:
        name: the name in options, plans and stores.
        title: the name that people see.
        by_rows: whether it finishes one row after the other, so that finished rows need not be computed again after a
            stop.  False for algorithms that work on the whole matrix until the end.
        searches: whether its CPU version ends a search early, when all targets are found or at the cutoff.  False for
            algorithms that compute whole rows.
        unsuitable: takes a problem without a limit on hops; returns why the algorithm cannot solve it, None if it can.
    """

    name: str
    title: str
    by_rows: bool = True
    searches: bool = False
    unsuitable: Callable[[Problem], str | None] = _never


#: All algorithms, in the order in which messages and forms list them.
ALGORITHMS: Final = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("dijkstra", "Dijkstra", searches=True, unsuitable=_negative),
        Algorithm("bfs", "Breadth-first search", searches=True, unsuitable=_no_hops),
        Algorithm("johnson", "Johnson", searches=True, unsuitable=_nothing_negative),
        Algorithm("recursive-floyd-warshall", "Floyd–Warshall, recursive", by_rows=False),
        Algorithm("blocked-floyd-warshall", "Floyd–Warshall, blocked", by_rows=False),
        Algorithm("repeated-squaring", "Repeated squaring", by_rows=False),
        Algorithm("partitioned", "Partitioned", unsuitable=_no_parts),
        Algorithm("bellman-ford", "Bellman–Ford, in batches", unsuitable=_negative),
    )
}


def by_rows(name: str) -> bool:
    """Return whether an algorithm finishes one row after the other, so that a resumed solve need not repeat finished
    rows.
    """
    return name not in ALGORITHMS or ALGORITHMS[name].by_rows


def unsuitable(name: str, problem: Problem) -> str | None:
    """Return why an algorithm cannot solve ``problem`` on any machine; None if it can."""
    if problem.max_hops is not None and name != "repeated-squaring":
        return f"only repeated-squaring limits paths to {problem.max_hops} hops"
    return ALGORITHMS[name].unsuitable(problem)
