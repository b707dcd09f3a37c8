"""What Johnson's algorithm costs on processors."""

from __future__ import annotations

from typing import Final

from engine.model.plan import Candidate, Phase
from engine.planning import cost_dijkstra
from engine.planning.cost import Setting, search_candidate

#: Passes over the arcs that potentials take, more or less.
PASSES: Final = 30


def estimate(setting: Setting) -> Candidate:
    """Potentials by Bellman-Ford, then one search a source over reduced weights."""
    potentials = Phase("potentials", PASSES * setting.problem.arcs / setting.machine.search_rate)
    seconds, tried = cost_dijkstra.abreast_seconds(setting), setting.machine.search_seconds
    return search_candidate(setting, "johnson", seconds=seconds, tried=tried, before=(potentials,))
