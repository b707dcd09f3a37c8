"""Predicted costs of searches from single sources on processors."""

from __future__ import annotations

import math
from typing import Final

from engine.model.plan import Candidate
from engine.planning.cost import Setting, search_candidate

#: Fewer searches than this are made one by one with a heap; more are made side by side.
FEW: Final = 12
#: Bytes of the tentative distances that are relaxed side by side.
SIDE_BY_SIDE: Final = 256
#: Number of blocks of sources that are searched side by side in the time in which a heap scans the arcs for one source:
#: vectors are faster, but relax arcs again and again.  Measured on graphs of 500 to 5,000 vertices: 0.2 to 1.
SHARE: Final = 0.37
#: Copying the graph into the form of the searches takes the time of this number of arc scans for each arc and vertex.
PREPARING: Final = 6


def estimate(setting: Setting) -> Candidate:
    """Estimate one search a source, m + n log n each; many searches are made side by side."""
    seconds, tried = abreast_seconds(setting), setting.machine.search_seconds
    return search_candidate(setting, "dijkstra", seconds=seconds, tried=tried)


def search_seconds(setting: Setting) -> float:
    """Return the predicted seconds of a source where sources are searched one by one."""
    problem = setting.problem
    return (problem.arcs + problem.n * math.log2(problem.n + 2) / 4) / setting.machine.search_rate


def abreast_seconds(setting: Setting) -> float:
    """Return the predicted seconds of a source where all of the wanted sources are searched."""
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
