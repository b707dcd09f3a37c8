"""What every job store promises, on SQLite and on PostgreSQL: states, claims, fences, recovery, turns, keys."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from pathlib import Path

import pytest

from storage.errors import Conflict, Gone, KeyReused, NotFound, TooManyJobs
from storage.jobs.keys import KeyStore
from storage.jobs.store import (
    GraphRecord,
    JobFilter,
    JobRecord,
    JobStore,
    Json,
    Progress,
    RunnerRecord,
    Submission,
    new_id,
)


def graph_record(name: str = "g1") -> GraphRecord:
    return GraphRecord(name, f"sha256:{name}", None, 3, 2, {"directed": True}, {"format": "csv"}, time.time())


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "db" / "apsp.db" if request.param == "sqlite" else request.getfixturevalue("postgres").url()


@pytest.fixture
def jobs(where: Path | str):
    store = JobStore(where)
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
    other = JobStore(jobs.where)
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


CPU = {"device": "cpu", "seconds": 2.0, "memory": 100}


@pytest.mark.parametrize(
    ("plan", "short"),
    [
        (CPU, True),
        ({**CPU, "seconds": 2.1}, False),
        ({**CPU, "memory": 101}, False),
        ({**CPU, "device": "cuda"}, False),
        ({**CPU, "workers": 3}, False),
        ({}, False),
    ],
)
def test_a_runner_for_short_jobs_skips_what_is_not_predicted_to_be_short(jobs: JobStore, plan: Json, short: bool):
    first, second = make(jobs), jobs.submit(Submission("g1", {}, plan))[0]
    assert jobs.waits(most=(2.0, 100)) is short
    assert jobs.waits(cuda=False)
    found = jobs.claim("r", most=(2.0, 100))
    assert not jobs.waits(most=(2.0, 100))
    assert (None if found is None else found.id) == (second.id if short else None)
    assert jobs.claim("r", most=(2.0, 100)) is None
    if found is not None:
        assert jobs.release(found, predicted=False)
        assert jobs.claim("r", most=(2.0, 100)) is None, "what did not fit there is for another runner"
    assert [job.id for job in (jobs.claim("r"), jobs.claim("r")) if job] == [first.id, second.id]


def test_among_short_jobs_the_order_is_that_of_all(jobs: JobStore):
    for owner in ("a", "a", "b"):
        jobs.submit(Submission("g1", {}, CPU, owner=owner))
    urgent = jobs.submit(Submission("g1", {}, CPU, owner="a", priority=5))[0]
    order = [jobs.claim("r", most=(2.0, 100)) for _ in range(4)]
    assert order[0] is not None
    assert order[0].id == urgent.id
    assert [job.owner for job in order if job] == ["a", "a", "b", "a"]


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
    assert jobs.with_folder([record.id, "other"]) == {record.id}
    jobs.delete(record.id)
    assert jobs.with_folder([record.id]) == set()
    assert jobs.list_jobs(10) == []
    for call in (jobs.job, jobs.cancel, jobs.delete):
        with pytest.raises(Gone, match="deleted"):
            call(record.id)
    assert jobs.purge(time.time() + 1, 0) == 1
    with pytest.raises(NotFound, match="there is no job"):
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
    assert [j.id for j in jobs.list_jobs(10, state=("dismissed", "failed"))] == [ids[0]]
    assert jobs.list_jobs(10, state=("accepted", "dismissed")) == jobs.list_jobs(10)


def submission(**more: object) -> Submission:
    return Submission("g1", {"dtype": "auto"}, {"algorithm": "dijkstra"}, **more)  # type: ignore[arg-type]


def submit(jobs: JobStore, **more: object) -> str:
    return jobs.submit(submission(**more))[0].id


def test_lists_leave_options_out(jobs: JobStore):
    """A million vertices may be named in them, and two hundred jobs stand in one list."""
    options = {"sources": list(range(1000))}
    began = time.time() - 1
    job = jobs.create("g1", options, {})
    jobs.cancel(jobs.create("g1", options, {}).id)
    running = jobs.claim("slot:1")
    assert running is not None
    assert (running.id, running.options) == (job.id, options)
    jobs.cancel(job.id)
    listed = [*jobs.list_jobs(10), *jobs.running(), *jobs.ended_since(began), *jobs.asked_to_cancel("slot")]
    assert len(listed) == 5
    assert [record.options for record in listed] == [{}] * 5
    assert dataclasses.replace(jobs.running()[0], options=options) == jobs.job(job.id)


def test_jobs_are_found_by_words_and_states_and_counted(jobs: JobStore):
    jobs.add_graph(dataclasses.replace(graph_record("g2"), name="Land 100%"))
    keys = KeyStore(jobs.database)
    keys.own_graph("b", dataclasses.replace(graph_record("g1"), name="Roads of Berlin"))
    named = [submit(jobs, owner="a", name="Nightly run"), submit(jobs, owner="b", name="nightly too")]
    other = submit(jobs, owner="b")
    land = jobs.submit(dataclasses.replace(submission(owner="a"), graph="g2"))[0].id
    jobs.cancel(land)

    def found(**wanted) -> list[str]:
        asked = JobFilter(**wanted)
        rows = [record.id for record in jobs.find_jobs(asked, 10)]
        assert jobs.count_jobs(asked) == len(rows)
        return rows

    assert found() == [land, other, *named[::-1]]
    assert found(words="NIGHTLY") == named[::-1]
    assert found(words="nightly", owner="b") == [named[1]]
    assert found(words="LAND 100%") == [land], "marks of patterns are letters like others"
    assert found(words="_") == found(words="%%") == []
    assert found(words="berlin", owner="b") == [other, named[1]]
    assert found(words="berlin", owner="a") == [], "names that others gave are not searched"
    assert found(words="100%", owner="a") == [], "this owner gave no name"
    assert found(words=other[-12:]) == [other]
    assert found(states=("dismissed",)) == [land]
    assert [r.id for r in jobs.find_jobs(JobFilter(), 2, before=other)] == named[::-1]
    jobs.delete(land)
    assert found(states=("dismissed",)) == []


def test_waiting_jobs_are_found_in_the_order_in_which_they_are_claimed(jobs: JobStore):
    for owner, priority in (("a", 0), ("a", 0), ("b", 0), ("a", 7), ("b", 0), ("a", 0)):
        submit(jobs, owner=owner, priority=priority)
    waiting = [record.id for record in jobs.find_jobs(JobFilter(("accepted",)), 10)]
    assert len(waiting) == 6
    assert [jobs.queue_position(jobs.job(i)) for i in waiting] == list(range(6))
    assert [record.id for record in jobs.find_jobs(JobFilter(("accepted",)), 2)] == waiting[:2]
    assert [found.id for found in iter(lambda: jobs.claim("r"), None)] == waiting


def test_a_graph_is_renamed_for_one_owner(jobs: JobStore):
    keys = KeyStore(jobs.database)
    for owner in ("a", "b"):
        keys.own_graph(owner, dataclasses.replace(graph_record(), name="first"))
    keys.rename_graph("a", "g1", "second")
    assert [keys.owned_graph(owner, "g1").name for owner in ("a", "b")] == ["second", "first"]
    jobs.rename_graph("g1", "third")
    assert jobs.graph("g1").name == "third"


def test_owners_take_turns_and_priorities_go_first(jobs: JobStore):
    first = [submit(jobs, owner="a") for _ in range(4)]
    assert (claim := jobs.claim("r")) is not None
    assert claim.id == first[0]
    second = [submit(jobs, owner="b") for _ in range(2)]
    urgent = submit(jobs, owner="a", priority=5)
    waiting = [urgent, *second[:1], first[1], second[1], first[2], first[3]]
    assert [jobs.queue_position(jobs.job(i)) for i in waiting] == list(range(6))
    order = [found.id for found in iter(lambda: jobs.claim("r"), None)]
    assert order == waiting


def test_a_key_is_one_job_for_one_owner_and_one_request(jobs: JobStore):
    one, new = jobs.submit(submission(owner="a", key="k", digest="d"))
    assert new
    assert jobs.submit(submission(owner="a", key="k", digest="d")) == (one, False)
    assert jobs.replay("a", "k", "d") == one
    assert jobs.replay("b", "k", "d") is None
    assert submit(jobs, owner="b", key="k", digest="e") != one.id
    for call in (lambda: jobs.submit(submission(owner="a", key="k", digest="e")), lambda: jobs.replay("a", "k", "e")):
        with pytest.raises(KeyReused, match="new key"):
            call()
    jobs.cancel(one.id)
    jobs.delete(one.id)
    with pytest.raises(Gone):
        jobs.replay("a", "k", "d")
    jobs.purge(0, time.time() + 1)
    assert jobs.replay("a", "k", "d") is None


def test_a_hundred_equal_keys_at_once_are_one_job(jobs: JobStore):
    found: list[tuple[str, bool]] = []

    def send() -> None:
        record, new = jobs.submit(submission(owner="a", key="k", digest="d"))
        found.append((record.id, new))

    threads = [threading.Thread(target=send) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert len({job for job, _ in found}) == 1
    assert sum(new for _, new in found) == 1


def test_open_jobs_are_limited_for_each_owner_and_for_all(jobs: JobStore):
    for owner in ("a", "a", "b"):
        submit(jobs, owner=owner, most_of_owner=2, most=3)
    with pytest.raises(TooManyJobs) as found:
        jobs.submit(submission(owner="a", most_of_owner=2))
    assert found.value.details() == {"limit": 2, "requested": 3, "setting": "APSP_MAX_OPEN_JOBS"}
    with pytest.raises(TooManyJobs, match="at most 3"):
        jobs.submit(submission(owner="c", most_of_owner=2, most=3))
    assert jobs.counts() == {"accepted": 3, "running": 0, "successful": 0, "failed": 0, "dismissed": 0}
    claim = jobs.claim("r")
    assert claim is not None
    jobs.dismiss(claim)
    submit(jobs, owner="a", most_of_owner=2, most=3)


def test_finished_results_are_found_again_only_by_their_owner(jobs: JobStore):
    job = submit(jobs, owner="a", fingerprint="f")
    assert jobs.finished("a", "f") is None
    claim = jobs.claim("r")
    assert claim is not None
    jobs.succeed(claim, {}, {}, 100)
    assert (found := jobs.finished("a", "f")) is not None
    assert (found.id, found.bytes) == (job, 100)
    assert jobs.finished("b", "f") is jobs.finished(None, "f") is jobs.finished("a", "other") is None
    assert jobs.expire_result(job)
    assert not jobs.expire_result(job)
    assert jobs.finished("a", "f") is None
    expired = jobs.job(job)
    assert (expired.state, expired.removal) == ("successful", "expired")


def test_what_is_overdue_by_age_and_by_bytes(jobs: JobStore):
    ids = []
    for size in (10, 20, 30):
        claim = claimed(jobs)
        jobs.succeed(claim, {}, {}, size)
        ids.append(claim.id)
        time.sleep(0.002)
    assert jobs.overdue(None, None) == []
    assert jobs.overdue(time.time(), None) == ids[::-1]
    assert jobs.overdue(jobs.job(ids[1]).finished, None) == ids[:1]
    assert jobs.overdue(None, 50) == ids[:1]
    assert jobs.overdue(None, 49) == [ids[1], ids[0]]


def test_a_beat_that_stays_away_loses_the_claim_and_one_that_comes_keeps_it(jobs: JobStore):
    record = claimed(jobs)
    [seen] = jobs.beats()
    assert jobs.beat(record) is False
    assert jobs.expire(seen, "silent") is None
    [seen] = jobs.beats()
    settled = jobs.expire(seen, "it was silent")
    assert settled is not None
    assert (settled.state, settled.history[0]["reason"]) == ("accepted", "it was silent")
    assert jobs.beats() == []
    assert jobs.beat(record) is None
    assert jobs.holds(record) is None
    assert not jobs.succeed(record, {}, {})


def test_only_the_slots_own_jobs_are_recovered_from_it(jobs: JobStore):
    ids = {}
    for runner in ("node/cpu:1", "node/cpu:2", "node/cpu2:1"):
        make(jobs)
        claim = jobs.claim(runner)
        assert claim is not None
        ids[runner] = claim.id
        jobs.cancel(claim.id)
    assert [j.id for j in jobs.asked_to_cancel("node/cpu")] == [ids["node/cpu:1"], ids["node/cpu:2"]]
    assert [j.id for j in jobs.recover("node/cpu", living="node/cpu:2")] == [ids["node/cpu:1"]]
    assert [j.id for j in jobs.recover("node/cpu")] == [ids["node/cpu:2"]]
    assert jobs.job(ids["node/cpu2:1"]).state == "running"


def test_jobs_for_a_gpu_wait_for_one(jobs: JobStore):
    gpu = submit(jobs, device="cuda")
    cpu = submit(jobs)
    assert (claim := jobs.claim("r", cuda=False)) is not None
    assert claim.id == cpu
    assert jobs.claim("r", cuda=False) is None
    assert (claim := jobs.claim("r", cuda=True)) is not None
    assert claim.id == gpu


def test_failed_and_dismissed_jobs_are_resumed_with_all_attempts(jobs: JobStore):
    record = claimed(jobs)
    for call in (record, make(jobs)):
        with pytest.raises(Conflict, match="only a failed or dismissed"):
            jobs.resume(call.id, submission())
    jobs.fail(record, {"code": "x", "message": "", "details": {}})
    again = jobs.resume(record.id, submission())
    assert (again.state, again.attempt, again.error, again.finished) == ("accepted", 0, None, None)
    assert again.fence > record.fence
    assert not jobs.succeed(record, {}, {})
    jobs.cancel(record.id)
    with pytest.raises(TooManyJobs):
        jobs.resume(record.id, submission(most=1))


def test_a_graph_is_deleted_when_no_open_job_needs_it(jobs: JobStore):
    record = claimed(jobs)
    taken: list[str] = []
    with pytest.raises(Conflict, match=record.id):
        jobs.remove_graph("g1", lambda: taken.append("too early"))
    jobs.dismiss(record)
    jobs.remove_graph("g1", lambda: taken.append("g1"))
    assert taken == ["g1"]
    for call in (lambda: jobs.graph("g1"), lambda: make(jobs), lambda: jobs.resume(record.id, submission())):
        with pytest.raises(Gone):
            call()
    assert jobs.list_graphs(10) == []
    kept, new = jobs.add_graph(graph_record())
    assert (kept.id, kept.removed, new) == ("g1", None, True)
    make(jobs)


def test_a_graph_whose_files_cannot_be_moved_stays(jobs: JobStore):
    def fail() -> None:
        raise OSError("read-only")

    with pytest.raises(OSError, match="read-only"):
        jobs.remove_graph("g1", fail)
    assert jobs.graph("g1").removed is None


def test_every_change_has_a_version_of_its_own(jobs: JobStore):
    record = make(jobs)
    seen = [record.version]
    claim = jobs.claim("r")
    assert claim is not None
    seen.append(claim.version)
    jobs.report(claim, "relax", Progress(0.5))
    seen.append(jobs.job(record.id).version)
    jobs.beat(claim)
    assert jobs.job(record.id).version == seen[-1]
    jobs.cancel(record.id)
    seen.append(jobs.job(record.id).version)
    jobs.dismiss(claim)
    seen.append(jobs.job(record.id).version)
    assert seen == sorted(set(seen))
    assert jobs.still_open([record.id, "other"]) == set()


def test_runners_announce_themselves_and_withdraw(jobs: JobStore):
    sick = RunnerRecord("node/cuda:0", "node/cuda:0:7", "cuda:0", "sick", "the probe hung", time.time())
    jobs.announce(RunnerRecord("node/cuda:0", "node/cuda:0:6", "cuda:0", "idle", None, time.time()))
    jobs.announce(sick)
    assert jobs.list_runners() == [sick]
    jobs.withdraw("node/cuda:0:6")
    assert jobs.list_runners() == [sick]
    jobs.withdraw(sick.name)
    assert jobs.list_runners() == []


def test_runners_tell_figures(jobs: JobStore):
    told = {"memory": {"used": 2**40, "limit": None}, "phases": {"search": [3, 0.25]}}
    jobs.announce(RunnerRecord("node/cpu", "node/cpu:7", "cpu", "idle", None, time.time(), told))
    assert jobs.list_runners()[0].figures == told


def test_versions_of_many_jobs_at_once(jobs: JobStore):
    first, second = make(jobs), make(jobs)
    before = jobs.versions([first.id, second.id, "unknown"])
    assert before == {first.id: first.version, second.id: second.version}
    jobs.cancel(first.id)
    after = jobs.versions([first.id, second.id])
    assert after[first.id] > before[first.id]
    assert after[second.id] == before[second.id]
    assert jobs.versions([]) == {}


def test_what_runs_and_what_ended_since(jobs: JobStore):
    waiting, began = make(jobs), time.time()
    claim = jobs.claim("r")
    assert claim is not None
    assert [record.id for record in jobs.running()] == [waiting.id]
    assert jobs.ended_since(began) == []
    assert jobs.succeed(claim, {}, {})
    jobs.delete(waiting.id)
    other = make(jobs)
    jobs.cancel(other.id)
    assert jobs.running() == []
    assert [record.id for record in jobs.ended_since(began)] == [waiting.id, other.id]
    assert [record.id for record in jobs.ended_since(began, 1)] == [waiting.id]
    assert jobs.ended_since(time.time() + 60) == []


def test_a_lost_result_is_made_again_so_often_and_then_the_job_fails(jobs: JobStore):
    for time_before in range(2):
        record = jobs.claim("r") if time_before else claimed(jobs)
        assert record is not None
        assert jobs.succeed(record, {"pairs": 6}, {"load": 1.0}, 10)
        done = jobs.job(record.id)
        again = jobs.redo(done, "it was gone", most=2)
        assert again is not None
        assert (again.state, again.attempt, again.summary, again.bytes) == ("accepted", 0, None, None)
        assert jobs.redo(done, "it was gone", most=2) is None, "once for each result"
        assert not jobs.succeed(record, {}, {}), "the claim before is over"
    record = jobs.claim("r")
    assert record is not None
    assert jobs.redo(record, "it was gone", most=2) is None, "a job that runs has lost no result"
    assert jobs.succeed(record, {}, {}, 10)
    failed = jobs.redo(jobs.job(record.id), "it was gone", most=2)
    assert failed is not None
    assert failed.error is not None
    assert (failed.state, failed.error["code"]) == ("failed", "result-lost")
    assert [(entry["phase"], entry["reason"]) for entry in failed.history] == [("done", "it was gone")] * 3
    assert jobs.with_result() == []


def test_a_result_whose_time_is_over_is_not_made_again(jobs: JobStore):
    record = claimed(jobs)
    assert jobs.succeed(record, {}, {}, 10)
    done = jobs.job(record.id)
    assert jobs.with_result() == [record.id]
    assert jobs.expire_result(record.id)
    assert jobs.redo(done, "it was gone") is None
    assert jobs.with_result() == []


def test_an_attempt_that_came_to_nothing_fails_with_its_own_error_in_the_end(jobs: JobStore):
    error = {"code": "disk-full", "message": "no room", "details": {}}
    record = claimed(jobs)
    put_back = jobs.lose(record, "no room", max_attempts=2, error=error)
    assert put_back is not None
    assert (put_back.state, put_back.error, put_back.attempt) == ("accepted", None, 1)
    again = jobs.claim("r")
    assert again is not None
    failed = jobs.lose(again, "no room", max_attempts=2, error=error)
    assert failed is not None
    assert (failed.state, failed.error) == ("failed", error)
    assert jobs.lose(again, "no room", max_attempts=2, error=error) is None
