"""Compares functions of the NetworkX backend with one source, one target or several sources with NetworkX itself."""

import math
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.interop.networkx import BACKEND, CALLS
from tests.property.test_networkx import arc_length, graphs, outcome, same

#: arguments after the graph for each function, from two vertices of the graph and a cutoff
CALLS_OF = {
    "single_source_shortest_path_length": lambda u, v, c: [(u,), (u, c), ("no vertex",)],
    "single_target_shortest_path_length": lambda u, v, c: [(u,), (u, c), ("no vertex",)],
    "single_source_dijkstra_path_length": lambda u, v, c: [(u,), (u, c), ("no vertex",)],
    "single_source_bellman_ford_path_length": lambda u, v, c: [(u,), ("no vertex",)],
    "multi_source_dijkstra_path_length": lambda u, v, c: [({u, v},), ({u, v}, c), (set(),), ({u, "no vertex"},)],
    "shortest_path_length": lambda u, v, c: [
        (), (u,), (None, v), (u, None, "weight"), (None, v, "weight", "bellman-ford"), (u, None, None, "no method"),
        (None, "no vertex"), ("no vertex", None, "weight"), ("no vertex", None, "weight", "bellman-ford"),
    ],
    "single_source_shortest_path": lambda u, v, c: [(u,), (u, c), ("no vertex",)],
    "single_target_shortest_path": lambda u, v, c: [(u,), (u, c), ("no vertex",)],
    "single_source_dijkstra_path": lambda u, v, c: [(u,), (u, c)],
    "single_source_bellman_ford_path": lambda u, v, c: [(u,), ("no vertex",)],
    "multi_source_dijkstra_path": lambda u, v, c: [({u, v},), ({u, v}, c), (set(),)],
    "single_source_dijkstra": lambda u, v, c: [(u,), (u, v), (u, v, c)],
    "single_source_bellman_ford": lambda u, v, c: [(u,), (u, v), (u, u), ("no vertex", "no vertex")],
    "multi_source_dijkstra": lambda u, v, c: [({u, v},), ({u}, v), ({u}, v, c)],
    "shortest_path": lambda u, v, c: [(), (u,), (None, v), (u, None, "weight"), (None, v, "weight", "bellman-ford")],
}  # fmt: skip
HOPS = ("shortest_path_length", "shortest_path")
CUTOFFS = st.one_of(st.integers(0, 9), st.sampled_from([math.inf, np.float64("inf"), 2.5, 0.0, True, -1, -math.inf]))


def measured(graph, found, *, hops):
    """``found`` with every path replaced by its ends and its length, since equally short paths are equally right."""
    if isinstance(found, list) and found and all(node in graph for node in found):
        steps = (1 if hops else arc_length(graph, u, v) for u, v in pairwise(found))
        return {"first": found[0], "last": found[-1], "length": math.fsum(steps)}
    if isinstance(found, dict):
        return {key: measured(graph, value, hops=hops) for key, value in found.items()}
    if isinstance(found, tuple) and not isinstance(found[0], type):
        return {i: measured(graph, value, hops=hops) for i, value in enumerate(found)}
    return found


def without_roots(found):
    """Which of several equally near sources a path begins at is not defined."""
    return {k: without_roots(v) for k, v in found.items() if k != "first"} if isinstance(found, dict) else found


def outcome_or_value_error(call):
    try:
        return outcome(call)
    except ValueError as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CALLS_OF)
@settings(max_examples=12, deadline=None)
@given(graph=graphs(), data=st.data())
def test_the_same_answers_as_networkx(name, graph, data):
    vertex = st.sampled_from(sorted(graph))
    cutoff = data.draw(CUTOFFS)
    for arguments in CALLS_OF[name](data.draw(vertex), data.draw(vertex), cutoff):
        theirs = outcome_or_value_error(lambda a=arguments: getattr(nx, name)(graph, *a, backend="networkx"))
        before = CALLS[name]
        ours = outcome_or_value_error(lambda a=arguments: getattr(BACKEND, name)(graph, *a))
        if ours == "refused":
            assert not cutoff >= 0 or cutoff == 2.5  # NetworkX goes on to three arcs
            assert cutoff in arguments
            continue
        hops = name.endswith("shortest_path") and (name not in HOPS or "weight" not in arguments)
        ours, theirs = (measured(graph, found, hops=hops) for found in (ours, theirs))
        if name.startswith("multi_source"):
            ours, theirs = without_roots(ours), without_roots(theirs)
        assert same(ours, theirs), (arguments, ours, theirs)
        assert isinstance(theirs, tuple) or CALLS[name] > before


def test_negative_arcs_and_cycles_that_are_out_of_reach():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 2), ("b", "c", -1), ("a", "c", 3), ("x", "y", -1), ("y", "x", 0)])
    for g in (graph, nx.relabel_nodes(graph, {"y": 7})):
        lengths, paths = BACKEND.single_source_bellman_ford(g, "a")
        assert lengths == {"a": 0, "b": 2, "c": 1}
        assert paths["c"] == ["a", "b", "c"]
        assert BACKEND.shortest_path_length(g, None, "c", "weight", "bellman-ford") == {"c": 0, "b": -1, "a": 1}
        with pytest.raises(nx.NetworkXUnbounded):
            BACKEND.single_source_bellman_ford(g, "x")
        with pytest.raises(NotImplementedError):
            BACKEND.single_source_dijkstra(g, "a")


def test_local_efficiency_of_a_graph_larger_than_one_union():
    graph = nx.barabasi_albert_graph(700, 4, seed=3)
    graph.add_edge(5, 5)
    assert math.isclose(BACKEND.local_efficiency(graph), nx.local_efficiency(graph, backend="networkx"), rel_tol=1e-12)


def test_lengths_that_floats_do_not_hold_are_left_to_networkx():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 2**53), ("b", "c", 1)])
    large = nx.DiGraph()
    large.add_weighted_edges_from([(0, 1, 1e308), (1, 2, 1e308)])
    for g, source in ((graph, "a"), (large, 0)):
        with pytest.raises(NotImplementedError):
            BACKEND.single_source_dijkstra(g, source)
