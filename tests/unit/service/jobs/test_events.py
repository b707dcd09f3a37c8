"""Events of jobs: in order, complete, resumable, ended; from the database and the log alone."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.jobs import events
from service.jobs.events import EventStreams, Position
from service.jobs.joblog import log_path
from service.settings import Settings
from storage.jobs.store import JobRecord, JobStore, Progress
from tests.unit.service.support import Bench, small_graph
from tests.unit.service.test_app import problem


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_LOOK_SECONDS", 0.01)


@pytest.fixture
def job(bench: Bench) -> JobRecord:
    return bench.jobs.create(bench.add_graph(small_graph()), {}, {})


def write_log(settings: Settings, job: JobRecord, text: str) -> None:
    path = log_path(settings, job.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def parsed(text: str) -> list[dict]:
    """The events of a stream; comments as events without a name."""
    found = []
    for block in text.split("\n\n"):
        event: dict = {"data": []}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            if name == "data":
                event["data"].append(value)
            elif name:
                event[name] = value
        if "event" in event:
            found.append({**event, "data": "\n".join(event["data"])})
    return found


def solve(bench: Bench, job: JobRecord) -> Iterator[None]:
    """A job's life, a change at a time."""
    yield
    claimed = bench.jobs.claim("r")
    assert claimed is not None
    write_log(bench.settings, job, "one\ntw")
    yield
    bench.jobs.report(claimed, "search", Progress(0.25, 10.0, "rows", 3.0))
    write_log(bench.settings, job, "o\nthree\n")
    yield
    bench.jobs.report(claimed, "search", Progress(0.5, 10.0, "rows", 2.0))
    yield
    write_log(bench.settings, job, "the end")
    assert bench.jobs.succeed(claimed, {}, {})


def whole_lines(settings: Settings, job: JobRecord) -> int:
    """Bytes of the lines of a job's log that are written to their end."""
    path = log_path(settings, job.id)
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


class Told:
    """The position that a job's stream has reached, for a test that waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reached, self._changed = Position(), threading.Condition()
        news = EventStreams._news

        def told(streams, now, shown, at):
            found = news(streams, now, shown, at)
            with self._changed:
                self._reached = found[2]
                self._changed.notify_all()
            return found

        monkeypatch.setattr(EventStreams, "_news", told)

    def wait_for(self, version: int, offset: int) -> None:
        """Wait until the stream tells of this version of the record and of so many bytes of the log."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._reached.version >= version and self._reached.offset >= offset, 120
            ), f"the stream stays at {self._reached}"


def listen(client: TestClient, job: JobRecord, life: Iterator[None], last: str = "") -> list[dict]:
    """The events of a job's stream while it lives through ``life``; each change is told before the next one."""
    jobs, settings = client.app.state.service.jobs, client.app.state.service.settings

    def live() -> None:
        for _ in life:
            told.wait_for(jobs.job(job.id).version, whole_lines(settings, job))

    with pytest.MonkeyPatch.context() as patch:
        told = Told(patch)
        thread = threading.Thread(target=live)
        thread.start()
        response = client.get(f"/v1/jobs/{job.id}/events", headers={"Last-Event-ID": last})
        thread.join()
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.text.startswith("retry: 2000\n\n")
    return parsed(response.text)


def test_a_jobs_life(client: TestClient, bench: Bench, job: JobRecord):
    with client:
        found = listen(client, job, solve(bench, job))
    states = [(e["event"], json.loads(e["data"])) for e in found if e["event"] != "log"]
    assert [(kind, data["state"], data["phase"]) for kind, data in states] == [
        ("phase", "accepted", "queued"), ("phase", "running", "loading"), ("phase", "running", "search"),
        ("progress", "running", "search"), ("done", "successful", "done"),
    ]  # fmt: skip
    assert [data["progress"] for _, data in states] == [0, 0, 0.25, 0.5, 1]
    assert states[2][1] == {
        "state": "running", "phase": "search", "progress": 0.25, "rate": 10, "unit": "rows", "eta_seconds": 3,
        "attempt": 1,
    }  # fmt: skip
    assert states[-1][1]["links"]["distance"] == f"/v1/jobs/{job.id}/distance"
    assert [e["data"] for e in found if e["event"] == "log"] == ["one", "two\nthree", "the end"]
    assert found[-1]["event"] == "done"
    assert len({e["id"] for e in found}) == len(found)


def test_from_every_event_on_the_rest_follows(client: TestClient, bench: Bench, job: JobRecord):
    with client:
        whole = listen(client, job, solve(bench, job))
        log = "one\ntwo\nthree\nthe end"
        for position, event in enumerate(whole[:-1]):
            rest = listen(client, job, iter(()), event["id"])
            said = "\n".join(e["data"] for e in whole[: position + 1] if e["event"] == "log")
            new = "\n".join(e["data"] for e in rest if e["event"] == "log")
            assert "\n".join(part for part in (said, new) if part) == log
            assert rest[-1] == whole[-1]
            assert {e["event"] for e in rest} <= {"log", "done"}, "a job that is over is told by its end alone"
        over = client.get(f"/v1/jobs/{job.id}/events", headers={"Last-Event-ID": whole[-1]["id"]})
        assert (over.status_code, over.content) == (204, b"")
        for strange in ("", "x", "-1.5", "1", "9" * 30, "1.2.3"):
            assert listen(client, job, iter(()), strange)[-1]["event"] == "done"


def test_a_stream_begins_with_a_key_and_a_job(client: TestClient, job: JobRecord):
    problem(client.get("/v1/jobs/unknown/events"), 404, "not-found")
    client.app.state.service.draining = True
    problem(client.get(f"/v1/jobs/{job.id}/events"), 503, "draining")
    client.app.state.service.draining = False
    head = client.head(f"/v1/jobs/{job.id}/events")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")


def test_streams_of_one_key_are_counted(settings: Settings, bench: Bench, job: JobRecord):
    app = create_app(settings.model_copy(update={"max_streams": 1}))
    with TestClient(app) as client, app.state.service.watching.hold(None, 1):
        response = client.get(f"/v1/jobs/{job.id}/events")
        details = problem(response, 429, "too-many-at-once")["details"]
        assert details == {"limit": 1, "requested": 2, "setting": "APSP_MAX_STREAMS"}
        assert int(response.headers["retry-after"]) > 0
    with TestClient(app) as client:
        assert listen(client, job, solve(bench, job))[-1]["event"] == "done"
    app.state.service.jobs.close()


class Counted(JobStore):
    """Counts what is read."""

    looks = records = 0

    def versions(self, job_ids):
        self.looks += 1
        return super().versions(job_ids)

    def job(self, job_id):
        self.records += 1
        return super().job(job_id)


async def gather(
    watch: EventStreams, snapshot: events.Snapshot, change: Callable[[], None], listeners: int
) -> list[str]:
    async def one() -> str:
        return b"".join([piece async for piece in watch.stream(snapshot, Position())]).decode()

    tasks = [asyncio.create_task(one()) for _ in range(listeners)]
    await asyncio.sleep(0.3)
    await asyncio.to_thread(change)
    return await asyncio.gather(*tasks)


def test_many_listeners_cost_one_look(settings: Settings, bench: Bench, job: JobRecord, monkeypatch):
    monkeypatch.setattr(events, "_LOOK_SECONDS", 0.1)
    jobs = Counted(settings.database)
    watch = EventStreams(settings, jobs, lambda: False)
    began = time.monotonic()
    heard = asyncio.run(gather(watch, watch.snapshot(job), lambda: bench.jobs.cancel(job.id), 50))
    elapsed = time.monotonic() - began
    assert len({json.dumps(parsed(text)) for text in heard}) == 1
    assert parsed(heard[0])[-1]["event"] == "done"
    assert jobs.looks <= elapsed / 0.1 + 1
    assert jobs.records <= 2, "one record for all of them, only when it changed"
    assert watch._watched == {}
    assert watch._seen == {}
    jobs.close()


def test_comments_keep_a_quiet_stream_alive_and_its_end_is_said(settings: Settings, bench: Bench, job, monkeypatch):
    monkeypatch.setattr(events, "QUIET_SECONDS", 0.05)
    closing: list[bool] = []
    watch = EventStreams(settings, bench.jobs, lambda: bool(closing))

    async def listen() -> str:
        heard = ""
        async for piece in watch.stream(watch.snapshot(job), Position()):
            heard += piece.decode()
            if heard.count(": still here\n\n") == 2:  # however long they take on a busy machine
                closing.append(True)
        return heard

    text = asyncio.run(asyncio.wait_for(listen(), 60))
    assert text.endswith(": come back with the last id\n\n")
    assert [e["event"] for e in parsed(text)] == ["phase"]
    closing.clear()
    monkeypatch.setattr(events, "LONGEST_SECONDS", 0.1)
    [text] = asyncio.run(gather(watch, watch.snapshot(job), lambda: None, 1))
    assert text.endswith(": come back with the last id\n\n")


def test_a_job_that_is_deleted_ends_its_streams(settings: Settings, bench: Bench, job: JobRecord):
    watch = EventStreams(settings, bench.jobs, lambda: False)
    snapshot = watch.snapshot(job)

    def delete() -> None:
        bench.jobs.cancel(job.id)
        bench.jobs.delete(job.id)

    [text] = asyncio.run(gather(watch, snapshot, delete, 1))
    assert [e["event"] for e in parsed(text)] in (["phase"], ["phase", "done"])


def test_streams_end_where_the_question_about_their_jobs_fails(settings: Settings, bench: Bench, job, caplog):
    class Failing(JobStore):
        """Fails once, and not as a database does."""

        failed = False

        def versions(self, job_ids):
            if not self.failed:
                self.failed = True
                raise KeyError("a defect")
            return super().versions(job_ids)

    jobs = Failing(settings.database)
    watch = EventStreams(settings, jobs, lambda: False)

    async def scene() -> list[str]:
        snapshot = watch.snapshot(job)
        ended = await asyncio.wait_for(gather(watch, snapshot, lambda: None, 3), 60)
        again = await asyncio.wait_for(gather(watch, snapshot, lambda: bench.jobs.cancel(job.id), 1), 60)
        return [*ended, *again]

    *ended, again = asyncio.run(scene())
    assert [[e["event"] for e in parsed(text)] for text in ended] == [["phase"]] * 3
    assert parsed(again)[-1]["event"] == "done"
    assert "a defect" in caplog.text
    assert (watch._watched, watch._seen) == ({}, {})
    jobs.close()


def test_long_lines_come_in_pieces(client: TestClient, settings: Settings, bench: Bench, job: JobRecord):
    write_log(settings, job, "x" * 150_000 + "\nshort\n")
    bench.jobs.cancel(job.id)
    with client:
        found = [e["data"] for e in listen(client, job, iter(())) if e["event"] == "log"]
    assert "".join(found).replace("\n", "") == "x" * 150_000 + "short"
    assert max(map(len, found)) <= 1 << 16
