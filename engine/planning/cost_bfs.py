"""Predicted costs of breadth-first searches on processors."""

from __future__ import annotations

from typing import Final

from engine.model.plan import Candidate
from engine.planning import cost_dijkstra
from engine.planning.cost import Setting, search_candidate

#: Sources that are searched side by side; at least FEW where there are more threads than blocks of ABREAST.
ABREAST: Final = 512
FEW: Final = 32
#: A step takes this share of a heap's time for an arc, for each arc or half vertex and all sources of a block together.
#: Measured on graphs of 1,000 to 60,000 vertices: 0.08 to 0.3, growing with the cache that bits need.
STEP_SHARE: Final = 0.12
#: The same share for an entry of the result.
ENTRY_SHARE: Final = 0.02
#: Bytes that a thread holds for each vertex: eleven rows of bits, and marks.
WORKSPACE: Final = 11 * 64 + 2


def estimate(setting: Setting) -> Candidate:
    """Estimate steps over the arcs for blocks of sources, as many as the graph has hops, and then each entry."""
    return search_candidate(
        setting, "bfs", seconds=search_seconds(setting), tried=setting.trials.hop_search, workspace=WORKSPACE
    )


def search_seconds(setting: Setting) -> float:
    """Return the predicted seconds of a source where all of the wanted sources are searched together."""
    problem, machine = setting.problem, setting.machine
    searches = max(1, min(problem.rows, problem.columns))
    blocks = max(-(-searches // ABREAST), min(machine.threads, searches // FEW))
    steps = (problem.hops + 2) * (problem.arcs + 2 * problem.n) * STEP_SHARE * blocks / searches
    preparing = cost_dijkstra.PREPARING * (problem.arcs + problem.n) * machine.threads / searches
    return (steps + preparing + max(problem.rows, problem.columns) * ENTRY_SHARE) / machine.search_rate
