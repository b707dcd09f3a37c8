"""The driver of rounds over workers: exact whatever is lost when, and gone on with in any other way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine.api.solve import make_plan, solve_to_store
from engine.distributed import driver as drive
from engine.distributed import messages, run
from engine.distributed.dense import commits
from engine.distributed.dense import driver as dense_driver
from engine.distributed.dense.worker import DenseWorker
from engine.distributed.messages import StoredStripe, TaskRequest, TaskResult
from engine.model import pace
from engine.model.plan import Plan
from engine.model.problem import Options
from engine.model.progress import Monitor
from engine.model.tiling import Tiling
from engine.streaming import checkpoint
from storage.errors import Cancelled, NegativeCycle, SolveFailed
from storage.graph.graph import Graph, build_graph
from storage.matrix.exchange import Marks, TileFile
from storage.matrix.reader import open_matrix
from storage.matrix.working import WorkingMatrix, find_checkpoint
from tests.spreading import BusyCluster, ToyCluster
from tests.stepping import keep_in_step
from tests.stores import verify_matrix

N = 300
DASK = Options(executor="dask", scheduler="toy", algorithm="blocked-floyd-warshall")


def sample(n: int = N, *, directed: bool = True, negative: bool = False, whole: bool = True, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    tails, heads = rng.integers(0, n, (2, 3 * n))
    weights = rng.integers(0, 100, 3 * n)
    if negative:
        height = rng.integers(0, 60, n)
        weights = weights + height[tails] - height[heads]
    return build_graph(tails, heads, weights if whole else weights / 8, n=n, directed=directed)[0]


def plan_for(graph: Graph, *, width: int = 64, tier: str = "host", dtype: str = "auto") -> Plan:
    plan = make_plan(graph, Options(algorithm="blocked-floyd-warshall", dtype=dtype))
    return replace(plan, tier=tier, streaming=Tiling("host", width, width), workers=2)


def solve(cluster: ToyCluster, graph: Graph, path: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> None:
    found = {e.worker: e.info for e in cluster.news}  # type: ignore[union-attr]
    cluster.news.clear()
    monkeypatch.setattr(run, "Cluster", lambda address: cluster)
    monkeypatch.setattr(run, "gather", lambda *_: found)
    more = {"plan": plan_for(graph), **more}
    solve_to_store(graph, DASK, path, **more)  # type: ignore[arg-type]


def expected(graph: Graph, folder: Path) -> Path:
    path = folder / "expected.zarr"
    plan = replace(make_plan(graph, Options(algorithm="blocked-floyd-warshall")), tier="host", streaming=None)
    solve_to_store(graph, Options(), path, plan=plan)
    return path


def same(one: Path, other: Path, tolerance: float = 0.0) -> None:
    verify_matrix(one)
    with open_matrix(one) as a, open_matrix(other) as b:
        left, right = a.rows(a.sources), b.rows(b.sources)
        if tolerance:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
            return
        np.testing.assert_array_equal(left, right)
        # the width of a bin follows from the rows that came first
        bins = [m.summary.pop("histogram", {"counts": []}) for m in (a, b)]
        assert a.summary == b.summary
        assert sum(bins[0]["counts"]) == sum(bins[1]["counts"])


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("negative", [True, False])
def test_rounds_over_workers_are_exact(
    workers: int, directed: bool, negative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if negative and not directed:
        pytest.skip("an undirected graph with a negative edge has a negative cycle")
    graph = sample(directed=directed, negative=negative)
    solve(ToyCluster(workers, seed=workers), graph, tmp_path / "d.zarr", monkeypatch)
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


def overlapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tasks, three of a worker at a time, and a commit whenever there is something to commit."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.02)
    monkeypatch.setattr(commits, "COST", 10.0)
    monkeypatch.setattr(messages, "PROCESSORS", replace(pace.PROCESSORS, task=0.0, ahead=3, early=4))


@pytest.mark.parametrize("seed", range(4))
def test_tasks_that_overlap_and_are_done_twice(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlapping(monkeypatch)
    graph, cluster = sample(1000, negative=seed % 2 == 0, seed=seed), BusyCluster(2, seed=seed)
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch)
    assert cluster.most > 2
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


@pytest.mark.parametrize("seed", range(6))
def test_workers_are_lost_while_tasks_overlap(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlapping(monkeypatch)
    monkeypatch.setattr(drive, "LOSSES", 100)
    graph, cluster = sample(1000, negative=seed % 2 == 0, seed=seed), BusyCluster(3, seed=seed)
    kills = 0

    def mischief(_: ToyCluster) -> None:
        nonlocal kills
        if cluster.random.random() < 0.05 and len(cluster.workers) > 1:
            cluster.kill(cluster.random.choice(sorted(cluster.workers)))
            kills += 1
        if cluster.random.random() < 0.05 and len(cluster.workers) < 5 and cluster.number < 40:
            cluster.add()

    cluster.mischief = mischief
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch)
    assert kills > 2
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


@pytest.mark.parametrize("negative", [True, False])
def test_fractions_too(negative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sample(negative=negative, whole=False)
    solve(ToyCluster(3), graph, tmp_path / "d.zarr", monkeypatch)
    same(tmp_path / "d.zarr", expected(graph, tmp_path), 1e-5)


@pytest.mark.parametrize("n", [1, 2, 63, 65, 129])
def test_any_size(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sample(n)
    solve(ToyCluster(3), graph, tmp_path / "d.zarr", monkeypatch)
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


def test_compressed_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sample()
    solve(ToyCluster(3), graph, tmp_path / "d.zarr", monkeypatch, compression="zstd")
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


def test_stripes_that_no_worker_can_keep_stay_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sample()
    stripe = 64 * N * 4
    cluster = ToyCluster(2, memory=8 * stripe)  # one is kept, beside what is worked on
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch)
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


def test_a_negative_cycle_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph([0, 1, 2], [1, 2, 0], [1, 1, -3], n=200, directed=True)[0]
    plan = plan_for(sample(200), dtype="int32")
    with pytest.raises(NegativeCycle):
        solve(ToyCluster(2), graph, tmp_path / "d.zarr", monkeypatch, plan=plan)
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("seed", range(12))
def test_workers_are_lost_and_come_at_any_time(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them as zombies, which go on to work for a driver that has given them up; commits come at any time."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.02)
    monkeypatch.setattr(commits, "COST", 10.0)
    cluster = ToyCluster(3, seed=seed)
    kills = 0

    def mischief(_: ToyCluster) -> None:
        nonlocal kills
        if cluster.random.random() < 0.15 and len(cluster.workers) > 1:
            cluster.kill(cluster.random.choice(sorted(cluster.workers)), zombie=cluster.random.random() < 0.5)
            kills += 1
        if cluster.random.random() < 0.15 and len(cluster.workers) < 5:
            cluster.add()

    cluster.mischief = mischief
    graph = sample(seed=seed, directed=seed % 2 == 0)
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch)
    assert kills
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


class Counting(Monitor):
    """How much of each phase was told."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.told: list[int] = []

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.phases.append((phase, total))
        self.told.append(0)

    def advance(self, amount: int) -> None:
        assert amount >= 0
        self.told[-1] += amount


@pytest.mark.parametrize("when", ["relax", "finish"])
@pytest.mark.parametrize("seed", range(3))
def test_progress_counts_what_is_done_again_once(
    seed: int, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told 119 % of a phase, and less than no time left, after a worker was lost."""
    monitor, cluster = Counting(), ToyCluster(3, seed=seed)
    lost: list[str] = []

    def mischief(c: ToyCluster) -> None:
        if c.done.count(when) in (2, 9) and len(lost) < c.done.count(when) // 2 and len(c.workers) > 1:
            lost.append(sorted(c.workers)[0])
            c.kill(lost[-1])

    cluster.mischief = mischief
    monkeypatch.setattr(messages, "PROCESSORS", replace(pace.PROCESSORS, task=0.0))
    monkeypatch.setattr(dense_driver, "PIECE", 1)
    graph = sample(700, seed=seed)
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch, monitor=monitor)
    assert lost
    told = {phase: (done, total) for (phase, total), done in zip(monitor.phases, monitor.told, strict=True)}
    assert told["relax"] == (told["relax"][1],) * 2
    assert told["finish"] == (700, 700)


class Until(Monitor):
    """Asks to stop after some updates."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0

    def advance(self, amount: int) -> None:
        self.seen += amount

    def cancelled(self) -> bool:
        return self.seen > self.most


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("then", ["local", "dask"])
def test_a_cancelled_solve_is_gone_on_with(
    then: str, directed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    graph, path = sample(directed=directed), tmp_path / "d.zarr"
    with pytest.raises(Cancelled):
        solve(ToyCluster(2), graph, path, monkeypatch, monitor=Until(N**3 // 2))
    found = find_checkpoint(path)
    assert found is not None
    assert max(level for level, _ in found.record["levels"]) >= 0
    if then == "local":
        plan = replace(plan_for(graph), streaming=Tiling("store", 64, 64, symmetric=not directed), tier="store")
        solve_to_store(graph, Options(), path, plan=plan, resume=True)
    else:
        solve(ToyCluster(3), graph, path, monkeypatch, resume=True)
    same(path, expected(graph, tmp_path))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("width", [64, 128])
def test_workers_go_on_with_what_one_process_has_begun(
    width: int, directed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    graph, path = sample(directed=directed), tmp_path / "d.zarr"
    plan = replace(plan_for(graph), streaming=Tiling("store", 64, 64, symmetric=not directed), tier="store")
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan, monitor=Until(3 * N**3 // (4 if directed else 7)))
    found = find_checkpoint(path)
    assert found is not None
    assert max(level for level, _ in found.record["levels"]) >= 0
    solve(ToyCluster(3), graph, path, monkeypatch, resume=True, plan=plan_for(graph, width=width))
    same(path, expected(graph, tmp_path))


def test_stripes_that_are_adopted_at_once_lower_the_record_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers without room leave stripes in the store between commits: here over tiles that another layout closed."""
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    keep_in_step(monkeypatch)
    graph, path = sample(), tmp_path / "d.zarr"
    first = replace(plan_for(graph), streaming=Tiling("store", 64, 128, passes=True), tier="store")
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=first, monitor=Until(N**3 // 10))
    levels = [level for level, _ in find_checkpoint(path).record["levels"]]  # type: ignore[union-attr]
    assert min(levels) == -1
    assert max(levels) >= 0
    cluster = ToyCluster(2, memory=8 * 64 * N * 4)
    adopted: list[int] = []
    real = WorkingMatrix.adopt
    monkeypatch.setattr(WorkingMatrix, "adopt", lambda *given: adopted.append(1) or real(*given))  # type: ignore[func-returns-value]
    cluster.mischief = lambda c: setattr(c, "lost", len(adopted) == 3)
    with pytest.raises(SolveFailed, match="scheduler at toy is lost"):
        solve(cluster, graph, path, monkeypatch, resume=True)
    found = find_checkpoint(path)
    assert found is not None
    assert {level for level, _ in found.record["levels"]} == {-1}
    solve_to_store(graph, Options(), path, plan=first, resume=True)
    same(path, expected(graph, tmp_path))


class UntilMirrored(Monitor):
    """Asks to stop once all rows are finished."""

    def __init__(self) -> None:
        self.rows = -1

    def begin(self, phase: str, total: int, unit: str) -> None:
        self.rows = 0 if phase == "finish" else -1

    def advance(self, amount: int) -> None:
        self.rows += amount if self.rows >= 0 else 0

    def cancelled(self) -> bool:
        return self.rows >= N


def test_workers_end_what_one_process_has_all_but_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "WORTH", 0.0)
    graph, path, cluster = sample(directed=False), tmp_path / "d.zarr", ToyCluster(2)
    streaming = Tiling("store", 64, 64, symmetric=True)
    plan = replace(plan_for(graph), streaming=streaming, tier="store")
    with pytest.raises(Cancelled):
        solve_to_store(graph, Options(), path, plan=plan, monitor=UntilMirrored())
    found = find_checkpoint(path)
    assert found is not None
    assert min(level for level, _ in found.record["levels"]) == streaming.rounds(N)
    steps = iter(range(1000))
    cluster.mischief = lambda _: next(steps) and None
    solve(cluster, graph, path, monkeypatch, resume=True)
    same(path, expected(graph, tmp_path))


def test_the_scheduler_lost_costs_back_to_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    graph, path, cluster = sample(), tmp_path / "d.zarr", ToyCluster(2)
    cluster.mischief = lambda c: setattr(c, "lost", c.done.count("lead") == 4)
    with pytest.raises(SolveFailed, match="scheduler at toy is lost"):
        solve(cluster, graph, path, monkeypatch)
    found = find_checkpoint(path)
    assert found is not None
    assert max(level for level, _ in found.record["levels"]) >= 0
    solve(ToyCluster(2), graph, path, monkeypatch, resume=True)
    same(path, expected(graph, tmp_path))


def test_fractions_of_both_signs_end_without_a_checkpoint_of_mixed_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows whose potentials are taken off are no state of the rounds: after them, all begins anew."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    graph, path, cluster = sample(negative=True, whole=False), tmp_path / "d.zarr", ToyCluster(2)
    cluster.mischief = lambda c: setattr(c, "lost", c.done.count("finish") == 2)
    with pytest.raises(SolveFailed):
        solve(cluster, graph, path, monkeypatch)
    solve(ToyCluster(2), graph, path, monkeypatch, resume=True)
    same(path, expected(graph, tmp_path), 1e-5)


def test_potentials_come_off_stripes_that_all_came_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    graph, path, cluster = sample(negative=True, whole=False), tmp_path / "d.zarr", ToyCluster(2, ordered=True)
    cluster.mischief = lambda c: setattr(c, "lost", c.done.count("lead") == 5)
    with pytest.raises(SolveFailed):
        solve(cluster, graph, path, monkeypatch)
    found = find_checkpoint(path)
    assert found is not None
    assert min(level for level, _ in found.record["levels"]) >= 0
    solve(ToyCluster(1), graph, path, monkeypatch, resume=True)
    same(path, expected(graph, tmp_path), 1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_no_row_is_finished_while_a_commit_is_open(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    graph = sample(negative=True, whole=False)
    cluster = ToyCluster(3, seed=seed, memory=10 * 64 * N * 4)

    def mischief(c: ToyCluster) -> None:
        assert not {"finish", "save"} <= {given[1] for w in c.workers.values() for _, given in w.waiting}

    cluster.mischief = mischief
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch)
    same(tmp_path / "d.zarr", expected(graph, tmp_path), 1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_stripe_that_moves_does_not_stay_with_its_old_worker(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    n, cluster = 640, ToyCluster(1, seed=seed)

    def mischief(c: ToyCluster) -> None:
        if c.done.count("relax") == 8 and len(c.workers) < 4:
            c.add()
        if not any(given[1] == "forget" for w in c.workers.values() for _, given in w.waiting):
            held = [s for w in c.workers.values() if isinstance(w.session, DenseWorker) for s in w.session._levels]
            assert len(held) == len(set(held))

    cluster.mischief = mischief
    graph = sample(n)
    solve(cluster, graph, tmp_path / "d.zarr", monkeypatch)
    assert "forget" in cluster.done
    same(tmp_path / "d.zarr", expected(graph, tmp_path))


class Caught(Exception):
    """There is a driver."""


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dense_driver.DenseDriver:
    """One that has not begun."""
    found: list[dense_driver.DenseDriver] = []

    def run_(self: dense_driver.DenseDriver) -> None:
        found.append(self)
        raise Caught

    with monkeypatch.context() as patch:
        patch.setattr(dense_driver.DenseDriver, "run", run_)
        with pytest.raises(Caught):
            solve(ToyCluster(2), sample(), folder / "d.zarr", patch)
    return found[0]


def test_a_panel_that_came_before_the_one_that_it_follows_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panel 2 is in the store, 1 is on its way, and a commit has all stripes beyond both."""
    run_ = driver(tmp_path, monkeypatch)
    monkeypatch.setattr(run_._commits, "_journal", SimpleNamespace(commit=lambda _: None))
    monkeypatch.setattr(run_, "_submit", lambda *_, **__: None)
    for stripe in run_._stripes:
        stripe.level = stripe.stored = 3
    run_._closed, run_._led, run_._leader = 0, 2, "worker1"
    run_._after_publish("worker1", TaskRequest(level=2), TaskResult(panel="two"))
    run_._commit()
    assert (run_._closed, run_._panels) == (0, {2: "two"})
    run_._after_publish("worker1", TaskRequest(level=1), TaskResult(panel="one"))
    assert run_._closed == 2


@pytest.mark.parametrize("memory", [2**30, 8 * 64 * N * 4, 0])
@pytest.mark.parametrize("seed", range(3))
def test_a_solve_that_is_lost_again_and_again_comes_to_its_end(
    seed: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from stripes of many rounds, in whatever order panels are published, and workers are lost, too."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(commits, "COST", 1e9)
    n, chance = 640, np.random.default_rng(seed)
    graph, path = sample(n, seed=seed), tmp_path / "d.zarr"
    for attempt in range(8):
        cluster = ToyCluster(2, seed=int(chance.integers(1000)), memory=2 * memory)
        end = int(chance.integers(20, 60)) if attempt < 7 else 10**9

        def mischief(c: ToyCluster, end: int = end) -> None:
            c.lost = len(c.done) >= end
            if c.random.random() < 0.05 and len(c.workers) > 1:
                c.kill(c.random.choice(sorted(c.workers)), zombie=c.random.random() < 0.5)
            if len(c.workers) < 2:
                c.add()

        cluster.mischief = mischief
        try:
            solve(cluster, graph, path, monkeypatch, resume=attempt > 0)
        except SolveFailed:
            assert attempt < 7
        else:
            break
    same(path, expected(graph, tmp_path))


def test_a_late_save_takes_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds_ = driver(tmp_path, monkeypatch)
    left, finished = rounds_._stripes[:2]
    left.level = left.stored = 3
    finished.level, finished.finished = 4, True
    monkeypatch.setattr(rounds_, "_adopt", lambda *_: pytest.fail("older tiles were taken"))
    rounds_._after_save("worker1", TaskRequest((0, 1)), TaskResult({0: 2}, missing=(1,), files={0: ()}))
    assert (left.stored, finished.level) == (3, 4)


def test_a_stripe_forgotten_while_it_is_saved_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = DenseWorker(driver(tmp_path, monkeypatch)._job, 1)
    worker._levels[0] = 1

    def gone(stripe: int) -> tuple[TileFile, ...]:
        raise KeyError(stripe)

    monkeypatch.setattr(worker, "_save", gone)
    assert worker.save(TaskRequest((0, 1))) == TaskResult(missing=(0, 1))
    worker.close()


def test_a_panel_is_closed_anew_when_its_worker_dies_after_its_stripe_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds_ = driver(tmp_path, monkeypatch)
    rounds_._stripes[0].owner = "worker1"
    rounds_._feed("worker1")
    assert rounds_._leading == 0
    rounds_._stripes[0].owner = "worker2"
    rounds_._worker_left("worker1")
    assert rounds_._leading == -1


def test_an_older_copy_gives_way_to_the_stripe_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = DenseWorker(driver(tmp_path, monkeypatch)._job, 1)
    worker._levels[0] = 1
    monkeypatch.setattr(worker, "check", lambda: None)
    monkeypatch.setattr(worker, "_read", lambda *_: np.zeros((64, N), np.int32))
    marks = Marks(0, np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64))
    assert worker._bring(TaskRequest((0,), stored={0: StoredStripe(3, marks)})) == []
    assert worker._levels == {0: 3}
    worker.close()


def test_what_another_task_believes_of_a_tile_is_not_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half is put together from tiles of stripes that others bring, and write, meanwhile."""
    worker = DenseWorker(driver(tmp_path, monkeypatch)._job, 1)
    right = np.arange(N * N, dtype=np.int32).reshape(N, N)

    class Others:
        def read_tile(self, i: int, j: int, out: np.ndarray) -> None:
            out[:] = right[worker._grid.slices(i, j)]

    monkeypatch.setattr(worker, "matrix", None)
    monkeypatch.setattr(worker, "_guest", Others)
    rows = right[64:128].copy()
    worker._put_together(64, 128, rows)
    whole = np.triu(right) + np.triu(right, 1).T
    np.testing.assert_array_equal(rows, whole[64:128])
    worker.close()


def test_a_panel_that_a_commit_has_removed_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = DenseWorker(driver(tmp_path, monkeypatch)._job, 1)
    assert worker.fetch(TaskRequest(level=1, panels={1: "panel-1-1"})) == TaskResult()
    worker.close()


def test_workers_that_only_die_end_the_solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ToyCluster(2)

    def mischief(_: ToyCluster) -> None:
        for name in list(cluster.workers):
            cluster.kill(name)
            cluster.add()

    cluster.mischief = mischief
    with pytest.raises(SolveFailed, match="lost one after the other"):
        solve(cluster, sample(), tmp_path / "d.zarr", monkeypatch)
    assert not (tmp_path / "d.zarr").exists()


def test_without_workers_a_solve_ends_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "PATIENCE", 0.0)
    cluster = ToyCluster(1)
    cluster.refused = {"worker9": "it runs another version of apsp"}
    cluster.mischief = lambda c: [c.kill(name) for name in list(c.workers)] and None  # type: ignore[func-returns-value]
    with pytest.raises(SolveFailed, match="worker9 is refused: it runs another version"):
        solve(cluster, sample(), tmp_path / "d.zarr", monkeypatch)
