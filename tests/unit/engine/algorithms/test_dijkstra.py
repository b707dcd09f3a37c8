"""Batches: their sizes, the order of rows, what is held, how a cancelled or failing solve ends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engine.algorithms.dijkstra import SHARE_SECONDS, RowBatches, RowSearch, run
from engine.devices.cpu.searches import Searches
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.progress import Monitor
from storage.errors import Cancelled, StorageFailed
from storage.graph.graph import Graph
from tests.unit.engine.algorithms.harness import Array, Collect, Searcher, Tally, make_graph, oracle


def searched(
    graph: Graph, sources: Array, dtype: str, sink: Collect, monitor: Monitor, batch: int, *, unit: bool = False
) -> RowSearch:
    rows = Rectangle(graph.n, sources, None, None)
    return RowSearch(GraphProfile(graph).arcs, rows, dtype, sink, monitor, batch, unit)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 500])
def test_rows_come_out_whole_and_in_the_order_of_the_sources(rows: int) -> None:
    graph = make_graph(500, 2_000)
    sources = np.random.default_rng(3).permutation(500)[:rows]
    backend, sink, tally = Searcher(), Collect(rows, 500, "float64", 64), Tally()
    run(backend, searched(graph, sources, "float64", sink, tally, 128))
    backend.shutdown()
    assert np.array_equal(sink.array, oracle(graph, sources))
    assert tally.begun == [("search", rows, "rows")]
    assert tally.done == rows == sum(backend.calls)
    assert max(backend.calls) <= 128


def test_a_batch_is_written_while_the_next_one_is_searched() -> None:
    written, waited = threading.Event(), []

    class Told(Collect):
        def write(self, row: int, column: int, block: Array) -> None:
            super().write(row, column, block)
            written.set()

    class Waits(Searcher):
        def begin_search(self, *given: Any, **more: Any) -> Searches:
            found = super().begin_search(*given, **more)
            if len(self.calls) == 3:  # both buffers have been in use
                waited.append(written.wait(30))
            return found

    backend, sink = Waits(), Told(400, 400, "int32", 64)
    run(backend, searched(make_graph(400, 1_000), np.arange(400), "int32", sink, Monitor(), 64))
    backend.shutdown()
    assert all(waited)
    assert waited


def test_unit_weights_give_hops() -> None:
    graph = make_graph(200, 600)
    ones = Graph(graph.indptr, graph.heads, np.ones(graph.arcs, np.int32), graph.labels, directed=True, weighted=False)
    backend, sink = Searcher(), Collect(200, 200, "float32", 32)
    run(backend, searched(ones, np.arange(200), "float32", sink, Monitor(), 64, unit=True))
    backend.shutdown()
    assert np.array_equal(sink.array, oracle(ones, np.arange(200)).astype(np.float32))


def test_a_cancelled_solve_stops_soon() -> None:
    class Slow(Searcher):
        def begin_search(self, *given: Any, **more: Any) -> Searches:
            time.sleep(0.2)
            return super().begin_search(*given, **more)

    graph = make_graph(400, 1_000)
    backend, tally = Slow(), Tally(stop_after=1)
    with pytest.raises(Cancelled):
        run(backend, searched(graph, np.arange(400), "int32", Collect(400, 400, "int32", 64), tally, 64))
    backend.shutdown()
    assert len(backend.calls) <= 3


def test_a_sink_that_fails_ends_the_solve_with_its_error() -> None:
    class Full(Collect):
        def write(self, row: int, column: int, block: Array) -> None:
            raise StorageFailed("no space left")

    backend = Searcher()
    with pytest.raises(StorageFailed, match="no space"):
        run(
            backend,
            searched(make_graph(400, 1_000), np.arange(400), "int32", Full(400, 400, "int32", 64), Monitor(), 64),
        )
    backend.shutdown()
    assert len(backend.calls) <= 3


def test_batches_are_whole_tiles_that_grow_to_the_limit_and_cover_all_rows() -> None:
    batches = RowBatches(1_000, 16, 200)
    ranges = list(batches)
    assert batches.most == 192
    assert [len(r) for r in ranges[:4]] == [16, 64, 192, 192]
    assert all(a.stop == b.start for a, b in pairwise(ranges))
    assert ranges[0].start == 0
    assert ranges[-1].stop == 1_000
    assert RowBatches(10, 64, 1).most == 10
    assert [len(r) for r in RowBatches(100, 64, 100, 1, 1_000)] == [100]
    assert [len(r) for r in RowBatches(1_000, 16, 200, 1, 100)][:2] == [96, 192]


def test_slow_batches_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("engine.algorithms.dijkstra.time.perf_counter", lambda: clock[0])
    sizes = []
    for rows in RowBatches(4_000, 10, 4_000):
        sizes.append(len(rows))
        clock[0] += len(rows) * 0.003
    assert sizes[:4] == [10, 40, 100, 100]


@pytest.mark.parametrize(("row_seconds", "size"), [(0.01, 160), (0.08, 120), (2.0, 10)])
def test_batches_keep_all_threads_busy_unless_that_takes_long(
    row_seconds: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("engine.algorithms.dijkstra.time.perf_counter", lambda: clock[0])
    sizes = []
    for rows in RowBatches(4_000, 10, 4_000, 160):
        sizes.append(len(rows))
        clock[0] += len(rows) * row_seconds
    assert sizes[3] == size


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        (23.0, 1024),  # 128 rows for each thread would be more than all rows
        (1024 * 0.1, 800),  # 0.1 s a row: the first batch takes the seconds that a batch may take
        (1024 * 3.0, 64),
        (None, 64),
    ],
)
def test_a_large_first_batch_keeps_all_threads_busy_if_the_prediction_allows_it(
    seconds: float | None, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as in a graph whose rows are so long that a batch of FIRST_ENTRIES has few rows
    monkeypatch.setattr("engine.algorithms.dijkstra.FIRST_ENTRIES", 64 * 2000)
    monkeypatch.setattr("engine.algorithms.dijkstra.BUSY_ENTRIES", 64 * 2000)
    graph, sources = make_graph(2000, 4_000), np.arange(1024)
    backend, sink = Searcher(8), Collect(1024, 2000, "float64", 16)
    run(backend, replace(searched(graph, sources, "float64", sink, Monitor(), 2048), seconds=seconds))
    backend.shutdown()
    assert backend.calls[0] == first
    assert np.array_equal(sink.array, oracle(graph, sources))


@pytest.mark.parametrize(("seconds", "few"), [(None, None), (0.0, 2), (2.5 * SHARE_SECONDS, 3), (99.0, None)])
def test_threads_are_begun_as_the_predicted_seconds_need_them(
    seconds: float | None, few: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int | None] = []
    share = Searcher.share

    def remember(self: Searcher, work: Any, most: int | None = None) -> None:
        begun.append(most)
        share(self, work, most)

    monkeypatch.setattr(Searcher, "share", remember)
    graph, backend, sink = make_graph(100, 400), Searcher(5), Collect(100, 100, "float64", 64)
    search = searched(graph, np.arange(100), "float64", sink, Monitor(), 64)
    run(backend, replace(search, seconds=seconds))
    backend.shutdown()
    assert np.array_equal(sink.array, oracle(graph, np.arange(100)))
    assert begun == [few]
