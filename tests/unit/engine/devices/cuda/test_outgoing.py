"""Rows on their way out: what is written where, and when a buffer may be used again.  No GPU: copies are imitated."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.kernels.locked_sink import LockedSink
from engine.devices.cuda.outgoing import Outgoing, Outlet
from engine.devices.cuda.pinned import HostMemory
from engine.model.rows import ArraySink


class Stream:
    """Copies happen in order, each as late as it may: when somebody waits for it."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.queued: list[tuple[int, int, int]] = []
        self.done, self.ptr, self.lock = 0, 0, threading.Lock()
        Stream.last = self

    def run(self, count: int) -> None:
        with self.lock:
            for there, here, size in self.queued[self.done : count]:
                ctypes.memmove(there, here, size)
            self.done = max(self.done, count)

    def synchronize(self) -> None:
        self.run(len(self.queued))


class Event:
    def __init__(self, disable_timing: bool = False) -> None:
        self.stream: Any = None
        self.count = 0

    def record(self, stream: Stream) -> None:
        self.stream, self.count = stream, len(stream.queued)

    def synchronize(self) -> None:
        self.stream.run(self.count)


class Rows:
    """An array that is said to be on the device."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.data, self.strides = SimpleNamespace(ptr=array.ctypes.data), array.strides

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, which: slice) -> Rows:
        return Rows(self.array[which])


def copy(there: int, here: int, size: int, kind: int, stream: int) -> None:
    Stream.last.queued.append((there, here, size))


def copy_rows(
    there: int, pitch: int, here: int, from_pitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    for i in range(height):
        copy(there + i * pitch, here + i * from_pitch, width, kind, stream)


class DriverError(Exception):
    pass


def register(address: int, size: int, flags: int) -> None:
    if size < 2000:
        raise DriverError("too small")


RUNTIME = SimpleNamespace(
    memcpyAsync=copy,
    memcpy2DAsync=copy_rows,
    memcpyDeviceToHost=2,
    hostRegister=register,
    hostUnregister=print,
    CUDARuntimeError=DriverError,
)
CUPY = SimpleNamespace(cuda=SimpleNamespace(Stream=Stream, Event=Event, runtime=RUNTIME))


def memory(array: np.ndarray[Any, Any]) -> HostMemory:
    """As of a driver that locks no less than 2,000 bytes."""
    found = HostMemory(array.reshape(-1).view(np.uint8), array, 0.0, RUNTIME)
    found.lock()
    return found


@pytest.fixture(autouse=True)
def locked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Page-locked memory is imitated; what is held of it is told."""
    held: list[str] = []

    @contextmanager
    def imitated(shape: tuple[int, int], dtype: Any, *, threads: int) -> Iterator[HostMemory]:
        held.append(str(shape))
        yield memory(np.full(shape, 77, dtype))
        held.pop()

    monkeypatch.setattr("engine.devices.cuda.outgoing.host_matrix", imitated)
    return held


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("n", "tile"), [(1, 64), (130, 64), (130, 7), (200, 1)])
def test_every_row_is_written_once(n: int, tile: int, threads: int, locked: list[str]) -> None:
    matrix = np.random.default_rng(n).integers(0, 1000, (n, n)).astype(np.int32)
    sink = ArraySink((n, n), "int32")
    sink.tile = (tile, n)
    outgoing = Outgoing(CUPY, Outlet(sink, threads), (n, n), np.dtype("int32"))
    for first in range(0, n, 50):
        left = outgoing.send(Rows(matrix[first : first + 50]), first)
        assert left.count == len(Stream.last.queued)
    outgoing.finish()
    np.testing.assert_array_equal(sink.array, matrix)
    outgoing.release()
    outgoing.release()
    assert not locked
    with pytest.raises(ValueError, match="after the release"):
        outgoing.send(Rows(matrix), 0)


@pytest.mark.parametrize("locked_sink", [False, True])
def test_rows_of_a_wider_array(locked_sink: bool) -> None:
    whole = np.arange(130 * 160, dtype=np.int32).reshape(130, 160)
    sink = LockedSink(memory(np.zeros((130, 100), np.int32))) if locked_sink else ArraySink((130, 100), "int32")
    outgoing, told = Outgoing(CUPY, Outlet(sink, 2), (130, 100), np.dtype("int32")), list[int]()
    outgoing.told = told.append
    for first in range(0, 130, 50):
        outgoing.send(Rows(whole[first : first + 50, :100]), first)
    outgoing.finish()
    outgoing.release()
    np.testing.assert_array_equal(sink.array, whole[:, :100])
    assert sum(told) == 130


def test_a_sink_in_page_locked_memory_is_copied_into(locked: list[str]) -> None:
    matrix = np.arange(10_000, dtype=np.int32).reshape(100, 100)
    sink = LockedSink(memory(np.zeros((100, 100), np.int32)))
    outgoing = Outgoing(CUPY, Outlet(sink, 2), (100, 100), np.dtype("int32"))
    for first in range(0, 100, 30):
        outgoing.send(Rows(matrix[first : first + 30]), first)
    assert len(Stream.last.queued) == 4
    outgoing.finish()
    outgoing.release()
    np.testing.assert_array_equal(sink.array, matrix)


def test_memory_that_the_driver_does_not_lock_is_written_by_threads() -> None:
    matrix = np.arange(400, dtype=np.int32).reshape(20, 20)
    sink = LockedSink(memory(np.zeros((20, 20), np.int32)))
    outgoing = Outgoing(CUPY, Outlet(sink, 2), (20, 20), np.dtype("int32"))
    outgoing.send(Rows(matrix), 0)
    outgoing.finish()
    outgoing.release()
    np.testing.assert_array_equal(sink.array, matrix)


def test_what_a_writer_raises_is_heard() -> None:
    class Full(ArraySink):
        def write(self, row: int, column: int, block: np.ndarray[Any, Any]) -> None:
            raise OSError("the disk is full")

    outgoing = Outgoing(CUPY, Outlet(Full((20, 20), "int32"), 2), (20, 20), np.dtype("int32"))
    outgoing.send(Rows(np.zeros((20, 20), np.int32)), 0)
    with pytest.raises(OSError, match="disk is full"):
        outgoing.finish()
    outgoing.release()


def test_nothing_to_send_needs_no_memory(locked: list[str]) -> None:
    outgoing = Outgoing(CUPY, Outlet(ArraySink((0, 0), "int32"), 2), (0, 0), np.dtype("int32"))
    outgoing.finish()
    assert not locked
    outgoing.release()


def test_buffers_are_let_go_of_at_the_release(locked: list[str]) -> None:
    sink = ArraySink((100, 100), "int32")
    outgoing = Outgoing(CUPY, Outlet(sink, 2), (100, 100), np.dtype("int32"))
    outgoing.send(Rows(np.ones((100, 100), np.int32)), 0)
    outgoing.finish()
    held = weakref.ref(outgoing._opened.result()[0].base)
    assert held() is not None
    outgoing.release()
    assert held() is None
