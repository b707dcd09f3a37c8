"""The bound that lets a narrow type be used must be true and as tight as promised."""

import numpy as np
import pytest

from engine.graph.analysis import describe, distance_bound, statistics
from engine.graph.profile import GraphProfile
from storage.graph.graph import Graph, build_graph


def graph(arcs: list[tuple[int, int, float]], n: int, *, directed: bool = True) -> Graph:
    tails, heads, weights = (np.array(c) for c in zip(*arcs, strict=True))
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def test_a_path_is_bounded_by_the_heaviest_arc_out_of_each_vertex() -> None:
    bound, proof = distance_bound(graph([(0, 1, 5), (1, 2, 7), (1, 0, 2)], 3), None)
    assert bound == 12
    assert "2 heaviest" in proof


def test_a_hop_limit_tightens_the_bound() -> None:
    assert distance_bound(graph([(0, 1, 5), (1, 2, 7), (2, 0, 4)], 3), 1)[0] == 7


def test_the_hub_bound_is_used_where_it_is_narrower() -> None:
    """A star with one long way round: the arcs alone allow 10^7, the hub proves 2,000."""
    arcs = [(0, v, 1000) for v in range(1, 50)] + [(v, 0, 1000) for v in range(1, 50)]
    arcs += [(v, v + 1, 10**6) for v in range(1, 49)]
    bound, proof = distance_bound(graph(arcs, 50), None)
    assert bound == 2000
    assert "hub" in proof


def test_the_hub_bound_covers_every_component_of_an_undirected_graph() -> None:
    arcs = [(0, v, 10**3) for v in range(1, 20)] + [(20, v, 3 * 10**3) for v in range(21, 40)]
    assert distance_bound(graph(arcs, 41, directed=False), None)[0] == 2 * 3 * 10**3


def test_no_hub_bound_where_some_component_is_not_strongly_connected() -> None:
    arcs = [(v, v + 1, 10**6) for v in range(9)]
    assert distance_bound(graph(arcs, 10), None)[0] == 9 * 10**6


def test_sums_past_int64_do_not_wrap() -> None:
    arcs = [(v, v + 1, 2**52) for v in range(4000)]
    assert distance_bound(graph(arcs, 4001), None)[0] == 4000 * 2**52


@pytest.mark.parametrize("hops", [9, 10, 100])
def test_a_limit_that_limits_nothing_is_dropped(hops: int) -> None:
    problem = describe(graph([(v, v + 1, 1) for v in range(9)], 10), max_hops=hops)
    assert problem.max_hops is None
    assert problem.unit


def test_empty_graphs() -> None:
    empty = np.array([], np.int64)
    problem = describe(build_graph(empty, empty, None, n=3, directed=True)[0])
    assert (problem.bound, problem.min_weight, problem.unit, problem.rows) == (0, 0, False, 3)


def test_statistics_tell_spread_and_length() -> None:
    """A path of eight arcs with a star of five at its fourth vertex: one search does not span it."""
    path = [(v, v + 1, 7) for v in range(8)] + [(3, v, 1) for v in range(9, 14)]
    made = graph(path, 14, directed=False)
    facts = statistics(GraphProfile(made), describe(made))
    assert (facts.vertices, facts.arcs, facts.least_degree, facts.largest_degree) == (14, 26, 1, 7)
    assert facts.mean_degree == pytest.approx(26 / 14)
    assert facts.degree_deviation == pytest.approx(np.std([1, 2, 2, 7, 2, 2, 2, 2, 1, *[1] * 5]))
    assert facts.hops_across == 8
    assert facts.parts is None
    assert facts.no_parts


def test_arcs_across_are_told_where_they_are_known_or_take_little_of_the_solve() -> None:
    made = graph([(v, v + 1, 7) for v in range(4_000)], 4_001, directed=False)
    profile, problem = GraphProfile(made), describe(made)
    assert statistics(profile, problem, 1e-6).hops_across is None
    assert statistics(profile, problem, 1.0).hops_across == 4_000
    assert statistics(profile, problem, 1e-6).hops_across == 4_000


def test_statistics_of_a_graph_without_arcs() -> None:
    made = build_graph(np.array([], int), np.array([], int), np.array([]), n=3, directed=True)[0]
    facts = statistics(GraphProfile(made), describe(made))
    assert (facts.least_degree, facts.largest_degree, facts.hops_across, facts.mean_degree) == (0, 0, 0, 0)
