"""The reading process: results and errors cross the border, and its death is survived."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.fault import Refused
from service.pool import process_pool
from service.pool.process_pool import ProcessPool
from service.pool.tasks import job_options, plan_job, read_upload
from service.settings import Settings
from storage.errors import InvalidRequest, LimitExceeded
from tests.unit.service.support import Bench, small_graph


@pytest.fixture
def worker() -> Iterator[ProcessPool]:
    worker = ProcessPool(nice=1)
    yield worker
    worker.stop()


def run(worker: ProcessPool, task, *args):
    return asyncio.run(worker.run(task, *args))


def test_graphs_are_read_and_jobs_planned_beside(worker: ProcessPool, settings: Settings, bench: Bench, tmp_path: Path):
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


def test_unexpected_errors_become_faults(worker: ProcessPool):
    with pytest.raises(Refused, match="ValueError") as caught:
        run(worker, int, "x")
    assert caught.value.fault.code == "internal"


def test_its_death_is_told_and_survived(worker: ProcessPool):
    first = run(worker, os.getpid)
    with pytest.raises(Refused) as caught:
        run(worker, os._exit, 9)
    assert caught.value.fault.code == "worker-lost"
    second = run(worker, os.getpid)
    assert second != first
    os.kill(second, signal.SIGKILL)
    assert gone(second)
    assert run(worker, os.getpid) not in (first, second)


def test_a_process_that_dies_before_it_begins_is_replaced_for_the_request(worker: ProcessPool):
    """It is stopped, so that the request is sent to it, and then killed."""

    async def scene() -> tuple[int, int]:
        held = await worker.run(os.getpid)
        os.kill(held, signal.SIGSTOP)
        asked = asyncio.create_task(worker.run(os.getpid))
        await asyncio.sleep(0.3)
        assert not asked.done()
        os.kill(held, signal.SIGKILL)
        return held, await asked

    held, answered = asyncio.run(scene())
    assert answered != held


def test_requests_right_after_a_death_are_answered(worker: ProcessPool):
    for _ in range(8):
        os.kill(run(worker, os.getpid), signal.SIGKILL)
        assert run(worker, abs, -3) == 3


class Deadly:
    """Kills whoever unpickles it, and is counted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return count_and_die, (str(self.path),)


def count_and_die(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("x")
    os._exit(9)


@pytest.mark.parametrize("begun", [True, False])
def test_what_kills_its_process_is_an_error_after_at_most_two(worker: ProcessPool, tmp_path: Path, begun: bool):
    told = tmp_path / "count"
    asked = (count_and_die, str(told)) if begun else (abs, Deadly(told))
    with pytest.raises(Refused) as caught:
        run(worker, *asked)
    assert caught.value.fault.code == "worker-lost"
    assert told.read_text() == ("x" if begun else "xx"), "what was begun is not repeated"
    assert run(worker, abs, -3) == 3


def test_nothing_starts_again_after_stopping():
    worker = ProcessPool(nice=1)

    async def scene() -> Refused:
        held = await worker.run(os.getpid)
        os.kill(held, signal.SIGSTOP)
        asked = asyncio.create_task(worker.run(os.getpid))
        await asyncio.sleep(0.3)
        worker.stop()
        with pytest.raises(Refused) as caught:
            await asked
        assert gone(held)
        return caught.value

    before = set(multiprocessing.active_children())
    assert asyncio.run(scene()).fault.code == "worker-lost"
    assert set(multiprocessing.active_children()) <= before


def test_a_process_that_does_not_take_its_task_is_ended_at_the_limit(worker: ProcessPool):
    async def scene() -> Refused:
        held = await worker.run(os.getpid)
        os.kill(held, signal.SIGSTOP)
        with pytest.raises(Refused) as caught:
            await worker.run(os.getpid, seconds=0.5)
        assert gone(held)
        return caught.value

    assert asyncio.run(scene()).fault.code == "limit-exceeded"


def test_a_stopped_process_that_takes_no_bytes_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_pool, "_STUCK_SECONDS", 0.5)
    worker = ProcessPool(nice=1)
    try:
        held = run(worker, os.getpid)
        os.kill(held, signal.SIGSTOP)
        assert run(worker, len, bytes(50_000_000)) == 50_000_000, "no part of the task was done, so it is done again"
        assert gone(held)
        assert run(worker, os.getpid) != held
    finally:
        worker.stop()


#: holds the interpreter's lock for hours, in one call of C
FOR_EVER = (sum, range(10**13))


class Panic(BaseException):
    """As a library in Rust raises it."""


def panic() -> None:
    raise Panic("the disco")


def gone(pid: int) -> bool:
    """Whether the process ends; a minute is for machines under load."""
    for _ in range(1200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def tell_and_run_for_ever(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    FOR_EVER[0](*FOR_EVER[1:])


async def start_both(worker: ProcessPool) -> None:
    """Ask until both processes have answered: which of them takes a task is not determined."""
    seen: set[int] = set()
    while len(seen) < 2:
        seen.update(await asyncio.gather(worker.run(os.getpid), worker.run(os.getpid)))


def test_a_task_is_ended_at_its_limit_and_others_are_answered_meanwhile(tmp_path: Path):
    worker = ProcessPool(nice=1, most=2, setting="read_seconds")
    told = tmp_path / "pid"

    async def scene() -> tuple[int, Refused]:
        await start_both(worker)
        endless = asyncio.create_task(worker.run(tell_and_run_for_ever, str(told), seconds=5))
        while not (told.exists() and told.read_text()):
            assert not endless.done()
            await asyncio.sleep(0.01)
        held = int(told.read_text())
        other = await worker.run(os.getpid)
        assert not endless.done(), "it has to be answered while the other process is held"
        assert other != held
        with pytest.raises(Refused) as caught:
            await endless
        return held, caught.value

    try:
        held, refused = asyncio.run(scene())
        assert gone(held), "the process is ended, and not the waiting for it"
        assert refused.fault.code == "limit-exceeded"
        assert refused.fault.details == {"limit": 5, "setting": "APSP_READ_SECONDS"}
        assert "5 s" in refused.fault.message
        assert len({run(worker, os.getpid) for _ in range(3)} - {held}) > 0
    finally:
        worker.stop()


def test_nobody_holds_all_processes():
    worker = ProcessPool(nice=1, most=2)

    async def scene() -> None:
        await start_both(worker)
        endless = [asyncio.create_task(worker.run(*FOR_EVER, owner="greedy", seconds=8)) for _ in range(3)]
        await asyncio.sleep(0)
        for _ in range(3):
            await worker.run(os.getpid, owner="other")
        assert not any(task.done() for task in endless)
        for task in endless[1:]:  # those that wait are forgotten with whoever asked
            task.cancel()
        with pytest.raises(Refused):
            await endless[0]
        await worker.run(os.getpid, owner="greedy")

    try:
        asyncio.run(scene())
    finally:
        worker.stop()


def test_it_dies_with_its_parent_whatever_it_does():
    code = """
import asyncio, os
from service.pool.process_pool import ProcessPool
async def scene():
    worker = ProcessPool(0)
    print(await worker.run(os.getpid), flush=True)
    await worker.run(sum, range(10**13))
if __name__ == "__main__":
    asyncio.run(scene())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        before = processor_seconds(child)
        while processor_seconds(child) < before + 0.2:  # it is in the loop
            time.sleep(0.02)
        parent.send_signal(signal.SIGKILL)
        parent.wait(60)
    assert gone(child)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_memory_and_open_files_are_bounded():
    worker = ProcessPool(nice=1, memory=200 << 20)
    try:
        first = run(worker, os.getpid)
        assert len(run(worker, bytes, 50 << 20)) == 50 << 20
        with pytest.raises(Refused) as caught:
            run(worker, bytes, 300 << 20)
        assert caught.value.fault.code == "limit-exceeded"
        assert caught.value.fault.details == {"limit": 200 << 20, "setting": "APSP_TASK_MEMORY"}
        assert run(worker, os.getpid) == first, "who asks for too much at once is told, and nothing else happens"
        assert max(run(worker, resource.getrlimit, resource.RLIMIT_NOFILE)) <= 1024
    finally:
        worker.stop()


def test_what_is_no_exception_is_told_too(worker: ProcessPool):
    with pytest.raises(Refused, match="Panic: the disco") as caught:
        run(worker, panic)
    assert caught.value.fault.code == "internal"
    with pytest.raises(Refused) as caught:
        run(worker, sys.exit)
    assert caught.value.fault.code == "worker-lost"


def test_stopping_ends_the_process(worker: ProcessPool):
    pid = run(worker, os.getpid)
    worker.stop()
    assert gone(pid)


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
