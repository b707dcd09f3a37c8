"""Streamed solves in both tiers: exact, summarised, stopped and resumed in any other way, within their buffers."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
import weakref
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import planning
from engine.api.solve import make_plan, solve_to_store
from engine.execution import streamed
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from engine.streaming import checkpoint, host_tier, loading, passes, schedule, store_tier
from engine.streaming.progress_record import levels_of, progress_of
from storage import threads
from storage.errors import Cancelled, NegativeCycle, StorageFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix import grid
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import open_matrix
from storage.matrix.working import find_checkpoint, open_working
from tests.cycles import Unclosed, keepers, no_collection
from tests.interrupting import by_itself
from tests.several import several
from tests.stores import verify_matrix


def sample(n: int = 400, *, directed: bool = True, negative: bool = False, whole: bool = True, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, n, (2, 3 * n))
    weights = rng.integers(0, 100, 3 * n)
    if negative:
        height = rng.integers(0, 60, n)
        weights = weights + height[tails] - height[heads]
    return build_graph(tails, heads, weights if whole else weights / 8, n=n, directed=directed)[0]


def plan_for(graph: Graph, tier: str | None, height: int = 64, width: int = 128, dtype: str = "auto") -> Plan:
    """The plan for rounds in a tier; without one, in memory as ever."""
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype=dtype))
    if tier is None:
        return plan
    streaming = Tiling(tier, height, width, symmetric=not graph.directed, passes=graph.directed)
    return replace(plan, tier=tier, streaming=streaming)


def expected(graph: Graph, folder: Path, dtype: str = "auto") -> Path:
    path = folder / "expected.zarr"
    solve_to_store(graph, Options(), path, plan=plan_for(graph, None, dtype=dtype))
    return path


def same(one: Path, other: Path) -> None:
    with open_matrix(one) as a, open_matrix(other) as b:
        np.testing.assert_array_equal(a.rows(a.sources), b.rows(b.sources))
        one_bins, other_bins = a.summary.pop("histogram", None), b.summary.pop("histogram", None)
        assert a.summary == b.summary
        # the width of a bin follows from the rows that came first
        assert (one_bins or {}).get("below_zero") == (other_bins or {}).get("below_zero")
        assert sum((one_bins or {"counts": []})["counts"]) == sum((other_bins or {"counts": []})["counts"])
    verify_matrix(other)
    assert find_checkpoint(other) is None
    assert sorted(p.name for p in other.parent.iterdir()) == sorted({one.name, other.name})


class StopAt(Monitor):
    """Asks to stop once so many updates are made."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def advance(self, amount: int) -> None:
        self.left -= amount

    def cancelled(self) -> bool:
        return self.left <= 0


@pytest.fixture
def eager(monkeypatch):
    """Commits all the time, and keeps whatever is stopped."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.01)
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    monkeypatch.setattr(host_tier, "COST", 100.0)


@pytest.mark.parametrize("tier", ["host", "store"])
@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(1, 330),
    height=st.sampled_from([64, 128]),
    group=st.integers(1, 3),
    directed=st.booleans(),
    negative=st.booleans(),
    dtype=st.sampled_from(["auto", "int32", "float64"]),
    seed=st.integers(0, 99),
)
def test_both_tiers_give_what_memory_gives(tier, tmp_path_factory, n, height, group, directed, negative, dtype, seed):
    folder = tmp_path_factory.mktemp("tiers")
    graph = sample(n, directed=directed, negative=negative and directed, seed=seed)
    plan = plan_for(graph, tier, height, group * height, dtype)
    outcome = solve_to_store(graph, Options(dtype=dtype), folder / "d.zarr", plan=plan)
    assert outcome.plan.tier == tier
    same(expected(graph, folder, dtype), folder / "d.zarr")


@pytest.mark.parametrize("tier", ["host", "store"])
@settings(max_examples=10, deadline=None)
@given(
    n=st.integers(1, 500),
    cut=st.sampled_from([(64, 64), (64, 128), (64, 192), (128, 128)]),
    devices=st.integers(2, 4),
    negative=st.booleans(),
    seed=st.integers(0, 99),
)
def test_several_devices_give_what_memory_gives(tier, tmp_path_factory, n, cut, devices, negative, seed):
    """In the store tier with no more buffers than are planned for; a device that waited for one would hang."""
    folder, graph = tmp_path_factory.mktemp("several"), sample(n, negative=negative, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamed, "_devices", several(devices))
        plan = replace(plan_for(graph, tier, *cut), threads=2)
        by_itself(lambda: solve_to_store(graph, Options(), folder / "d.zarr", plan=plan), 120)
    same(expected(graph, folder), folder / "d.zarr")


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_each_process_has_other_devices_and_another_cut(tmp_path, eager, monkeypatch, directed, seed):
    graph, path, chance = sample(450, directed=directed, seed=seed), tmp_path / "d.zarr", np.random.default_rng(seed)
    ways = [("host", 64, 64), ("store", 64, 64), ("host", 64, 128), ("store", 128, 128)]
    for turn in range(12):
        tier, height, width = ways[chance.integers(len(ways))] if chance.random() < 0.5 else ways[turn % 2]
        monkeypatch.setattr(streamed, "_devices", several(int(chance.integers(1, 4))))
        monitor = StopAt(int(graph.n**3 * (9 if turn == 11 else chance.random() * 0.5)))
        try:
            plan = plan_for(graph, tier, height, width)
            solve_to_store(graph, Options(), path, plan=plan, monitor=monitor, resume=turn > 0)
        except Cancelled:
            continue
        break
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.long)])
def test_columns_of_several_tiles(tmp_path, monkeypatch, tier, directed, small):
    """Two tiles across in float64, of the usual size or an eighth of its width."""
    if small:
        monkeypatch.setattr(grid, "SEGMENT_BYTES", grid.SEGMENT_BYTES // 8)
    graph = sample(525 if small else 4200, directed=directed)
    plan = plan_for(graph, tier, *((64, 128) if small else (512, 1024)), "float64")
    solve_to_store(graph, Options(dtype="float64"), tmp_path / "d.zarr", plan=plan)
    with open_matrix(tmp_path / "d.zarr") as matrix:
        assert matrix.grid.counts[1] == 2
    same(expected(graph, tmp_path, "float64"), tmp_path / "d.zarr")


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("closes", [True, False], ids=["", "close frees nothing"])
def test_the_graph_and_the_matrix_go_with_the_solve(tmp_path, monkeypatch, tier, directed, stopped, devices, closes):
    if devices > 1:
        monkeypatch.setattr(streamed, "_devices", several(devices))
    if not closes:
        for kind in (passes._Feed, schedule._Run):
            made = kind._sequence
            monkeypatch.setattr(kind, "_sequence", lambda self, made=made: Unclosed(made(self)))
    graph = sample(300, directed=directed)
    plan, gone = plan_for(graph, tier), weakref.ref(graph)
    with no_collection():
        with pytest.raises(Cancelled) if stopped else nullcontext():
            most = 300**3 // 4 if stopped else 300**3 * 9
            solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan, monitor=StopAt(most))
        del graph
        until = time.monotonic() + 20
        while gone() is not None and time.monotonic() < until:
            time.sleep(0.01)  # a thread of a pool drops its last task a moment after its result was taken
        assert gone() is None, keepers(gone())


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("call", ["fill_weights", "preadv", "writev", "fsync"])
@pytest.mark.parametrize("when", [1, 3])
def test_what_fails_in_a_thread_keeps_neither_the_graph_nor_the_matrix(
    tmp_path, eager, monkeypatch, tier, directed, devices, call, when
):
    """An error refers to the frames that it has passed through; whatever these refer to must not refer to the error."""
    if devices > 1:
        monkeypatch.setattr(streamed, "_devices", several(devices))
    graph, path, calls, lock, spaces = sample(200, directed=directed), tmp_path / "d.zarr", [], threading.Lock(), []
    plan = replace(plan_for(graph, tier, 64, 64), threads=2)
    if call == "preadv":
        with pytest.raises(Cancelled):
            solve_to_store(graph, Options(), path, plan=plan, monitor=StopAt(200**3 // 3))
    where = streamed if call == "fill_weights" else os
    real, space = getattr(where, call), streamed._Space

    def failing(*args):
        if threading.current_thread().name.startswith("apsp-"):
            with lock:
                calls.append(call)
                if len(calls) >= when:
                    raise OSError(errno.EIO, os.strerror(errno.EIO)) if where is os else StorageFailed("no row")
        return real(*args)

    def made(array):
        spaces.append(weakref.ref(array))
        return space(array)

    monkeypatch.setattr(where, call, failing)
    monkeypatch.setattr(streamed, "_Space", made)
    gone = weakref.ref(graph)
    with no_collection():
        with pytest.raises(StorageFailed) if when == 1 else suppress(StorageFailed):
            solve_to_store(graph, Options(), path, plan=plan, resume=call == "preadv")
        del graph
        until = time.monotonic() + 20
        while (gone() is not None or spaces[0]() is not None) and time.monotonic() < until:
            time.sleep(0.01)  # a thread of a pool drops its last task a moment after its result was taken
        assert gone() is None, keepers(gone())
        assert spaces[0]() is None, keepers(spaces[0]())


def test_floats_of_both_signs_come_back_from_their_potentials(tmp_path, eager):
    graph = sample(300, negative=True, whole=False)
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan_for(graph, "host"), monitor=StopAt(300**3 // 2))
    solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan_for(graph, "host"), resume=True)
    expected(graph, tmp_path)
    with open_matrix(tmp_path / "d.zarr") as a, open_matrix(tmp_path / "expected.zarr") as b:
        np.testing.assert_allclose(a.rows(a.sources), b.rows(b.sources), rtol=2e-6, atol=1e-5)


WAYS = [("store", 64, 128), ("host", 64, 128), ("store", 128, 128), ("host", 64, 192), (None, 0, 0)]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS[:2])
def test_a_stopped_solve_goes_on_in_any_tier_and_layout(tmp_path, eager, first, second, directed):
    graph = sample(500, directed=directed, negative=directed)
    path = tmp_path / "d.zarr"
    share = graph.n**3 // 2 if directed else graph.n**3 // 4
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan_for(graph, *first), monitor=StopAt(share))
    found = find_checkpoint(path)
    levels = [level for level, _ in found.record["levels"]]
    assert max(levels) >= 1  # something is worth going on from
    solve_to_store(graph, Options(), path, plan=plan_for(graph, *second), resume=True)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("directed", [True, False])
def test_stopped_again_and_again_it_ends_all_the_same(tmp_path, eager, tier, directed):
    """Each turn comes further by a round at least: undirected, a round that was begun is begun again."""
    graph, path, work = sample(400, directed=directed), tmp_path / "d.zarr", 0
    plan = plan_for(graph, tier, 64, 64)  # seven rounds, each of less than a fifth of all updates
    for attempt in range(20):
        monitor = StopAt(graph.n**3 // 5)
        try:
            solve_to_store(graph, Options(), path, plan=plan, resume=attempt > 0, monitor=monitor)
        except Cancelled:
            work += graph.n**3 // 5 - monitor.left
            continue
        break
    assert 1 <= attempt < 19
    assert work < 3 * graph.n**3
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("directed", [True, False])
def test_copies_by_several_threads_are_gone_on_with(tmp_path, eager, monkeypatch, directed):
    """As of a GPU's solve, whose processors are idle."""
    monkeypatch.setattr(streamed, "KeptHostTier", lambda *a, **k: host_tier.KeptHostTier(*a, **{**k, "idle": True}))
    graph, path = sample(900, directed=directed), tmp_path / "d.zarr"
    plan = plan_for(graph, "host")
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan, monitor=StopAt(graph.n**3 // (3 if directed else 6)))
    assert max(level for level, _ in find_checkpoint(path).record["levels"]) > 0
    solve_to_store(graph, Options(), path, plan=plan, resume=True)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("negative", [False, True])
def test_passes_begin_while_rows_are_filled(tmp_path, eager, monkeypatch, negative):
    """Rows come late and out of order; a row that was used before it was there would be wrong."""
    graph, path, real = sample(512, negative=negative), tmp_path / "d.zarr", streamed.fill_weights
    chance, begun = np.random.default_rng(1), threading.Event()

    def late(graph, kind, first, out):
        out[:] = 7
        time.sleep(float(chance.random()) * 0.02)
        assert first < 448 or begun.wait(60), "the passes wait for all rows"
        real(graph, kind, first, out)

    class Begun(StopAt):
        def begin(self, phase, total, unit):
            if phase == "relax":
                begun.set()

    monkeypatch.setattr(streamed, "fill_weights", late)
    monkeypatch.setattr(loading, "_PIECE", 1)
    monkeypatch.setattr(loading, "_SHARE", 1)
    plan, monitor = replace(plan_for(graph, "host", 64, 64), threads=1), Begun(graph.n**3 * 9)
    solve_to_store(graph, Options(), path, plan=plan, monitor=monitor)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("at", [0, 260, 499])
def test_a_row_that_cannot_be_filled_ends_the_solve(tmp_path, eager, monkeypatch, at):
    graph, path, real = sample(500), tmp_path / "d.zarr", streamed.fill_weights

    def failing(graph, kind, first, out):
        if first <= at < first + len(out):
            raise StorageFailed("the row cannot be read")
        real(graph, kind, first, out)

    plan = plan_for(graph, "host", 64, 64)
    with monkeypatch.context() as patch:
        patch.setattr(streamed, "fill_weights", failing)
        with pytest.raises(StorageFailed, match="cannot be read"):
            solve_to_store(graph, Options(), path, plan=plan)
    assert not path.exists()
    solve_to_store(graph, Options(), path, plan=plan, resume=True)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("tier", ["host", "store"])
def test_a_negative_cycle_is_named_and_leaves_nothing(tmp_path, tier):
    graph = sample(200, negative=True)
    plan = replace(plan_for(graph, tier), task=())  # as if planning had not looked
    graph.weights[graph.indptr[5] : graph.indptr[6]] -= 500
    with pytest.raises(NegativeCycle):
        solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan)
    assert list(tmp_path.iterdir()) == []


def test_the_store_tier_holds_no_more_stripes_than_it_says(tmp_path, monkeypatch):
    made = []
    real = store_tier.StoreTier.__init__

    def counting(self, *args, **kwargs):
        made.extend(buffer.shape for buffer in kwargs["buffers"])
        real(self, *args, **kwargs)

    monkeypatch.setattr(store_tier.StoreTier, "__init__", counting)
    graph = sample(500, directed=False)
    solve_to_store(graph, Options(), tmp_path / "d.zarr", plan=plan_for(graph, "store"))
    assert made == [(64, 500)] * 6
    same(expected(graph, tmp_path), tmp_path / "d.zarr")


@pytest.mark.parametrize(
    ("call", "code"), [("preadv", errno.EIO), ("writev", errno.ENOSPC), ("fsync", errno.EIO), ("open", errno.EMFILE)]
)
@pytest.mark.parametrize("when", [1, 4, 10])
@pytest.mark.parametrize("directed", [True, False])
def test_a_failing_disk_ends_the_solve_and_the_next_one_goes_on(
    tmp_path, eager, monkeypatch, call, code, when, directed
):
    graph, path = sample(400, directed=directed), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan_for(graph, "store"), monitor=StopAt(graph.n**3 // 6))
    before = find_checkpoint(path).record
    real, calls, lock = getattr(os, call), [], threading.Lock()

    def failing(*args, **kwargs):
        if threading.current_thread().name.startswith("apsp-"):
            with lock:
                calls.append(call)
                if len(calls) >= when:
                    raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(StorageFailed, match=os.strerror(code)):
            solve_to_store(graph, Options(), path, plan=plan_for(graph, "store"), resume=True)
    after = find_checkpoint(path).record
    assert min(level for level, _ in after["levels"]) >= min(level for level, _ in before["levels"])
    solve_to_store(graph, Options(), path, plan=plan_for(graph, "store"), resume=True)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("when", [1, 3, 6])
def test_a_disk_that_fills_while_finished_rows_are_written_ends_the_solve(tmp_path, eager, monkeypatch, when):
    """In host memory, too: nothing is sealed, and the next solve writes what is missing."""
    graph, path, calls, lock, real = sample(400), tmp_path / "d.zarr", [], threading.Lock(), os.writev

    def failing(*args):
        if threading.current_thread().name.startswith("apsp-finish"):
            with lock:
                calls.append(args)
                if len(calls) >= when:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", failing)
        with pytest.raises(StorageFailed, match=os.strerror(errno.ENOSPC)):
            solve_to_store(graph, Options(), path, plan=plan_for(graph, "host"))
    assert not path.exists()
    solve_to_store(graph, Options(), path, plan=plan_for(graph, "host"), resume=True)
    same(expected(graph, tmp_path), path)


def test_a_flipped_tile_is_found_when_it_is_read(tmp_path, eager):
    graph, path = sample(400), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan_for(graph, "store"), monitor=StopAt(graph.n**3 // 2))
    tile = tmp_path / ".d.zarr.working" / "store" / "distances" / "c" / "3" / "0"
    data = bytearray(tile.read_bytes())
    data[1000] ^= 64
    tile.write_bytes(data)
    for tier in ("store", "host"):
        with pytest.raises(StorageFailed, match=r"tile \(3, 0\), rows 192 to 255.*checksum"):
            solve_to_store(graph, Options(), path, plan=plan_for(graph, tier), resume=True)
    solve_to_store(graph, Options(), path, plan=plan_for(graph, "store"), overwrite=True)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("half_first", [True, False])
def test_undirected_goes_on_in_the_other_form(tmp_path, eager, monkeypatch, tier, half_first):
    """All rows are there for half of them; half of them is no beginning for all."""
    graph, path = sample(500, directed=False), tmp_path / "d.zarr"
    half = plan_for(graph, tier)
    whole = replace(half, streaming=replace(half.streaming, symmetric=False, passes=True))
    plans = [half, whole] if half_first else [whole, half]
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plans[0], monitor=StopAt(graph.n**3 // 3))
    problems, choose = [], planning.choose
    monkeypatch.setattr(
        planning, "choose", lambda problem, *a, **k: problems.append(problem) or choose(problem, *a, **k)
    )
    make_plan(graph, Options(), out=path, resume=True)
    assert {problem.half for problem in problems} == {half_first}
    solve_to_store(graph, Options(), path, plan=plans[1], resume=True)
    same(expected(graph, tmp_path), path)


@pytest.mark.parametrize("lost", ["potentials", "levels"], ids=["of an earlier version", "of no round"])
def test_a_half_record_that_will_be_forgotten_binds_no_plan(tmp_path, eager, monkeypatch, lost):
    graph, path = sample(500, directed=False), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan_for(graph, "host"), monitor=StopAt(graph.n**3 // 3))
    found = find_checkpoint(path)
    assert checkpoint.resumes_half(found)
    record = dict(found.record)
    if lost == "levels":
        record["levels"] = [[-1, sum(count for _, count in record["levels"])]]
    else:
        del record["potentials"]
    assert not checkpoint.resumes_half(replace(found, record=record))
    problems, choose = [], planning.choose
    monkeypatch.setattr(
        planning, "choose", lambda problem, *a, **k: problems.append(problem) or choose(problem, *a, **k)
    )
    monkeypatch.setattr(planning, "resumable", lambda *_, **__: replace(found, record=record))
    make_plan(graph, Options(), out=path, resume=True)
    assert {problem.half for problem in problems} == {False}


@pytest.mark.parametrize("idle", [False, True])
def test_copies_wait_until_the_process_has_computed_enough(tmp_path, monkeypatch, idle):
    """By its own processor seconds, which other programs do not use up; a solve on GPUs computes little itself."""
    n, begun, computed, looks = 200, [], [0.0], itertools.count()
    monkeypatch.setattr(host_tier, "COST", 0.5)
    monkeypatch.setattr(host_tier, "IDLE_COST", 10.0**6)
    monkeypatch.setattr(host_tier.time, "thread_time", lambda: float(next(looks)))  # a second a look
    monkeypatch.setattr(host_tier.time, "process_time", lambda: computed[0])
    with open_working(tmp_path / "d.zarr", sample(n), MatrixSpec("int32", 2**31 - 2)) as writer:
        journal = SimpleNamespace(writer=writer, interval=0.0, commit=begun.append, work=0.0)
        matrix = np.zeros((n, n), np.int32)
        with host_tier.KeptHostTier(matrix, Tiling("host", 64, 64), journal, threads=10**9, idle=idle) as tier:
            for k in range(4):
                computed[0] = 10.0 * (k == 3)
                tier.commit(k)
                tier._copying.wait()
                assert len(begun) == (k + 1 if idle else 1 + (k == 3))
        assert journal.work >= len(begun)


def test_levels_survive_a_record_and_change_with_the_layout():
    n = 1000
    wide, other = Tiling("store", 64, 128), Tiling("host", 128, 384)
    levels = np.array([5] * 3 + [4] * 13)
    record = progress_of(levels, wide)
    assert record["levels"] == [[5, 3], [4, 13]]
    np.testing.assert_array_equal(levels_of(record, wide, n), levels)
    # five rounds of 128 vertices are one of 384 and a part
    np.testing.assert_array_equal(levels_of(record, other, n), [0] * 8)
    assert (levels_of(progress_of(np.full(16, 7), wide), other, n) == other.rounds(n) - 1).all()
    assert (levels_of(progress_of(np.array([-1] + [3] * 15), wide), other, n) == -1).all()
    half = replace(wide, symmetric=True)
    np.testing.assert_array_equal(levels_of(record, half, n), levels)
    np.testing.assert_array_equal(levels_of(progress_of(levels, half), half, n), levels)


@pytest.mark.parametrize(("planned", "there", "used"), [(1, 4, 1), (2, 4, 2), (4, 4, 4), (4, 2, 2)])
def test_a_solve_opens_as_many_gpus_as_its_plan_says(
    planned: int, there: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver may have lost a GPU since the plan was made; it does not take those that do not pay."""
    from engine.devices.cuda.stripes import panels, streamer

    monkeypatch.setattr(streamer, "found_devices", lambda: there)
    monkeypatch.setattr(streamer, "CudaStreamer", lambda device, *, memory: ("rounds", device, memory))
    monkeypatch.setattr(panels, "CudaPanels", lambda device, *, memory: ("passes", device, memory))
    plan = Plan("a", "float32", "cuda", 2, (9, 9), 1, 1, 1.0, "", "", device_memory=7, devices=planned)
    for way in ("rounds", "passes"):
        cut = Tiling("host", 64, 64, 4, passes=way == "passes")
        with streamed._devices(replace(plan, streaming=cut)) as devices:
            assert list(devices) == [(way, device, 7) for device in range(used)]


@pytest.mark.parametrize("tier", ["host", "store"])
@pytest.mark.parametrize("directed", [True, False])
def test_where_the_system_refuses_threads_a_solve_takes_longer_and_does_not_wait_for_ever(
    tmp_path, eager, monkeypatch, tier, directed
):
    class Refused(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    graph, path = sample(256, directed=directed), tmp_path / "d.zarr"
    monkeypatch.setattr(threads, "Thread", Refused)
    by_itself(lambda: solve_to_store(graph, Options(), path, plan=plan_for(graph, tier, 64, 64)))
    same(expected(graph, tmp_path), path)
