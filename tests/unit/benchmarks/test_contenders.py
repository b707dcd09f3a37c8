"""What a contender tells of planning: the seconds of preparing that the solve does not repeat."""

from __future__ import annotations

import pytest

from benchmarks import cores, graphs
from benchmarks.contenders import Engine, preparing_counted
from engine.devices.cpu.arcs import prepare
from engine.graph.profile import GraphProfile
from engine.graph.transpose import incoming
from engine.model.backend import Arcs, heaviest_out


def test_only_the_first_preparing_of_arcs_is_counted() -> None:
    arcs = GraphProfile(cores.random(200)).arcs
    plain = Arcs.form
    with preparing_counted() as seconds:
        arcs.form(heaviest_out)  # no search uses it
        prepare(arcs)
        prepare(arcs)
        incoming(arcs)  # was made by the preparing
    assert len(seconds) == 1
    assert seconds[0] > 0
    assert Arcs.form is plain


@pytest.mark.parametrize("graph", [cores.random(300), graphs.hops(graphs.grid(100))])
def test_what_planning_prepared_is_told(graph: object) -> None:
    told = Engine(1).measure(graph)
    assert 0 <= told["prepared"] <= told["planning"]
