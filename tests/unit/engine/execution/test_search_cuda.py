"""Batches of searches: what is searched while what leaves, and what happens when a batch is given up; no GPU needed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks import graphs
from engine.algorithms.context import SolveContext
from engine.api.solve import make_plan, solve
from engine.devices.cpu.row_facts import count_rows, row_facts
from engine.devices.cuda.search_kernels import list_shared
from engine.execution import search_cuda
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.device_layout import LEAST_BATCH, LISTED, SearchLayout, form_of
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.rows import ArraySink, RowFacts
from engine.rows.summary import Summary
from storage.errors import Cancelled

GRAPH = graphs.random(200)
MATRIX = csr_array((GRAPH.weights.astype(np.float64), GRAPH.heads, GRAPH.indptr), shape=(200, 200))
ANSWER = dijkstra(MATRIX).astype(np.int32)


class FakeSearch:
    """Gives up at a batch; keeps a diary; a batch may only be overwritten once it has been sent."""

    def __init__(self, rows: int, batch: int, gives_up_at: int | None = None) -> None:
        self.answer = ANSWER[:rows]
        self.sink = ArraySink(self.answer.shape, "int32")
        self.batches = [range(first, min(first + batch, rows)) for first in range(0, rows, batch)]
        self.gives_up_at, self.diary = gives_up_at, []
        self.now = range(0)

    def begin(self, rows: range) -> None:
        self.diary.append(("begin", rows.start))
        self.now = rows

    def finish(self) -> RowFacts | None:
        if self.gives_up_at is not None and self.now.start >= self.gives_up_at:
            return None
        return RowFacts(*row_facts(self.answer[self.now.start : self.now.stop], np.array(self.now)))

    def histogram(self, width: float, counts: Any) -> int:
        return count_rows(self.answer[self.now.start : self.now.stop], np.array(self.now), width, counts)

    def leave(self) -> tuple[Any, int, int]:
        return self.answer[self.now.start : self.now.stop], self.now.start, 0

    def send(self, leaving: tuple[Any, int, int]) -> None:
        self.diary.append(("send", leaving[1]))
        self.sink.write(leaving[1], 0, leaving[0])

    def written(self) -> None:
        self.diary.append(("written", 0))


def _summary(rows: int) -> Summary:
    return Summary(np.arange(rows), GRAPH.n, integral=True)


def test_rows_leave_while_the_next_are_searched() -> None:
    search, summary = FakeSearch(200, 64), _summary(200)
    assert search_cuda._batches(search, summary, Monitor(), counted=True) == 200  # type: ignore[arg-type]
    np.testing.assert_array_equal(search.sink.array, search.answer)
    assert search.diary == [
        ("begin", 0), ("begin", 64), ("send", 0), ("begin", 128), ("send", 64), ("begin", 192), ("send", 128),
        ("send", 192), ("written", 0),
    ]  # fmt: skip
    want = solve(GRAPH, make_plan(GRAPH, Options()), Options(), ArraySink((200, 200), "int32")).summary
    assert summary.summary(GRAPH.labels) == want


@pytest.mark.parametrize("gives_up_at", [0, 64, 192])
def test_what_is_given_up_is_searched_by_the_processors(gives_up_at: int) -> None:
    search, summary = FakeSearch(200, 64, gives_up_at), _summary(200)
    done = search_cuda._batches(search, summary, Monitor(), counted=True)  # type: ignore[arg-type]
    assert done == gives_up_at
    plan = Plan("bellman-ford", "int32", "cuda", 2, (200, 200), 0, 0, 0.0, "", "")
    profile, wanted = GraphProfile(GRAPH), Rectangle(200, None, None, None)
    context = SolveContext(profile, plan, Options(), wanted, search.sink, Monitor())
    search_cuda._on_processors(context, profile.arcs, done, summary)
    np.testing.assert_array_equal(search.sink.array, search.answer)
    assert summary.summary(GRAPH.labels)["reached"] == 200 * 199


def test_a_wish_to_stop_is_asked_for_after_each_batch() -> None:
    class Stop(Monitor):
        def cancelled(self) -> bool:
            return True

    search = FakeSearch(200, 64)
    with pytest.raises(Cancelled):
        search_cuda._batches(search, _summary(200), Stop(), counted=True)  # type: ignore[arg-type]
    assert search.diary == [("begin", 0)]


def test_the_form_follows_from_hops() -> None:
    assert form_of(unit=True, hops=9, n=9000, arcs=20_000).name == "hops"
    assert form_of(unit=False, hops=9, n=9000, arcs=20_000).name == "sweep"
    assert form_of(unit=False, hops=500, n=9000, arcs=20_000).name == "lists"
    assert form_of(unit=True, hops=500, n=9000, arcs=20_000).name == "lists"
    # what a thread block marks in shared memory must fit every chip's
    assert list_shared(LISTED) <= 64 * 1024
    assert form_of(unit=False, hops=500, n=LISTED - 1000, arcs=32_000).name == "lists"
    assert form_of(unit=False, hops=500, n=LISTED, arcs=32).name == "sweep"


@pytest.mark.parametrize("form", ["sweep", "lists", "hops"])
def test_batches_follow_from_memory(form: str) -> None:
    layout = SearchLayout(65_536, 262_144, 65_536, 4, form)
    ample = layout.batch(10**12)
    assert ample == (65_536 if form == "lists" else 8192)
    least = layout.bytes(64)
    for memory in (least, 2 * least, 4 * 2**30):
        batch = layout.batch(memory)
        assert batch % 64 == 0
        assert layout.bytes(batch) <= memory
        assert batch == ample or layout.bytes(2 * batch + 64) > memory
    assert layout.batch(0) == 64
    assert SearchLayout(100, 400, 7, 4, form).batch(10**9) == 7
    assert LEAST_BATCH % 64 == 0


@pytest.mark.parametrize("rows", [1, 64, 2048, 2049, 9000, 65_536])
@pytest.mark.parametrize("batch", [64, 2048, 8192, 65_536])
def test_batches_grow_and_hold_every_row_once(rows: int, batch: int) -> None:
    spans = list(SearchLayout(rows, 4 * rows, rows, 4, "sweep").spans(batch))
    assert [row for span in spans for row in span] == list(range(rows))
    assert max(map(len, spans)) <= batch
    assert (len(spans) == 1) == (batch >= rows)
    if len(spans) > 1:
        assert len(spans[0]) == min(batch, LEAST_BATCH)
        assert all(len(b) <= 2 * len(a) for a, b in itertools.pairwise(spans))
