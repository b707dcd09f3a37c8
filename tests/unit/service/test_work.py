"""The reading process: results and errors cross the border, and its death is survived."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.fault import Refused
from service.settings import Settings
from service.tasks import job_options, plan_job, read_upload
from service.work import Worker
from storage.errors import InvalidRequest, LimitExceeded
from tests.unit.service.support import Bench, small_graph


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(nice=1)
    yield worker
    worker.stop()


def run(worker: Worker, task, *args):
    return asyncio.run(worker.run(task, *args))


def test_graphs_are_read_and_jobs_planned_beside(worker: Worker, settings: Settings, bench: Bench, tmp_path: Path):
    assert run(worker, os.getpid) != os.getpid()
    assert run(worker, os.getpriority, os.PRIO_PROCESS, 0) == os.getpriority(os.PRIO_PROCESS, 0) + 1
    path = tmp_path / "graph.txt"
    path.write_text("1 2 3\n2 3 4\n3 3 1\n")
    found = run(worker, read_upload, settings, path, {"format": None, "directed": False})
    assert (found["n"], found["m"], found["receipt"]["self_loops"]) == (3, 2, 1)
    assert found["facts"]["directed"] is False
    plan = run(worker, plan_job, settings, found["id"], {"sources": [3, "1"]})
    assert plan["shape"] in ((2, 3), [2, 3])
    path.write_text("p sp 3 1\na 1 9 5\n")
    with pytest.raises(Refused) as caught:
        run(worker, read_upload, settings, path, {})
    assert (caught.value.fault.code, caught.value.fault.details["line"]) == ("invalid-graph", 2)
    small = settings.model_copy(update={"max_vertices": 2})
    path.write_text("1 2 3\n2 3 4\n")
    with pytest.raises(Refused) as caught:
        run(worker, read_upload, small, path, {})
    assert caught.value.fault.code == "limit-exceeded"
    assert caught.value.fault.details["limit"] == 2


def test_unexpected_errors_become_faults(worker: Worker):
    with pytest.raises(Refused, match="ValueError") as caught:
        run(worker, int, "x")
    assert caught.value.fault.code == "internal"


def test_its_death_is_told_and_survived(worker: Worker):
    first = run(worker, os.getpid)
    with pytest.raises(Refused) as caught:
        run(worker, os._exit, 9)
    assert caught.value.fault.code == "worker-lost"
    second = run(worker, os.getpid)
    assert second != first
    os.kill(second, signal.SIGKILL)
    time.sleep(0.3)
    assert run(worker, os.getpid) not in (first, second)


def test_stopping_ends_the_process(worker: Worker):
    pid = run(worker, os.getpid)
    worker.stop()
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("the reading process lives on")


def test_options_are_resolved_and_bounded(settings: Settings):
    graph = small_graph()
    mean = settings.model_copy(update={"memory": 100, "threads": 2})
    options = job_options(graph, {"sources": ["40", 10], "memory": 1000, "threads": 1, "dtype": "int32"}, mean)
    assert (options.sources, options.memory, options.threads, options.dtype) == ((3, 0), 100, 1, "int32")
    assert job_options(graph, {}, settings).sources is None
    with pytest.raises(InvalidRequest, match="41"):
        job_options(graph, {"sources": [41]}, settings)
    with pytest.raises(LimitExceeded):
        job_options(graph, {"sources": [10] * 5}, settings)
