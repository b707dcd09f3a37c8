"""A GPU that fails its probe takes its runner out of service, says so, and comes back when it computes again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from fastapi.testclient import TestClient

import engine.api.solve
from service.runner import runner as runner_module
from service.runner.gpu_probe import probe
from service.runner.runner import Runner
from service.settings import Settings
from storage.errors import SolveFailed
from storage.files.locks import FileLock
from tests.unit.service.support import Bench, small_graph


class FakeProbe:
    """Answers what it is set to; counts how often it was asked."""

    def __init__(self, answer: str | None) -> None:
        self.answer, self.asked = answer, 0

    def __call__(self, _device: int, _seconds: float) -> str | None:
        self.asked += 1
        return self.answer


@pytest.fixture
def gpu(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[FakeProbe], Runner]]:
    monkeypatch.setattr(runner_module, "_PROBE_PAUSES", (0.05, 0.1))
    runners: list[tuple[Runner, threading.Thread]] = []

    def make(fake: FakeProbe) -> Runner:
        monkeypatch.setattr(runner_module, "probe", fake)
        runner = Runner(settings, threading.Event(), "cuda0")
        runners.append((runner, threading.Thread(target=runner.run)))
        runners[-1][1].start()
        return runner

    yield make
    for runner, thread in runners:
        runner._stopping.set()
        thread.join(60)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_sick_gpu_claims_nothing_and_readiness_says_so(client: TestClient, bench: Bench, gpu):
    job = bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    fake = FakeProbe("the device computes wrong distances")
    gpu(fake)
    until(lambda: fake.asked > 3)
    [told] = bench.jobs.list_runners()
    assert (told.device, told.state, told.detail) == ("cuda0", "sick", "the device computes wrong distances")
    response = client.get("/health/ready")
    assert response.status_code == 503
    checks = response.json()["checks"]
    assert checks["runner"] == "every runner is out of service"
    assert checks[f"runner {told.slot}"] == "out of service: the device computes wrong distances"
    bench.jobs.announce(replace(told, slot="n/short", name="n/short:1", device="short", state="idle", detail=None))
    assert client.get("/health/ready").json()["checks"]["runner"] == "every runner is out of service", (
        "one for short jobs"
    )
    assert bench.jobs.job(job.id).state == "accepted"
    fake.answer = None
    until(lambda: bench.jobs.job(job.id).state == "successful")
    assert client.get("/health/ready").json()["checks"]["runner"] == "ok"


def test_another_runner_keeps_the_service_ready(client: TestClient, bench: Bench, gpu):
    fake = FakeProbe("no answer")
    gpu(fake)
    until(lambda: fake.asked > 1)
    healthy = Runner(bench.settings, threading.Event())
    healthy.announce("idle")
    response = client.get("/health/ready")
    assert (response.status_code, response.json()["checks"]["runner"]) == (200, "ok")
    assert sum("out of service" in state for state in response.json()["checks"].values()) == 1
    healthy._end()


def test_a_gpu_that_falls_sick_gives_its_job_back_with_the_reason(bench: Bench, gpu, monkeypatch: pytest.MonkeyPatch):
    fake = FakeProbe(None)

    def fail(*_args: object, **_kwargs: object) -> None:
        fake.answer = "an illegal memory access"
        raise SolveFailed("the kernel failed")

    monkeypatch.setattr(engine.api.solve, "solve_to_store", fail)
    job = bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    runner = gpu(fake)
    until(lambda: bench.jobs.job(job.id).history)
    given_back = bench.jobs.job(job.id)
    assert given_back.state == "accepted"
    reason = "the kernel failed; the probe of cuda0 failed: an illegal memory access"
    assert given_back.history[0]["reason"] == reason
    until(lambda: runner.device_lost)  # a new process starts the device afresh


def test_an_error_of_the_job_on_a_healthy_gpu_fails_the_job_and_renews_the_process(
    bench: Bench, gpu, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_args: object, **_kwargs: object) -> None:
        raise SolveFailed("the kernel failed")

    monkeypatch.setattr(engine.api.solve, "solve_to_store", fail)
    job = bench.jobs.create(bench.add_graph(small_graph()), {}, {})
    runner = gpu(FakeProbe(None))
    until(lambda: bench.jobs.job(job.id).state == "failed")
    assert runner.device_lost


def test_an_idle_gpu_that_nobody_uses_is_probed_again(bench: Bench, gpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(bench.settings.__dict__, "heartbeat_seconds", 0.02)  # it is frozen
    fake = FakeProbe(None)
    gpu(fake)
    until(lambda: [runner.state for runner in bench.jobs.list_runners()] == ["idle"])
    fake.answer = "it has fallen off the bus"
    until(lambda: [(runner.state, runner.detail) for runner in bench.jobs.list_runners()] == [("sick", fake.answer)])
    fake.answer = None
    until(lambda: [runner.state for runner in bench.jobs.list_runners()] == ["idle"])


def test_a_gpu_in_use_that_does_not_answer_is_started_afresh(bench: Bench, gpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(bench.settings.__dict__, "heartbeat_seconds", 0.02)  # it is frozen
    memory: list[tuple[int, int] | None] = [(5, 9)]
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    driver = SimpleNamespace(memory_in_use=lambda: memory[0])
    monkeypatch.setitem(sys.modules, "engine.devices.cuda.context", driver)
    fake = FakeProbe(None)
    runner = gpu(fake)
    until(lambda: [found.figures["memory"] for found in bench.jobs.list_runners()] == [{"used": 5, "limit": 9}])
    assert not runner.device_lost
    memory[0] = None
    until(lambda: runner.device_lost)
    until(lambda: not bench.jobs.list_runners())
    assert fake.asked == 0, "the new process probes it, before anything else"


def test_a_probe_that_gives_no_answer_is_ended():
    assert probe(0, 0.01) == "the probe gave no answer within 0.01 s"


def test_every_gpu_of_a_runner_is_probed_and_the_sick_one_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    def fake(device: int, _seconds: float) -> str | None:
        asked.append(device)
        return "it is hot" if device == 2 else None

    monkeypatch.setattr(runner_module, "probe", fake)
    assert Runner(settings, threading.Event(), "cuda4-7")._probe() == "GPU 6: it is hot"
    assert asked == [0, 1, 2], "this process sees its own devices only"
    assert Runner(settings, threading.Event(), "cuda4-5")._probe() is None
    assert Runner(settings, threading.Event(), "cuda2")._probe() is None


@pytest.mark.parametrize("held", ["cuda0", "cuda1"])
def test_no_two_runners_work_on_one_gpu(settings: Settings, held: str):
    lock = FileLock(settings.runner_lock(held))
    lock.acquire(timeout=0)
    environment = {**os.environ, **settings.environment(), "APSP_STOP_SECONDS": "0.2"}
    command = [sys.executable, "-m", "service.runner.runner", "cuda0-1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    lock.release()
    assert done.returncode == 1
    assert "another runner works on" in done.stderr
