"""Predicted costs of breadth-first searches on processors."""

from __future__ import annotations

from engine.model.plan import Candidate
from engine.planning.constants import HOP_BYTES, HOP_ENTRY, HOP_SOURCES, HOP_SOURCES_LEAST, HOP_STEP
from engine.planning.cost import Setting, preparing_seconds, search_candidate


def estimate(setting: Setting) -> Candidate:
    """Estimate breadth-first searches: each block of sources takes one step over all arcs per hop, and then each entry
    is written.
    """
    return search_candidate(
        setting, "bfs", seconds=search_seconds(setting), tried=setting.trials.hop_search, workspace=HOP_BYTES
    )


def search_seconds(setting: Setting) -> float:
    """Return the predicted seconds per source if all wanted sources are searched together."""
    problem, machine = setting.problem, setting.machine
    searches = max(1, min(problem.rows, problem.columns))
    blocks = max(-(-searches // HOP_SOURCES), min(machine.threads, searches // HOP_SOURCES_LEAST))
    steps = (problem.hops + 2) * (problem.arcs + 2 * problem.n) * HOP_STEP * blocks / searches
    each = (steps + max(problem.rows, problem.columns) * HOP_ENTRY) / machine.search_rate
    return each + preparing_seconds(setting) / searches
