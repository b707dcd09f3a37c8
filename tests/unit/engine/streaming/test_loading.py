"""Rows that are filled while a solve works: their order, pieces, and faults."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from engine.model.progress import Monitor
from engine.model.tiling import FINISHED, LOWERED, Tiling
from engine.streaming import loading, passes
from engine.streaming.loading import Loading, piece_stripes
from storage.errors import Cancelled, StorageFailed

N, ROW = 1000, 4096
TILING = Tiling("host", 64, 128, passes=True)
STRIPES = range(TILING.stripes(N))


class Rows:
    """What is filled and locked, and by which calls."""

    def __init__(self, *, slow=0.0, fails_at=None):
        self.filled, self.locked = np.zeros(N, np.int64), np.zeros(N, np.int64)
        self.slow, self.fails_at, self.order = slow, fails_at, []

    def fill(self, first, last):
        time.sleep(self.slow)
        if self.fails_at is not None and first <= self.fails_at < last:
            raise StorageFailed("a tile is damaged")
        assert last - first <= 64
        self.filled[first:last] += 1

    def lock(self, first, last):
        assert (self.filled[first:last] == 1).all()
        assert first * ROW % 4096 == 0
        self.locked[first:last] += 1
        self.order.append(first)


@contextmanager
def begun(rows, **more):
    with Loading(TILING, (N, ROW), fill=rows.fill, lock=rows.lock, band=16, **more) as found, found:
        found.begin()
        yield found


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(loading, "_PIECE", 1)
    monkeypatch.setattr(loading, "_SHARE", 16 * ROW)


@pytest.mark.parametrize("threads", [1, 5])
def test_each_row_is_filled_and_locked_once(threads):
    rows = Rows()
    with begun(rows, threads=threads) as found:
        found.wait(Monitor(), STRIPES)
        assert (rows.filled == 1).all()
        assert (rows.locked == 1).all()


def test_nothing_is_locked_before_devices_have_their_memory():
    rows = Rows()
    with begun(rows) as found:
        until = time.monotonic() + 60
        while not (rows.filled == 1).all():
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.1)
        assert not rows.locked.any()
        found.wait(Monitor(), [0])
        assert (rows.locked[:64] == 1).all()


def test_what_is_needed_first_is_filled_first():
    levels = np.array([LOWERED] * 14 + [FINISHED] * 2)
    order = passes.order(levels, TILING, N)
    assert order[:4] == [12, 13, 14, 15]  # the pass up: panel 6 by panel 7
    assert sorted(order) == list(STRIPES)
    rows = Rows()
    with begun(rows, order=order) as found:
        found.wait(Monitor(), STRIPES)
    assert rows.order == [64 * stripe for stripe in order]


def test_pieces_that_nobody_asks_for_are_locked_slowly_and_those_asked_for_at_once(monkeypatch):
    monkeypatch.setattr(loading, "_PAUSE", 60.0)
    rows = Rows()
    with begun(rows) as found:
        found.wait(Monitor(), [0])
        time.sleep(0.1)
        assert rows.locked.sum() == 64
        found.ready(5).result()
        assert rows.locked.sum() == 6 * 64
        time.sleep(0.05)
        assert rows.locked.sum() == 6 * 64


@pytest.mark.parametrize("at", [0, 500, N - 1])
def test_a_row_that_cannot_be_read_fails_its_own_stripe(at):
    rows = Rows(fails_at=at)
    with begun(rows, threads=3) as found:
        found.wait(Monitor(), [])
        for stripe in STRIPES:
            if stripe == at // 64:
                continue
            found.ready(stripe).result()
        with pytest.raises(StorageFailed, match="damaged"):
            found.ready(at // 64).result()
        with pytest.raises(StorageFailed, match="damaged"):
            found.wait(Monitor(), [at // 64])
    assert rows.locked.sum() == N - (TILING.rows(at // 64, N)[1] - TILING.rows(at // 64, N)[0])


def test_what_the_driver_raises_is_told_and_others_are_locked():
    rows = Rows()
    real = rows.lock

    def lock(first, last):
        if first == 128:
            raise RuntimeError("the driver is lost")
        real(first, last)

    rows.lock = lock
    with begun(rows) as found:
        found.wait(Monitor(), [0, 1, 3])
        with pytest.raises(RuntimeError, match="lost"):
            found.ready(2).result()


def test_no_thread_touches_rows_after_the_end():
    rows = Rows(slow=0.05)  # so that 63 parts would take two seconds
    with begun(rows, threads=2) as found:
        found.wait(Monitor(), [0])
    filled, locked = rows.filled.copy(), rows.locked.copy()
    assert filled.sum() < N
    time.sleep(0.1)
    np.testing.assert_array_equal(rows.filled, filled)
    np.testing.assert_array_equal(rows.locked, locked)
    assert not [t for t in threading.enumerate() if t.name.startswith(("apsp-load", "apsp-lock"))]


def test_who_stops_while_waiting_waits_no_longer():
    class Stop(Monitor):
        def cancelled(self):
            return True

    with begun(Rows(slow=0.01)) as found, pytest.raises(Cancelled):
        found.wait(Stop(), STRIPES)


@pytest.mark.parametrize(("size", "stripes"), [(4096, 1), (2048, 2), (256 * 333, 16), (4 * 64 * 1001, 16), (0, 1)])
def test_pieces_begin_at_pages(size, stripes):
    assert piece_stripes(size) == stripes
    assert stripes * size % 4096 == 0
