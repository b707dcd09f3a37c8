"""Tests a full disk, a disk that cannot be written, and a clock that is set: jobs end as documented, nothing is lost.

The disks are small tmpfs file systems.  Only root can mount them, so the tests are skipped for other users; tests in
tests/unit/storage/matrix/test_reader.py and test_working.py let single operations fail instead.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from service.jobs import checkpoints
from service.jobs.retention import Retention
from service.runner import runner as runner_module
from service.runner.runner import Runner
from service.runner.supervisor import Supervisor
from service.runner.tracker import JobMonitor
from service.settings import Settings
from storage.errors import DatabaseFailed
from storage.graph.graph import Graph, build_graph
from storage.jobs.store import JobRecord, Submission
from tests.programs import need
from tests.stores import verify_matrix
from tests.unit.service.support import Bench, small_graph

_SIZE = 24 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    yield from _mounted(place)


def _mounted(place: Path) -> Iterator[Path]:
    need("mount")
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", place]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


class Filler:
    """A file that takes all the room that there is."""

    def __init__(self, disk: Path) -> None:
        self.path = disk / "filler"

    def fill(self, leave: int = 0) -> None:
        """Fill the disk, but for ``leave`` bytes."""
        with self.path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with self.path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        if leave:
            with self.path.open("r+b") as file:
                file.truncate(self.path.stat().st_size - leave)

    def free(self) -> None:
        """Give it back."""
        self.path.unlink()


def ring(n: int = 900) -> Graph:
    rng = np.random.default_rng(1)
    tails = np.concatenate([np.arange(n), rng.integers(0, n, 3 * n)])
    heads = np.concatenate([np.roll(np.arange(n), -1), rng.integers(0, n, 3 * n)])
    return build_graph(tails, heads, rng.integers(1, 100, 4 * n), n=n, directed=True)[0]


class Site:
    """A data directory, a runner of it that works in this process, and a graph."""

    def __init__(self, data: Path) -> None:
        self.bench = Bench(Settings(data_dir=data, auth=False))
        self.jobs, self.settings = self.bench.jobs, self.bench.settings
        self.runner = Runner(self.settings, threading.Event())
        self.graph = self.bench.add_graph(ring())

    def submit(self) -> JobRecord:
        return self.jobs.create(self.graph, {"dtype": "int32"}, {})

    def work(self) -> JobRecord:
        """Claim the next job and do it."""
        claimed = self.jobs.claim(f"{self.settings.slot('cpu')}:1")
        assert claimed is not None
        self.runner.work(claimed)
        return self.jobs.job(claimed.id)

    def close(self) -> None:
        self.runner._jobs.close()
        self.jobs.close()


@pytest.fixture
def site(small_disk: Path) -> Iterator[Site]:
    site = Site(small_disk / "data")
    yield site
    site.close()


def test_a_disk_that_fills_up_in_mid_job_costs_that_job_an_attempt(
    site: Site, small_disk: Path, monkeypatch: pytest.MonkeyPatch
):
    good = site.submit()
    assert site.work().state == "successful"
    filler, filled, begin = Filler(small_disk), threading.Event(), JobMonitor.begin

    def begin_on_a_full_disk(monitor: JobMonitor, phase: str, total: int, unit: str) -> None:
        begin(monitor, phase, total, unit)
        if phase not in ("create", "loading"):
            filler.fill()
            filled.set()

    bad = site.submit()
    monkeypatch.setattr(runner_module, "_RETRY_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(JobMonitor, "begin", begin_on_a_full_disk)
        thread = threading.Thread(target=site.work)
        thread.start()
        assert filled.wait(60)  # before that, freeing would be in vain
        thread.join(3)  # it either could say that the job failed, or tries to until there is room
        filler.free()
        thread.join(60)
        assert not thread.is_alive()
    put_back = site.jobs.job(bad.id)
    assert (put_back.state, put_back.attempt) == ("accepted", 1)
    [lost] = put_back.history
    assert "No space left on device" in lost["reason"]
    assert str(small_disk) not in str(put_back), "who asks does not learn where the data directory lies"
    assert {path.name for path in site.settings.store(bad.id).parent.iterdir()} <= {"log.txt"}
    assert site.runner._claimed() is None, "the runner waits before it takes the next job"
    done = site.work()
    assert (done.id, done.state) == (bad.id, "successful"), "there is room again"
    verify_matrix(site.settings.store(good.id))


def test_a_job_that_the_disk_has_no_room_for_is_tried_again_then_refused_and_can_be_resumed(
    site: Site, small_disk: Path
):
    filler = Filler(small_disk)
    filler.fill(leave=1 << 20)
    job = site.submit()
    assert [site.work().state for _ in range(3)] == ["accepted", "accepted", "failed"]
    failed = site.jobs.job(job.id)
    assert failed.error is not None
    assert (failed.error["code"], failed.error["details"]["resource"]) == ("does-not-fit", "disk")
    assert failed.error["details"]["needed"] > failed.error["details"]["available"]
    assert checkpoints.resumable(site.settings, failed)
    filler.free()
    site.jobs.resume(job.id, Submission(failed.graph, failed.options, failed.plan))
    assert site.work().state == "successful"


def test_a_runner_pauses_longer_and_longer_while_the_disk_is_full(site: Site, small_disk: Path):
    filler = Filler(small_disk)
    filler.fill(leave=1 << 20)
    for job in (site.submit(), site.submit()):
        for _ in range(3):
            site.work()
        assert site.jobs.job(job.id).state == "failed"
    assert site.runner._pause == 5.0 * 2**5
    filler.free()
    site.submit()
    assert site.work().state == "successful"
    assert site.runner._pause == 0.0


def test_on_a_full_disk_no_job_is_promised_that_is_not_kept(site: Site, small_disk: Path):
    filler = Filler(small_disk)
    filler.fill()
    promised: list[str] = []

    def submit_many() -> None:
        for _ in range(1000):
            promised.append(site.submit().id)  # noqa: PERF401 - those before the failure count

    with pytest.raises(DatabaseFailed, match="full"):
        submit_many()
    assert {job.id for job in site.jobs.list_jobs(2000)} == set(promised), "reading goes on"
    filler.free()
    promised.append(site.submit().id)
    assert {job.id for job in site.jobs.list_jobs(2000)} == set(promised)
    with contextlib.closing(sqlite3.connect(site.settings.data_dir / "apsp.db")) as connection, connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_folder_that_cannot_be_written_fails_the_job_and_keeps_results_readable(tmp_path: Path):
    site = Site(tmp_path / "data")
    for place in _mounted(site.settings.data_dir / "jobs"):
        try:
            good, bad = site.submit(), site.submit()
            assert site.work().state == "successful"
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
            failed = site.work()
            assert (failed.id, failed.state) == (bad.id, "failed")
            assert failed.error is not None
            assert failed.error["code"] == "storage-failed"
            assert "Read-only file system" in failed.error["message"]
            verify_matrix(site.settings.store(good.id))
            subprocess.run(["mount", "-o", "remount,rw", place], check=True)
            site.submit()
            assert site.work().state == "successful"
        finally:
            site.close()


@pytest.mark.parametrize("jump", [86400.0, -86400.0], ids=["a day ahead", "a day back"])
def test_a_clock_that_is_set_takes_no_job_no_turn_and_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
):
    bench = Bench(Settings(data_dir=tmp_path / "data", auth=False, runners="cpu", retain_seconds=3600.0))
    runner_module.prepare(bench.settings)
    supervisor, retention = Supervisor(bench.settings, bench.jobs), Retention(bench.settings, bench.jobs)
    done, _ = bench.solved(small_graph(), "int32")
    graph = bench.add_graph(small_graph())
    running, waiting = bench.jobs.create(graph, {}, {}), bench.jobs.create(graph, {}, {})
    claimed = bench.jobs.claim(f"{supervisor.runners[0].slot}:1")
    assert claimed is not None
    assert claimed.id == running.id
    supervisor.look(100.0)
    real, ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    monkeypatch.setattr(time, "time_ns", lambda: ns() + int(jump * 10**9))
    for moment in range(101, 250, 2):
        assert bench.jobs.beat(claimed) is False
        supervisor.look(float(moment))
    later = bench.jobs.create(graph, {}, {})
    assert bench.jobs.succeed(claimed, {}, {})
    assert bench.jobs.job(running.id).history == []
    assert retention.look(time.time(), time.monotonic()) == [], "ages mean nothing now"
    assert bench.jobs.job(done).removed is None
    claims = [bench.jobs.claim("r"), bench.jobs.claim("r")]
    assert [job.id for job in claims if job] == [waiting.id, later.id], "turns are counted, not timed"
    bench.jobs.close()


def test_results_go_when_their_time_is_over_and_their_ids_are_known_for_a_while(tmp_path: Path):
    settings = Settings(data_dir=tmp_path / "data", auth=False, retain_seconds=3600.0, tombstone_seconds=86400.0)
    bench = Bench(settings)
    runner_module.prepare(settings)
    done, _ = bench.solved(small_graph(), "int32")
    retention = Retention(settings, bench.jobs)
    now, steady = time.time(), time.monotonic()
    assert retention.look(now + 3500, steady + 3500) == []
    assert retention.look(now + 3700, steady + 3700) == [done]
    assert bench.jobs.job(done).removal == "expired"
    assert not settings.store(done).parent.exists()
    assert retention.look(now + 86400, steady + 86400) == []
    assert bench.jobs.job(done).removal == "expired"
    retention.look(now + 2 * 86400, steady + 2 * 86400)
    assert bench.jobs.list_jobs(10) == []
    bench.jobs.close()
