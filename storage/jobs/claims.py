"""Jobs as a runner sees them: claims that are leases, with a fence, and what becomes of a job whose runner is lost.

A claim raises ``attempt`` and ``fence``; whoever writes about a running job shows the fence it was given, so a runner
that was overtaken can change nothing.  A runner that lives raises ``beat``.  Whether a beat is overdue is decided by an
observer with a clock of its own that only runs forward (``service.runner.leases``): no wall clock is compared with
another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Connection, Select, delete, insert, select, update
from sqlalchemy.sql import ColumnElement

from storage.jobs.database import Database
from storage.jobs.schema import (
    ACCEPTED,
    DISMISSED,
    FAILED,
    LISTED,
    RUNNING,
    SUCCESSFUL,
    JobRecord,
    Json,
    Progress,
    RunnerRecord,
    job_of,
    jobs,
    runners,
)

#: how often a job whose runner died is tried before it fails
MAX_ATTEMPTS: Final = 3
#: a running job, the fence of its claim and its beat
Beat = tuple[str, int, int]


class Claims:
    """The half of the job store that runners, and those who watch them, use.

    All methods raise ``DatabaseFailed`` when the database cannot be read or written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, runner: str, *, cuda: bool = True) -> JobRecord | None:
        """Take the next accepted job, atomically; None when there is none.  Raises attempt and fence by one.

        The highest priority goes first; among equals owners take turns; one owner's jobs go in order.  Jobs that need
        a GPU are left alone where ``cuda`` is false.
        """
        with self._database.transaction("read") as connection:
            if connection.execute(_next(cuda)).first() is None:
                return None  # an idle runner asks often: it must not take the write lock for that
        now = time.time()
        with self._database.transaction("durable") as connection:
            found = connection.execute(_next(cuda).with_for_update(skip_locked=True)).scalar_one_or_none()
            if found is None:
                return None
            change = changed(
                state=RUNNING, phase="loading", runner=runner, heartbeat=now, started=now, beat=jobs.c.beat + 1,
                attempt=jobs.c.attempt + 1, fence=jobs.c.fence + 1, progress=asdict(Progress()),
            )  # fmt: skip
            return job_of(connection.execute(change.where(jobs.c.id == found).returning(jobs)).one())

    def report(self, claimed: JobRecord, phase: str, progress: Progress) -> bool | None:
        """Store how far a running job is; whether its cancellation was asked for, None if the claim was lost."""
        change = changed(phase=phase, progress=asdict(progress), heartbeat=time.time(), beat=jobs.c.beat + 1)
        with self._database.transaction("progress") as connection:
            return connection.execute(change.where(*_held(claimed)).returning(jobs.c.cancel)).scalar_one_or_none()

    def beat(self, claimed: JobRecord) -> bool | None:
        """Say that the runner lives, whatever its job does; answers as :meth:`report` does."""
        change = update(jobs).where(*_held(claimed)).values(heartbeat=time.time(), beat=jobs.c.beat + 1)
        with self._database.transaction("progress") as connection:
            return connection.execute(change.returning(jobs.c.cancel)).scalar_one_or_none()

    def holds(self, claimed: JobRecord) -> bool | None:
        """Whether cancellation was asked for, None if the claim was lost; writes nothing."""
        with self._database.transaction("read") as connection:
            return connection.execute(select(jobs.c.cancel).where(*_held(claimed))).scalar_one_or_none()

    def replan(self, claimed: JobRecord, plan: Json) -> None:
        """Store the plan that is really followed, where it differs from the one made at submission."""
        with self._database.transaction("progress") as connection:
            connection.execute(changed(plan=plan).where(*_held(claimed)))

    def succeed(self, claimed: JobRecord, summary: Json, seconds: Json, size: int | None = None) -> bool:
        """The result is sealed and has ``size`` bytes; False if the claim was lost."""
        progress = asdict(Progress(fraction=1.0))
        return self._over(
            claimed, SUCCESSFUL, "done", summary=summary, seconds=seconds, progress=progress, bytes=size, error=None
        )

    def fail(self, claimed: JobRecord, error: Mapping[str, Any]) -> bool:
        """The job cannot be done, and why; False if the claim was lost."""
        return self._over(claimed, FAILED, "failed", error=dict(error))

    def dismiss(self, claimed: JobRecord) -> bool:
        """The job was cancelled while it ran; False if the claim was lost."""
        return self._over(claimed, DISMISSED, "dismissed")

    def release(self, claimed: JobRecord) -> bool:
        """Give a running job back unfinished because its runner has to stop; the attempt does not count."""
        change = changed(
            state=ACCEPTED, phase="queued", runner=None, progress=asdict(Progress()), attempt=jobs.c.attempt - 1
        )
        with self._database.transaction("durable") as connection:
            return connection.execute(change.where(*_held(claimed))).rowcount == 1

    # What becomes of the jobs of lost runners

    def beats(self) -> list[Beat]:
        """The beat of every running job: one that stays the same for long has lost its runner."""
        with self._database.transaction("read") as connection:
            rows = connection.execute(select(jobs.c.id, jobs.c.fence, jobs.c.beat).where(jobs.c.state == RUNNING))
            return [(row.id, row.fence, row.beat) for row in rows]

    def expire(self, found: Beat, reason: str, *, max_attempts: int = MAX_ATTEMPTS) -> JobRecord | None:
        """Take a job from a runner that gave no sign of life since ``found``; None if it did."""
        job_id, fence, beat = found
        same = (jobs.c.id == job_id, jobs.c.fence == fence, jobs.c.beat == beat)
        settled = self._settle(same, reason, max_attempts)
        return settled[0] if settled else None

    def lose(
        self, claimed: JobRecord, reason: str, *, max_attempts: int = MAX_ATTEMPTS, error: Json | None = None
    ) -> JobRecord | None:
        """This attempt came to nothing, and why; the job is accepted again or fails; None if the claim was lost.

        ``error`` is what the job then fails with, if not with the loss of its runner.
        """
        settled = self._settle(_held(claimed), reason, max_attempts, error)
        return settled[0] if settled else None

    def redo(self, record: JobRecord, reason: str, *, most: int = MAX_ATTEMPTS) -> JobRecord | None:
        """The result of a successful job was lost: it is accepted again, with all its attempts; None if it has changed.

        The job fails when that has happened ``most`` times before.
        """
        here = (jobs.c.id == record.id, jobs.c.fence == record.fence, jobs.c.state == SUCCESSFUL)
        with self._database.transaction("durable") as connection:
            query = select(jobs).where(*here, jobs.c.removed.is_(None)).with_for_update()
            row = connection.execute(query).one_or_none()
            return None if row is None else _redone(connection, job_of(row), reason, most)

    def recover(
        self,
        slot: str | None = None,
        *,
        living: str | None = None,
        reason: str = "the runner died",
        max_attempts: int = MAX_ATTEMPTS,
    ) -> list[JobRecord]:
        """Settle the running jobs of a slot whose runners, but for ``living``, are dead; returns them as they are now.

        Without a slot, all running jobs.  A cancelled one is dismissed, one that was tried ``max_attempts`` times
        fails, the others are accepted again.
        """
        where: list[ColumnElement[bool]] = []
        if slot is not None:
            where.append(jobs.c.runner.startswith(f"{slot}:", autoescape=True))
        if living is not None:
            where.append(jobs.c.runner != living)
        return self._settle(tuple(where), reason, max_attempts)

    def asked_to_cancel(self, slot: str) -> list[JobRecord]:
        """The running jobs of a slot whose cancellation was asked for."""
        query = select(*LISTED).where(
            jobs.c.state == RUNNING, jobs.c.cancel, jobs.c.runner.startswith(f"{slot}:", autoescape=True)
        )
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(query)]

    # Runners

    def announce(self, record: RunnerRecord) -> None:
        """Say what a runner does now; the one of the same slot before it is forgotten."""
        with self._database.transaction("progress") as connection:
            self._database.one_at_a_time(connection, f"runner {record.slot}")
            connection.execute(delete(runners).where(runners.c.slot == record.slot))
            connection.execute(insert(runners).values(**asdict(record)))

    def withdraw(self, name: str) -> None:
        """A runner ends in good order."""
        with self._database.transaction("progress") as connection:
            connection.execute(delete(runners).where(runners.c.name == name))

    def list_runners(self) -> list[RunnerRecord]:
        """All slots, by name, with what their last runner said and when."""
        with self._database.transaction("read") as connection:
            rows = connection.execute(select(runners).order_by(runners.c.slot))
            return [RunnerRecord(**row._mapping) for row in rows]

    def _settle(
        self, where: tuple[Any, ...], reason: str, max_attempts: int, error: Json | None = None
    ) -> list[JobRecord]:
        with self._database.transaction("durable") as connection:
            query = select(jobs).where(jobs.c.state == RUNNING, *where).order_by(jobs.c.id).with_for_update()
            rows = connection.execute(query).all()
            return [_settled(connection, job_of(row), reason, max_attempts, error) for row in rows]

    def _over(self, claimed: JobRecord, state: str, phase: str, **values: object) -> bool:
        change = changed(state=state, phase=phase, finished=time.time(), **values)
        with self._database.transaction("durable") as connection:
            return connection.execute(change.where(*_held(claimed))).rowcount == 1


def changed(**values: object) -> Any:
    """An update of jobs that counts as a change."""
    return update(jobs).values(updated=time.time(), version=jobs.c.version + 1, **values)


def _next(cuda: bool) -> Select[tuple[str]]:
    query = select(jobs.c.id).where(jobs.c.state == ACCEPTED)
    if not cuda:
        query = query.where(jobs.c.device != "cuda")
    return query.order_by(jobs.c.priority.desc(), jobs.c.place_in_queue, jobs.c.id).limit(1)


def _held(claimed: JobRecord) -> tuple[Any, ...]:
    return jobs.c.id == claimed.id, jobs.c.fence == claimed.fence, jobs.c.state == RUNNING


def _redone(connection: Connection, record: JobRecord, reason: str, most: int) -> JobRecord:
    now = time.time()
    lost = {"attempt": record.attempt, "runner": record.runner, "phase": "done", "at": now, "reason": reason}
    before = sum(entry["phase"] == "done" for entry in record.history)
    values: dict[str, object] = {"summary": None, "seconds": None, "bytes": None, "progress": asdict(Progress())}
    if before < most:
        values |= {"state": ACCEPTED, "phase": "queued", "runner": None, "finished": None, "attempt": 0}
    else:
        error = {"code": "result-lost", "message": f"the result was lost {before + 1} times: {reason}", "details": {}}
        values |= {"state": FAILED, "phase": "failed", "finished": now, "error": error}
    change = changed(history=[*record.history, lost], fence=record.fence + 1, **values).where(jobs.c.id == record.id)
    return job_of(connection.execute(change.returning(jobs)).one())


def _settled(
    connection: Connection, record: JobRecord, reason: str, max_attempts: int, error: Json | None
) -> JobRecord:
    now = time.time()
    lost = {"attempt": record.attempt, "runner": record.runner, "phase": record.phase, "at": now, "reason": reason}
    history = [*record.history, lost]
    values: dict[str, object]
    if record.cancel:
        values = {"state": DISMISSED, "phase": "dismissed", "finished": now}
    elif record.attempt < max_attempts:
        values = {"state": ACCEPTED, "phase": "queued", "runner": None, "progress": asdict(Progress())}
    else:
        reasons = "; ".join(f"attempt {entry['attempt']}: {entry['reason']}" for entry in history)
        error = error or {
            "code": "runner-lost",
            "message": f"the job lost its runner {record.attempt} times, last in phase {record.phase!r}: {reasons}",
            "details": {"attempts": history},
        }
        values = {"state": FAILED, "phase": "failed", "finished": now, "error": error}
    change = changed(history=history, fence=record.fence + 1, **values).where(jobs.c.id == record.id)
    return job_of(connection.execute(change.returning(jobs)).one())
