"""What is checked before anything is searched: graphs, vertices and limits."""

from typing import Any

import pytest

from engine.api.betweenness.assignment import Assigning
from engine.api.betweenness.centrality import Centrality
from engine.api.bulk import make_bulk_plan
from engine.api.measuring import measure
from engine.api.near import near_pairs
from engine.api.planning import make_plan
from engine.api.prepared_planning import plan_prepared
from engine.graph.selection import check_lengths
from engine.model.problem import Options
from storage.errors import InvalidRequest
from storage.graph.graph import build_graph


@pytest.mark.parametrize("ask", ["plan", "measure", "near", "betweenness", "flows", "prepare"])
def test_distances_of_a_graph_read_for_widest_paths_are_refused(ask: str) -> None:
    graph, _ = build_graph([0, 1, 0, 0], [1, 0, 0, 1], [3, 2, -1, 9], directed=True, parallel="greatest")
    asked: dict[str, Any] = {
        "plan": lambda: make_plan(graph, Options()),
        "measure": lambda: measure(graph, Options()),
        "near": lambda: near_pairs(graph, Options(cutoff=9)),
        "betweenness": lambda: Centrality(graph),
        "flows": lambda: Assigning(graph, None),
        "prepare": lambda: plan_prepared(graph),
    }
    with pytest.raises(InvalidRequest, match="need the least of parallel arcs") as refused:
        asked[ask]()
    assert refused.value.field == "parallel"
    unweighted, _ = build_graph([0, 1], [1, 0], None, directed=True, parallel="greatest")
    check_lengths(unweighted)
    many = make_bulk_plan({0: graph, 1: unweighted}, Options(), stores=False)
    assert list(many.refused) == [0]
