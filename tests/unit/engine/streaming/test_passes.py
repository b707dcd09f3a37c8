"""Passes on the processors, against the textbook: types, ragged ends, resume, mixtures, other cuts, faults."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.algorithms import floyd_warshall
from engine.devices.cpu.backend import CpuBackend
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import Monitor
from engine.model.stripe_device import BelowZero
from engine.model.tier import HostTier
from engine.model.tiling import FINISHED, LOWERED, WALKS, Tiling, passed_bytes, updates
from engine.streaming import passes
from engine.streaming.cpu_panels import CpuPanels
from engine.streaming.passes import Direction, tasks
from storage.errors import Cancelled, SolveFailed, StorageFailed
from storage.threads import Promise
from tests import oracle
from tests.interrupting import by_itself
from tests.unit.engine.streaming.test_schedule import Strict, Tally


@pytest.fixture(scope="module")
def backends():
    made = [CpuBackend(1) for _ in range(4)]
    yield made
    for backend in made:
        backend.shutdown()


@pytest.fixture(scope="module")
def backend(backends):
    return backends[0]


class Counting(Strict):
    """Checks what :class:`Strict` checks, that no stripe is taken while it is written, and counts the bytes that are
    read and written.
    """

    def __init__(self, matrix, streaming, devices=1):
        super().__init__(matrix, streaming, devices)
        self.most = devices * (self.window + streaming.slots + 1)
        self.read = self.written = 0
        self.open: set[int] = set()  # stripes that a device is about to write
        self.retired: list[int] = []

    def _empty(self, stripe):
        with self.guard:
            self.out[stripe] = self.out.get(stripe, 0) + 1  # a stripe may be read twice at a time, for two panels
            assert sum(self.out.values()) <= self.most
        first, last = self._tiling.rows(stripe, self.n)
        return np.full((last - first, self.n), 1, self.dtype)

    def retire(self, stripe):
        with self.guard:
            assert stripe not in self.open
            assert stripe not in self.retired
            assert self.level[stripe] == FINISHED
            self.retired.append(stripe)

    def blank(self, stripe):
        with self.guard:
            assert stripe not in self.open
            assert stripe not in self.retired
            self.open.add(stripe)
        return self._empty(stripe)

    def take(self, stripe):
        assert stripe not in self.open, "a stripe is taken while it is written"
        assert stripe not in self.retired
        rows = self._empty(stripe)
        rows[:] = HostTier.blank(self, stripe)
        with self.guard:
            self.read += rows.nbytes
        return Promise.of(rows)

    def give(self, k, stripe, rows):
        with self.guard:
            self.written += rows.nbytes
            self.open.remove(stripe)
        super().give(k, stripe, rows)

    def commit(self, k):
        assert not self.commits or k == self.commits[-1] + 1
        self.commits.append(k)


class Keeping(CpuPanels):
    """A device that keeps its last panel and holds stripes, as GPUs do."""

    keeps = True

    def open(self, job, index, resident):
        super().open(job, index, resident)
        self.held, self.most_held = {}, job.tiling.resident

    def give(self, k, level):
        super().give(k, level)
        self.kept = self._job.pivot(k)[0], self._panel(k).copy()

    def lower(self, k, stripe, rows, *, hold=False):
        if hold:
            assert rows is not None
            assert stripe not in self.held
            self.held[stripe] = rows.copy()
            assert len(self.held) <= self._job.tiling.resident
        if rows is None:
            if stripe in self.held:
                rows = self.held[stripe].copy()
            else:
                top, bottom = self._job.rows(stripe)
                start, panel = self.kept
                assert 0 <= top - start < len(panel)
                rows = panel[top - start : bottom - start].copy()
            with self._job.tier.guard:
                self._job.tier.out[stripe] = self._job.tier.out.get(stripe, 0) + 1
        super().lower(k, stripe, rows)

    def forget(self):
        self.held = {}


def solve(backend, matrix, streaming, *, nonnegative=True, monitor=None, levels=None, tier=None, kind=CpuPanels):
    """One device for each backend."""
    backends = backend if isinstance(backend, list) else [backend]
    tier = tier or Counting(matrix, streaming, len(backends))
    if levels is not None:
        tier.level[:] = levels
    devices = [kind(some) for some in backends]
    passes.run(streaming, tier, devices, monitor or Monitor(), nonnegative=nonnegative, levels=levels)
    return tier


def lengths(weights, most):
    """The lengths of the shortest walks with intermediate vertices below ``most[row]`` only."""
    found = weights.copy()
    np.fill_diagonal(found, np.minimum(found.diagonal(), 0))
    wanted = np.empty_like(found)
    for k in range(len(weights) + 1):
        wanted[most == k] = found[most == k]
        if k < len(weights):
            np.minimum(found, found[:, k, None] + found[k], out=found)
    return wanted


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 130, 257, 400])
@pytest.mark.parametrize("dtype", list(WORK_TYPES))
@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 128), (128, 256)])
def test_distances(backend, dtype, n, height, width):
    weights = oracle.random_weights(n, seed=n, density=min(1, 3 / n))
    streaming = Tiling("host", height, width, passes=True)
    found, tally = oracle.encode(weights, dtype), Tally()
    tier = solve(backend, found, streaming, monitor=tally)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), dtype))
    assert tally.begun == [("relax", updates(streaming, n), "updates")]
    assert tally.done == updates(streaming, n)
    assert (tier.level == FINISHED).all()
    assert not any(tier.out.values())
    if n % width == 0:
        assert (tier.read, tier.written) == passed_bytes(streaming, n, found.itemsize)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 520), group=st.integers(1, 4), negative=st.booleans(), seed=st.integers(0, 99))
def test_arcs_of_both_signs(backend, n, group, negative, seed):
    weights = oracle.random_weights(n, seed=seed, density=min(1, 4 / n), negative=negative)
    found = oracle.encode(weights, "int32")
    solve(backend, found, Tiling("host", 64, 64 * group, passes=True), nonnegative=not negative)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "int32"))


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 700),
    cut=st.sampled_from([(64, 64), (64, 128), (64, 192), (128, 128), (128, 256)]),
    devices=st.integers(2, 4),
    dtype=st.sampled_from(list(WORK_TYPES)),
    negative=st.booleans(),
    kind=st.sampled_from([CpuPanels, Keeping]),
    held=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_any_number_of_devices(backends, n, cut, devices, dtype, negative, kind, held, seed):
    negative &= dtype != "uint16"
    weights = oracle.random_weights(n, seed=seed, density=min(1, 4 / n), negative=negative)
    streaming, tally = Tiling("host", *cut, 4, resident=held * (cut[1] // cut[0]), passes=True), Tally()
    found = oracle.encode(weights, dtype)
    tier = solve(backends[:devices], found, streaming, nonnegative=not negative, monitor=tally, kind=kind)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), dtype))
    assert tally.begun == [("relax", n**3, "updates")]
    assert tally.done == n**3
    assert tally.threads <= {threading.get_ident()}
    assert (tier.level == FINISHED).all()
    assert not any(tier.out.values())
    assert tier.written <= passed_bytes(streaming, n, found.itemsize)[1] + streaming.width * n * found.itemsize


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 400),
    cut=st.sampled_from([(64, 64), (64, 128), (64, 192), (128, 128), (128, 256)]),
    devices=st.integers(1, 3),
    kind=st.sampled_from([CpuPanels, Keeping]),
    held=st.integers(0, 7),
    seed=st.integers(0, 10**6),
)
def test_any_mixture_of_levels_is_gone_on_from(backends, n, cut, devices, kind, held, seed):
    """Rows that hold at least what their level promises, each entry the length of some walk, whatever its age."""
    rng, streaming = np.random.default_rng(seed), Tiling("host", *cut, 4, held * (cut[1] // cut[0]), passes=True)
    weights = oracle.random_weights(n, seed=seed % 97, density=min(1, 4 / n))
    final = oracle.closure(weights)
    row = np.arange(n)
    block = np.minimum(n, (row // streaming.width + 1) * streaming.width)
    levels = rng.integers(-1, FINISHED + 1, streaming.stripes(n))
    own = levels[row // streaming.height]
    promised = np.where(own == FINISHED, n, np.where(own == LOWERED, block, np.where(own == WALKS, row + 1, 0)))
    held = lengths(weights, promised)
    found = oracle.encode(np.where(rng.random((n, n)) < 0.2, final, held), "int32")
    solve(backends[:devices], found, streaming, levels=levels, kind=kind)
    np.testing.assert_array_equal(found, oracle.encode(final, "int32"))


def test_the_pass_down_leaves_walks_through_earlier_blocks(backend):
    n, streaming = 300, Tiling("host", 64, 128, passes=True)
    weights = oracle.random_weights(n, seed=3, density=4 / n)
    found = oracle.encode(weights, "int32")

    class Watching(HostTier):
        def give(self, k, stripe, rows):
            super().give(k, stripe, rows)
            first, last = streaming.rows(stripe, n)
            most = n if k == FINISHED else streaming.pivot(stripe // streaming.group, n)[1]
            np.testing.assert_array_equal(rows, want(most)[first:last])
            seen.append((k, stripe))

    def want(most):
        return oracle.encode(lengths(weights, np.full(n, most)), "int32")

    seen: list[tuple[int, int]] = []
    solve(backend, found, streaming, tier=Watching(found, streaming))
    down = [(LOWERED, s) for s in range(4)] + [(FINISHED, 4)]
    assert seen == [*down, (FINISHED, 2), (FINISHED, 3), (FINISHED, 0), (FINISHED, 1)]


def test_what_is_done_is_not_done_again():
    streaming = Tiling("host", 64, 128, passes=True)  # 5 stripes, 3 panels

    def left(*levels):
        return [(task.way, task.panel, list(task.sources)) for task in tasks(np.array(levels), streaming, 300)]

    assert left(2, 2, 2, 2, 2) == []
    assert left(1, 1, 2, 2, 2) == [(Direction.UP, 0, [2, 1])]
    assert left(1, 1, 1, 2, 2) == [(Direction.UP, 1, [2]), (Direction.UP, 0, [2, 1])]
    assert left(1, 1, 1, -1, -1)[0] == (Direction.DOWN, 1, [0])
    assert left(0, 0, 0, 1, 1)[:3] == [(Direction.DOWN, 0, []), (Direction.DOWN, 1, []), (Direction.DOWN, 2, [])]
    assert left(1, 1, 1, 1, 1)[0] == (Direction.DOWN, 2, [])


@pytest.mark.parametrize("most", [0.0, 0.2, 0.5, 0.8, 0.95])
def test_a_stopped_solve_goes_on_where_it_was(backend, most):
    n = 400
    weights = oracle.random_weights(n, seed=7, density=3 / n)
    streaming, found = Tiling("host", 64, 64, passes=True), oracle.encode(weights, "int32")
    first = Counting(found, streaming)
    with pytest.raises(Cancelled):
        solve(backend, found, streaming, tier=first, monitor=Tally(most * updates(streaming, n)))
    tally = Tally()
    solve(backend, found, streaming, levels=first.level.copy(), monitor=tally)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "int32"))
    assert tally.done == tally.begun[0][1] <= (1 - most) * updates(streaming, n) + 2 * 64 * n * n


@settings(max_examples=15, deadline=None)
@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_stops_and_other_numbers_of_devices(backends, counts, seed):
    """Each process is stopped, the last one is not; each has other devices."""
    n, rng = 450, np.random.default_rng(seed)
    weights = oracle.random_weights(n, seed=seed, density=3 / n)
    streaming, found = Tiling("host", 64, 64, passes=True), oracle.encode(weights, "int32")
    final, levels = oracle.encode(oracle.closure(weights), "int32"), None
    for devices in counts:
        tier = Counting(found, streaming, devices)
        if levels is not None:
            tier.level[:] = levels
        with suppress(Cancelled):
            stop = Tally(rng.random() * 0.6 * n**3)
            solve(backends[:devices], found, streaming, tier=tier, levels=levels, monitor=stop)
        assert (found >= final).all()
        assert not tier.open
        levels = tier.level.copy()
    solve(backends[:2], found, streaming, levels=levels)
    np.testing.assert_array_equal(found, final)


@pytest.mark.parametrize("at", ["open", "begin", "lower", "close", "give", "drain"])
@pytest.mark.parametrize("when", [0, 4])
def test_a_device_that_fails_ends_the_others(backends, at, when):
    n, streaming = 500, Tiling("host", 64, 64, passes=True)
    weights = oracle.random_weights(n, seed=5, density=3 / n)
    found, released = oracle.encode(weights, "int32"), []

    class Broken(CpuPanels):
        calls = 0

        def release(self):
            released.append(self)
            super().release()

    def broken(self, *given, **named):
        Broken.calls += 1
        if Broken.calls == when + 1 or (at == "drain" and Broken.calls <= 3):
            raise SolveFailed("the device fell off the bus")
        return getattr(CpuPanels, at)(self, *given, **named)

    setattr(Broken, at, broken)
    when = when if at != "open" else 2
    tier, devices = Counting(found, streaming, 3), [Broken(some) for some in backends[:3]]

    def work():
        with pytest.raises(SolveFailed, match="fell off the bus"):
            passes.run(streaming, tier, devices, Monitor(), nonnegative=True)

    by_itself(work)
    assert len(released) == 3
    final = oracle.encode(oracle.closure(weights), "int32")
    assert (found >= final).all()
    solve(backends[:2], found, streaming, levels=tier.level.copy())
    np.testing.assert_array_equal(found, final)


def test_a_slow_device_shares_the_work(backends):
    n, counts, streaming = 960, Counter(), Tiling("host", 64, 64, passes=True)

    class Slow(CpuPanels):
        def give(self, k, level):
            counts[self.pause] += 1
            time.sleep(self.pause)
            super().give(k, level)

    weights = oracle.random_weights(n, seed=4, density=3 / n)
    found = oracle.encode(weights, "uint16")
    devices = [Slow(some) for some in backends[:2]]
    devices[0].pause, devices[1].pause = 0.0, 0.05
    passes.run(streaming, HostTier(found, streaming), devices, Monitor(), nonnegative=True)
    np.testing.assert_array_equal(found, oracle.encode(oracle.closure(weights), "uint16"))
    assert sum(counts.values()) == 29
    assert min(counts[0.0], counts[0.05]) > 0


def test_an_interrupt_ends_all_devices(backends):
    """A KeyboardInterrupt comes in the calling thread, which only waits."""

    class Interrupted(Tally):
        def advance(self, amount):
            super().advance(amount)
            if self.done > 0.3 * 500**3:
                raise KeyboardInterrupt

    n, streaming = 500, Tiling("host", 64, 64, passes=True)
    found = oracle.encode(oracle.random_weights(n, seed=5, density=3 / n), "int32")
    with pytest.raises(KeyboardInterrupt):
        solve(backends[:3], found, streaming, monitor=Interrupted())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("apsp-stream")]


@pytest.mark.parametrize("started", [0, 1, 2])
def test_devices_whose_threads_cannot_all_be_started_end_with_an_error(backends, started, monkeypatch):
    n, streaming, start, count = 257, Tiling("host", 64, 64, passes=True), threading.Thread.start, itertools.count()

    def some(thread):
        if thread.name.startswith("apsp-stream") and next(count) >= started:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    weights = oracle.random_weights(n, seed=1, density=0.02)
    matrix = oracle.encode(weights, "float32")

    def work():
        said = ""
        try:
            solve(backends[:3], matrix, streaming)
        except SolveFailed as error:
            said = str(error)
        if said:
            assert "refused to start a thread" in said
            return
        # threads that had ended with their own device have taken the others in time
        assert started
        np.testing.assert_array_equal(matrix, oracle.encode(oracle.closure(weights), "float32"))

    by_itself(work)


def test_floats_are_those_of_the_products(backend, backends):
    n = 600
    weights = np.random.default_rng(1).random((n, n)).astype(np.float32)
    np.fill_diagonal(weights, 0)
    found, others = weights.copy(), weights.copy()
    solve(backend, found, Tiling("host", 64, 128, passes=True))
    solve(backends[:3], others, Tiling("host", 64, 128, passes=True), kind=Keeping)
    np.testing.assert_array_equal(found, others)
    floyd_warshall.recursive(backend, weights, nonnegative=True)
    np.testing.assert_allclose(found, weights, rtol=1e-6)


@pytest.mark.parametrize("n", [100, 300])
def test_a_negative_cycle_ends_the_solve(backend, n):
    matrix = np.full((n, n), WORK_TYPES["int32"].sentinel(), np.int32)
    np.fill_diagonal(matrix, 0)
    matrix[3, n - 2], matrix[n - 2, 3] = 5, -6
    with pytest.raises(BelowZero, match="negative cycle"):
        solve(backend, matrix, Tiling("host", 64, 64, passes=True), nonnegative=False)


@pytest.mark.parametrize("at", [(LOWERED, 3), (FINISHED, 2)])
@pytest.mark.parametrize("devices", [1, 3])
def test_a_tier_that_fails_ends_the_solve_and_leaves_walks(backends, at, devices):
    backend = backends[:devices]
    n = 400
    weights = oracle.random_weights(n, seed=2, density=3 / n)
    streaming, found = Tiling("host", 64, 64, passes=True), oracle.encode(weights, "int32")
    final = oracle.encode(oracle.closure(weights), "int32")
    first = Counting(found, streaming, devices)
    first.fail_at = at
    with pytest.raises(StorageFailed, match="disk is full"):
        solve(backend, found, streaming, tier=first)
    assert (found >= final).all()
    solve(backend, found, streaming, levels=first.level.copy())
    np.testing.assert_array_equal(found, final)


@pytest.fixture(scope="module")
def ten_panels():
    """Weights of 1,280 vertices, and their distances."""
    weights = oracle.random_weights(1280, seed=3, density=3 / 1280)
    return oracle.encode(weights, "float32"), oracle.encode(oracle.closure(weights), "float32")


@pytest.mark.parametrize("held", [0, 1, 3, 8, 20])
@pytest.mark.parametrize("height", [64, 128])
def test_stripes_that_are_held_are_read_once_a_pass(backend, ten_panels, held, height):
    weights, final = ten_panels
    n, found = len(weights), weights.copy()
    streaming = Tiling("host", height, 128, 4, held * 128 // height, passes=True)
    tier = solve(backend, found, streaming, kind=Keeping)
    np.testing.assert_array_equal(found, final)
    assert (tier.read, tier.written) == passed_bytes(streaming, n, found.itemsize)
    least = 2 * tier.written - 2 * 128 * n * found.itemsize  # each panel once as itself and once as a source
    assert held < 8 or tier.read < least


def test_layouts_of_halves_have_rounds_and_one_panel_leaves_no_room():
    for more in ({"symmetric": True}, {"resident": 2}):
        with pytest.raises(ValueError, match="in passes"):
            Tiling("host", 64, 128, passes=True, **more)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stripes_that_every_device_holds_are_retired(backends, ten_panels, count):
    (weights, final), retired = ten_panels, set[int]()
    streaming = Tiling("host", 64, 128, 4, 20, passes=True)
    for _ in range(1 if count == 1 else 50):  # which stripes several devices hold depends on which is faster
        found = weights.copy()
        tier = solve(backends[:count], found, streaming, kind=Keeping)  # fails if a retired stripe is taken again
        np.testing.assert_array_equal(found, final)
        retired |= set(tier.retired)
        if retired:
            break
    # the first panel is the source of no other, and a device keeps the panel that it relaxed last, and does not hold it
    assert retired == set(range(4, 20)) if count == 1 else retired and retired <= set(range(2, 20))
