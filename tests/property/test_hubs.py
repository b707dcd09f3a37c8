"""Tests that the bound of distances by hubs holds for digraphs of every shape, and that types can hold the distances.

In particular, no distance equals the value for *unreachable*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

import apsp
from engine.graph._walks import count_levels, strong_components
from engine.graph.analysis import describe
from engine.graph.bound import distance_bound
from engine.graph.hubs import hub_bound
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.planning.planner import ESTIMATES
from storage.errors import InvalidRequest
from storage.graph.graph import Graph, build_graph

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@dataclass(frozen=True)
class Pieces:
    """A digraph of cycles with chords, single vertices among them, that arcs join in ascending order."""

    sizes: list[int]
    seed: int
    top: int
    density: float
    directed: bool

    def graph(self) -> Graph:
        rng = np.random.default_rng(self.seed)
        ends = np.cumsum(self.sizes)
        n = int(ends[-1])
        arcs = []
        for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            arcs += [(v, v + 1 if v + 1 < stop else start) for v in range(start, stop)]  # of one vertex a self loop
        count = int(self.density * n)
        tails, heads = rng.integers(0, n, count), rng.integers(0, n, count)
        piece = np.searchsorted(ends, np.arange(n), "right")
        upward = piece[tails] <= piece[heads]
        arcs += list(zip(np.where(upward, tails, heads).tolist(), np.where(upward, heads, tails).tolist(), strict=True))
        places = rng.permutation(n)
        tails, heads = places[np.array(arcs)].T
        weights = rng.integers(0, self.top + 1, len(arcs))
        return build_graph(tails, heads, weights, n=n, directed=self.directed)[0]


pieces = st.builds(
    Pieces,
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    seed=st.integers(0, 2**32 - 1),
    top=st.sampled_from([0, 1, 60, 4_000, 40_000, 2**29, 2**40, 2**52]),
    density=st.sampled_from([0.0, 0.3, 1.0, 3.0, 12.0]),
    directed=st.sampled_from([True, True, False]),
)


def distances(graph: Graph) -> np.ndarray:
    """SciPy's distances; sums of whole numbers up to 2^53 are exact in them."""
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return dijkstra(arcs) if graph.arcs else np.where(np.eye(graph.n, dtype=bool), 0.0, np.inf)


@settings(max_examples=300, **QUIET)
@given(pieces)
def test_no_distance_is_above_the_bound(asked: Pieces) -> None:
    graph = asked.graph()
    found = distances(graph)
    largest = found[np.isfinite(found)].max()
    if graph.arcs:
        bound = hub_bound(graph, 2**53)
        assert bound is None or largest <= bound <= 2**53
    assert largest <= distance_bound(graph, None)[0] * (1 + 1e-12)  # SciPy rounds sums beyond 2^53


@settings(max_examples=200, **QUIET)
@given(pieces)
def test_a_limit_changes_no_bound(asked: Pieces) -> None:
    """It only says whether there is one."""
    graph = asked.graph()
    bound = hub_bound(graph, 2**53) if graph.arcs else None
    if bound is not None:
        assert hub_bound(graph, bound) == bound
        tighter = hub_bound(graph, bound - 1) if bound else None
        assert tighter is None or tighter < bound


@settings(max_examples=200, **QUIET)
@given(pieces)
def test_components_are_scipys_in_an_order_that_no_arc_ascends(asked: Pieces) -> None:
    graph = asked.graph()
    component, order = strong_components(graph.indptr, graph.heads)
    arcs = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    count, labels = connected_components(arcs, directed=True, connection="strong")
    assert component.max() + 1 == count == len(set(zip(component.tolist(), labels.tolist(), strict=True)))
    assert sorted(order.tolist()) == list(range(graph.n))
    assert (np.diff(component[order]) >= 0).all()
    assert (component[graph.heads] <= np.repeat(component, np.diff(graph.indptr))).all()


@settings(max_examples=100, **QUIET)
@given(pieces, st.data())
def test_levels_are_the_hops_to_a_farthest_vertex(asked: Pieces, data: st.DataObject) -> None:
    graph = asked.graph()
    start = data.draw(st.integers(0, graph.n - 1))
    arcs = csr_array((np.ones(graph.arcs), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    hops = dijkstra(arcs, indices=start)
    levels, farthest = count_levels(graph.indptr, graph.heads, start)
    assert levels == hops[farthest] == hops[np.isfinite(hops)].max()


def wholly_solved(graph: Graph, options: Options) -> tuple[np.ndarray, str]:
    plan = apsp.plan(graph, options)
    from engine.api.solve import solve
    from engine.model.rows import ArraySink

    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, sink)
    return sink.array, plan.dtype


@settings(max_examples=120, **QUIET)
@given(pieces, st.sampled_from(["auto", *sorted(ESTIMATES)]), st.data())
@example(Pieces([1] * 9, 1, 4_000, 3.0, directed=True), "recursive-floyd-warshall", None)
def test_unreachable_stands_where_there_is_no_path_and_nowhere_else(
    asked: Pieces, algorithm: str, data: st.DataObject | None
) -> None:
    """Every algorithm, in the type that the bound proves: no entry is the sentinel wrongly, none is above it."""
    graph = asked.graph()
    options = Options(algorithm=algorithm)
    if data is not None and data.draw(st.booleans()):
        some = data.draw(st.lists(st.integers(0, graph.n - 1), min_size=1, unique=True))
        other = data.draw(st.lists(st.integers(0, graph.n - 1), min_size=1, unique=True))
        options = Options(algorithm=algorithm, sources=tuple(some), targets=tuple(other))
    try:
        found, dtype = wholly_solved(graph, options)
    except InvalidRequest:
        return  # this algorithm is not for this graph, or no type holds its sums
    wanted = distances(graph)
    if options.sources is not None and options.targets is not None:
        wanted = wanted[np.ix_(options.sources, options.targets)]
    kind = WORK_TYPES[dtype]
    assert (found <= kind.sentinel()).all()
    np.testing.assert_array_equal(found == kind.sentinel(), np.isinf(wanted))
    np.testing.assert_array_equal(found[np.isfinite(wanted)], wanted[np.isfinite(wanted)])


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("name", ["uint16", "int32"])
def test_the_largest_distance_of_a_type_is_kept_and_one_more_takes_the_next(name: str, more: int) -> None:
    """Two cycles with a bridge between them; the heavy chords make the bound by arcs useless."""
    last = int(WORK_TYPES[name].largest) + more
    whole = last // 5
    arcs = [(0, 1, whole), (1, 0, whole), (1, 2, last - 4 * whole), (2, 3, whole), (3, 2, whole), (0, 2, 2**50)]
    tails, heads, weights = np.array([*arcs, (0, 3, 2**50), (1, 3, 2**50)]).T
    graph = build_graph(tails, heads, weights, n=4, directed=True)[0]
    found, dtype = wholly_solved(graph, Options())
    assert (dtype == name) == (describe(graph).bound <= WORK_TYPES[name].largest)
    assert found[0, 3] == last - 2 * whole
    assert found[3, 0] == WORK_TYPES[dtype].sentinel()


def test_negative_arcs_and_hop_limits_do_not_use_hubs() -> None:
    """A walk through a hub may have more arcs than allowed, and with negative arcs a bound from above is not enough."""
    rng = np.random.default_rng(3)
    tails, heads = np.divmod(np.arange(50 * 50), 50)
    weights = rng.integers(1, 10_000, 2_500)
    graph = build_graph(tails, heads, weights, n=50, directed=True)[0]
    assert "hub" in distance_bound(graph, None)[1]
    assert "hub" not in distance_bound(graph, 7)[1]
    signed = build_graph(tails, heads, np.where(tails < heads, -1, weights), n=50, directed=True)[0]
    assert "hub" not in distance_bound(signed, None)[1]


def test_a_digraph_with_vertices_that_nothing_reaches_fits_sixteen_bits() -> None:
    rng = np.random.default_rng(1)
    n = 3_000
    tails, heads = rng.integers(0, n, 4 * n), rng.integers(0, n, 4 * n)
    graph = build_graph(tails, heads, rng.integers(1, 1_000, 4 * n), n=n, directed=True)[0]
    assert apsp.plan(graph).dtype == "uint16"
