"""The runner's handling of whatever may happen to a job; the solver is real unless it must fail."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import engine.api.prepared
import engine.api.solve
from engine.api.prepared_matrix import PreparedMatrix, open_result
from service.pool.tabled import TableTask
from service.runner import runner as runner_module
from service.runner.runner import Runner
from service.runner.tracker import JobMonitor
from service.settings import Settings
from storage.errors import Cancelled, SolveFailed, StorageFailed
from storage.files.locks import FileLock
from storage.jobs.store import JobRecord, JobStore
from storage.matrix.reader import open_matrix
from storage.tables.reader import open_table
from tests.interrupting import by_itself
from tests.unit.service import support
from tests.unit.service.support import Bench, small_graph


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def runner(settings: Settings, stopping: threading.Event):
    runner = Runner(settings, stopping)
    yield runner
    runner._jobs.close()


@pytest.fixture
def claim(bench: Bench) -> Callable[..., JobRecord]:
    def make(**options: object) -> JobRecord:
        bench.jobs.create(bench.add_graph(small_graph()), options, {})
        claimed = bench.jobs.claim(f"{bench.settings.slot('cpu')}:1")
        assert claimed is not None
        return claimed

    return make


def failing(error: BaseException) -> Callable[..., None]:
    def solve(*_args: object, **_kwargs: object) -> None:
        raise error

    return solve


def test_a_job_is_solved_planned_and_sealed(runner: Runner, bench: Bench, claim):
    record = claim(sources=[40, "10"], dtype="float32")
    runner.work(record)
    job = bench.jobs.job(record.id)
    assert (job.state, job.phase, job.progress.fraction) == ("successful", "done", 1.0)
    assert job.plan["dtype"] == "float32"
    assert job.plan["shape"] == (2, 4) or job.plan["shape"] == [2, 4]
    assert {"load", "create", "seal"} <= set(job.seconds or {})
    with open_matrix(bench.settings.store(record.id)) as matrix:
        assert matrix.rows([3, 0]).tolist() == [[1, 2, 4, 0], [0, 1, 3, float("inf")]]
        assert matrix.summary == job.summary


def test_a_result_does_not_name_the_column_of_another_users_upload_of_the_same_graph(
    runner: Runner, bench: Bench, monkeypatch
):
    """A graph is stored once, as it was first uploaded, and column names are not part of it."""
    monkeypatch.setattr(support, "RECEIPT", dataclasses.replace(support.RECEIPT, weight_column="secret_minutes"))
    bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    record = bench.jobs.claim(f"{bench.settings.slot('cpu')}:1")
    assert record is not None
    runner.work(record)
    with open_matrix(bench.settings.store(record.id)) as matrix:
        assert matrix.attributes.get("weight_column") is None
        assert "secret" not in str(matrix.attributes)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SolveFailed("the device is sick"), "solve-failed"),
        (MemoryError(), "out-of-memory"),
        (RuntimeError("bug"), "internal"),
        (RecursionError("deep"), "internal"),
    ],
)
def test_no_failure_ends_the_runner(runner: Runner, bench: Bench, claim, monkeypatch, error: Exception, code: str):
    record = claim()
    with monkeypatch.context() as patch:
        patch.setattr(engine.api.solve, "solve_to_store", failing(error))
        runner.work(record)
    job = bench.jobs.job(record.id)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["code"] == code
    assert not bench.settings.store(record.id).exists()
    following = claim()
    runner.work(following)
    assert bench.jobs.job(following.id).state == "successful"


def test_a_summary_that_cannot_be_stored_fails_the_job(runner: Runner, bench: Bench, claim, monkeypatch):
    def odd(*_args: object, plan, **_kwargs: object) -> engine.api.solve.Outcome:
        return engine.api.solve.Outcome(plan, {}, {"mean": object()})

    monkeypatch.setattr(engine.api.solve, "solve_to_store", odd)
    record = claim()
    runner.work(record)
    assert bench.jobs.job(record.id).state == "failed"


def test_what_stopped_fitting_fails_with_the_numbers(runner: Runner, bench: Bench, claim):
    record = claim(memory=1)
    runner.work(record)
    error = bench.jobs.job(record.id).error
    assert error is not None
    assert error["code"] == "does-not-fit"
    assert error["details"]["available"] == 1


def test_what_does_not_fit_the_short_runner_is_left_to_another(
    settings: Settings, stopping: threading.Event, bench: Bench, claim
):
    short = Runner(settings, stopping, "short")
    record = claim(memory=1)
    short.work(record)
    again = bench.jobs.job(record.id)
    assert (again.state, again.error, again.attempt) == ("accepted", None, 0)
    short._jobs.close()


def test_a_job_that_gives_way_is_left_to_another_runner(
    settings: Settings, stopping: threading.Event, bench: Bench, claim, monkeypatch
):
    short = Runner(settings, stopping, "short")
    record = claim()
    worked: list[float] = []
    monkeypatch.setattr(short._short, "wait_for", lambda seconds: bool(worked.append(seconds) or True))
    monkeypatch.setattr("service.runner.tracker.LOOK_SECONDS", 0.0)
    monkeypatch.setattr(JobMonitor, "cancelled", lambda monitor: monitor.look() or monitor.gives_way)
    short.work(record)
    again = bench.jobs.job(record.id)
    assert (again.state, again.error, again.attempt) == ("accepted", None, 0)
    assert worked
    assert not bench.jobs.waits(most=(1e9, 2**60)), "it has no prediction any more"
    assert bench.jobs.waits()
    short._jobs.close()


def test_a_store_sealed_by_a_dead_runner_is_taken_as_it_is(runner: Runner, bench: Bench, claim, monkeypatch):
    record = claim()
    with monkeypatch.context() as patch:
        patch.setattr(runner._jobs, "succeed", lambda *_: True)  # the runner died before it could tell
        runner.work(record)
    bench.jobs.recover()
    again = bench.jobs.claim("second")
    assert again is not None
    monkeypatch.setattr(engine.api.solve, "solve_to_store", failing(AssertionError("solved twice")))
    runner.work(again)
    job = bench.jobs.job(record.id)
    assert (job.state, job.attempt) == ("successful", 2)
    assert job.summary is not None
    assert job.summary["pairs"] == 12


def test_a_stopping_runner_gives_its_job_back(runner: Runner, bench: Bench, claim, stopping, caplog):
    caplog.set_level("INFO")
    record = claim()
    stopping.set()
    runner.work(record)
    job = bench.jobs.job(record.id)
    assert (job.state, job.attempt) == ("accepted", 0)
    assert not bench.settings.store(record.id).exists()
    stopping.clear()
    again = bench.jobs.claim(record.runner)
    assert again is not None
    runner.work(again)
    assert bench.jobs.job(record.id).state == "successful"
    assert "no checkpoint was kept, so it starts from the beginning" in caplog.text


def test_a_cancelled_job_is_dismissed(runner: Runner, bench: Bench, claim):
    record = claim()
    bench.jobs.cancel(record.id)
    runner.work(record)
    assert bench.jobs.job(record.id).state == "dismissed"


def test_a_cancel_that_a_library_turns_into_an_error_of_its_own_is_a_cancel(
    runner: Runner, bench: Bench, claim, monkeypatch
):
    record = claim()

    def broken(*_args: object, monitor, **_kwargs: object) -> None:
        bench.jobs.cancel(record.id)
        assert monitor.cancelled()
        with contextlib.suppress(Cancelled):
            runner.interrupt()
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(engine.api.solve, "solve_to_store", broken)
    runner.work(record)
    assert bench.jobs.job(record.id).state == "dismissed"


def test_a_lost_claim_is_left_alone(runner: Runner, bench: Bench, claim, monkeypatch):
    record = claim()

    def overtaken(*_args: object, monitor, **_kwargs: object) -> None:
        bench.jobs.recover()
        monitor.begin("search", 1, "rows")
        raise Cancelled("stop") if monitor.cancelled() else AssertionError("the loss was not noticed")

    monkeypatch.setattr(engine.api.solve, "solve_to_store", overtaken)
    runner.work(record)
    assert bench.jobs.job(record.id).state == "accepted"


def test_the_end_of_a_job_is_written_until_it_is_stored(runner: Runner, bench: Bench, claim, monkeypatch):
    record = claim()
    monkeypatch.setattr(runner_module, "_RETRY_SECONDS", 0.01)
    succeed, failures = runner._jobs.succeed, [StorageFailed("locked"), StorageFailed("locked")]

    def flaky(*args):
        if failures:
            raise failures.pop()
        return succeed(*args)

    monkeypatch.setattr(runner._jobs, "succeed", flaky)
    runner.work(record)
    assert failures == []
    assert bench.jobs.job(record.id).state == "successful"


def test_the_loop_works_off_the_queue_and_stops(settings: Settings, bench: Bench, stopping, claim, monkeypatch):
    interrupted = claim()
    waiting = bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    orphan = settings.data_dir / "jobs" / "of-no-job"
    orphan.mkdir()
    monkeypatch.setattr(runner_module, "_RETRY_SECONDS", 0.01)
    runner = Runner(settings, stopping)
    claims, troubles = runner._jobs.claim, [StorageFailed("locked")]

    def claim_or_fail(name: str, *, cuda: bool) -> JobRecord | None:
        if troubles:
            raise troubles.pop()
        return claims(name, cuda=cuda)

    monkeypatch.setattr(runner._jobs, "claim", claim_or_fail)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        _until(lambda: bench.jobs.job(waiting.id).state == "successful")
    finally:
        stopping.set()
        thread.join(30)
    job = bench.jobs.job(interrupted.id)
    assert (job.state, job.attempt) == ("successful", 2)
    assert not orphan.exists()


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not happen within 30 s")


def test_three_attempts_are_the_limit(settings: Settings, bench: Bench, claim):
    record = claim()
    store = JobStore(settings.database)
    store.recover()
    for _ in range(2):
        assert bench.jobs.claim("r") is not None
        store.recover()
    store.close()
    error = bench.jobs.job(record.id).error
    assert error is not None
    assert error["code"] == "runner-lost"


def test_there_is_one_runner_of_a_device(settings: Settings):
    settings = settings.model_copy(update={"stop_seconds": 0.2, "node": "n"})
    environment = {**os.environ, **settings.environment()}
    for device, other in (("cpu", "cuda0"), ("cuda1", "cuda0")):
        lock, apart = FileLock(settings.runner_lock(device)), FileLock(settings.runner_lock(other))
        lock.acquire()
        apart.acquire()  # another device of the node is another matter
        command = [sys.executable, "-m", "service.runner.runner", device]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert f"another runner works on n/{device}" in done.stderr
        assert str(os.getpid()) in done.stderr
        lock.release()
        apart.release()


def test_a_graph_is_prepared_planned_and_sealed(runner: Runner, bench: Bench, claim):
    record = claim(result="prepared", dtype="int32")
    runner.work(record)
    job = bench.jobs.job(record.id)
    assert (job.state, job.phase, job.progress.fraction) == ("successful", "done", 1.0)
    assert (job.plan["algorithm"], job.plan["dtype"], list(job.plan["shape"])) == ("prepared", "int32", [4, 4])
    assert {"load", "partition", "write", "seal"} <= set(job.seconds or {})
    store = bench.settings.store(record.id)
    with open_result(store) as result:
        assert isinstance(result, PreparedMatrix)
        assert result.rows([3]).tolist() == [[1, 2, 4, 0]]
    assert job.bytes == sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert sorted(path.name for path in store.parent.iterdir()) == ["log.txt", store.name]


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"sources": [10]}, "sources", "answers all pairs"),
        ({"max_hops": 2}, "max_hops", "without knowing how many arcs"),
        ({"device": "cuda"}, "device", "by processors"),
        ({"algorithm": "dijkstra"}, "algorithm", "by its parts"),
    ],
)
def test_what_a_prepared_graph_does_not_answer_is_refused(runner: Runner, bench: Bench, claim, options, field, words):
    record = claim(result="prepared", **options)
    runner.work(record)
    error = bench.jobs.job(record.id).error
    assert error is not None
    assert (error["code"], error["details"]["field"]) == ("invalid-request", field)
    assert words in error["message"]


def test_a_cancelled_preparation_leaves_nothing(runner: Runner, bench: Bench, claim):
    record = claim(result="prepared")
    bench.jobs.cancel(record.id)
    runner.work(record)
    assert bench.jobs.job(record.id).state == "dismissed"
    assert [path.name for path in bench.settings.store(record.id).parent.iterdir()] == ["log.txt"]


@pytest.mark.parametrize("before", ["_chunk", "seal"])
def test_a_preparation_that_was_killed_begins_again(
    runner: Runner, bench: Bench, claim, monkeypatch, before: str, stopping: threading.Event
):
    """The process ends in the midst of a table, or before the seal: nothing is a result, and the next claim has one."""
    record = claim(result="prepared")
    store = bench.settings.store(record.id)
    killed = f"""
import os, threading
from service.runner.runner import Runner
from service.settings import Settings
from storage.prepared.writer import PreparedWriter
PreparedWriter.{before} = lambda *_: os._exit(9)
settings = Settings.load()
runner = Runner(settings, threading.Event())
runner.work(runner._jobs.job({record.id!r}))
"""
    environment = {**os.environ, **bench.settings.environment()}
    done = subprocess.run([sys.executable, "-c", killed], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert not store.exists()
    assert list(store.parent.rglob("*")), "something was left on the way"
    bench.jobs.recover()
    again = bench.jobs.claim("second")
    assert again is not None
    assert again.attempt == 2
    runner.work(again)
    assert bench.jobs.job(record.id).state == "successful"
    assert sorted(path.name for path in store.parent.iterdir()) == ["log.txt", store.name]
    with open_result(store) as result:
        result.check()


def test_a_prepared_result_of_a_dead_runner_is_taken_as_it_is(runner: Runner, bench: Bench, claim, monkeypatch):
    record = claim(result="prepared")
    with monkeypatch.context() as patch:
        patch.setattr(runner._jobs, "succeed", lambda *_: True)
        runner.work(record)
    bench.jobs.recover()
    again = bench.jobs.claim("second")
    assert again is not None
    monkeypatch.setattr(engine.api.prepared, "prepare", failing(AssertionError("prepared twice")))
    runner.work(again)
    assert bench.jobs.job(record.id).state == "successful"


DEMANDS = {"origins": [10, 40], "destinations": [30, 20], "flows": [5, 2.5]}


@pytest.mark.parametrize(
    "asked",
    [
        {"result": "measures", "within": [3.0]},
        {"result": "near", "cutoff": 4.0},
        {"result": "betweenness", "raw": True},
        {"result": "flows", "of": "vertices", "demands": DEMANDS},
    ],
)
def test_a_table_is_made_planned_and_sealed(runner: Runner, bench: Bench, claim, asked):
    record = claim(**asked)
    runner.work(record)
    job = bench.jobs.job(record.id)
    assert (job.state, list(job.plan["shape"])) == ("successful", [2, 2] if "demands" in asked else [4, 4])
    assert {"load", "write"} <= job.seconds.keys()
    with open_table(bench.settings.store(job.id)) as table:
        assert (table.result, table.rows) == (asked["result"], job.summary["rows"])
        assert job.bytes >= table.bytes > 0
    assert [path.name for path in bench.settings.store(job.id).parent.iterdir() if path.is_dir()] == ["matrix.zarr"]


def test_a_table_that_was_cancelled_leaves_nothing(runner: Runner, bench: Bench, claim):
    record = claim(result="near", cutoff=4.0)
    bench.jobs.cancel(record.id)
    runner.work(record)
    assert bench.jobs.job(record.id).state == "dismissed"
    assert [path.name for path in bench.settings.store(record.id).parent.iterdir()] == ["log.txt"]


@pytest.mark.parametrize(
    ("asked", "where", "made"),
    [
        ({"result": "measures"}, "atomic.sync_tree", False),
        ({"result": "near", "nearest": 2}, "atomic.sync_tree", False),
        ({"result": "near", "nearest": 2}, "claims.publish", True),
        ({"result": "flows", "demands": DEMANDS}, "atomic.sync_tree", False),
    ],
)
def test_a_table_whose_runner_was_killed_is_made_again_unless_it_was_sealed(
    runner: Runner, bench: Bench, claim, monkeypatch, asked, where: str, made: bool
):
    record = claim(**asked)
    store = bench.settings.store(record.id)
    killed = f"""
import os, threading
from service.jobs import claims
from service.runner.runner import Runner
from service.settings import Settings
from storage.files import atomic
{where} = lambda *_: os._exit(9)
settings = Settings.load()
runner = Runner(settings, threading.Event())
runner.work(runner._jobs.job({record.id!r}))
"""
    environment = {**os.environ, **bench.settings.environment()}
    done = subprocess.run([sys.executable, "-c", killed], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert not store.exists()
    assert [path.name for path in store.parent.rglob("table.parquet")] == ["table.parquet"]
    assert list(store.parent.rglob("matrix.zarr/zarr.json")) == [store.parent / "claim-1/matrix.zarr/zarr.json"] * made
    bench.jobs.recover()
    again = bench.jobs.claim("second")
    assert again is not None
    if made:
        monkeypatch.setattr(TableTask, "make", failing(AssertionError("made twice")))
    runner.work(again)
    assert bench.jobs.job(record.id).state == "successful"
    assert sorted(path.name for path in store.parent.iterdir()) == ["log.txt", store.name]
    with open_table(store) as table:
        table.check()


def test_a_signal_that_comes_while_the_runner_begins_or_ends_to_wait_stops_it(settings: Settings) -> None:
    """Then its thread holds the lock of the event, and the handler may not wait for it."""
    stopping, wake = threading.Event(), threading.Event()
    told = Runner(settings, stopping, wake=wake)

    def interrupted() -> None:
        with wake._cond, stopping._cond:  # type: ignore[attr-defined]
            told.interrupt()

    by_itself(interrupted, 60)
    assert stopping.wait(60)
    assert wake.wait(60)
    told._jobs.close()
