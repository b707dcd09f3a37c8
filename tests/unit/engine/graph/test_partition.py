"""Parts: every vertex in one, every path out of one through its border, and no trial where none can pay."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from benchmarks import graphs
from engine.api.solve import make_plan
from engine.graph._elimination import block_cubes
from engine.graph.analysis import describe, with_shape
from engine.graph.partition import (
    COMPILING_SECONDS,
    CPU_GRAIN,
    DEVICE_GRAIN,
    TRIAL_SECONDS,
    Grain,
    Parts,
    find_parts,
    with_bridges,
    with_parts,
    with_trial,
)
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Machine, Options, Trials
from engine.model.progress import WAITING, NotCompiledError, only_ready
from engine.planning.constants import ENTRY_SECONDS
from engine.planning.cost_dijkstra import is_lattice
from engine.planning.planner import choose
from storage.graph.graph import Graph, build_graph

FINE = Grain(width=1, entry=0.0, part=0.0, inside=0.0)
BOX = Machine(2, 2**34, 0, None, dict.fromkeys(WORK_TYPES, 4e10), 1e8, 1e9)


def two_pieces() -> Graph:
    """Two grids and some vertices without arcs."""
    one = graphs.grid(400)
    tails = np.repeat(np.arange(one.n), np.diff(one.indptr))
    both = np.concatenate((tails, tails + one.n + 7)), np.concatenate((one.heads, one.heads + one.n + 7))
    return build_graph(*both, np.ones(2 * one.arcs, int), n=2 * one.n + 20, directed=True)[0]


SAMPLES = {
    "grid": lambda: graphs.grid(900),
    "ring": lambda: graphs.ring(500),
    "random": lambda: graphs.random(150),
    "pieces": two_pieces,
    "one vertex": lambda: build_graph([], [], [], n=1, directed=True)[0],
    "no arcs": lambda: build_graph([], [], [], n=9, directed=False)[0],
}


def parts_of(graph: Graph, grain: Grain) -> Parts:
    parts = find_parts(GraphProfile(graph), grain, graph.n**2)
    assert parts is not None
    return parts


@pytest.mark.parametrize("grain", [FINE, CPU_GRAIN, DEVICE_GRAIN])
@pytest.mark.parametrize("name", SAMPLES)
def test_parts_are_a_tree_and_borders_lie_above(name: str, grain: Grain) -> None:
    graph = SAMPLES[name]()
    parts = parts_of(graph, grain)
    assert np.array_equal(np.sort(parts.position), np.arange(graph.n))
    assert parts.starts[0] == 0
    assert parts.starts[-1] == graph.n
    owner = parts.owner()
    for i in range(parts.count):
        border, parent = parts.border(i), parts.parents[i]
        assert (np.diff(border) > 0).all()
        if len(border) == 0:
            assert parent == -1
            continue
        assert parent == owner[border[0]] > i
        above = set()
        while parent >= 0:
            above.add(parent)
            parent = parts.parents[parent]
        assert set(owner[border]) <= above


def test_first_parts_below_each_part() -> None:
    none = np.zeros(0, np.int64)
    for parents, lows in (([2, 2, 4, 4, -1, -1], [0, 1, 0, 3, 0, 5]), ([], [])):
        assert Parts(none, none, np.array(parents, np.int32), none, none.astype(np.int32)).lows().tolist() == lows


@pytest.mark.parametrize("grain", [FINE, CPU_GRAIN])
@pytest.mark.parametrize("name", SAMPLES)
def test_an_arc_out_of_a_part_and_all_below_it_ends_in_its_border(name: str, grain: Grain) -> None:
    graph = SAMPLES[name]()
    parts = parts_of(graph, grain)
    tails = parts.position[np.repeat(np.arange(graph.n), np.diff(graph.indptr))]
    heads = parts.position[graph.heads]
    owner = parts.owner()
    first = list(range(parts.count))  # the first part of each subtree, whose parts are one span
    for i in range(parts.count):
        if parts.parents[i] >= 0:
            first[parts.parents[i]] = min(first[parts.parents[i]], first[i])
    for i in range(parts.count):
        inside = (owner >= first[i]) & (owner <= i)
        leaving = inside[tails] & ~inside[heads]
        assert set(heads[leaving]) <= set(parts.border(i))
        # and everything in the border is reached from there, or it would not be needed
        arriving = ~inside[tails] & inside[heads]
        assert set(parts.border(i)) == set(heads[leaving]) | set(tails[arriving])


def test_coarser_grains_make_fewer_parts() -> None:
    graph = graphs.grid(2500)
    fine, cpu, device = (parts_of(graph, grain).count for grain in (FINE, CPU_GRAIN, DEVICE_GRAIN))
    assert fine > 4 * cpu > 4
    assert fine > 4 * device > 4


def test_facts_count_what_is_done() -> None:
    parts = parts_of(graphs.grid(900), FINE)
    facts = parts.facts(FINE, 0.5)
    assert facts.count == parts.count
    assert facts.sweep == sum(s * d for s, d in zip(parts.sizes, parts.depths, strict=True))
    assert facts.prepare == sum(int(part.sum()) for part in parts.updates())
    assert facts.seconds == 0.5


def test_borders_that_are_too_long_end_the_search() -> None:
    graph = graphs.random(400)
    profile = GraphProfile(graph)
    assert find_parts(profile, CPU_GRAIN, 500) is None
    assert find_parts(profile, CPU_GRAIN, graph.n**2) is not None
    assert find_parts(profile, CPU_GRAIN, 500) is not None  # it is known now


def test_a_trial_is_made_where_it_can_pay() -> None:
    road, tiny = graphs.road(6400), graphs.grid(16)
    for graph, pays in ((road, True), (tiny, False)):
        problem = describe(graph)
        found = with_trial(GraphProfile(graph), problem, choose(problem, BOX, Options()), BOX)
        assert (found.parts is not None) == pays
        assert pays or "a trial partition takes" in found.no_parts

    def tried(graph: Graph) -> bool:
        """Where searches take five times as long as a trial."""
        problem = describe(graph)
        fast = Trials(search=5 * TRIAL_SECONDS * (graph.n + graph.arcs) / graph.n)
        plan = choose(problem, BOX, Options(algorithm="dijkstra"), trials=fast)
        found = with_trial(GraphProfile(graph), problem, plan, BOX)
        return "a trial partition takes" not in found.no_parts or found.parts is not None

    assert tried(road)
    assert not tried(graphs.random(1600))
    problem = describe(road, max_hops=4)
    assert with_trial(GraphProfile(road), problem, choose(problem, BOX, Options()), BOX) is problem


def test_large_separators_are_not_followed_to_the_end() -> None:
    graph = graphs.random(3000)
    problem = describe(graph)
    quick = replace(BOX, relax_rate=dict.fromkeys(WORK_TYPES, 1e9))
    plan = choose(problem, quick, Options(algorithm="dijkstra"), trials=Trials(search=2e-4))
    found = with_trial(GraphProfile(graph), problem, plan, quick)
    assert found.parts is None
    assert "the separators are large" in found.no_parts
    assert with_parts(GraphProfile(graph), problem, graph.n**2).parts is not None


def joined(sizes: list[int], path: int = 0, *, directed: bool = False) -> Graph:
    """Cliques in a row, each hanging on the one before by a bridge, and a path at the end."""
    arcs, first = [], 0
    for size in sizes:
        arcs.append(np.argwhere(np.triu(np.ones((size, size), bool), 1)) + first)
        arcs.append(np.array([[first - 1, first]] if first else np.zeros((0, 2), int)))
        first += size
    chain = np.arange(first - 1, first + path)
    tails, heads = np.concatenate([*arcs, np.column_stack((chain[:-1], chain[1:]))]).T
    weights = np.random.default_rng(2).integers(1, 100, len(tails))
    return build_graph(tails, heads, weights, n=first + path, directed=directed)[0]


@pytest.mark.parametrize("seed", range(12))
def test_blocks_are_those_of_networkx(seed: int) -> None:
    found = nx.gnm_random_graph(60, 20 + 8 * seed, seed=seed)
    pattern = nx.to_scipy_sparse_array(found, format="csr")
    cubes = block_cubes(pattern.indptr, pattern.indices)
    assert cubes == sum(len(block) ** 3 for block in nx.biconnected_components(found))


@pytest.mark.parametrize(
    "graph",
    [
        joined([300] * 12), joined([100] * 20), joined([400, 400], 2000), joined([500], 1500), joined([200] * 10),
        replace(joined([200] * 10), directed=True),
    ],
)  # fmt: skip
def test_dense_blocks_that_hang_together_by_bridges_are_solved_in_parts(graph: Graph) -> None:
    plan = make_plan(graph, Options(device="cpu", threads=1))
    assert plan.algorithm == "partitioned"
    assert plan.statistics is not None
    assert plan.statistics.parts is not None


@pytest.mark.parametrize("graph", [joined([900]), graphs.random(1200), joined([1000, 20])])
def test_one_large_block_gets_no_trial_and_costs_one_look_at_most(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.graph.partition.with_parts", None)  # a trial would fail
    problem = describe(graph)
    assert with_bridges(GraphProfile(graph), problem, choose(problem, BOX, Options()), BOX) is problem


@pytest.mark.parametrize(("graph", "algorithm"), [(graphs.rmat(2_048), "auto"), (joined([100] * 5), "dijkstra")])
def test_neither_sparse_graphs_nor_searches_are_looked_at(
    graph: Graph, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 16 threads the look and the trial partition of R-MAT graphs took twice as long as their solves."""
    monkeypatch.setattr("engine.graph.partition._cubes", None)
    problem = describe(graph)
    slow = replace(BOX, relax_rate=dict.fromkeys(WORK_TYPES, 1e6), search_rate=1e4)
    assert (
        with_bridges(GraphProfile(graph), problem, choose(problem, slow, Options(algorithm=algorithm)), slow) is problem
    )


def test_a_graph_is_not_even_looked_at_where_that_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = joined([100] * 5)
    monkeypatch.setattr("engine.graph.partition._cubes", None)
    problem = describe(graph)
    plan = choose(problem, replace(BOX, relax_rate=dict.fromkeys(WORK_TYPES, 1e12)), Options())
    assert with_bridges(GraphProfile(graph), problem, plan, BOX) is problem


@pytest.mark.parametrize(("seconds", "waits"), [(COMPILING_SECONDS / 2, False), (COMPILING_SECONDS * 2, True)])
def test_only_a_long_solve_waits_for_what_finds_parts_to_be_compiled(
    seconds: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graphs.ring(300)
    problem = describe(graph)
    plan = choose(problem, BOX, Options(algorithm="dijkstra"), trials=Trials(search=seconds / graph.n))
    asked: list[bool] = []

    def never_compiled(*_: object) -> None:
        asked.append(WAITING.refuse)
        if WAITING.refuse:
            raise NotCompiledError("eliminate is not compiled")

    monkeypatch.setattr("engine.graph.partition.only_ready", only_ready)
    monkeypatch.setattr("engine.graph.partition.find_parts", never_compiled)
    found = with_trial(GraphProfile(graph), problem, plan, BOX)
    assert asked == [not waits]
    assert ("are not compiled here" in found.no_parts) == (not waits)
    assert ("the separators are large" in found.no_parts) == waits


def test_a_graph_of_small_pieces_is_planned_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = joined([100] * 5)
    problem, slow = describe(graph), replace(BOX, relax_rate=dict.fromkeys(WORK_TYPES, 1e9))
    plan = choose(problem, slow, Options(algorithm="recursive-floyd-warshall"))
    assert with_bridges(GraphProfile(graph), problem, plan, slow) is not problem

    def never_compiled(*_: object) -> None:
        assert WAITING.refuse
        raise NotCompiledError("eliminate is not compiled")

    monkeypatch.setattr("engine.graph.partition.only_ready", only_ready)
    monkeypatch.setattr("engine.graph.partition.find_parts", never_compiled)
    assert with_bridges(GraphProfile(graph), problem, plan, slow) is problem


def test_a_lattice_is_partitioned_before_searches_are_tried_and_a_random_graph_is_not_looked_at() -> None:
    for graph, long in ((graphs.road(6400), True), (graphs.random(1600), False)):
        profile, problem = GraphProfile(graph), describe(graph)
        found = with_shape(profile, problem, choose(problem, BOX, Options(algorithm="dijkstra")), BOX)
        assert is_lattice(found) == long
        hops = graphs.hops(graph)
        unit = describe(hops)
        assert with_shape(GraphProfile(hops), unit, choose(unit, BOX, Options(algorithm="dijkstra")), BOX) is unit
        assert not is_lattice(problem)


def test_a_sweep_takes_what_each_entry_takes() -> None:
    """Parts can save no more than what is beyond that, so that searches that are faster than it are not compared."""
    graph = graphs.road(6400)
    problem = describe(graph)
    entry = graph.n * ENTRY_SECONDS / BOX.threads
    plan = choose(problem, BOX, Options(algorithm="dijkstra"), trials=Trials(search=entry))
    found = with_trial(GraphProfile(graph), problem, plan, BOX)
    assert found.parts is None
    assert "a trial partition takes" in found.no_parts


def test_parts_are_found_once_for_each_grain(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = GraphProfile(graphs.grid(400))
    first = find_parts(profile, CPU_GRAIN, 400**2)
    monkeypatch.setattr("engine.graph._elimination.merge", None)  # a second time would fail
    assert find_parts(profile, CPU_GRAIN, 400**2) is first
    assert profile.parts(CPU_GRAIN) is first
