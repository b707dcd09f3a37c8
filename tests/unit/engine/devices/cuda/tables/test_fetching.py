"""Copies of answers through page-locked buffers, with plain memory in place of a device's."""

from __future__ import annotations

import ctypes
import time
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from engine.devices.cuda.tables import fetching
from engine.devices.cuda.tables.fetching import AnswerFetcher
from tests.cycles import keepers, no_collection


class There:
    """Stands for a device array."""

    def __init__(self, array):
        self.array, self.data = array, SimpleNamespace(ptr=array.ctypes.data)

    def get(self, out):
        out[:] = self.array


class Event:
    def __init__(self, disable_timing):
        self.recorded = False

    def record(self, stream):
        self.recorded = True

    def synchronize(self):
        assert self.recorded


@pytest.fixture
def cupy(monkeypatch):
    opened = []

    @contextmanager
    def matrix(shape, dtype, *, threads):
        opened.append(shape)
        yield SimpleNamespace(array=np.zeros(shape, dtype))
        opened.append("unlocked")

    def copy(to, source, size, kind, stream):
        ctypes.memmove(to, source, size)

    monkeypatch.setattr(fetching, "host_matrix", matrix)
    runtime = SimpleNamespace(memcpyAsync=copy, memcpyDeviceToHost=2)
    cuda = SimpleNamespace(runtime=runtime, Event=Event, get_current_stream=lambda: SimpleNamespace(ptr=0))
    return SimpleNamespace(cuda=cuda, opened=opened)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float64"])
def test_every_byte_arrives(cupy, monkeypatch, dtype):
    monkeypatch.setattr(fetching, "_BUFFER", 4096)
    monkeypatch.setattr(fetching, "_SMALL", 1000)
    fetcher = AnswerFetcher(cupy, 3)
    for shape in ((7,), (1024, 5), (4096,), (1, 33_333), (0, 4)):
        source = np.random.default_rng(1).integers(0, 60_000, shape).astype(dtype)
        out = np.zeros(shape, dtype)
        fetcher.fetch(There(source), out)
        np.testing.assert_array_equal(out, source)
    fetcher.release()
    assert cupy.opened == [(5, 4096), "unlocked"]


def test_small_answers_lock_nothing_and_errors_are_raised(cupy, monkeypatch):
    fetcher = AnswerFetcher(cupy, 100)
    out = np.zeros(9, np.int32)
    fetcher.fetch(There(np.arange(9, dtype=np.int32)), out)
    assert (out.sum(), cupy.opened) == (36, [])
    monkeypatch.setattr(fetching, "_SMALL", 1)
    monkeypatch.setattr(Event, "synchronize", lambda self: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        fetcher.fetch(There(np.arange(9, dtype=np.int32)), out)
    fetcher.release()
    assert cupy.opened == [(10, 8 << 20), "unlocked"]


@pytest.mark.parametrize("fails", [1, 3, 30])
@pytest.mark.parametrize("call", ["synchronize", "memcpyAsync"])
def test_what_fails_keeps_no_answer(cupy, monkeypatch, call, fails):
    """Whether a copy to or from the buffers fails, and whether it is noticed at once or at the end."""
    monkeypatch.setattr(fetching, "_BUFFER", 4096)
    monkeypatch.setattr(fetching, "_SMALL", 1000)
    fetcher, calls, place = AnswerFetcher(cupy, 3), [], Event if call == "synchronize" else cupy.cuda.runtime
    real = getattr(place, call)

    def failing(*given):
        calls.append(call)
        if len(calls) >= fails:
            raise ZeroDivisionError
        return real(*given)

    def fetch():
        out = np.zeros(2**17)
        kept.append(weakref.ref(out))
        fetcher.fetch(There(np.ones(2**17)), out)

    monkeypatch.setattr(place, call, failing)
    kept = []
    with no_collection():
        with pytest.raises(ZeroDivisionError):
            fetch()
        until = time.monotonic() + 20
        while kept[0]() is not None and time.monotonic() < until:
            time.sleep(0.001)  # a thread drops its last task a moment after its result was taken
        assert kept[0]() is None, keepers(kept[0]())
    fetcher.release()
