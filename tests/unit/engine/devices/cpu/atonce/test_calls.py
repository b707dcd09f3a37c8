"""One compiled call gives the matrix and the facts that pieces give, bit for bit, and leaves what it cannot do."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest

from engine.algorithms import dijkstra
from engine.api.solve import make_plan, solve
from engine.devices.cpu.atonce import calls, lanes
from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.bfs_bits import BreadthFirst
from engine.graph.profile import GraphProfile
from engine.model.backend import RowsWanted
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.progress import NotCompiledError
from engine.model.rows import ArraySink
from engine.rows.floats import FloatSink
from storage.graph.graph import Graph, build_graph

N = 300


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are not compiled are waited for."""
    monkeypatch.setattr(calls, "only_ready", contextlib.nullcontext)
    monkeypatch.setattr(calls, "_NOT_COMPILED", set())


def graph_of(kind: str, *, directed: bool = True, arcs: int = 3 * N) -> Graph:
    """Return a random graph with whole, long, few-decimal, fractional or unit weights; ``islands`` reach little."""
    draw = np.random.default_rng(7)
    tails, heads = draw.integers(0, N, (2, arcs))
    if kind == "islands":
        heads = np.minimum(tails // 20 * 20 + heads % 20, N - 1)
    weights: Any = draw.integers(1, 100, arcs)
    if kind == "long":
        weights = draw.integers(3000, 4000, arcs)  # 16 bits hold the first distances, but not all
    elif kind == "decimals":
        weights = weights / 4
    elif kind in ("fractions", "islands"):
        weights = draw.random(arcs) + 0.5
    elif kind == "unit":
        weights = np.ones(arcs, np.int64)
    return build_graph(tails, heads, weights, n=N, directed=directed)[0]


def answers(graph: Graph, threads: int, sink: str, algorithm: str) -> tuple[np.ndarray, dict[str, object]]:  # type: ignore[type-arg]
    """Return the matrix and its summary, solved into an array of the plan's type or of floats."""
    options = Options(device="cpu", threads=threads, algorithm=algorithm)
    profile = GraphProfile(graph)
    plan = make_plan(profile, options)
    profile.known = None  # rows of trials would only be copied
    kind = WORK_TYPES[plan.dtype]
    if sink == "floats":
        out = np.empty(plan.shape, np.float64 if kind.integer else kind.dtype)
        return out, solve(profile, plan, options, FloatSink(out, kind.unreachable)).summary
    place = ArraySink(plan.shape, kind.dtype)
    return place.array, solve(profile, plan, options, place).summary


@pytest.mark.parametrize(
    ("kind", "sink", "algorithm"),
    [
        ("whole", "own", "dijkstra"),
        ("long", "own", "dijkstra"),
        ("decimals", "own", "dijkstra"),
        ("fractions", "own", "dijkstra"),
        ("islands", "own", "dijkstra"),
        ("whole", "floats", "dijkstra"),
        ("unit", "own", "bfs"),
        ("unit", "floats", "bfs"),
    ],
)
@pytest.mark.parametrize("directed", [True, False])
def test_matrix_and_summary_are_those_of_pieces(
    kind: str, sink: str, algorithm: str, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, taken = graph_of(kind, directed=directed), []
    whole = CpuBackend.begin_search if algorithm == "dijkstra" else BreadthFirst.begin_search

    def noting(self: Any, *given: Any, **more: Any) -> Any:
        searches = whole(self, *given, **more)
        all_of = searches.take_all
        searches.take_all = lambda *some: taken.append(all_of(*some)) or taken[-1]
        return searches

    monkeypatch.setattr(CpuBackend if algorithm == "dijkstra" else BreadthFirst, "begin_search", noting)
    monkeypatch.setattr(dijkstra, "SHORT_SECONDS", 0.0)
    pieces, told = answers(graph, 2, sink, algorithm)
    assert not taken
    monkeypatch.setattr(dijkstra, "SHORT_SECONDS", math.inf)
    for threads in (1, 2):
        found, summary = answers(graph, threads, sink, algorithm)
        assert sum(rows for rows, _ in taken) > N // 3  # most rows were searched at once
        taken.clear()
        assert np.array_equal(found, pieces)
        assert summary == told


def searches_of(kind: str, backend: CpuBackend, sources: int = N, **wanted: Any) -> tuple[Any, Any]:
    """Return the searches of some sources, and their rows."""
    profile = GraphProfile(graph_of(kind))
    out = np.full((sources, wanted.pop("columns", N)), 77, np.float32 if kind == "fractions" else np.int32)
    return backend.begin_search(profile.arcs, np.arange(sources), out, RowsWanted(**wanted)), out


@pytest.mark.parametrize(("kind", "backend"), [("fractions", CpuBackend), ("unit", BreadthFirst)])
def test_what_is_too_late_is_left_to_pieces(kind: str, backend: type[CpuBackend]) -> None:
    team = backend(2)
    try:
        searches, out = searches_of(kind, team, unit=kind == "unit")
        assert searches.take_all(2, -1.0) == (0, False)
        assert (out == 77).all()
        rows = 0
        while searches.waiting:
            rows += searches.take(0)[0]
        assert rows == N
    finally:
        team.shutdown()


def test_rows_that_are_not_whole_are_left_to_pieces() -> None:
    backend = CpuBackend(2)
    try:
        some = np.arange(5)
        searches, _ = searches_of("fractions", backend, targets=some, columns=5)
        assert searches.take_all(2, math.inf) == (0, False)
        assert searches.waiting
        few, _ = searches_of("fractions", backend, sources=3)
        assert few.take_all(2, math.inf) == (0, False)  # single searches with a heap
    finally:
        backend.shutdown()


def test_blocks_that_were_given_up_are_searched_in_another_way() -> None:
    backend = CpuBackend(2)
    try:
        searches, out = searches_of("fractions", backend)
        piece = next(iter(searches._pieces))
        form = piece.group._form
        piece.group.__dict__["_form"] = (*form[:3], (0, 0))  # no relaxations may be made
        rows, last = searches.take_all(2, math.inf)
        assert (rows, last) == (0, False)
        assert piece.group._tally[1] >= 1
        while searches.waiting:
            searches.take(0)
        other, expected = searches_of("fractions", backend)
        while other.waiting:
            other.take(0)
        assert np.array_equal(out, expected)
    finally:
        backend.shutdown()


def test_a_failure_in_a_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CpuBackend(2)
    try:
        searches, _ = searches_of("fractions", backend)
        monkeypatch.setattr(lanes, "search_all_lanes", lambda threads, pool, given: 1)
        with pytest.raises(MemoryError):
            searches.take_all(2, math.inf)
    finally:
        backend.shutdown()


def test_kernels_that_are_not_compiled_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def kernel(threads: int, pool: Any, given: Any) -> int:
        asked.append(threads)
        raise NotCompiledError("it is not")

    monkeypatch.setattr(lanes, "search_all_lanes", kernel)
    backend = CpuBackend(2)
    try:
        for _ in range(2):
            searches, out = searches_of("fractions", backend)
            assert searches.take_all(2, math.inf) == (0, False)
            assert (out == 77).all()
            assert searches.waiting
        assert len(asked) == 1  # what was not there is not looked for again
    finally:
        backend.shutdown()
