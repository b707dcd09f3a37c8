"""From the graph to the sealed store through the device, against the processors' answer, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.solve import make_plan, solve, solve_to_store
from engine.model.device_layout import SINGLE
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from storage.errors import Cancelled, DoesNotFit, NegativeCycle
from storage.graph.graph import Graph, build_graph
from storage.matrix.reader import open_matrix
from tests.stores import verify_matrix

#: Those that solve the whole matrix in place.
FW = "blocked-floyd-warshall"
DENSE = ("recursive-floyd-warshall", "blocked-floyd-warshall", "repeated-squaring")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


def graph_of(n: int, *, degree: int = 4, directed: bool = True, negative: bool = False, largest: int = 90) -> Graph:
    rng = np.random.default_rng(n)
    height = rng.integers(0, 30, n) * negative
    tails, heads = rng.integers(0, n, (2, degree * n))
    weights = rng.integers(0, largest, degree * n) + height[tails] - height[heads]
    return build_graph(tails, heads, weights, n=n, directed=directed)[0]


def both(graph: Graph, folder: Path, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Solve on both devices, compare all entries, return both summaries."""
    answers = []
    for device in ("cpu", "cuda"):
        asked = {**given, "algorithm": "auto"} if device == "cpu" else given
        outcome = solve_to_store(graph, Options(device=device, **asked), folder / f"{device}.zarr")
        assert outcome.plan.device == device
        verify_matrix(folder / f"{device}.zarr")
        answers.append(outcome.summary)
    with open_matrix(folder / "cpu.zarr") as one, open_matrix(folder / "cuda.zarr") as two:
        assert one.dtype == two.dtype
        for first in range(0, one.shape[0], 1000):
            sources = one.sources[first : first + 1000]
            np.testing.assert_array_equal(two.rows(sources), one.rows(sources))
    return answers[0], answers[1]


def same_facts(one: dict[str, Any], two: dict[str, Any]) -> None:
    for name in set(one) | set(two) - {"histogram"}:
        if name == "histogram":
            assert sum(one[name]["counts"]) == sum(two[name]["counts"])
            assert one[name]["below_zero"] == two[name]["below_zero"]
        elif name not in ("center", "diameter_pair"):
            assert two[name] == one[name], name
    assert one.get("diameter_pair") == two.get("diameter_pair")
    assert one.get("center") == two.get("center")


@pytest.mark.parametrize("algorithm", ["blocked-floyd-warshall", "recursive-floyd-warshall"])
@pytest.mark.parametrize("dtype", ["auto", "uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("n", [3, 64, 200, 777, 1500])
def test_small_graphs(algorithm: str, dtype: str, directed: bool, n: int, tmp_path: Path) -> None:
    graph = graph_of(n, directed=directed, largest=_largest(dtype))
    same_facts(*both(graph, tmp_path, algorithm=algorithm, dtype=dtype))


@pytest.mark.parametrize("dtype", WORK_TYPES)
@pytest.mark.parametrize("directed", [True, False])
def test_rounds(dtype: str, directed: bool, tmp_path: Path) -> None:
    graph = graph_of(4100, directed=directed, largest=_largest(dtype))
    same_facts(*both(graph, tmp_path, algorithm="blocked-floyd-warshall", dtype=dtype))


def _largest(dtype: str) -> int:
    """Weights so small that even a path through all vertices fits the type."""
    return 7 if dtype == "uint16" else 90


@pytest.mark.parametrize("n", [50, 700, 4100])
@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("algorithm", ["blocked-floyd-warshall", "recursive-floyd-warshall"])
def test_negative_arcs(n: int, dtype: str, algorithm: str, tmp_path: Path) -> None:
    """Sparse, so that many pairs are unreachable and sums with the sentinel in them must settle."""
    graph = graph_of(n, degree=2, negative=True)
    assert graph.weights.min() < 0
    same_facts(*both(graph, tmp_path, algorithm=algorithm, dtype=dtype))


@pytest.mark.parametrize("hops", [None, 4])
@pytest.mark.parametrize("sources", [None, (7, 8, 9, 300, 2)])
def test_negative_fractions(hops: int | None, sources: tuple[int, ...] | None, tmp_path: Path) -> None:
    graph = graph_of(900, degree=2, negative=True)
    graph = replace(graph, weights=graph.weights * 0.1)
    for device in ("cpu", "cuda"):
        options = Options(device=device, dtype="float64", max_hops=hops, sources=sources)
        solve_to_store(graph, options, tmp_path / f"{device}.zarr")
    with open_matrix(tmp_path / "cpu.zarr") as one, open_matrix(tmp_path / "cuda.zarr") as two:
        np.testing.assert_allclose(two.rows(two.sources), one.rows(one.sources), rtol=1e-12, atol=1e-9)
        assert (two.rows(two.sources)[np.arange(len(two.sources)), two.sources] == 0).all()


@pytest.mark.parametrize(("dtype", "step"), [("float32", 10**6), ("float64", 2**49)])
@pytest.mark.parametrize("algorithm", [*DENSE, "partitioned", "johnson"])
def test_whole_weights_beyond_what_the_type_holds_do_not_run_away(algorithm: str, dtype: str, step: int) -> None:
    """Every cycle has length zero, and sums are rounded: decision 088."""
    rng, n = np.random.default_rng(4), 300
    height = np.arange(n) * step + rng.integers(0, step, n)
    tails, heads = np.nonzero(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 9)
    graph = build_graph(tails, heads, height[heads] - height[tails], n=n, directed=True)[0]
    assert graph.integral
    found = _on_device(graph, algorithm, dtype)
    exact = (height[None] - height[:, None]).astype(float)
    np.testing.assert_allclose(found, exact, rtol=0, atol=float(np.spacing(np.abs(exact).max().astype(dtype))))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", [*DENSE, "partitioned", "johnson"])
def test_a_small_distance_is_not_lost_behind_a_large_potential(algorithm: str, dtype: str) -> None:
    tails = np.concatenate([[3 * i, 3 * i + 1] for i in range(40)])
    graph = build_graph(tails, tails + 1, np.tile([-1e17, 1.5], 40), n=120, directed=True)[0]
    found = _on_device(graph, algorithm, dtype)
    assert [found[3 * i + 1, 3 * i + 2] for i in range(40)] == [1.5] * 40


def _on_device(graph: Graph, algorithm: str, dtype: str) -> np.ndarray:
    options = Options(device="cuda", algorithm=algorithm, dtype=dtype)
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, sink)
    return sink.array


@pytest.mark.parametrize("hops", [1, 2, 3, 6, 5000])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("negative", [True, False])
def test_hops(hops: int, directed: bool, negative: bool, tmp_path: Path) -> None:
    graph = graph_of(900, degree=2, directed=directed, negative=negative and directed)
    same_facts(*both(graph, tmp_path, max_hops=hops))


@pytest.mark.parametrize("hops", [None, 2, 7])
@pytest.mark.parametrize("n", [300, 4000])
def test_sources(hops: int | None, n: int, tmp_path: Path) -> None:
    """In an order of their own, and some that follow each other."""
    sources = (*range(70, 200), 5, 250, 3, *range(20, 40))
    same_facts(*both(graph_of(n, degree=2), tmp_path, max_hops=hops, sources=sources))


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("algorithm", DENSE)
def test_tiny_graphs(n: int, algorithm: str, tmp_path: Path) -> None:
    empty = np.zeros(0, np.int64)
    graph = build_graph(empty, empty, empty, n=n, directed=True)[0]
    outcome = solve_to_store(graph, Options(algorithm=algorithm, device="cuda"), tmp_path / "d.zarr")
    assert outcome.summary["reached"] == 0
    with open_matrix(tmp_path / "d.zarr") as matrix:
        assert matrix.shape == (n, n)


class Recorder(Monitor):
    def __init__(self, stop_in: str | None = None) -> None:
        self.phases: dict[str, list[int]] = {}
        self.now, self.stop_in = "", stop_in

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.now = phase
        self.phases[phase] = [total, 0]

    def advance(self, amount: int) -> None:
        assert amount >= 0
        self.phases[self.now][1] += amount

    def cancelled(self) -> bool:
        return self.now == self.stop_in


@pytest.mark.parametrize("algorithm", DENSE)
@pytest.mark.parametrize("n", [300, 4200])
def test_progress_reaches_its_total_and_cancelling_leaves_nothing(algorithm: str, n: int, tmp_path: Path) -> None:
    options = Options(
        algorithm=algorithm, device="cuda", max_hops=5 if algorithm == "repeated-squaring" else None, dtype="int32"
    )
    graph, recorder = graph_of(n), Recorder()
    solve_to_store(graph, options, tmp_path / "first.zarr", monitor=recorder)
    for phase, (total, done) in recorder.phases.items():
        if phase not in ("create", "seal"):
            assert done == total, phase
    for phase in ("ingest", "relax", "write"):
        with pytest.raises(Cancelled):
            solve_to_store(graph, options, tmp_path / "d.zarr", monitor=Recorder(phase))
        assert [p.name for p in tmp_path.iterdir()] == ["first.zarr"]
    solve_to_store(graph, options, tmp_path / "d.zarr")  # the device is as well as before


def test_a_budget_is_kept(cupy: Any) -> None:
    graph = graph_of(4000)
    with pytest.raises(DoesNotFit, match="GPU"):
        make_plan(graph, Options("int32", FW, "cuda", device_memory=50 * 10**6))
    plan = make_plan(graph, Options("int32", FW, "cuda", device_memory=10**9))
    with pytest.raises(DoesNotFit, match="bytes free"):  # the plan foresaw more than is granted now
        solve(graph, plan, Options(device="cuda", device_memory=50 * 10**6), ArraySink((4000, 4000), "int32"))
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=plan.device_memory)  # what was foreseen suffices
    sink = ArraySink((4000, 4000), "int32")
    try:
        solve(graph, plan, Options(device="cuda", device_memory=plan.device_memory), sink)
        assert pool.get_limit() == plan.device_memory  # the limit of the caller's program holds again
    finally:
        pool.set_limit(size=0)
    assert (np.diagonal(sink.array) == 0).all()


def test_a_negative_cycle_that_no_plan_looked_for_is_named() -> None:
    graph = build_graph(np.array([0, 1, 2, 0]), np.array([1, 2, 0, 3]), np.array([1, -5, 1, 1]), n=4, directed=True)[0]
    plan = Plan("blocked-floyd-warshall", "int32", "cuda", 1, (4, 4), 0, 0, 0.0, "", "")
    with pytest.raises(NegativeCycle) as caught:
        solve(graph, plan, Options(device="cuda"), ArraySink((4, 4), "int32"))
    assert sorted(caught.value.cycle) == [0, 1, 2]


@pytest.mark.parametrize("algorithm", ["blocked-floyd-warshall", "recursive-floyd-warshall"])
def test_a_negative_cycle_ends_the_solve_early(algorithm: str) -> None:
    """The cycle lies in the first of eight pivot blocks; what is queued behind it is all that is done in vain."""
    n = 4096
    tails, heads = np.arange(n), np.roll(np.arange(n), -1)
    weights = np.full(n, 5)
    tails, heads, weights = np.append(tails, [3, 2]), np.append(heads, [2, 3]), np.append(weights, [-9, 1])
    graph = build_graph(tails, heads, weights, n=n, directed=True)[0]
    recorder, plan = Recorder(), Plan(algorithm, "int32", "cuda", 1, (n, n), 0, 0, 0.0, "", "")
    with pytest.raises(NegativeCycle) as caught:
        solve(graph, plan, Options(device="cuda"), ArraySink((n, n), "int32"), recorder)
    assert sorted(caught.value.cycle) == [2, 3]
    total, done = recorder.phases["relax"]
    assert done <= total / 2
    assert "write" not in recorder.phases


def test_the_host_never_holds_the_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of 1.6 GB; the process grows by bands and page-locked buffers alone."""
    monkeypatch.setattr("engine.devices.cuda.context.alike", lambda *_: 1)  # several GPUs share it in host memory
    graph = graph_of(20_000)
    options = Options(device="cuda", algorithm="blocked-floyd-warshall", dtype="int32", threads=2)
    solve_to_store(graph_of(SINGLE + 4), options, tmp_path / "warm.zarr")  # by rounds, too: compilers take memory
    plan = make_plan(graph, options, out=tmp_path / "d.zarr")
    assert plan.tier == "device"
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _peak()
    solve_to_store(graph, options, tmp_path / "d.zarr", plan=plan)
    assert _peak() - before < 600 * 10**6
    assert _peak() < plan.memory


def _peak() -> int:
    """The most bytes of memory that this process has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("algorithm", [*DENSE, "partitioned", "bellman-ford"])
@pytest.mark.parametrize(
    "asked",
    [
        {"targets": (7, 0, 399)},
        {"sources": (3, 250), "targets": (250, 9)},
        {"cutoff": 60.0},
        {"sources": (1, 2), "targets": (5, 4, 3), "cutoff": 60.0},
    ],
)
def test_rectangles_leave_the_device_as_from_the_processors(
    algorithm: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    one, two = both(graph_of(400), tmp_path, algorithm=algorithm, **asked)
    same_facts(one, two)
