"""Predicted costs of Johnson's algorithm on processors."""

from __future__ import annotations

from typing import Final

from engine.model.plan import Candidate, Phase
from engine.planning import cost_dijkstra
from engine.planning.cost import Setting, search_candidate

#: Finding potentials takes about this number of passes over the arcs.
PASSES: Final = 30


def estimate(setting: Setting) -> Candidate:
    """Estimate potentials by Bellman-Ford and one search a source over reduced weights."""
    potentials = Phase("potentials", PASSES * setting.problem.arcs / setting.machine.search_rate)
    seconds, tried = cost_dijkstra.abreast_seconds(setting), setting.trials.search
    return search_candidate(setting, "johnson", seconds=seconds, tried=tried, before=(potentials,))
