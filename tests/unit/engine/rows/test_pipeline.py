"""The pipeline of rows: every row comes out once whatever sink, buffers and threads; a stop keeps finished batches."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.devices.cpu.backend import CpuBackend
from engine.devices.cpu.searches import BlockRun, Done, Searches
from engine.devices.cpu.team import end_parked
from engine.model.progress import Monitor
from engine.model.rows import ArraySink
from engine.rows import pipeline
from engine.rows.floats import FloatSink
from engine.rows.pipeline import RowPipeline, place_of
from engine.rows.summary import SummarySink
from storage.errors import Cancelled, StorageFailed
from tests.interrupting import Interruption, by_itself

Array = npt.NDArray[Any]
N = 30


class Writes(ArraySink):
    """A sink into which nothing is searched at once."""

    place = None  # type: ignore[assignment]

    def __init__(self, rows: int, tile: int) -> None:
        super().__init__((rows, N), np.int32)
        self.array[:] = -1
        self.tile, self.rows = (tile, N), list[int]()

    def write(self, row: int, column: int, block: Array) -> None:
        assert row % self.tile[0] == 0
        self.rows.extend(range(row, row + len(block)))
        super().write(row, column, block)


def expected(rows: int) -> Array:
    found: Array = np.arange(rows)[:, None] + np.arange(N)
    return found


def begin(rows: range, block: Array, size: int = 3) -> Searches:
    """Pieces of ``size`` rows, every second of which gives up first."""

    def piece(some: Array, *, gives_up: bool) -> Any:
        def run(worker: int) -> Done:
            if gives_up:
                return Done(some[:0], [piece(some, gives_up=False)])
            block[some] = (rows.start + some)[:, None] + np.arange(N)
            return Done(some)

        return run

    parts = [np.arange(k, min(k + size, len(rows))) for k in range(0, len(rows), size)]
    return Searches(piece(some, gives_up=k % 2 == 0) for k, some in enumerate(parts))


def run(
    sink: Any,
    rows: int,
    batch: int,
    buffers: int,
    threads: int,
    monitor: Monitor | None = None,
    few: int | None = None,
) -> None:
    place = place_of(sink, np.int32)
    memory = [np.empty((batch, N), np.int32) for _ in range(buffers)] if place is None else [place]
    ranges = [range(k, min(k + batch, rows)) for k in range(0, rows, batch)]
    backend = CpuBackend(threads)
    try:
        RowPipeline(begin, ranges, sink, monitor or Monitor(), memory, in_place=place is not None, few=few).run(backend)
    finally:
        backend.shutdown()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize(("rows", "batch"), [(0, 8), (1, 8), (8, 8), (41, 8), (200, 16)])
def test_every_row_is_written_once(rows: int, batch: int, buffers: int, threads: int) -> None:
    sink = Writes(rows, 8)
    run(sink, rows, batch, buffers, threads)
    assert np.array_equal(sink.array, expected(rows))
    assert sorted(sink.rows) == list(range(rows))


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [8, 64, 200])
def test_a_sink_that_wants_more_rows_at_a_time_gets_them_if_threads_stay_busy(
    rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "PIECE", 8 * N)
    heights: list[int] = []

    class Together(Writes):
        together = 32

        def write(self, row: int, column: int, block: Array) -> None:
            heights.append(len(block))
            super().write(row, column, block)

    sink = Together(rows, 8)
    run(sink, rows, rows, 1, threads)
    assert np.array_equal(sink.array, expected(rows))
    assert sorted(sink.rows) == list(range(rows))
    pieces = -(-rows // (32 * threads))
    assert len(heights) <= pieces * threads
    assert max(heights) == 8 * -(-rows // (8 * pieces * threads)) <= 32


@pytest.mark.parametrize("patience", [0.0, 60.0])
@pytest.mark.parametrize("few", [1, 2])
def test_a_run_that_seems_short_begins_with_few_threads(
    few: int, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads take part once it has turned out long."""
    monkeypatch.setattr(pipeline, "PATIENCE", patience)
    begun: list[int | None] = []
    widened: list[bool] = []
    share, widen = CpuBackend.share, CpuBackend.widen

    def remember(self: CpuBackend, work: Any, most: int | None = None) -> None:
        begun.append(most)
        share(self, work, most)

    def widens(self: CpuBackend) -> None:
        widened.append(True)
        widen(self)

    monkeypatch.setattr(CpuBackend, "share", remember)
    monkeypatch.setattr(CpuBackend, "widen", widens)
    sink = Writes(200, 8)
    run(sink, 200, 16, 2, 5, few=few)
    assert np.array_equal(sink.array, expected(200))
    assert sorted(sink.rows) == list(range(200))
    assert (begun, widened) == ([few], [True] if patience == 0 else [])


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_rows_are_searched_in_the_place_of_a_sink_in_memory(threads: int, dtype: Any) -> None:
    array = ArraySink((40, N), dtype) if dtype is np.int32 else None
    found = np.full((40, N), -1.0)
    inner = array or FloatSink(found, 2**30 - 1)
    sink = SummarySink(inner, np.arange(40) % N, N, integral=True)
    assert place_of(sink, np.int32) is (found if array is None else array.array)
    run(sink, 40, 16, 0, threads)
    whole = found if array is None else array.array
    assert np.array_equal(whole, expected(40))
    facts = sink.summary(np.arange(N))
    assert facts["sum"] == expected(40).sum() - sum(i + i % N for i in range(40))


def test_no_place_where_types_differ() -> None:
    assert place_of(ArraySink((2, 2), np.float32), np.int32) is None
    assert place_of(ArraySink((2, 2), np.float64), np.float32) is None
    assert place_of(ArraySink((2, 2), np.int32), np.uint16) is None


@pytest.mark.parametrize("threads", [1, 3])
def test_a_stop_keeps_the_rows_that_were_told(threads: int) -> None:
    class Stops(Monitor):
        told = 0

        def advance(self, amount: int) -> None:
            self.told += amount

        def cancelled(self) -> bool:
            return self.told >= 16

    sink, monitor = Writes(400, 8), Stops()
    with pytest.raises(Cancelled):
        run(sink, 400, 16, 2, threads, monitor)
    assert len(sink.rows) == monitor.told >= 16
    assert sorted(sink.rows) == list(range(len(sink.rows)))
    assert np.array_equal(sink.array[: len(sink.rows)], expected(len(sink.rows)))


def test_rows_that_another_thread_was_writing_when_a_stop_came_are_told() -> None:
    """The stop comes while that thread has written its piece, and has not yet said so."""
    stopped = threading.Event()

    class Slow(Writes):
        def write(self, row: int, column: int, block: Array) -> None:
            super().write(row, column, block)
            if threading.current_thread() is caller:
                slow.wait(60)  # else this thread could write all rows before the other one begins
            else:
                slow.set()
                stopped.wait(60)

    class Stops(Monitor):
        told = 0

        def advance(self, amount: int) -> None:
            self.told += amount

        def cancelled(self) -> bool:
            if slow.is_set():
                stopped.set()
            return slow.is_set()

    caller, slow = threading.current_thread(), threading.Event()
    sink, monitor = Slow(4000, 8), Stops()
    with pytest.raises(Cancelled):
        run(sink, 4000, 16, 2, 2, monitor)
    assert len(sink.rows) == monitor.told


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("where", ["write", "search", "begin"])
def test_an_error_ends_all_threads_and_comes_out(threads: int, where: str) -> None:
    class Full(Writes):
        def write(self, row: int, column: int, block: Array) -> None:
            if where == "write":
                raise StorageFailed("no space left")
            super().write(row, column, block)

    def fails(rows: range, block: Array) -> Searches:
        if where == "begin" and rows.start >= 16:
            raise StorageFailed("no space left")
        if where == "search" and rows.start >= 16:
            return Searches([lambda _: (_ for _ in ()).throw(StorageFailed("no space left"))])
        return begin(rows, block)

    backend, before = CpuBackend(threads), threading.active_count()
    memory = [np.empty((16, N), np.int32) for _ in range(2)]
    ranges = [range(k, k + 16) for k in range(0, 160, 16)]
    with pytest.raises(StorageFailed, match="no space"):
        RowPipeline(fails, ranges, Full(160, 8), Monitor(), memory, in_place=False).run(backend)
    backend.shutdown()
    end_parked()
    assert threading.active_count() <= before


def test_an_interrupt_wherever_python_looks_for_one_ends_all_threads() -> None:
    """In the pipeline, and in the locks and conditions that it uses; the threads take part in the next run."""

    def work() -> int:
        backend, count, missed = CpuBackend(2), 0, 0
        for at in range(1, 10**5):
            sink = Writes(12, 4)
            buffers = [np.empty((4, N), np.int32) for _ in range(2)]
            batches = (range(k, k + 4) for k in range(0, 12, 4))
            rows = RowPipeline(begin, batches, sink, Monitor(), buffers, in_place=False)
            if Interruption(at, pipeline, threading).hits(lambda rows=rows: ended(rows, backend)):
                count, missed = count + 1, 0
            elif (missed := missed + 1) == 50:  # how many steps this thread takes depends on the other one
                break
        backend.shutdown()
        return count

    assert by_itself(work) > 50


def ended(rows: RowPipeline, backend: CpuBackend) -> None:
    """Run; an interrupt while a condition takes its lock again is an error about that lock."""
    try:
        rows.run(backend)
    except RuntimeError as error:
        raise KeyboardInterrupt from error


class Blocks:
    """Blocks of which one call does some, and leaves one to a second call, one to pieces and the others untouched."""

    def __init__(self, block: Array, done: int, *, once: bool = False) -> None:
        self.block, self.done, self.once, self.calls = block, done, once, list[int]()

    def search(self, rows: Array, worker: int) -> Done:
        self.block[rows] = rows[:, None] + np.arange(N)
        return Done(rows)

    def search_all(self, blocks: Any, threads: int, seconds: float, *, facts: bool) -> Done | None:
        assert facts
        assert 0 < seconds <= pipeline.AT_ONCE
        self.calls.append(threads)
        if self.done < 0 or (self.once and len(self.calls) > 1):
            return None
        every = list(blocks)
        finished = [self.search(rows, 0).rows for rows in every[: self.done]]
        left = [BlockRun.of(self, every[self.done :])] if every[self.done :] else []
        return Done(np.concatenate([np.empty(0, np.int64), *finished]), left)


@pytest.mark.parametrize(
    ("done", "once", "calls", "shared"),
    [
        (-1, False, 2, [None]),
        (0, False, 2, [None]),
        (3, False, 2, [None]),
        (18, False, 2, []),
        (18, True, 2, [1]),
        (20, False, 1, []),
        (99, False, 1, []),
    ],
)
def test_a_short_run_is_begun_by_one_call(
    done: int, once: bool, calls: int, shared: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is done piece by piece: by one thread if it is little, and by none if it is nothing."""
    groups, told, begun = list[Blocks](), list[int](), list[int | None]()
    share = CpuBackend.share

    def remember(self: CpuBackend, work: Any, most: int | None = None) -> None:
        begun.append(most)
        share(self, work, most)

    def begin_blocks(rows: range, block: Array) -> Searches:
        groups.append(Blocks(block, done, once=once))
        return Searches([BlockRun.of(groups[0], np.array_split(np.arange(len(rows)), 20))])

    class Steps(Monitor):
        def step(self, amount: int) -> None:
            told.append(amount)

    monkeypatch.setattr(CpuBackend, "share", remember)
    sink, backend = SummarySink(inner := ArraySink((100, N), np.int32), range(100), N, integral=True), CpuBackend(3)
    sink._own[N:] = -1
    try:
        RowPipeline(begin_blocks, [range(100)], sink, Steps(), [inner.array], in_place=True).run(backend, at_once=True)
    finally:
        backend.shutdown()
    assert np.array_equal(inner.array, expected(100))
    assert (groups[0].calls, begun) == ([3] * calls, shared)
    assert sum(told) == 100
    assert sink.part(0).reached == 100 * N - N


def test_a_stop_is_noticed_after_one_call() -> None:
    class Stops(Monitor):
        def step(self, amount: int) -> None:
            raise Cancelled("stop")

    def begin_blocks(rows: range, block: Array) -> Searches:
        group = Blocks(block, 20)
        return Searches([BlockRun.of(group, np.array_split(np.arange(len(rows)), 20))])

    sink, backend = SummarySink(inner := ArraySink((20, N), np.int32), range(20), N, integral=True), CpuBackend(1)
    try:
        with pytest.raises(Cancelled):
            RowPipeline(begin_blocks, [range(20)], sink, Stops(), [inner.array], in_place=True).run(
                backend, at_once=True
            )
    finally:
        backend.shutdown()
