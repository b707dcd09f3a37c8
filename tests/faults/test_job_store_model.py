"""Compares the job store, with SQLite and with PostgreSQL, to a simple model after each of many random steps.

CI takes 600 steps; ``APSP_MODEL_STEPS=5000 ./dev test tests/faults/test_job_store_model.py`` takes 5,000.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from storage.errors import ApspError, Conflict, Gone, KeyReused, TooManyJobs
from storage.jobs.store import GraphRecord, JobRecord, JobStore, Progress, Submission

STEPS = int(os.environ.get("APSP_MODEL_STEPS", "600"))
_EACH = 50
_MOST = 3
OWNERS = st.sampled_from(["a", "b", None])


@dataclass
class Job:
    """All that the model knows about a job."""

    owner: str | None
    order: int
    priority: int
    place_in_queue: int
    state: str = "accepted"
    attempt: int = 0
    fence: int = 0
    cancel: bool = False
    lost: int = 0
    removed: bool = False


@dataclass
class Claim:
    """What a runner holds, or held: the same job of the model in every store."""

    records: list[JobRecord]
    number: int
    fence: int


@dataclass
class Model:
    """Jobs in the order of their submission; a claim is good while its fence is the job's."""

    jobs: list[Job] = field(default_factory=list)
    keys: dict[tuple[str | None, str], tuple[int, str]] = field(default_factory=dict)

    def open(self, owner: str | None) -> int:
        return sum(job.owner == owner and job.state in ("accepted", "running") for job in self.jobs)

    def place_in_queue(self, owner: str | None, priority: int) -> int:
        rivals = [j for j in self.jobs if j.state in ("accepted", "running") and j.priority == priority]
        front = min((j.place_in_queue for j in rivals), default=0)
        own = max((j.place_in_queue for j in rivals if j.owner == owner), default=-1)
        return max(front, own + 1)

    def next(self) -> int | None:
        waiting = [j for j in self.jobs if j.state == "accepted"]
        first = min(waiting, key=lambda j: (-j.priority, j.place_in_queue, j.order), default=None)
        return None if first is None else first.order


class Stores(RuleBasedStateMachine):
    """Every rule is done to the model and to both stores, which have to agree in all that is seen."""

    claims = Bundle("claims")
    places: tuple[Path | str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.model, self.stores, self.ids = Model(), [], []

    @initialize()
    def empty(self) -> None:
        for place in self.places:
            store = JobStore(place)
            for job in store.list_jobs(1000):  # what the example before this one left
                store.cancel(job.id)
            store.recover(max_attempts=0)
            for job in store.list_jobs(1000):
                store.delete(job.id)
            store.purge(time.time() + 10, time.time() + 10)
            assert sum(store.counts().values()) == 0
            store.add_graph(GraphRecord("g", "sha256:g", None, 1, 0, {}, {}, 0.0))
            self.stores.append(store)
            self.ids.append([])

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    def both(self, call, refused: type[ApspError] | None = None) -> list:
        """What ``call(store, index of the store)`` gives on both; all have to refuse if one has."""
        found = []
        for index, store in enumerate(self.stores):
            if refused is None:
                found.append(call(store, index))
                continue
            with pytest.raises(refused):
                call(store, index)
        return found

    @rule(owner=OWNERS, priority=st.sampled_from([0, 0, 0, 5]), key=st.sampled_from([None, None, "k", "l"]),
          digest=st.sampled_from(["d", "e"]))  # fmt: skip
    def submit(self, owner: str | None, priority: int, key: str | None, digest: str) -> None:
        def call(store: JobStore, _index: int) -> tuple[JobRecord, bool]:
            return store.submit(Submission("g", {}, {}, owner=owner, priority=priority, key=key, digest=digest,
                                           most_of_owner=_MOST))  # fmt: skip

        known = self.model.keys.get((owner, key)) if key else None
        if known is not None:
            number, first = known
            if first != digest or self.model.jobs[number].removed:
                self.both(call, KeyReused if first != digest else Gone)
                return
            for index, (record, new) in enumerate(self.both(call)):
                assert (record.id, new) == (self.ids[index][number], False)
            return
        if self.model.open(owner) >= _MOST:
            self.both(call, TooManyJobs)
            return
        number, place = len(self.model.jobs), self.model.place_in_queue(owner, priority)
        for index, (record, new) in enumerate(self.both(call)):
            assert new
            assert record.place_in_queue == place
            self.ids[index].append(record.id)
        self.model.jobs.append(Job(owner, number, priority, place))
        if key is not None:
            self.model.keys[owner, key] = (number, digest)
        time.sleep(0.0011)  # ids of one millisecond are in no order

    @rule(target=claims)
    def claim(self) -> Claim | None:
        found = self.both(lambda store, _: store.claim("node/cpu:1"))
        number = self.model.next()
        if number is None:
            assert found == [None, None]
            return None
        assert [record.id for record in found] == [ids[number] for ids in self.ids]
        job = self.model.jobs[number]
        job.state, job.attempt, job.fence = "running", job.attempt + 1, job.fence + 1
        return Claim(found, number, job.fence)

    def good(self, claim: Claim) -> bool:
        job = self.model.jobs[claim.number]
        return job.state == "running" and job.fence == claim.fence

    @rule(claim=claims, how=st.sampled_from(["succeed", "fail", "dismiss", "release"]))
    def finish(self, claim: Claim | None, how: str) -> None:
        if claim is None:
            return
        calls = {
            "succeed": lambda store, i: store.succeed(claim.records[i], {}, {}),
            "fail": lambda store, i: store.fail(claim.records[i], {"code": "c", "message": "", "details": {}}),
            "dismiss": lambda store, i: store.dismiss(claim.records[i]),
            "release": lambda store, i: store.release(claim.records[i]),
        }
        good = self.good(claim)
        assert self.both(calls[how]) == [good, good], "only who holds the claim may end the job"
        if good:
            job = self.model.jobs[claim.number]
            job.state = {"succeed": "successful", "fail": "failed", "dismiss": "dismissed", "release": "accepted"}[how]
            job.attempt -= how == "release"

    @rule(claim=claims, beat=st.booleans())
    def report(self, claim: Claim | None, beat: bool) -> None:
        if claim is None:
            return
        told = self.both(
            lambda store, i: (
                store.beat(claim.records[i]) if beat else store.report(claim.records[i], "p", Progress(0.5))
            )
        )
        expected = self.model.jobs[claim.number].cancel if self.good(claim) else None
        assert told == [expected, expected]

    @rule(claim=claims)
    def lose(self, claim: Claim | None) -> None:
        if claim is None:
            return
        settled = self.both(lambda store, i: store.lose(claim.records[i], "lost"))
        if not self.good(claim):
            assert settled == [None, None]
            return
        job = self.model.jobs[claim.number]
        job.fence, job.lost = job.fence + 1, job.lost + 1
        job.state = "dismissed" if job.cancel else "accepted" if job.attempt < 3 else "failed"
        assert [record.state for record in settled] == [job.state, job.state]

    @rule(number=st.integers(0, 200), how=st.sampled_from(["cancel", "cancel", "delete", "resume"]))
    def ask(self, number: int, how: str) -> None:
        if not self.model.jobs:
            return
        number %= len(self.model.jobs)
        job = self.model.jobs[number]
        again = Submission("g", {}, {}, owner=job.owner, priority=job.priority, most_of_owner=_MOST)

        def call(store: JobStore, index: int) -> object:
            job_id = self.ids[index][number]
            return store.resume(job_id, again) if how == "resume" else getattr(store, how)(job_id)

        open_ = job.state in ("accepted", "running")
        refused: type[ApspError] | None = None
        if job.removed:
            refused = Gone
        elif (how == "delete" and open_) or (how == "resume" and (open_ or job.state == "successful")):
            refused = Conflict
        elif how == "resume" and self.model.open(job.owner) >= _MOST:
            refused = TooManyJobs
        place = self.model.place_in_queue(job.owner, job.priority)
        self.both(call, refused)
        if refused is not None:
            return
        if how == "delete":
            job.removed = True
        elif how == "resume":
            job.state, job.attempt, job.fence, job.cancel, job.place_in_queue = (
                "accepted",
                0,
                job.fence + 1,
                False,
                place,
            )
        elif job.state == "accepted":
            job.state, job.cancel = "dismissed", True
        elif job.state == "running":
            job.cancel = True

    @invariant()
    def agree(self) -> None:
        for index, store in enumerate(self.stores):
            mine = set(self.ids[index])
            found = {job.id: job for job in store.list_jobs(1000) if job.id in mine}
            for number, job in enumerate(self.model.jobs):
                seen = found.get(self.ids[index][number])
                if job.removed:
                    assert seen is None
                    continue
                assert seen is not None
                assert (seen.state, seen.attempt, seen.fence, seen.cancel, seen.place_in_queue, len(seen.history)) == (
                    job.state, job.attempt, job.fence, job.cancel, job.place_in_queue, job.lost,
                ), number  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sqlite_and_postgresql_do_what_the_model_does(tmp_path: Path, postgres):
    places = (tmp_path / "model.db", postgres.url())
    machine = type("BoundStores", (Stores,), {"places": places})
    rounds = max(1, STEPS // _EACH)
    checks = settings(
        max_examples=rounds, stateful_step_count=_EACH, deadline=None, suppress_health_check=list(HealthCheck),
        database=None, print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=checks)
