"""The job store: states, claims, fences, recovery."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from pathlib import Path

import pytest

from storage.errors import Conflict, NotFound, StorageFailed
from storage.jobs import GraphRecord, JobRecord, JobStore, Progress, new_id


def graph_record(name: str = "g1") -> GraphRecord:
    return GraphRecord(name, f"sha256:{name}", None, 3, 2, {"directed": True}, {"format": "csv"}, time.time())


@pytest.fixture
def jobs(tmp_path: Path):
    store = JobStore(tmp_path / "db" / "apsp.db")
    store.add_graph(graph_record())
    yield store
    store.close()


def make(jobs: JobStore) -> JobRecord:
    return jobs.create("g1", {"dtype": "auto"}, {"algorithm": "dijkstra"})


def claimed(jobs: JobStore) -> JobRecord:
    make(jobs)
    record = jobs.claim("runner")
    assert record is not None
    return record


def test_ids_are_version_7_and_ascend_with_time():
    first = new_id()
    time.sleep(0.002)
    second = new_id()
    assert uuid.UUID(first).version == 7
    assert uuid.UUID(first).variant == uuid.RFC_4122
    assert first < second
    assert abs((uuid.UUID(first).int >> 80) / 1000 - time.time()) < 60


def test_same_content_is_one_graph(jobs: JobStore):
    again = dataclasses.replace(graph_record(), id="other", name="again")
    kept, new = jobs.add_graph(again)
    assert (kept.id, new) == ("g1", False)
    assert jobs.graph("g1").receipt == {"format": "csv"}
    assert [g.id for g in jobs.list_graphs(10)] == ["g1"]
    with pytest.raises(NotFound, match="other"):
        jobs.graph("other")


def test_a_job_starts_accepted_and_survives_reopening(jobs: JobStore):
    record = make(jobs)
    assert (record.state, record.phase, record.attempt, record.fence) == ("accepted", "queued", 0, 0)
    other = JobStore(jobs.path)
    assert other.job(record.id) == record
    other.close()


def test_unknown_graph_and_job_are_named(jobs: JobStore):
    with pytest.raises(NotFound, match="nope"):
        jobs.create("nope", {}, {})
    for call in (jobs.job, jobs.cancel, jobs.delete):
        with pytest.raises(NotFound, match="nope"):
            call("nope")


def test_claims_go_oldest_first_and_raise_attempt_and_fence(jobs: JobStore):
    records = []
    for _ in range(3):
        records.append(make(jobs))
        time.sleep(0.002)
    assert jobs.queue_position(records[2]) == 2
    assert jobs.queue_position(records[0]) == 0
    order = [jobs.claim("r") for _ in range(3)]
    assert [c.id for c in order if c] == [r.id for r in records]
    assert all((c.state, c.attempt, c.fence, c.runner) == ("running", 1, 1, "r") for c in order if c)
    assert jobs.claim("r") is None


def test_many_runners_never_share_a_claim(jobs: JobStore):
    expected = {make(jobs).id for _ in range(40)}
    taken: list[str] = []

    def run() -> None:
        while (record := jobs.claim("r")) is not None:
            taken.append(record.id)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 40
    assert set(taken) == expected


def test_progress_is_stored_and_tells_of_a_cancel(jobs: JobStore):
    record = claimed(jobs)
    assert jobs.report(record, "relax", Progress(0.25, 1e9, "updates", 3.5)) is False
    seen = jobs.job(record.id)
    assert (seen.phase, seen.progress) == ("relax", Progress(0.25, 1e9, "updates", 3.5))
    assert jobs.cancel(record.id).state == "running"
    assert jobs.report(record, "relax", Progress(0.5)) is True
    assert jobs.dismiss(record)
    assert jobs.job(record.id).state == "dismissed"


def test_cancel_is_safe_to_repeat_in_every_state(jobs: JobStore):
    waiting = make(jobs)
    assert jobs.cancel(waiting.id).state == "dismissed"
    assert jobs.cancel(waiting.id).state == "dismissed"
    assert jobs.claim("r") is None
    done = claimed(jobs)
    assert jobs.succeed(done, {"pairs": 6}, {"search": 0.1})
    after = jobs.cancel(done.id)
    assert (after.state, after.cancel) == ("successful", False)


def test_finished_jobs_keep_what_was_found(jobs: JobStore):
    good = claimed(jobs)
    assert jobs.succeed(good, {"pairs": 6}, {"search": 0.1})
    seen = jobs.job(good.id)
    assert (seen.state, seen.summary, seen.seconds, seen.progress.fraction) == (
        "successful", {"pairs": 6}, {"search": 0.1}, 1.0,
    )  # fmt: skip
    assert seen.finished is not None
    assert not seen.open
    bad = claimed(jobs)
    assert jobs.fail(bad, {"code": "solve-failed", "message": "m", "details": {}})
    assert jobs.job(bad.id).error == {"code": "solve-failed", "message": "m", "details": {}}


def test_whoever_lost_the_claim_changes_nothing(jobs: JobStore):
    old = claimed(jobs)
    jobs.recover()
    new = jobs.claim("second")
    assert new is not None
    assert (new.id, new.attempt) == (old.id, 2)
    assert new.fence > old.fence
    assert jobs.report(old, "relax", Progress(0.9)) is None
    assert not jobs.succeed(old, {}, {})
    assert not jobs.fail(old, {"code": "x", "message": "", "details": {}})
    assert not jobs.dismiss(old)
    assert not jobs.release(old)
    jobs.replan(old, {"algorithm": "other"})
    assert jobs.job(old.id) == new
    assert jobs.succeed(new, {}, {})


def test_release_does_not_count_the_attempt(jobs: JobStore):
    record = claimed(jobs)
    assert jobs.release(record)
    seen = jobs.job(record.id)
    assert (seen.state, seen.attempt, seen.runner) == ("accepted", 0, None)


def test_three_lost_runners_fail_the_job_and_each_is_told(jobs: JobStore):
    job_id = make(jobs).id
    states = []
    for _ in range(3):
        record = jobs.claim("r")
        assert record is not None
        jobs.report(record, "relax", Progress(0.5))
        [settled] = jobs.recover()
        states.append(settled.state)
    assert states == ["accepted", "accepted", "failed"]
    failed = jobs.job(job_id)
    assert failed.error is not None
    assert failed.error["code"] == "runner-lost"
    assert [h["attempt"] for h in failed.history] == [1, 2, 3]
    assert all(h["phase"] == "relax" for h in failed.history)
    assert jobs.claim("r") is None


def test_recovery_dismisses_what_was_being_cancelled(jobs: JobStore):
    record = claimed(jobs)
    jobs.cancel(record.id)
    [settled] = jobs.recover()
    assert settled.state == "dismissed"


def test_only_finished_jobs_are_deleted(jobs: JobStore):
    record = claimed(jobs)
    with pytest.raises(Conflict, match="running"):
        jobs.delete(record.id)
    jobs.fail(record, {"code": "x", "message": "", "details": {}})
    assert jobs.known([record.id, "other"]) == {record.id}
    jobs.delete(record.id)
    assert jobs.known([record.id]) == set()
    with pytest.raises(NotFound):
        jobs.job(record.id)


def test_lists_filter_and_page(jobs: JobStore):
    jobs.add_graph(graph_record("g2"))
    ids = []
    for graph in ("g1", "g2", "g1"):
        ids.append(jobs.create(graph, {}, {}).id)
        time.sleep(0.002)
    assert [j.id for j in jobs.list_jobs(10)] == ids[::-1]
    assert [j.id for j in jobs.list_jobs(10, graph="g2")] == [ids[1]]
    assert [j.id for j in jobs.list_jobs(1, before=ids[2])] == [ids[1]]
    jobs.cancel(ids[0])
    assert [j.id for j in jobs.list_jobs(10, state="dismissed")] == [ids[0]]


def test_promises_are_synchronous_and_progress_is_not(jobs: JobStore):
    found: dict[str, int] = {}
    for name, engine in (("durable", jobs._engine), ("progress", jobs._progress)):
        with engine.begin() as connection:
            found[name] = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    assert found == {"durable": 2, "progress": 1}
    with jobs._engine.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_a_broken_database_is_a_storage_error(tmp_path: Path):
    path = tmp_path / "apsp.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StorageFailed, match="database"):
        JobStore(path)
