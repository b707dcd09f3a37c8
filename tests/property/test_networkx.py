"""Compares every function of the NetworkX backend with NetworkX itself, on random graphs of all its classes."""

import math
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.interop.networkx import BACKEND, CALLS
from engine.interop.networkx_info import FUNCTIONS

CLASSES = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
LENGTHS = ("all_pairs_dijkstra_path_length", "all_pairs_bellman_ford_path_length", "floyd_warshall")
FACTS = (
    "harmonic_diameter",
    "diameter",
    "radius",
    "center",
    "periphery",
    "barycenter",
    "wiener_index",
    "average_shortest_path_length",
)
HOPS = ("all_pairs_shortest_path_length", "global_efficiency", "local_efficiency")
NETWORKX = {"backend": "networkx"}


@st.composite
def graphs(draw):
    kind = draw(st.sampled_from(CLASSES))
    n = draw(st.integers(1, 12))
    weight = draw(st.sampled_from([st.integers(0, 9), st.floats(0, 5, allow_subnormal=False), st.integers(1, 3)]))
    vertex = st.integers(0, n - 1)
    graph = kind()
    graph.add_nodes_from(f"v{i}" for i in draw(st.permutations(range(n))))
    for u, v, w in draw(st.lists(st.tuples(vertex, vertex, weight), max_size=4 * n)):
        graph.add_edge(f"v{u}", f"v{v}", **({"weight": w} if w != 3 else {}))
    if draw(st.booleans()):
        nx.add_cycle(graph, [f"v{i}" for i in range(n)], weight=draw(weight))
    return graph


def outcome(call):
    """The result, made comparable, or the kind of exception."""
    try:
        found = call()
    except nx.NetworkXException as error:
        return type(error), str(error)
    except NotImplementedError:
        return "refused"
    if hasattr(found, "__next__"):
        found = dict(found)
    return {k: dict(v) if isinstance(v, dict) else v for k, v in found.items()} if isinstance(found, dict) else found


def same(ours, theirs):
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12) or (ours != ours and theirs != theirs)
    return ours == theirs


@pytest.mark.parametrize(
    "name", [*LENGTHS, *FACTS, *HOPS, "closeness_centrality", "harmonic_centrality", "eccentricity"]
)
@settings(max_examples=15, deadline=None)
@given(graph=graphs())
def test_the_same_answers_as_networkx(name, graph):
    key = {"distance": "weight"} if "centrality" in name else {} if name in HOPS else {"weight": "weight"}
    function = getattr(nx, name)
    theirs = outcome(lambda: function(graph, **key, backend="networkx"))
    before = CALLS[name]
    ours = outcome(lambda: getattr(BACKEND, name)(graph, **key))
    if ours == "refused":
        # of graphs with directions, which NetworkX refuses itself
        assert name in ("global_efficiency", "local_efficiency")
        return
    if name in ("center", "periphery", "barycenter") and isinstance(theirs, list):
        ours, theirs = sorted(ours), sorted(theirs)
        if any(isinstance(w, float) for _, _, w in graph.edges(data="weight", default=1)):
            return  # which of equals by rounding are listed is not defined
    assert same(ours, theirs)
    assert isinstance(theirs, tuple) or CALLS[name] == before + 1


def arc_length(graph, u, v):
    data = graph.get_edge_data(u, v)
    return min(d.get("weight", 1) for d in (data.values() if graph.is_multigraph() else [data]))


@settings(max_examples=20, deadline=None)
@given(graph=graphs())
def test_paths_have_the_lengths(graph):
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, backend="networkx"))
    for name in ("all_pairs_dijkstra_path", "all_pairs_bellman_ford_path", "johnson"):
        for source, paths in dict(getattr(BACKEND, name)(graph)).items():
            assert paths.keys() == lengths[source].keys()
            for target, path in paths.items():
                assert (path[0], path[-1]) == (source, target)
                steps = (arc_length(graph, u, v) for u, v in pairwise(path))
                assert math.isclose(sum(steps), lengths[source][target], rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(
    "name", ["all_pairs_dijkstra", "all_pairs_dijkstra_path", "all_pairs_dijkstra_path_length",
             "all_pairs_shortest_path", "all_pairs_shortest_path_length"]
)  # fmt: skip
@settings(max_examples=15, deadline=None)
@given(graph=graphs(), cutoff=st.one_of(st.integers(0, 9), st.sampled_from([math.inf, 2.5, 0.0])))
def test_what_is_beyond_a_cutoff_is_left_out(name, graph, cutoff):
    if name.startswith("all_pairs_shortest") and cutoff == 2.5:  # NetworkX goes on to three arcs
        with pytest.raises(NotImplementedError):
            getattr(BACKEND, name)(graph, cutoff=cutoff)
        return
    ours, theirs = (dict(getattr(of, name)(graph, cutoff=cutoff, **by)) for of, by in ((BACKEND, {}), (nx, NETWORKX)))
    assert ours.keys() == theirs.keys()
    for source, near in theirs.items():
        if name == "all_pairs_dijkstra":
            assert same(ours[source][0], near[0])
            assert ours[source][1].keys() == near[1].keys()
        else:
            assert same(ours[source], near) if name.endswith("length") else ours[source].keys() == near.keys()


@pytest.mark.parametrize("cutoff", [-1, -math.inf, math.nan])
def test_cutoffs_that_are_no_distances_are_left_to_networkx(cutoff):
    graph = nx.path_graph(3)
    for name in ("all_pairs_dijkstra", "all_pairs_shortest_path_length", "single_source_dijkstra"):
        with pytest.raises(NotImplementedError):
            getattr(BACKEND, name)(graph, *([0] if name.startswith("single") else []), cutoff=cutoff)


def test_negative_arcs():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 2), ("b", "c", -1), ("a", "c", 3)])
    assert dict(BACKEND.all_pairs_bellman_ford_path_length(graph))["a"] == {"a": 0, "b": 2, "c": 1}
    assert BACKEND.johnson(graph)["a"]["c"] == ["a", "b", "c"]
    with pytest.raises(NotImplementedError):
        BACKEND.all_pairs_dijkstra_path_length(graph)
    graph.add_edge("c", "a", weight=-5)
    with pytest.raises(nx.NetworkXUnbounded):
        dict(BACKEND.all_pairs_bellman_ford_path_length(graph))
    undirected = nx.Graph()
    undirected.add_weighted_edges_from([(0, 1, -1), (1, 2, 2)])
    for name in ("floyd_warshall", "floyd_warshall_numpy", "floyd_warshall_predecessor_and_distance"):
        for bad in (graph, undirected):
            with pytest.raises(nx.NetworkXUnbounded):
                getattr(BACKEND, name)(bad)
    for method in ("floyd-warshall", "floyd-warshall-numpy"):
        with pytest.raises(nx.NetworkXUnbounded):
            BACKEND.average_shortest_path_length(graph, "weight", method)
    assert nx.floyd_warshall_numpy(graph, backend="networkx").diagonal().max() < 0  # as the docs say


@pytest.mark.parametrize("weight", [5e-324, 1e-310, 2.3e-308, 1e-300])
@pytest.mark.parametrize("name", ["harmonic_diameter", "harmonic_centrality", "average_shortest_path_length"])
def test_tiny_lengths(name, weight):
    graph = nx.path_graph(5)
    nx.set_edge_attributes(graph, weight, "weight")
    key = {"distance" if "centrality" in name else "weight": "weight"}
    assert same(getattr(BACKEND, name)(graph, **key), getattr(nx, name)(graph, **key, **NETWORKX))


@pytest.mark.parametrize("weight", [math.inf, math.nan, "3", None, 2**60, object()])
def test_strange_weights_are_left_to_networkx(weight):
    graph = nx.Graph()
    graph.add_edge(0, 1, weight=weight)
    with pytest.raises(NotImplementedError):
        BACKEND.all_pairs_dijkstra_path_length(graph)


@pytest.mark.parametrize("value", [0, 0.0, 1, "x", True])
def test_every_argument_that_is_left_to_networkx_is_noticed(value):
    """0 may be a vertex, or the name of an attribute."""
    for name, left in FUNCTIONS.items():
        for key in left.split(", ") if left and left != "a single pair" else ():
            assert BACKEND.can_run(name, (nx.path_graph(3),), {key: value}) == f"{key} is left to NetworkX"
            for nothing in (None, False):
                assert BACKEND.can_run(name, (nx.path_graph(3),), {key: nothing}) is True


def test_what_is_left_to_networkx_is_said():
    graph = nx.path_graph(3)
    for name, options in (
        ("diameter", {"e": {0: 2}}), ("diameter", {"usebounds": True}), ("barycenter", {"attr": "x"}),
        ("closeness_centrality", {"u": 1}), ("harmonic_centrality", {"nbunch": [1]}),
        ("all_pairs_dijkstra", {"weight": lambda u, v, d: 1}),
    ):  # fmt: skip
        assert isinstance(BACKEND.can_run(name, (graph,), options), str)
    assert isinstance(BACKEND.can_run("diameter", (nx.Graph(),), {}), str)
    for name in ("shortest_path", "shortest_path_length"):
        assert isinstance(BACKEND.can_run(name, (graph, 0, 2), {}), str)
        assert BACKEND.can_run(name, (graph, 0), {}) is True
    ends = {"single_source": (0,), "single_target": (0,), "multi_source": ({0},)}
    ends["betweenness_centrality"] = ([0], [2])
    for name in FUNCTIONS:
        key = name.removesuffix("_subset") if name.endswith("_subset") else "_".join(name.split("_")[:2])
        assert BACKEND.can_run(name, (graph, *ends.get(key, ())), {}) is True
