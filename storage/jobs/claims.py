"""Claims of runners on jobs: leases with a fencing token, and what happens to a job whose runner is lost.

A claim increases ``attempt`` and ``fence``.  Every later change of a running job names the fence of its claim, so a
runner can change nothing once another runner has claimed the job.  A working runner keeps increasing ``beat``, its
heartbeat counter.  Other processes decide by their own monotonic clocks whether a beat is overdue
(``service.runner.leases``), so clocks of different machines are never compared.
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

#: A job fails after this many attempts whose runners were lost.
MAX_ATTEMPTS: Final = 3
#: The id of a running job, the fence of its claim and its heartbeat counter.
Beat = tuple[str, int, int]


class Claims:
    """The part of the job store that runners and their supervisors use.

    All methods raise ``DatabaseFailed`` when the database cannot be read or written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, runner: str, *, cuda: bool = True, most: tuple[float, int] | None = None) -> JobRecord | None:
        """Claim the next accepted job, atomically; return None if no job waits.  Increases attempt and fence by one.

        Jobs of the highest priority come first.  Within a priority, owners alternate, and jobs of an owner come in the
        order of submission.

        Args:
            runner: name of the runner.
            cuda: whether the runner has a GPU; if not, jobs that need a GPU are skipped.
            most: the largest predicted seconds and bytes of memory; jobs with larger predictions, or without
                predictions, are skipped.  None for no limits.
        """
        if not self.waits(cuda=cuda, most=most):
            return None  # idle runners call this often, and should not take the write lock each time
        query = _next(cuda, most)
        with self._database.transaction("durable") as connection:
            found = connection.execute(query.with_for_update(skip_locked=True)).scalar_one_or_none()
            if found is None:
                return None
            now = time.time()  # read this late: the job may have been created while this transaction waited for a lock
            change = changed(
                state=RUNNING, phase="loading", runner=runner, heartbeat=now, started=now, beat=jobs.c.beat + 1,
                attempt=jobs.c.attempt + 1, fence=jobs.c.fence + 1, progress=asdict(Progress()),
            )  # fmt: skip
            return job_of(connection.execute(change.where(jobs.c.id == found).returning(jobs)).one())

    def waits(self, *, cuda: bool = True, most: tuple[float, int] | None = None) -> bool:
        """Return whether :meth:`claim` with the same arguments would find a job."""
        with self._database.transaction("read") as connection:
            return connection.execute(_next(cuda, most)).first() is not None

    def report(self, claimed: JobRecord, phase: str, progress: Progress) -> bool | None:
        """Store the progress of a running job.

        Args:
            claimed: the job as it was claimed.
            phase: the present phase of the job.
            progress: the progress of the whole job.

        Returns:
            Whether cancellation of the job was asked for; None if the claim was lost.
        """
        change = changed(phase=phase, progress=asdict(progress), heartbeat=time.time(), beat=jobs.c.beat + 1)
        with self._database.transaction("progress") as connection:
            return connection.execute(change.where(*_held(claimed)).returning(jobs.c.cancel)).scalar_one_or_none()

    def beat(self, claimed: JobRecord) -> bool | None:
        """Increase the heartbeat counter of a running job; return whether to cancel it, None if the claim was lost."""
        change = update(jobs).where(*_held(claimed)).values(heartbeat=time.time(), beat=jobs.c.beat + 1)
        with self._database.transaction("progress") as connection:
            return connection.execute(change.returning(jobs.c.cancel)).scalar_one_or_none()

    def holds(self, claimed: JobRecord) -> bool | None:
        """Return whether cancellation of the job was asked for; None if the claim was lost.  Writes nothing."""
        with self._database.transaction("read") as connection:
            return connection.execute(select(jobs.c.cancel).where(*_held(claimed))).scalar_one_or_none()

    def replan(self, claimed: JobRecord, plan: Json) -> None:
        """Store the plan that the runner follows, which may differ from the plan made at submission."""
        with self._database.transaction("progress") as connection:
            connection.execute(changed(plan=plan).where(*_held(claimed)))

    def succeed(self, claimed: JobRecord, summary: Json, seconds: Json, size: int | None = None) -> bool:
        """Mark a running job as successful, after its result was sealed.

        Args:
            claimed: the job as it was claimed.
            summary: the summary of the result, as JSON types.
            seconds: wall seconds of each phase.
            size: bytes of the result.

        Returns:
            False if the claim was lost.
        """
        progress = asdict(Progress(fraction=1.0))
        return self._over(
            claimed, SUCCESSFUL, "done", summary=summary, seconds=seconds, progress=progress, bytes=size, error=None
        )

    def fail(self, claimed: JobRecord, error: Mapping[str, Any]) -> bool:
        """Mark a running job as failed, and store the error; return False if the claim was lost."""
        return self._over(claimed, FAILED, "failed", error=dict(error))

    def dismiss(self, claimed: JobRecord) -> bool:
        """Mark a running job as dismissed after its cancellation; return False if the claim was lost."""
        return self._over(claimed, DISMISSED, "dismissed")

    def release(self, claimed: JobRecord, *, predicted: bool = True) -> bool:
        """Put a running job back into the queue; the attempt does not count.

        This is called when the runner stops, or leaves the job to another runner.  With ``predicted=False`` the
        predictions of the job are removed, so that no short runner takes the job again.
        """
        values: Json = {} if predicted else {"predicted_seconds": None, "predicted_memory": None}
        change = changed(
            state=ACCEPTED, phase="queued", runner=None, progress=asdict(Progress()), attempt=jobs.c.attempt - 1,
            **values,
        )  # fmt: skip
        with self._database.transaction("durable") as connection:
            return connection.execute(change.where(*_held(claimed))).rowcount == 1

    # Jobs of lost runners

    def beats(self) -> list[Beat]:
        """Return the beat of every running job.  A runner is taken to be lost if the beat does not change for long."""
        with self._database.transaction("read") as connection:
            rows = connection.execute(select(jobs.c.id, jobs.c.fence, jobs.c.beat).where(jobs.c.state == RUNNING))
            return [(row.id, row.fence, row.beat) for row in rows]

    def expire(self, found: Beat, reason: str, *, max_attempts: int = MAX_ATTEMPTS) -> JobRecord | None:
        """End the claim of a runner that has not increased the beat of its job.

        Args:
            found: the beat that :meth:`beats` returned some time ago.
            reason: why the attempt ended, for the history of the job.
            max_attempts: the job fails after this many attempts; before that, it is accepted again.

        Returns:
            The job as it is now; None if its heartbeat counter has changed since then.
        """
        job_id, fence, beat = found
        same = (jobs.c.id == job_id, jobs.c.fence == fence, jobs.c.beat == beat)
        settled = self._settle(same, reason, max_attempts)
        return settled[0] if settled else None

    def lose(
        self, claimed: JobRecord, reason: str, *, max_attempts: int = MAX_ATTEMPTS, error: Json | None = None
    ) -> JobRecord | None:
        """End an attempt without a result; the job is accepted again or fails.

        Args:
            claimed: the job as it was claimed.
            reason: why the attempt ended, for the history of the job.
            max_attempts: the job fails after this many attempts.
            error: the error to store if the job fails; None for an error that says that the runner was lost.

        Returns:
            The job as it is now; None if the claim was lost.
        """
        settled = self._settle(_held(claimed), reason, max_attempts, error)
        return settled[0] if settled else None

    def redo(self, record: JobRecord, reason: str, *, most: int = MAX_ATTEMPTS) -> JobRecord | None:
        """Accept a successful job again because its result was lost, with a new count of attempts.

        Args:
            record: the job as it was read.
            reason: how the result was lost, for the history of the job.
            most: the job fails if its result had already been lost this many times.

        Returns:
            The job as it is now; None if it has changed since ``record``.
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
        """End the claims of dead runners on their jobs.

        A job whose cancellation was asked for is dismissed, a job that has used up its attempts fails, and any other
        job is accepted again.

        Args:
            slot: only the jobs of runners of this slot; None for all running jobs.
            living: name of a runner whose jobs keep running.
            reason: why the attempts ended, for the history of the jobs.
            max_attempts: a job fails after this many attempts.

        Returns:
            The jobs as they are now.
        """
        where: list[ColumnElement[bool]] = []
        if slot is not None:
            where.append(jobs.c.runner.startswith(f"{slot}:", autoescape=True))
        if living is not None:
            where.append(jobs.c.runner != living)
        return self._settle(tuple(where), reason, max_attempts)

    def asked_to_cancel(self, slot: str) -> list[JobRecord]:
        """Return the running jobs of a runner's slot whose cancellation was asked for."""
        query = select(*LISTED).where(
            jobs.c.state == RUNNING, jobs.c.cancel, jobs.c.runner.startswith(f"{slot}:", autoescape=True)
        )
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(query)]

    # Runners

    def announce(self, record: RunnerRecord) -> None:
        """Store the state of a runner; it replaces the state of the previous runner of the same slot."""
        with self._database.transaction("progress") as connection:
            self._database.one_at_a_time(connection, f"runner {record.slot}")
            connection.execute(delete(runners).where(runners.c.slot == record.slot))
            connection.execute(insert(runners).values(**asdict(record)))

    def withdraw(self, name: str) -> None:
        """Remove the record of a runner that ends normally."""
        with self._database.transaction("progress") as connection:
            connection.execute(delete(runners).where(runners.c.name == name))

    def list_runners(self) -> list[RunnerRecord]:
        """Return the last record of each slot, sorted by the name of the slot."""
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
    """Return an UPDATE statement for jobs, which also increases their version and sets the time of the change."""
    return update(jobs).values(updated=time.time(), version=jobs.c.version + 1, **values)


def _next(cuda: bool, most: tuple[float, int] | None) -> Select[tuple[str]]:
    query = select(jobs.c.id).where(jobs.c.state == ACCEPTED)
    if not cuda:
        query = query.where(jobs.c.device != "cuda")
    if most is not None:
        query = query.where(jobs.c.predicted_seconds <= most[0], jobs.c.predicted_memory <= most[1])
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
