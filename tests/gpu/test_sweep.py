"""The partitioned algorithm with its rows on the device, against the processors, entry by entry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.algorithms import part_lengths
from engine.api.solve import make_plan, solve
from engine.devices.cpu.backend import CpuBackend
from engine.graph.partition import DEVICE_GRAIN, Grain, find_parts
from engine.graph.profile import GraphProfile
from engine.model.dtypes import WORK_TYPES
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from storage.errors import Cancelled
from storage.graph.graph import Graph, build_graph

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


def directed(n: int, *, signed: bool = False) -> Graph:
    """A long lattice with one-way streets and pieces that nothing leads to; ``signed``: some arcs are negative."""
    rng = np.random.default_rng(n)
    tails = rng.integers(0, n, 5 * n)
    heads = np.clip(tails + rng.integers(-9, 10, 5 * n), 0, n - 1)
    height = rng.integers(0, 60, n) * signed
    weights = rng.integers(0, 90, 5 * n) + height[tails] - height[heads]
    keep = (tails != heads) & (tails // 700 == heads // 700)
    return build_graph(tails[keep], heads[keep], weights[keep], n=n, directed=True)[0]


def solved(graph: Graph, device: str, **given: Any) -> tuple[Plan, np.ndarray, dict[str, Any]]:
    options = Options(device=device, algorithm="partitioned", **given)
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    outcome = solve(graph, plan, options, sink)
    return plan, sink.array, outcome.summary


CASES = {
    "grid": lambda: graphs.grid(4096),
    "ring": lambda: graphs.ring(3000),
    "one way": lambda: directed(3000),
    "signed": lambda: directed(2500, signed=True),
    "one part": lambda: graphs.random(120),
    "small": lambda: graphs.grid(9),
    "no arcs": lambda: build_graph([], [], [], n=5, directed=True)[0],
}


@pytest.mark.parametrize("dtype", ["auto", "int32", "float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_processors(name: str, dtype: str) -> None:
    graph = CASES[name]()
    plan, found, facts = solved(graph, "cuda", dtype=dtype)
    assert (plan.algorithm, plan.device) == ("partitioned", "cuda")
    _, wanted, expected = solved(graph, "cpu", dtype=dtype)
    np.testing.assert_array_equal(found, wanted)
    for fact in ("reached", "sum", "diameter", "radius"):
        assert facts[fact] == expected[fact], fact


def test_floats_of_both_signs() -> None:
    graph = directed(1500, signed=True)
    graph = replace(graph, weights=graph.weights + 1 / 3)
    _, found, _ = solved(graph, "cuda", dtype="float64")
    _, wanted, _ = solved(graph, "cpu", dtype="float64")
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-9)


def test_chosen_sources_in_any_order() -> None:
    graph = graphs.road(2500)
    some = tuple(np.random.default_rng(1).permutation(graph.n)[:333].tolist())
    _, found, _ = solved(graph, "cuda", sources=some)
    _, wanted, _ = solved(graph, "cpu", sources=some)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("grain", [Grain(1, 0.0, 0.0, 0.0), DEVICE_GRAIN])
def test_many_batches_through_few_rows(grain: Grain) -> None:
    """From the third batch on, the launches that were recorded are replayed."""
    from engine.devices.cuda.context import modules
    from engine.devices.cuda.outgoing import Outlet
    from engine.devices.cuda.sweep import DeviceSweep, Wanted

    graph, kind = graphs.grid(900), WORK_TYPES["int32"]
    parts = find_parts(GraphProfile(graph), grain, graph.n**2)
    assert parts is not None
    backend = CpuBackend(2)
    lengths = part_lengths.find_lengths(backend, graph, parts, kind, nonnegative=True, monitor=Monitor())
    backend.shutdown()
    sources = np.random.default_rng(2).permutation(graph.n)
    sink = ArraySink((graph.n, graph.n), "int32")
    sweep = DeviceSweep(modules(), parts, kind, Wanted(sources, Outlet(sink, 3), 128), nonnegative=True)
    sweep.load(lengths)
    for rows in sweep.batches():
        sweep.begin(rows)
        sweep.finish()
        sweep.send(sweep.leave())
    sweep.written()
    sweep.release()
    _, wanted, _ = solved(graph, "cpu", dtype="int32")
    np.testing.assert_array_equal(sink.array, wanted[sources])


def test_a_wish_to_stop_is_heard() -> None:
    class Impatient(Monitor):
        def cancelled(self) -> bool:
            return True

    graph = graphs.grid(900)
    options = Options(device="cuda", algorithm="partitioned")
    plan = make_plan(graph, options)
    with pytest.raises(Cancelled):
        solve(graph, plan, options, ArraySink(plan.shape, plan.dtype), Impatient())
