"""Batched searches on the device against the processors' searches: bit for bit for whole numbers.

Floats: a label is a sum rounded once an arc, so a distance over k arcs may be off by k units of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.kernels.locked_sink import LockedSink
from engine.api.solve import make_plan, solve
from engine.devices.cuda.pinned import host_matrix
from engine.execution.survey import survey
from engine.execution.trials import calibrate
from engine.graph.analysis import describe
from engine.graph.profile import GraphProfile
from engine.model import device_layout
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from engine.planning.planner import choose
from storage.errors import Cancelled, DoesNotFit
from storage.graph.graph import Graph, build_graph

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]
RNG = np.random.default_rng
FORMS = {"sweep": 10**6, "lists": -1}


def random(n: int, *, degree: float = 4, directed: bool = True, largest: int = 90, seed: int = 0) -> Graph:
    rng = RNG(seed + n)
    tails, heads = rng.integers(0, n, (2, int(degree * n)))
    return build_graph(tails, heads, rng.integers(0, largest + 1, len(tails)), n=n, directed=directed)[0]


def ring(n: int, *, largest: int = 90) -> Graph:
    name = RNG(n).permutation(n)
    return build_graph(name, np.roll(name, 1), RNG(n).integers(1, largest + 1, n), n=n, directed=False)[0]


def hubs(n: int) -> Graph:
    """Three vertices that half of all others point to and from: more in-arcs than one vertex takes, twice over."""
    rng = RNG(n)
    tails = np.concatenate([rng.integers(0, n, n), np.repeat([0, 1, 2], n // 2), rng.integers(0, n, 3 * (n // 2))])
    heads = np.concatenate([rng.integers(0, n, n), rng.integers(0, n, 3 * (n // 2)), np.repeat([0, 1, 2], n // 2)])
    return build_graph(tails, heads, rng.integers(0, 50, len(tails)), n=n, directed=True)[0]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either form of the kernel, whatever the graph."""
    monkeypatch.setattr(device_layout, "SHALLOW", FORMS[request.param])
    return str(request.param)


def answer(graph: Graph, monitor: Monitor | None = None, **given: Any) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    options = Options(**given)
    plan = make_plan(graph, options)
    assert plan.device == given.get("device", "cpu")
    sink = ArraySink(plan.shape, plan.dtype)
    sink.array[:] = 77
    summary = solve(graph, plan, options, sink, monitor).summary
    return sink.array, summary


def test_lists_of_more_vertices_after_lists_of_fewer() -> None:
    for n in (20_000, 145_000):  # the later one's marks need more shared memory than a kernel gets unasked
        graph, sources = ring(n), (0, n // 2, n - 1)
        want, _ = answer(graph, sources=sources, algorithm="dijkstra", device="cpu")
        got, _ = answer(graph, sources=sources, algorithm="bellman-ford", device="cuda")
        np.testing.assert_array_equal(got, want)


def compare(graph: Graph, algorithm: str, *, dtype: str = "auto", **given: Any) -> None:
    """Both devices, all entries, all facts."""
    want, facts = answer(graph, dtype=dtype, device="cpu", **given)
    got, found = answer(graph, dtype=dtype, algorithm=algorithm, device="cuda", **given)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    for name in ("pairs", "reached", "sum", "diameter", "radius"):
        assert found[name] == facts[name], name


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 65, 300, 1500])
@pytest.mark.usefixtures("form")
def test_whole_numbers(dtype: str, directed: bool, n: int) -> None:
    largest = 7 if dtype == "uint16" else 90
    compare(random(n, directed=directed, largest=largest), "bellman-ford", dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("form")
def test_fractions(dtype: str) -> None:
    graph = random(1200, largest=1000)
    graph = replace(graph, weights=graph.weights * 0.1)
    want, _ = answer(graph, dtype=dtype, device="cpu")
    got, _ = answer(graph, dtype=dtype, algorithm="bellman-ford", device="cuda")
    np.testing.assert_allclose(got, want, rtol=40 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("make", [lambda: random(900, degree=0.6), lambda: hubs(3000), lambda: hubs(14000)])
@pytest.mark.usefixtures("form")
def test_pieces_and_hubs(make: Callable[[], Graph]) -> None:
    graph = make()
    sources = tuple(range(0, graph.n, max(1, graph.n // 700)))
    compare(graph, "bellman-ford", sources=sources)


@pytest.mark.parametrize("n", [0, 1, 40])
@pytest.mark.usefixtures("form")
def test_no_arcs(n: int) -> None:
    empty = np.zeros(0, np.int64)
    compare(build_graph(empty, empty, empty, n=n, directed=True)[0], "bellman-ford")


@pytest.mark.usefixtures("form")
def test_sources_in_an_order_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_layout, "LEAST_BATCH", 64)
    monkeypatch.setattr(device_layout, "SHARE", 3)
    graph = random(2000)
    compare(graph, "bellman-ford", sources=tuple(RNG(1).permutation(2000)[:777].tolist()))


@pytest.mark.usefixtures("form")
def test_labels_that_16_bits_cut_off_are_searched_again() -> None:
    compare(ring(700, largest=4000), "bellman-ford", dtype="int32")


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("n", [2, 33, 700, 5000])
def test_hops(dtype: str, directed: bool, n: int) -> None:
    graph = random(n, degree=2, directed=directed)
    graph = replace(graph, weights=np.ones_like(graph.weights))
    sources = tuple(range(4500)) if n == 5000 else None
    compare(graph, "bfs", dtype=dtype, sources=sources)


def test_hops_of_hubs_and_long_paths() -> None:
    graph = hubs(3000)
    compare(replace(graph, weights=np.ones_like(graph.weights)), "bfs")
    graph = ring(240)
    compare(replace(graph, weights=np.ones_like(graph.weights)), "bfs")


def test_more_steps_than_can_be_counted_go_to_the_processors() -> None:
    """Of a one-way path no search from its end sees how long it is."""
    path = np.arange(700)[::-1]
    graph = build_graph(path[:-1], path[1:], np.ones(699, np.int64), n=700, directed=True)[0]
    compare(graph, "bfs")


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.usefixtures("form")
def test_negative_arcs(dtype: str, whole: bool) -> None:
    rng = RNG(5)
    height, (tails, heads) = rng.integers(0, 300, 900), rng.integers(0, 900, (2, 2700))
    weights = rng.integers(0, 90, 2700) + height[tails] - height[heads]
    graph = build_graph(tails, heads, weights, n=900, directed=True)[0]
    if whole:
        compare(graph, "johnson", dtype=dtype)
    elif dtype == "float64":
        graph = replace(graph, weights=graph.weights * 0.1)
        want, _ = answer(graph, dtype=dtype, device="cpu", algorithm="johnson")
        got, _ = answer(graph, dtype=dtype, device="cuda", algorithm="johnson")
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(("shallow", "name"), [(10**6, "SWEEPS"), (-1, "LOOKS")])
def test_what_takes_too_long_goes_to_the_processors(monkeypatch: pytest.MonkeyPatch, shallow: int, name: str) -> None:
    monkeypatch.setattr(device_layout, "SHALLOW", shallow)
    monkeypatch.setattr(device_layout, name, 0.2 if name == "SWEEPS" else 3)
    compare(ring(900), "bellman-ford")


def test_a_later_batch_may_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first vertices see a star, the others a path through a thousand."""
    monkeypatch.setattr(device_layout, "LEAST_BATCH", 512)
    monkeypatch.setattr(device_layout, "SHARE", 100)
    monkeypatch.setattr(device_layout, "SHALLOW", 10**6)
    monkeypatch.setattr(device_layout, "SWEEPS", 2)
    star = np.arange(1, 600)
    path = np.arange(600, 1600)
    tails = np.concatenate([np.zeros(599, np.int64), path[:-1]])
    heads = np.concatenate([star, path[1:]])
    graph = build_graph(tails, heads, np.ones(len(tails), np.int64) * 3, n=1600, directed=True)[0]
    compare(graph, "bellman-ford")


class Stopper(Monitor):
    def __init__(self) -> None:
        self.steps = 0

    def advance(self, amount: int) -> None:
        self.steps += 1

    def cancelled(self) -> bool:
        return self.steps >= 2


def test_cancelling_between_batches_leaves_the_device_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_layout, "LEAST_BATCH", 64)
    monkeypatch.setattr(device_layout, "SHARE", 10)
    graph = random(1000)
    with pytest.raises(Cancelled):
        answer(graph, Stopper(), algorithm="bellman-ford", device="cuda")
    compare(graph, "bellman-ford")


def test_a_failing_sink_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(ArraySink):
        def write(self, row: int, column: int, block: np.ndarray[Any, Any]) -> None:
            raise OSError("the disk is full")

    graph, options = random(500), Options(algorithm="bellman-ford", device="cuda")
    with pytest.raises(OSError, match="disk is full"):
        solve(graph, make_plan(graph, options), options, Full((500, 500), "int32"))


@pytest.mark.parametrize("algorithm", ["bellman-ford", "partitioned"])
def test_rows_go_straight_into_page_locked_memory(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    monkeypatch.setattr(device_layout, "LEAST_BATCH", 128)
    monkeypatch.setattr(device_layout, "SHARE", 5)
    graph, options = random(1500), Options("int32", algorithm, "cuda")
    plan = make_plan(graph, options)
    want = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, want)
    with host_matrix(plan.shape, plan.dtype, threads=2) as memory:
        memory.array[:] = 77
        sink = LockedSink(memory)
        monkeypatch.setattr(sink, "write", None)  # nobody has to write
        solve(graph, plan, options, sink)
        np.testing.assert_array_equal(sink.array, want.array)


@pytest.mark.parametrize("n", [8000, 20_000])
def test_the_foreseen_memory_suffices(n: int) -> None:
    graph = random(n)
    for algorithm, dtype in (("bellman-ford", "int32"), ("bellman-ford", "float64")):
        options = Options(dtype, algorithm, "cuda", sources=tuple(range(2500)))
        plan = make_plan(graph, options)
        sink = ArraySink(plan.shape, dtype)
        solve(graph, plan, replace(options, device_memory=plan.device_memory), sink)
        tight = replace(options, device_memory=plan.device_memory // 2)
        less = make_plan(graph, tight)
        assert less.device_memory <= plan.device_memory // 2
        other = ArraySink(plan.shape, dtype)
        solve(graph, less, tight, other)
        np.testing.assert_array_equal(sink.array, other.array)
    with pytest.raises(DoesNotFit, match="GPU"):
        make_plan(graph, replace(options, device_memory=2**20))


def test_the_planner_chooses_searches_for_sparse_graphs_and_products_for_dense_ones() -> None:
    assert make_plan(random(20_000), Options(device="cuda")).algorithm == "bellman-ford"
    unit = random(65_536)
    assert make_plan(replace(unit, weights=np.ones_like(unit.weights)), Options(device="cuda")).algorithm == "bfs"
    assert make_plan(random(600, degree=500), Options(device="cuda")).algorithm == "blocked-floyd-warshall"


def test_a_trial_on_the_device_tells_what_searches_take(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.execution import trials as module

    monkeypatch.setattr(module, "WORTHWHILE", 0.0)
    monkeypatch.setattr(module, "DEVICE_WORTHWHILE", 0.0)
    graph = random(20_000)
    problem, machine = describe(graph), survey(device="cuda")
    plan = choose(problem, machine, Options(device="cuda"))
    measured = calibrate(GraphProfile(graph), problem, machine, plan, device="cuda")[1]
    assert measured is not None
    assert measured.device_search is not None
    assert 0 < measured.device_search < np.inf  # how long depends on who else uses the device
    monkeypatch.setattr(module, "form_of", lambda **_: device_layout.SearchForm("lists", 0))
    monkeypatch.setattr(module, "LEAST_LIMIT", 0)
    hopeless = calibrate(GraphProfile(graph), problem, machine, plan, device="cuda")[1]
    assert hopeless.device_search == np.inf
    assert choose(problem, machine, Options(device="cuda"), trials=hopeless).algorithm == "blocked-floyd-warshall"
