"""What searches from single sources on processors cost."""

from __future__ import annotations

import math
from typing import Final

from engine.model.plan import Candidate
from engine.planning.cost import Setting, search_candidate

#: Fewer searches than this are made one by one with a heap, more of them side by side.
FEW: Final = 12
#: Bytes of the labels that are relaxed side by side.
SIDE_BY_SIDE: Final = 256
#: How often the arcs are gone through side by side in the time in which a heap scans them once: vectors are as many
#: times faster, but arcs are relaxed again and again.  Measured on graphs of 500 to 5,000 vertices: 0.2 to 1.
SHARE: Final = 0.37
#: Arcs that bringing the graph into the form of the searches is worth, for each arc and vertex.
PREPARING: Final = 6


def estimate(setting: Setting) -> Candidate:
    """One search a source, m + n log n each; many of them side by side where there are many."""
    seconds, tried = abreast_seconds(setting), setting.machine.search_seconds
    return search_candidate(setting, "dijkstra", seconds=seconds, tried=tried)


def search_seconds(setting: Setting) -> float:
    """Seconds a source, one by one, where none was tried on the graph."""
    problem = setting.problem
    return (problem.arcs + problem.n * math.log2(problem.n + 2) / 4) / setting.machine.search_rate


def abreast_seconds(setting: Setting) -> float:
    """Seconds a source, all that is asked for being searched, where none was tried on the graph."""
    problem, machine = setting.problem, setting.machine
    singly, searches = search_seconds(setting), min(problem.rows, problem.columns)
    if searches < FEW:
        return singly
    exact = problem.decimal and setting.kind.name == "float32" and problem.cutoff is None
    lanes = SIDE_BY_SIDE // (setting.kind.itemsize if setting.kind.integer or exact else 8)
    blocks = -(-searches // lanes) / searches
    preparing = PREPARING * (problem.arcs + problem.n) * machine.threads / searches
    together = ((problem.arcs + 4 * problem.n) * blocks / SHARE + preparing) / machine.search_rate
    return min(singly, together)
