"""What breadth-first searches on processors cost."""

from __future__ import annotations

from typing import Final

from engine.model.plan import Candidate
from engine.planning import cost_dijkstra
from engine.planning.cost import Setting, search_candidate

#: Sources that are searched side by side, and how few may be where there are more threads than blocks.
ABREAST: Final = 512
FEW: Final = 32
#: Of the time in which a heap scans an arc: what a step takes for an arc, or half a vertex, for all sources of a block
#: together.  Measured on graphs of 1,000 to 60,000 vertices: 0.08 to 0.3, growing with the cache that bits need.
STEP_SHARE: Final = 0.12
#: The same for an entry of the result.
ENTRY_SHARE: Final = 0.02
#: Bytes of a thread for each vertex: eleven rows of bits, and marks.
WORKSPACE: Final = 11 * 64 + 2


def estimate(setting: Setting) -> Candidate:
    """Steps over arcs for all sources together, as many as the graph is long; then every entry by itself."""
    return search_candidate(
        setting, "bfs", seconds=search_seconds(setting), tried=setting.machine.hop_search_seconds, workspace=WORKSPACE
    )


def search_seconds(setting: Setting) -> float:
    """Seconds a source, all that is asked for being searched, where none was tried on the graph."""
    problem, machine = setting.problem, setting.machine
    searches = max(1, min(problem.rows, problem.columns))
    blocks = max(-(-searches // ABREAST), min(machine.threads, searches // FEW))
    steps = (problem.hops + 2) * (problem.arcs + 2 * problem.n) * STEP_SHARE * blocks / searches
    preparing = cost_dijkstra.PREPARING * (problem.arcs + problem.n) * machine.threads / searches
    return (steps + preparing + max(problem.rows, problem.columns) * ENTRY_SHARE) / machine.search_rate
