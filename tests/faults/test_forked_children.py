"""Tests that a child forked while its parent holds locks and threads does not hang, and removes no files of the parent.

A fork copies the memory, but only one thread.  So in the child, locks that other threads held are never released, pools
have no threads, and copied objects of the parent would remove the parent's files when they are destroyed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import apsp
from engine.devices.cpu.team import Team
from storage.errors import Conflict, StorageFailed
from storage.files.atomic import Staging
from storage.files.locks import FileLock
from storage.files.writing import Writing
from storage.graph.graph import build_graph
from storage.matrix.working_dir import WorkingDir, working_folder
from storage.prepared.journal import PreparedJournal, journal_folder
from storage.threads import ThreadPool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
SECONDS = 60


def in_child(work: Callable[[], object]) -> int:
    """Fork, work and free all memory there; return the status: 0 where the work ended, 1 where it raised.

    A child that takes longer than ``SECONDS`` is killed, and the status is -SIGALRM.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, in later versions of Python
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        work()
        gc.collect()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def refused(target: Path) -> bool:
    """Whether another process may not write a place now; asked by a child, which has no more right than others."""

    def take() -> None:
        with contextlib.closing(_Closing(Writing(target, "other"))):
            pass

    return in_child(take) == 1


class _Closing:
    def __init__(self, writing: Writing) -> None:
        self.close = writing.release


def test_the_right_to_write_stays_with_the_parent(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    target = tmp_path / "out"
    held = [Writing(target, "parent")]
    lock = tmp_path / ".out.writing"

    def release() -> None:
        held[0].release()
        held.clear()

    for work in (release, held.clear, gc.collect, lambda: held[0].__exit__(None, None, None)):
        assert in_child(work) == 0
        assert lock.exists()
        assert refused(target)
    assert "process " + str(os.getpid()) in capfd.readouterr().err
    held[0].release()
    assert not lock.exists()
    assert not refused(target)


def test_a_child_that_outlives_its_parent_does_not_keep_its_right(tmp_path: Path):
    target, (forked, tell), (ended, end) = tmp_path / "out", os.pipe(), os.pipe()

    def parent() -> None:
        held = Writing(target, "parent")
        os.close(end)
        if os.fork() == 0:
            os.write(tell, b"x")
            os.read(ended, 1)  # until the test has closed the other side
            os._exit(0)
        os.read(forked, 1)
        assert held is not None
        os._exit(7)

    try:
        assert in_child(parent) == 7
        Writing(target, "next").release()
    finally:
        for descriptor in (forked, tell, ended, end):
            os.close(descriptor)


@pytest.mark.parametrize("ending", ["discard", "publish", "freed"])
def test_a_staged_folder_stays(ending: str, tmp_path: Path):
    held = [Staging(tmp_path / "out", "parent")]
    (held[0].folder / "file").write_text("x")

    def work() -> None:
        if ending == "publish":
            with pytest.raises(StorageFailed, match="has forked this one"):
                held[0].publish(replace=False)
        elif ending == "discard":
            held[0].discard()
        held.clear()

    assert in_child(work) == 0
    held[0].publish(replace=False)
    assert (tmp_path / "out" / "file").read_text() == "x"


@pytest.mark.parametrize("committed", [False, True])
def test_a_working_folder_stays(committed: bool, tmp_path: Path):
    target = tmp_path / "out"
    held = [WorkingDir(target, {"graph": "x"}, resume=False, overwrite=False)]
    if committed:
        held[0].save({"level": 1})

    def work() -> None:
        with pytest.raises(StorageFailed, match="has forked this one"):
            held[0].save({"level": 2})
        held[0].discard()
        held.clear()

    assert in_child(work) == 0
    assert held[0].folder.is_dir()
    assert refused(target)
    held[0].save({"level": 2})
    assert held[0].record == {"level": 2}
    held[0].discard()
    assert (working_folder(target) / "record.json").exists()


def test_the_journal_of_preparing_stays(tmp_path: Path):
    held = PreparedJournal(tmp_path / "out", {"graph": "x"})
    held.__enter__()

    def work() -> None:
        held.__exit__(None, None, None)

    assert in_child(work) == 0
    assert journal_folder(tmp_path / "out").is_dir()
    held.commit("step", [np.arange(3)])
    held.finish()
    held.__exit__(None, None, None)
    assert not journal_folder(tmp_path / "out").exists()


def test_a_lock_file_stays_locked(tmp_path: Path):
    lock = FileLock(tmp_path / "lock")
    lock.acquire()
    assert in_child(lock.release) == 0
    with pytest.raises(Conflict):
        FileLock(tmp_path / "lock").acquire()
    lock.release()


@pytest.mark.parametrize("busy", [False, True])
def test_an_open_pool_of_threads_ends_in_the_child(busy: bool):
    go = threading.Event()
    with ThreadPool(2) as pool, pool:
        assert pool.submit(int, "1").result() == 1
        waiting = [pool.submit(go.wait) for _ in range(3 * busy)]

        def work() -> None:
            with pytest.raises(RuntimeError, match="forked"):
                pool.submit(int, "1")
            for call in waiting:
                with pytest.raises(RuntimeError, match="forked"):
                    call.result()
            pool.close()

        status = in_child(work)
        go.set()
        assert status == 0
        assert [call.result() for call in waiting] == [True] * len(waiting)


def test_a_team_starts_threads_of_its_own_in_the_child():
    team = Team(3)
    seen: list[int] = []
    team.run(seen.append)
    assert sorted(seen) == [0, 1, 2]

    def work() -> None:
        seen.clear()
        team.run(seen.append)
        assert sorted(seen) == [0, 1, 2]
        team.close()

    assert in_child(work) == 0
    team.run(seen.append)
    team.close()


@pytest.mark.parametrize("kind", ["prepared", "solved"])
def test_an_open_result_answers_in_the_child(kind: str, tmp_path: Path):
    rng = np.random.default_rng(5)
    graph, _ = build_graph(*rng.integers(0, 200, (2, 800)), rng.integers(1, 9, 800), n=200, directed=True)
    (apsp.prepare if kind == "prepared" else apsp.solve_to_store)(graph, tmp_path / "r")
    expected = apsp.solve(graph)[0]
    with apsp.open(tmp_path / "r") as matrix:

        def work() -> None:
            found = matrix.block(range(200), range(200)).astype(np.float64)
            found[found == float(matrix.unreachable)] = np.inf
            assert np.array_equal(found, expected)
            assert matrix.row(3)[5] == matrix.entries([3], [5])[0]

        work()
        assert in_child(work) == 0
        work()


def test_a_solve_in_the_child_of_a_solving_parent():
    rng = np.random.default_rng(5)
    graph, _ = build_graph(*rng.integers(0, 300, (2, 1200)), rng.integers(1, 9, 1200), n=300, directed=True)
    expected, statuses = apsp.solve(graph)[0], list[int]()

    class Forking(apsp.Monitor):
        def begin(self, phase: str, total: int, unit: str) -> None:
            statuses.append(in_child(lambda: np.testing.assert_array_equal(apsp.solve(graph)[0], expected)))

    for algorithm in ("dijkstra", "recursive-floyd-warshall"):
        found, _ = apsp.solve(graph, apsp.Options(algorithm=algorithm), monitor=Forking())
        assert np.array_equal(found, expected)
    assert len(statuses) >= 2
    assert set(statuses) == {0}
