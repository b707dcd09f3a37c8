"""Runners kept alive, ended when they do not stop, and their jobs taken from them when they are silent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from service.runner import gpus, processes
from service.runner import supervisor as supervisor_module
from service.runner.supervisor import RunnerProcess, Supervisor
from service.settings import Settings
from storage.errors import DatabaseFailed
from storage.jobs.store import JobRecord, RunnerRecord
from tests.unit.service.support import Bench, small_graph

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def fake_runner(monkeypatch: pytest.MonkeyPatch):
    """Runner processes that run a line of Python instead."""
    born: list[subprocess.Popen[bytes]] = []

    def install(code: str) -> list[subprocess.Popen[bytes]]:
        def spawn(_self: RunnerProcess) -> subprocess.Popen[bytes]:
            born.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
            return born[-1]

        monkeypatch.setattr(RunnerProcess, "_spawn", spawn)
        monkeypatch.setattr(supervisor_module, "_FIRST_PAUSE", 0.02)
        return born

    return install


def test_a_dying_runner_is_started_again_and_again_more_slowly(tmp_path: Path, fake_runner):
    born = fake_runner("raise SystemExit(3)")
    watched = RunnerProcess(Settings(data_dir=tmp_path))
    watched.start()
    deadline = time.monotonic() + 20
    while len(born) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    watched.stop()
    assert len(born) >= 3
    count = len(born)
    time.sleep(0.3)
    assert len(born) == count


def test_a_notification_reaches_no_file_that_was_opened_when_the_runner_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The next file gets the descriptor of the pipe, once that is closed."""
    asked, ended = threading.Event(), threading.Event()

    class Pipe:
        closed = False

        def fileno(self) -> int:
            asked.set()
            ended.wait(0.3)  # the runner's watcher has time to close it
            return -1

        def close(self) -> None:
            self.closed = True
            ended.set()

    class Ended:
        pid, stdin = 2**30, Pipe()

        def wait(self) -> int:
            asked.wait(60)
            return 1

        def poll(self) -> int:
            return 1

    written: list[bool] = []
    monkeypatch.setattr(supervisor_module.os, "write", lambda *_: written.append(Ended.stdin.closed))
    monkeypatch.setattr(RunnerProcess, "_spawn", lambda _: Ended())
    watched = RunnerProcess(Settings(data_dir=tmp_path), ended=lambda *_: watched._stopping.set())
    watched.start()
    while watched._process is None:
        time.sleep(0.001)
    watched.wake()
    watched._thread.join(60)
    assert (written, Ended.stdin.closed) == ([False], True)


def test_a_runner_that_will_not_stop_is_killed(tmp_path: Path, fake_runner):
    up = tmp_path / "up"
    code = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(up)!r}, 'w').close(); time.sleep(600)"
    born = fake_runner(code)
    watched = RunnerProcess(Settings(data_dir=tmp_path, stop_seconds=0.3))
    watched.start()
    deadline = time.monotonic() + 60
    while not up.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    watched.stop()
    assert [p.returncode for p in born] == [-9]


def test_each_runner_sees_its_own_gpu_and_its_share_of_the_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[tuple[list[str], dict[str, str]]] = []

    class Process:
        stdin = None

        def __init__(self, command: list[str], *, env: dict[str, str], **_: object) -> None:
            started.append((command[3:], env))

    monkeypatch.setattr(supervisor_module.subprocess, "Popen", Process)
    monkeypatch.setattr(gpus, "usable_processors", lambda: 16)
    for named, seen in (("5,GPU-7f", ["5", "GPU-7f"]), ("", ["0", "1"])):
        started.clear()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        supervisor = Supervisor(Settings(data_dir=tmp_path, node="n", runners="cuda0,cuda1"), None)  # type: ignore[arg-type]
        assert [runner.slot for runner in supervisor.runners] == ["n/cuda0", "n/cuda1"]
        for runner in supervisor.runners:
            runner._spawn()
        assert [command[0] for command, _ in started] == ["cuda0", "cuda1"]
        assert [env["CUDA_VISIBLE_DEVICES"] for _, env in started] == seen
        assert {env["APSP_THREADS"] for _, env in started} == {"8"}


@pytest.mark.parametrize(
    ("runners", "named", "slots", "seen"),
    [
        ("auto", "", ["n/cuda0-1", "n/cuda2-3"], ["0,1", "2,3"]),
        ("auto", "4,5,GPU-7f", ["n/cuda0-1", "n/cuda2"], ["4,5", "GPU-7f"]),
        ("cuda1-3", "7,6,5,4", ["n/cuda1-3"], ["6,5,4"]),
    ],
)
def test_a_runner_may_have_several_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runners: str, named: str, slots: list[str], seen: list[str]
):
    started: list[tuple[list[str], dict[str, str]]] = []

    class Process:
        stdin = None

        def __init__(self, command: list[str], *, env: dict[str, str], **_: object) -> None:
            started.append((command[3:], env))

    for number in range(4):
        (tmp_path / "gpus" / f"{number}").mkdir(parents=True)
    monkeypatch.setattr(gpus, "_NVIDIA", tmp_path / "gpus")
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda _name: object())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setattr(supervisor_module.subprocess, "Popen", Process)
    settings = Settings(data_dir=tmp_path, node="n", runners=runners, gpus_per_runner=2)
    supervisor = Supervisor(settings, None)  # type: ignore[arg-type]
    assert [runner.slot for runner in supervisor.runners] == slots
    for runner in supervisor.runners:
        runner._spawn()
    assert [command[0] for command, _ in started] == [slot.removeprefix("n/") for slot in slots]
    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in started] == seen
    assert all(Settings.load(env).gpus_per_runner == 2 for _, env in started)


class Held:
    """A runner process that sleeps, and a job that it holds."""

    def __init__(self, bench: Bench, code: str = "import time; time.sleep(60)") -> None:
        self.bench, self.settings = bench, bench.settings
        self.supervisor = Supervisor(bench.settings, bench.jobs)
        [self.runner] = self.supervisor.runners
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if "print" in code:
            assert self.process.stdout is not None
            self.process.stdout.readline()
        self.runner._process = self.process
        bench.jobs.create(bench.add_graph(small_graph()), {}, {})
        claimed = bench.jobs.claim(f"{self.runner.slot}:{self.process.pid}")
        assert claimed is not None
        self.job = claimed

    def now(self) -> JobRecord:
        return self.bench.jobs.job(self.job.id)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def hold(settings: Settings):
    held: list[Held] = []
    lasting = settings.model_copy(update={"runners": "cpu", "cancel_term_seconds": 5.0, "cancel_kill_seconds": 10.0})

    def make(*code: str) -> Held:
        held.append(Held(Bench(lasting), *code))
        return held[-1]

    yield make
    for one in held:
        one.close()
        one.bench.jobs.close()


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def test_a_runner_that_does_not_stop_a_cancelled_job_is_terminated_then_killed(hold: Callable[..., Held]):
    held = hold(STUBBORN)
    held.supervisor.look(100.0)
    held.bench.jobs.cancel(held.job.id)
    for moment, code in ((101.0, None), (105.9, None), (106.1, None), (115.9, None), (116.1, -signal.SIGKILL)):
        held.supervisor.look(moment)
        if code is not None:
            held.process.wait(10)
        assert held.process.poll() == code, moment
    held.supervisor._ended(held.runner.slot, "it was killed")
    assert held.now().state == "dismissed"


def test_a_runner_that_obeys_gets_no_further_than_sigterm(hold: Callable[..., Held]):
    held = hold()
    held.bench.jobs.cancel(held.job.id)
    held.supervisor.look(0.0)
    held.supervisor.look(5.1)
    assert held.process.wait(10) == -signal.SIGTERM


def test_the_runner_of_another_job_is_left_alone(hold: Callable[..., Held]):
    held = hold()
    held.runner.signal(signal.SIGKILL, f"{held.runner.slot}:{os.getpid()}")
    assert held.process.poll() is None


def test_a_silent_runner_loses_its_job_and_is_killed_first(hold: Callable[..., Held]):
    held = hold()
    held.process.send_signal(signal.SIGSTOP)
    moment = 0.0
    while moment < held.settings.lease_seconds:
        held.supervisor.look(moment)
        assert held.now().state == "running"
        moment += 2
    held.supervisor.look(moment)
    held.supervisor.look(moment + 2)
    assert held.process.wait(10) == -signal.SIGKILL
    job = held.now()
    assert (job.state, job.attempt) == ("accepted", 1)
    assert "no sign of life" in job.history[0]["reason"]


def test_a_runner_that_beats_keeps_its_job(hold: Callable[..., Held]):
    held = hold()
    for moment in range(0, 200, 2):
        held.supervisor.look(float(moment))
        if moment % 50 == 0:
            assert held.bench.jobs.beat(held.job) is False
    assert held.now().state == "running"


def test_an_ended_runner_gives_its_job_back_at_once_with_the_reason(hold: Callable[..., Held]):
    held = hold()
    for attempt in range(1, 4):
        held.supervisor._ended(held.runner.slot, f"reason {attempt}")
        if attempt < 3:
            assert held.bench.jobs.claim(f"{held.runner.slot}:{attempt}") is not None
    job = held.now()
    assert job.state == "failed"
    assert job.error is not None
    assert all(f"attempt {n}: reason {n}" in job.error["message"] for n in (1, 2, 3))


#: A process that says who it is, takes the write lock of the database when it is told to, and keeps it.
HOLDER = """
import json, signal, sqlite3, sys
from service.runner import processes
print(json.dumps(processes.own()), flush=True)
sys.stdin.readline()
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
signal.pause()
"""


class Other:
    """A runner of another node on this machine; it has a job, and holds the lock of the database."""

    def __init__(self, settings: Settings, *, busy: bool) -> None:
        self.bench = Bench(settings)
        self.jobs, self.supervisor = self.bench.jobs, Supervisor(settings, self.bench.jobs)
        command = [sys.executable, "-c", HOLDER, str(settings.database)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())
        name = f"other/cpu:{self.process.pid}"
        figures = {"process": self.told}
        self.jobs.announce(RunnerRecord("other/cpu", name, "cpu", "busy", None, time.time(), figures))
        self.job = self.jobs.create(self.bench.add_graph(small_graph()), {}, {})
        if busy:
            assert self.jobs.claim(name) is not None
        self.process.stdin.write("\n")
        self.process.stdout.readline()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        while not processes.stopped(self.told):
            time.sleep(0.01)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.jobs.close()


@pytest.fixture
def other(settings: Settings):
    made: list[Other] = []
    lasting = settings.model_copy(update={"runners": "none", "database_timeout": 0.2, "lease_seconds": 10.0})

    def make(*, busy: bool) -> Other:
        made.append(Other(lasting, busy=busy))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("busy", [True, False], ids=["with a job", "idle"])
def test_a_stopped_runner_of_this_machine_that_blocks_the_database_is_killed(other: Callable[..., Other], busy: bool):
    found = other(busy=busy)
    found.stop()
    with pytest.raises(DatabaseFailed):
        found.jobs.ping()
    for moment in range(0, 12, 2):
        assert found.process.poll() is None
        found.supervisor.look(float(moment))
    assert found.process.wait(10) == -signal.SIGKILL
    found.jobs.ping()
    job = found.jobs.job(found.job.id)
    assert (job.state, job.attempt) == ("accepted", int(busy))


def test_a_runner_that_blocks_the_database_and_is_not_stopped_is_left_alone(other: Callable[..., Other]):
    found = other(busy=True)
    refused = 0
    for moment in range(0, 60, 2):
        try:
            found.supervisor.look(float(moment))
        except DatabaseFailed:
            refused += 1
    assert found.process.poll() is None
    assert found.jobs.job(found.job.id).state == "running"
    assert 2 <= refused <= 5, "a whole lease is waited for again: nobody could give a sign"


def test_a_stopped_runner_that_blocks_nobody_keeps_what_it_has_until_its_lease_is_over(other: Callable[..., Other]):
    found = other(busy=False)
    found.process.kill()
    found.process.wait(10)
    with subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
                          stdout=subprocess.PIPE) as idle:  # fmt: skip
        assert idle.stdout is not None
        idle.stdout.readline()
        told = {**found.told, "pid": idle.pid, "started": processes._fields(idle.pid)[processes._STARTED]}
        found.jobs.announce(RunnerRecord("idle/cpu", "idle/cpu:1", "cpu", "idle", None, 0.0, {"process": told}))
        idle.send_signal(signal.SIGSTOP)
        for moment in range(0, 30, 2):
            found.supervisor.look(float(moment))
        assert idle.poll() is None
        assert processes.kill(told)
        assert idle.wait(10) == -signal.SIGKILL


def test_a_process_is_known_by_machine_number_and_start():
    told = processes.own()
    assert told is not None
    assert processes.find(told) == os.getpid()
    assert not processes.stopped(told)
    for other in ({**told, "started": "1"}, {**told, "host": "elsewhere"}, {**told, "pid": 2**30}, None, "x"):
        assert processes.find(other) is None
        assert not processes.kill(other)
