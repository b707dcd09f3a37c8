"""Predicted costs of Johnson's algorithm on processors."""

from __future__ import annotations

from engine.model.plan import Candidate, Phase
from engine.planning import cost_dijkstra
from engine.planning.constants import POTENTIAL_PASSES
from engine.planning.cost import Setting, search_candidate


def estimate(setting: Setting) -> Candidate:
    """Estimate potentials by Bellman-Ford and one search a source over reduced weights."""
    potentials = Phase("potentials", POTENTIAL_PASSES * setting.problem.arcs / setting.machine.search_rate)
    seconds, tried = cost_dijkstra.abreast_seconds(setting), setting.trials.search
    return search_candidate(setting, "johnson", seconds=seconds, tried=tried, before=(potentials,))
