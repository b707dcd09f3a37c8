"""Measures that a device computes of rows, against those of the processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import graphs
from engine.api.from_tables.on_device import DevicePreparedMatrix
from engine.api.measuring import measure
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.devices.cuda.context import modules
from engine.devices.cuda.outgoing import Outlet
from engine.devices.cuda.reducing import Reducing, outgoing_of
from engine.graph.selection import Narrow, Rectangle
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.rows.asked_measures import asked_measures
from engine.rows.measures import MeasureSink
from storage.errors import DoesNotFit
from storage.graph.graph import Graph, build_graph
from tests.gpu.samples import KINDS, entries
from tests.gpu.test_sweep import directed
from tests.unit.engine.graph.test_terminals import network

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]


def compare(there: dict[str, Any], here: dict[str, Any]) -> None:
    """Assert that two tables agree: numbers of floats that are summed in another order to 12 digits, others exactly."""
    assert there.keys() == here.keys()
    for name, column in here.items():
        assert there[name].dtype == column.dtype, name
        if column.dtype.kind == "f":
            np.testing.assert_allclose(there[name], column, rtol=1e-12, atol=1e-300, err_msg=name)
        else:
            np.testing.assert_array_equal(there[name], column, err_msg=name)


def requests(n: int, rng: np.random.Generator, *, signed: bool) -> list[dict[str, Any]]:
    """What may be asked, alone and together."""
    jobs, beds = rng.integers(0, 50, n).astype(float), rng.random(n) * (rng.random(n) < 0.2)
    names = ["reached", "sum", "mean", "eccentricity", "farthest"]
    every: list[dict[str, Any]] = [
        {"measures": names},
        {"measures": ["reached"], "within": [0, 3, 200, 500.5, 1e9], "opportunities": {"jobs": jobs}},
        {"measures": [], "within": [100, 700], "opportunities": {"jobs": jobs, "beds": beds, "few": np.eye(1, n)[0]}},
        {"measures": [], "quantiles": [0, 0.1, 0.5, 0.999, 1]},
        {"measures": [], "nearest": 1},
        {"measures": ["farthest"], "nearest": 40, "quantiles": [0.25], "within": [17]},
    ]
    if not signed:
        every += [{}]
        five = {f"kind {k}": rng.random(n) for k in range(5)}
        every += [
            {"measures": [], "within": [1, 50], "opportunities": five, "decay": "exponential"},
            {"measures": [], "within": [90], "opportunities": {"a": jobs}, "decay": "linear", "decay_value": 60},
            {"measures": [], "within": [0, 250], "opportunities": {"a": beds}, "decay": "logistic", "decay_value": 40},
        ]
    return every


@pytest.mark.parametrize("narrow", ["whole", "targets", "cutoff", "both"])
@pytest.mark.parametrize("n", [1, 2, 65, 1000])
@pytest.mark.parametrize(("dtype", "signed"), KINDS)
def test_rows_are_reduced_as_on_processors(dtype: str, signed: bool, n: int, narrow: str) -> None:
    found, kind, rng = modules(), WORK_TYPES[dtype], np.random.default_rng(n)
    for request in requests(n, rng, signed=signed):
        sources = np.sort(rng.choice(n, min(n, 33), replace=False)).astype(np.int64)
        block = entries(rng, (len(sources), n), dtype, signed)
        block[:, rng.random(n) < 0.1] = 7  # ties
        block[rng.random(len(sources)) < 0.1] = kind.sentinel()
        block[np.arange(len(sources)), sources] = 0
        if dtype == "float64":  # sums must be finite
            block = np.where(np.isinf(block), block, np.clip(block, -1e300, 1e300))
        wanted = np.flatnonzero(rng.random(n) < 0.5) if narrow in ("targets", "both") else None
        cutoff = 600.0 if narrow in ("cutoff", "both") else None
        rectangle, whole = Rectangle(n, sources, wanted, cutoff), Rectangle(n, sources, None, None)
        asked = asked_measures(n, -1.0 if signed else 0.0, request)
        sinks = [MeasureSink(rectangle if wanted is not None else whole, kind, asked) for _ in range(2)]
        into = [Narrow(sink, rectangle) if rectangle.narrow else sink for sink in sinks]
        outgoing = outgoing_of(found, Outlet(into[0], 2), block.shape, kind)
        assert isinstance(outgoing, Reducing)
        for first in range(0, len(sources), 20):
            there = found.cupy.asarray(block[first : first + 20])
            found.cupy.cuda.get_current_stream().synchronize()  # the copy may go on after the call
            outgoing.send(there, first)
            outgoing.stream.synchronize()
        outgoing.finish()
        outgoing.release()
        with np.errstate(over="ignore"):
            into[1].write(0, 0, block)
        compare(sinks[0].columns(), sinks[1].columns())


def both(graph: Graph, options: dict[str, Any], **request: Any) -> None:
    """Assert that processors and device give the same table."""
    there = measure(graph, Options(device="cuda", **options), **request)
    if options.get("algorithm") in ("bellman-ford", "bfs"):  # there is none of these on processors
        options = {**options, "algorithm": "auto"}
    here = measure(graph, Options(device="cpu", **options), **request)
    assert there.plan.device == "cuda"
    compare(there.columns, here.columns)


GRAPHS = {
    "hops": lambda: build_graph(*np.random.default_rng(1).integers(0, 900, (2, 3000)), None, n=900, directed=True)[0],
    "random": lambda: graphs.random(1200),
    "grid": lambda: graphs.grid(2500),
    "one way": lambda: directed(1800),
    "signed": lambda: directed(1500, signed=True),
    "dense": lambda: graphs.dense(300),
    "no arcs": lambda: build_graph([], [], [], n=5, directed=True)[0],
}
ASKED: list[dict[str, Any]] = [
    {"measures": ["reached", "sum", "eccentricity", "farthest"], "within": [3, 40], "quantiles": [0.5], "nearest": 5},
    {"measures": ["mean"], "direction": "in", "within": [25]},
]


LEVELS: dict[str, Any] = {"measures": ["sum", "harmonic", "eccentricity"], "within": [1, 3], "quantiles": [0.3, 1]}


@pytest.mark.parametrize(("n", "arcs"), [(40, 30), (900, 3000), (5000, 30_000), (5000, 4000), (70_000, 300_000)])
def test_levels_are_those_of_processors(n: int, arcs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n)
    tails, heads = rng.integers(0, n, (2, arcs))
    heads[: arcs // 9] = 0  # a vertex of many arcs
    graph = build_graph(tails, heads, None, n=n, directed=True)[0]
    taken = []
    usual = Reducing.take_levels
    monkeypatch.setattr(
        Reducing, "take_levels", lambda self, first, levels: (taken.append(first), usual(self, first, levels))
    )
    some = None if n < 6000 else tuple(rng.choice(n, 5000, replace=False).tolist())
    for direction in ("out", "in"):
        chosen = {"sources" if direction == "out" else "targets": some}
        there = measure(graph, Options(device="cuda", algorithm="bfs", **chosen), direction=direction, **LEVELS)
        here = measure(graph, Options(device="cpu", **chosen), direction=direction, **LEVELS)
        compare(there.columns, here.columns)
    assert taken


@pytest.mark.parametrize("algorithm", ["auto", "bellman-ford", "johnson", "partitioned", "blocked-floyd-warshall"])
@pytest.mark.parametrize("name", GRAPHS)
def test_tables_are_those_of_processors(name: str, algorithm: str) -> None:
    graph, rng = GRAPHS[name](), np.random.default_rng(3)
    some = tuple(rng.choice(graph.n, max(1, graph.n // 3), replace=False).tolist())
    signed = bool((graph.weights < 0).any())
    if signed and algorithm == "bellman-ford":
        pytest.skip("searches take no negative arcs")
    if not signed and algorithm == "johnson":
        pytest.skip("no arc is negative")
    for request in ASKED:
        given = {**request, "opportunities": {"jobs": rng.integers(0, 9, graph.n)}}
        for options in ({}, {"sources": some}, {"targets": some}, {"cutoff": 30.0}):
            both(graph, {"algorithm": algorithm, **options}, **given)


@pytest.mark.parametrize("name", [*GRAPHS, "terminals"])
def test_tables_of_prepared_graphs_are_those_of_processors(name: str, tmp_path: Path) -> None:
    graph = network(200, 30, seed=6) if name == "terminals" else GRAPHS[name]()
    rng = np.random.default_rng(3)
    prepare(graph, tmp_path / "p", Options())
    some = tuple(rng.choice(graph.n, max(1, graph.n // 3), replace=False).tolist())
    with open_result(tmp_path / "p", device="cuda") as there, open_result(tmp_path / "p") as here:
        assert isinstance(there, DevicePreparedMatrix)
        assert isinstance(here, PreparedMatrix)
        for request in ASKED:
            given = {**request, "opportunities": {"jobs": rng.integers(0, 9, graph.n)}}
            for options in ({}, {"sources": some}, {"targets": some}, {"cutoff": 30.0}):
                found = measure(there, Options(**options), **given)
                assert found.plan.device == "cuda"
                compare(found.columns, measure(here, Options(**options), **given).columns)
        assert there.device_bytes > 0


def test_little_device_memory() -> None:
    graph = graphs.random(3000)
    both(graph, {"device_memory": 300 << 20}, within=[10, 30], nearest=100)
    with pytest.raises(DoesNotFit):
        measure(graph, Options(device="cuda", device_memory=1 << 20))
