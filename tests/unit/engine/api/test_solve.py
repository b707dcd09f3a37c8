"""The door of the engine: phases, progress, cancellation, and what is left behind."""

import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.graph.profile import GraphProfile
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.planning.planner import ESTIMATES, gib
from service.units import parse_size
from storage.errors import Cancelled, Conflict, DoesNotFit, InvalidRequest, NegativeCycle
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.cycles import no_collection


class Recorder(Monitor):
    """Keeps what it is told; asks to stop in the named phase after some units."""

    def __init__(self, stop_in: str | None = None) -> None:
        self.phases: dict[str, list[int]] = {}
        self.now = ""
        self.stop_in = stop_in

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.now = phase
        if phase == "compile":  # it comes in between where kernels were never compiled
            return
        assert unit in ("updates", "rows", "bytes", "arcs", "store")
        self.phases[phase] = [total, 0]

    def advance(self, amount: int) -> None:
        assert amount >= 0
        if self.now != "compile":
            self.phases[self.now][1] += amount

    def cancelled(self) -> bool:
        return self.now == self.stop_in


def random_graph(n: int = 200, low: int = 1) -> Graph:
    rng = np.random.default_rng(0)
    height = rng.integers(0, 30, n) * (low < 0)
    tails, heads = rng.integers(0, n, (2, 4 * n))
    weights = rng.integers(1, 100, 4 * n) + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=n, directed=True)[0]


def options_for(algorithm: str) -> tuple[Graph, Options]:
    graph = random_graph(low=-1 if algorithm == "johnson" else 1)
    if algorithm == "bfs":
        graph = replace(graph, weights=np.ones_like(graph.weights))
    return graph, Options(algorithm=algorithm, max_hops=5 if algorithm == "repeated-squaring" else None)


@pytest.mark.parametrize("algorithm", ESTIMATES)
def test_progress_reaches_exactly_the_total_of_every_phase(algorithm: str, tmp_path: Path) -> None:
    graph, options = options_for(algorithm)
    monitor = Recorder()
    outcome = solve_to_store(graph, options, tmp_path / "d.zarr", monitor=monitor)
    for phase, (total, done) in monitor.phases.items():
        if phase not in ("create", "seal"):
            assert done == total, phase
    assert set(monitor.phases) <= set(outcome.seconds)
    assert outcome.plan.algorithm == algorithm


@pytest.mark.parametrize("algorithm", ESTIMATES)
def test_a_cancelled_solve_leaves_nothing(algorithm: str, tmp_path: Path) -> None:
    graph, options = options_for(algorithm)
    recorder = Recorder()
    solve_to_store(graph, options, tmp_path / "first.zarr", monitor=recorder)
    for phase in set(recorder.phases) - {"create", "seal"}:
        with pytest.raises(Cancelled):
            solve_to_store(graph, options, tmp_path / "d.zarr", monitor=Recorder(phase))
        assert [p.name for p in tmp_path.iterdir()] == ["first.zarr"]


@pytest.mark.parametrize("algorithm", ESTIMATES)
def test_the_graph_goes_with_the_solve(algorithm: str, tmp_path: Path) -> None:
    graph, options = options_for(algorithm)
    gone, recorder = weakref.ref(graph), Recorder()
    with no_collection():
        solve_to_store(graph, options, tmp_path / "d.zarr", monitor=recorder)
        for phase in set(recorder.phases) - {"create", "seal"}:
            with pytest.raises(Cancelled):
                solve_to_store(graph, options, tmp_path / "e.zarr", monitor=Recorder(phase))
        del graph
        until = time.monotonic() + 20
        while gone() is not None and time.monotonic() < until:
            time.sleep(0.01)  # a thread of a pool drops its last task a moment after its result was taken
        assert gone() is None


def test_the_store_says_how_it_was_made(tmp_path: Path) -> None:
    graph = random_graph()
    outcome = solve_to_store(graph, Options(), tmp_path / "d.zarr")
    with open_matrix(tmp_path / "d.zarr") as matrix:
        assert matrix.attributes["algorithm"] == outcome.plan.algorithm
        assert matrix.attributes["unit"] == "weight"
        assert matrix.attributes["plan"]["reason"] == outcome.plan.reason
        assert matrix.summary["reached"] == outcome.summary["reached"]


def test_an_existing_store_is_kept_unless_asked(tmp_path: Path) -> None:
    solve_to_store(random_graph(), Options(), tmp_path / "d.zarr")
    with pytest.raises(Conflict, match=r"d\.zarr"):
        solve_to_store(random_graph(), Options(), tmp_path / "d.zarr")
    solve_to_store(random_graph(50), Options(), tmp_path / "d.zarr", overwrite=True)
    with open_matrix(tmp_path / "d.zarr") as matrix:
        assert matrix.shape == (50, 50)


def test_a_negative_cycle_is_refused_with_the_plan() -> None:
    graph = build_graph(np.array([0, 1, 2, 0]), np.array([1, 2, 0, 3]), np.array([1, -5, 1, 1]), n=4, directed=True)[0]
    with pytest.raises(NegativeCycle) as caught:
        make_plan(graph, Options())
    assert sorted(caught.value.cycle) == [0, 1, 2]
    assert caught.value.weight == -3


@pytest.mark.parametrize("sources", [(), (3, 3), (-1,), (200,)])
def test_odd_sources_are_refused(sources: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_plan(random_graph(), Options(sources=sources))
    assert caught.value.field == "sources"


def test_a_budget_below_the_need_is_refused_with_both_numbers() -> None:
    with pytest.raises(DoesNotFit) as caught:
        make_plan(random_graph(), Options(memory=2**20))
    assert caught.value.available == 2**20
    assert f"{caught.value.needed:,}" in str(caught.value)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("algorithm", ["dijkstra", "recursive-floyd-warshall", "repeated-squaring"])
def test_tiny_graphs(n: int, algorithm: str, tmp_path: Path) -> None:
    empty = np.zeros(0, np.int64)
    graph = build_graph(empty, empty, empty, n=n, directed=True)[0]
    outcome = solve_to_store(graph, Options(algorithm=algorithm), tmp_path / "d.zarr")
    with open_matrix(tmp_path / "d.zarr") as matrix:
        assert matrix.shape == (n, n)
        assert outcome.summary["reached"] == 0
        for u in range(n):
            row = matrix.row(u)
            assert row[u] == 0
            assert (np.delete(row, u) == matrix.unreachable).all()


def test_more_threads_than_processors_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="threads is 100000, but the process may use"):
        make_plan(random_graph(), Options(threads=100_000))


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        (Options(), True),
        (Options(), False),
        (Options(algorithm="dijkstra"), True),
        (Options(algorithm="blocked-floyd-warshall"), True),
        (Options(algorithm="repeated-squaring", max_hops=3), False),
        (Options(algorithm="partitioned"), False),
        (Options(sources=tuple(range(3000)), targets=tuple(range(40))), False),
        (Options(dtype="float64", threads=1), True),
    ],
)
@pytest.mark.parametrize("n", [3000, 8000])
def test_the_memory_that_a_refusal_names_suffices(options: Options, stored: bool, n: int, tmp_path: Path) -> None:
    # one profile: what a first dissection has freed would count as memory in use while a second one is made
    graph, out = GraphProfile(random_graph(n)), tmp_path / "d.zarr" if stored else None
    with pytest.raises(DoesNotFit) as caught:
        make_plan(graph, replace(options, memory=2**20), out=out)
    named = caught.value.needed
    assert parse_size(gib(named), field="memory") >= named - 2**20  # as it is printed, but for the last digit
    plan = make_plan(graph, replace(options, memory=parse_size(gib(named), field="memory")), out=out)
    assert plan.memory <= named
