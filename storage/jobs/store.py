"""The record of truth about graphs and jobs: SQL tables behind one class, on SQLite or PostgreSQL.

Whatever a caller is promised (a job is accepted, a job is over, a result is removed) is written through to the disk
before a method returns; progress is not.  Knows no HTTP and no algorithm: options, plans and errors are JSON to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from storage.errors import Conflict, Gone, KeyReused, NotFound, TooManyJobs
from storage.jobs.claims import MAX_ATTEMPTS, Beat, Claims, changed
from storage.jobs.database import Database
from storage.jobs.schema import (
    ACCEPTED,
    DELETED,
    DISMISSED,
    EXPIRED,
    FAILED,
    LISTED,
    OPEN,
    OVER,
    RUNNING,
    SUCCESSFUL,
    GraphRecord,
    JobRecord,
    Json,
    Progress,
    RunnerRecord,
    Submission,
    graphs,
    idempotency,
    job_of,
    jobs,
    new_id,
)

__all__ = [
    "ACCEPTED", "DELETED", "DISMISSED", "EXPIRED", "FAILED", "MAX_ATTEMPTS", "OPEN", "OVER", "RUNNING", "SUCCESSFUL",
    "Beat", "GraphRecord", "JobRecord", "JobStore", "Json", "Progress", "RunnerRecord", "Submission", "new_id",
]  # fmt: skip


class JobStore(Claims):
    """Graphs and jobs in one database; safe to use from many threads and processes at once.

    ``where`` and ``timeout`` are those of :class:`storage.jobs.database.Database`.  All methods raise
    ``DatabaseFailed`` when the database cannot be read or written.
    """

    def __init__(self, where: Path | str, *, timeout: float = 30.0) -> None:
        self.where = where
        super().__init__(Database(where, timeout=timeout))

    @property
    def database(self) -> Database:
        """The database itself, for what else is kept in it."""
        return self._database

    def close(self) -> None:
        """Give all connections back."""
        self._database.close()

    def ping(self) -> None:
        """Take the write lock and give it back: the database is there and can be written."""
        self._database.ping()

    # Graphs

    def add_graph(self, record: GraphRecord) -> tuple[GraphRecord, bool]:
        """Record a graph, or find the one of the same content; returns it and whether it is new (or new again)."""
        with self._database.transaction("durable") as connection:
            self._database.one_at_a_time(connection, f"graph {record.digest}")
            row = connection.execute(select(graphs).where(graphs.c.digest == record.digest)).one_or_none()
            if row is None:
                connection.execute(insert(graphs).values(**asdict(record)))
                return record, True
            kept = GraphRecord(**row._mapping)
            if kept.removed is None:
                return kept, False
            again = {k: v for k, v in asdict(record).items() if k not in ("id", "digest")}
            change = update(graphs).where(graphs.c.id == kept.id).values(**again).returning(graphs)
            return GraphRecord(**connection.execute(change).one()._mapping), True

    def graph(self, graph_id: str) -> GraphRecord:
        """The graph of this id; NotFound if there is none, Gone if it was deleted."""
        with self._database.transaction("read") as connection:
            return _graph(connection, graph_id)

    def list_graphs(self, limit: int, after: float | None = None) -> list[GraphRecord]:
        """The newest ``limit`` graphs, newest first; ``after`` continues behind that time of creation."""
        query = select(graphs).where(graphs.c.removed.is_(None))
        if after is not None:
            query = query.where(graphs.c.created < after)
        with self._database.transaction("read") as connection:
            rows = connection.execute(query.order_by(graphs.c.created.desc(), graphs.c.id.desc()).limit(limit))
            return [GraphRecord(**row._mapping) for row in rows]

    def remove_graph(self, graph_id: str, take: Callable[[], None]) -> None:
        """Forget a graph; ``take`` moves its files away and is called inside the transaction.

        Raises:
            NotFound, Gone: there is no such graph.
            Conflict: open jobs need it.
        """
        with self._database.transaction("durable") as connection:
            _graph(connection, graph_id, lock="write")
            busy = select(jobs.c.id).where(jobs.c.graph == graph_id, jobs.c.state.in_(OPEN)).limit(3)
            if needed := connection.execute(busy).scalars().all():
                raise Conflict(f"graph {graph_id} is needed by open jobs, such as {', '.join(needed)}")
            connection.execute(update(graphs).where(graphs.c.id == graph_id).values(removed=time.time()))
            take()

    # Jobs

    def create(self, graph_id: str, options: Json, plan: Json, name: str | None = None) -> JobRecord:
        """Accept a job about which no more is to be said; see :meth:`submit`."""
        return self.submit(Submission(graph_id, options, plan, name))[0]

    def submit(self, asked: Submission) -> tuple[JobRecord, bool]:
        """Accept a job; it is on the disk when this returns.  Also says whether it is new, rather than sent again.

        Raises:
            NotFound, Gone: there is no such graph (any more).
            KeyReused: the idempotency key was used for something else.
            TooManyJobs: the owner's open jobs, or all of them, are as many as may be.
        """
        now, owner = time.time(), asked.owner or ""
        with self._database.transaction("durable") as connection:
            self._database.one_at_a_time(connection, f"owner {owner}")
            if asked.key is not None and (known := _keyed(connection, owner, asked.key, asked.digest)) is not None:
                return known, False
            _graph(connection, asked.graph, lock="read")
            _check_limits(connection, asked)
            values: Json = {
                "id": new_id(), "graph": asked.graph, "name": asked.name, "state": ACCEPTED, "phase": "queued",
                "options": asked.options, "plan": asked.plan, "progress": asdict(Progress()), "history": [],
                "created": now, "updated": now, "owner": asked.owner, "priority": asked.priority,
                "place_in_queue": _place_in_queue(connection, asked), "device": asked.device,
                "fingerprint": asked.fingerprint,
            }  # fmt: skip
            record = job_of(connection.execute(insert(jobs).values(**values).returning(jobs)).one())
            if asked.key is not None:
                entry = {"owner": owner, "key": asked.key, "digest": asked.digest, "job": record.id, "created": now}
                connection.execute(insert(idempotency).values(**entry))
            return record, True

    def replay(self, owner: str | None, key: str, digest: str) -> JobRecord | None:
        """The job that was submitted with this idempotency key; KeyReused if it came with something else."""
        with self._database.transaction("read") as connection:
            return _keyed(connection, owner or "", key, digest)

    def remember(self, owner: str | None, key: str, digest: str, job_id: str) -> None:
        """From now on this idempotency key stands for a job that was there already; KeyReused as in :meth:`submit`."""
        with self._database.transaction("durable") as connection:
            self._database.one_at_a_time(connection, f"owner {owner or ''}")
            if _keyed(connection, owner or "", key, digest) is None:
                entry = {"owner": owner or "", "key": key, "digest": digest, "job": job_id, "created": time.time()}
                connection.execute(insert(idempotency).values(**entry))

    def finished(self, owner: str | None, fingerprint: str) -> JobRecord | None:
        """The owner's newest successful job of this fingerprint that still has its result."""
        query = select(jobs).where(
            jobs.c.fingerprint == fingerprint, jobs.c.state == SUCCESSFUL, jobs.c.removed.is_(None),
            jobs.c.owner.is_(None) if owner is None else jobs.c.owner == owner,
        )  # fmt: skip
        with self._database.transaction("read") as connection:
            row = connection.execute(query.order_by(jobs.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else job_of(row)

    def job(self, job_id: str) -> JobRecord:
        """The job of this id; NotFound if there is none, Gone if it was deleted."""
        with self._database.transaction("read") as connection:
            return _find(connection, job_id)

    def list_jobs(
        self,
        limit: int,
        *,
        state: str | Sequence[str] | None = None,
        graph: str | None = None,
        owner: str | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        """The newest ``limit`` jobs, newest first, of one graph or owner, in one state or any of several.

        ``before`` goes on behind that job.  Like all lists of jobs, this one leaves their options out.
        """
        query = select(*LISTED).where(or_(jobs.c.removal.is_(None), jobs.c.removal != DELETED))
        for column, value in ((jobs.c.graph, graph), (jobs.c.owner, owner)):
            if value is not None:
                query = query.where(column == value)
        if state is not None:
            query = query.where(jobs.c.state.in_([state] if isinstance(state, str) else state))
        if before is not None:
            query = query.where(jobs.c.id < before)
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(query.order_by(jobs.c.id.desc()).limit(limit))]

    def still_open(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are open."""
        query = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state.in_(OPEN))
        with self._database.transaction("read") as connection:
            return set(connection.execute(query).scalars())

    def versions(self, job_ids: Sequence[str]) -> dict[str, int]:
        """The versions of these jobs: one that is the same as before says that nothing changed."""
        query = select(jobs.c.id, jobs.c.version).where(jobs.c.id.in_(job_ids))
        with self._database.transaction("read") as connection:
            return {row.id: row.version for row in connection.execute(query)}

    def running(self) -> list[JobRecord]:
        """All jobs that are being solved."""
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(select(*LISTED).where(jobs.c.state == RUNNING))]

    def ended_since(self, moment: float, limit: int = 10_000) -> list[JobRecord]:
        """Jobs that ended at that time or later, the earliest first, deleted ones too."""
        query = select(*LISTED).where(jobs.c.state.in_(OVER), jobs.c.finished >= moment)
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(query.order_by(jobs.c.finished).limit(limit))]

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        with self._database.transaction("read") as connection:
            found = {row[0]: int(row[1]) for row in connection.execute(query)}
        return {state: found.get(state, 0) for state in (*OPEN, *OVER)}

    def queue_position(self, record: JobRecord) -> int:
        """How many accepted jobs stand before this one."""
        same = jobs.c.priority == record.priority
        before = or_(
            jobs.c.priority > record.priority,
            and_(same, jobs.c.place_in_queue < record.place_in_queue),
            and_(same, jobs.c.place_in_queue == record.place_in_queue, jobs.c.id < record.id),
        )
        query = select(func.count()).select_from(jobs).where(jobs.c.state == ACCEPTED, before)
        with self._database.transaction("read") as connection:
            return int(connection.execute(query).scalar_one())

    def cancel(self, job_id: str) -> JobRecord:
        """Dismiss an accepted job at once, ask a running one to stop, leave a finished one as it is."""
        with self._database.transaction("durable") as connection:
            record = _find(connection, job_id, lock=True)
            if record.state == ACCEPTED:
                return _change(
                    connection, job_id, state=DISMISSED, phase="dismissed", cancel=True, finished=time.time()
                )
            if record.state == RUNNING and not record.cancel:
                return _change(connection, job_id, cancel=True)
            return record

    def resume(self, job_id: str, asked: Submission) -> JobRecord:
        """Accept a failed or dismissed job again, with all its attempts; owner, priority and limits are ``asked``'s.

        Raises:
            NotFound, Gone: there is no such job, or its graph was deleted.
            Conflict: it is open, or successful.
            TooManyJobs: as :meth:`submit` does.
        """
        with self._database.transaction("durable") as connection:
            self._database.one_at_a_time(connection, f"owner {asked.owner or ''}")
            record = _find(connection, job_id, lock=True)
            if record.state not in (FAILED, DISMISSED):
                raise Conflict(f"job {job_id} is {record.state}; only a failed or dismissed job can be resumed")
            _graph(connection, record.graph, lock="read")
            _check_limits(connection, asked)
            return _change(
                connection, job_id, state=ACCEPTED, phase="queued", cancel=False, error=None, finished=None,
                runner=None, attempt=0, fence=record.fence + 1, place_in_queue=_place_in_queue(connection, asked),
                progress=asdict(Progress()),
            )  # fmt: skip

    def delete(self, job_id: str) -> None:
        """Forget a finished job but for its id; NotFound or Gone if there is none, Conflict while it is open."""
        with self._database.transaction("durable") as connection:
            record = _find(connection, job_id, lock=True)
            if record.open:
                raise Conflict(f"job {job_id} is {record.state}; cancel it and wait until it is over, then delete it")
            _change(connection, job_id, removed=record.removed or time.time(), removal=DELETED)

    # Retention

    def with_result(self) -> list[str]:
        """The ids of all jobs that should have a result."""
        query = select(jobs.c.id).where(jobs.c.state == SUCCESSFUL, jobs.c.removed.is_(None))
        with self._database.transaction("read") as connection:
            return list(connection.execute(query).scalars())

    def with_folder(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these ids are jobs that may have files: all that were not removed."""
        query = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.removed.is_(None))
        with self._database.transaction("read") as connection:
            return set(connection.execute(query).scalars())

    def overdue(self, before: float | None, most_bytes: int | None) -> list[str]:
        """Jobs whose result should go: over since before that time, or the oldest of more than so many bytes."""
        query = select(jobs.c.id, jobs.c.finished, jobs.c.bytes).where(jobs.c.state.in_(OVER), jobs.c.removed.is_(None))
        with self._database.transaction("read") as connection:
            rows = connection.execute(query.order_by(jobs.c.finished.desc(), jobs.c.id.desc())).all()
        found, total = [], 0
        for row in rows:
            total += row.bytes or 0
            old = before is not None and row.finished < before
            if old or (most_bytes is not None and row.bytes and total > most_bytes):
                found.append(row.id)
        return found

    def expire_result(self, job_id: str) -> bool:
        """The result's time is over; False if it was gone already."""
        here = (jobs.c.id == job_id, jobs.c.removed.is_(None), jobs.c.state.in_(OVER))
        with self._database.transaction("durable") as connection:
            change = changed(removed=time.time(), removal=EXPIRED).where(*here)
            return bool(connection.execute(change).rowcount)

    def purge(self, removed_before: float, keys_before: float) -> int:
        """Forget removed jobs, graphs without jobs, and idempotency keys of earlier times; returns how many jobs."""
        with self._database.transaction("durable") as connection:
            connection.execute(delete(idempotency).where(idempotency.c.created < keys_before))
            gone = connection.execute(delete(jobs).where(jobs.c.removed < removed_before)).rowcount
            unused = ~select(jobs.c.id).where(jobs.c.graph == graphs.c.id).exists()
            connection.execute(delete(graphs).where(graphs.c.removed < removed_before, unused))
            return int(gone)


def _graph(connection: Connection, graph_id: str, *, lock: str = "") -> GraphRecord:
    query = select(graphs).where(graphs.c.id == graph_id)
    if lock:
        query = query.with_for_update(read=lock == "read")
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"there is no graph {graph_id!r}")
    if row.removed is not None:
        raise Gone(f"graph {graph_id} was deleted; upload it again")
    return GraphRecord(**row._mapping)


def _keyed(connection: Connection, owner: str, key: str, digest: str) -> JobRecord | None:
    where = (idempotency.c.owner == owner, idempotency.c.key == key)
    found = connection.execute(select(idempotency).where(*where)).one_or_none()
    if found is None:
        return None
    if found.digest != digest:
        message = f"the Idempotency-Key {key!r} was used with another request; a new request needs a new key"
        raise KeyReused(message, field="Idempotency-Key")
    return _find(connection, found.job)


def _check_limits(connection: Connection, asked: Submission) -> None:
    mine = jobs.c.owner.is_(None) if asked.owner is None else jobs.c.owner == asked.owner
    for most, setting, where in (
        (asked.most_of_owner, "APSP_MAX_OPEN_JOBS", mine),
        (asked.most, "APSP_MAX_OPEN_JOBS_TOTAL", jobs.c.id.is_not(None)),
    ):
        if most is None:
            continue
        query = select(func.count()).select_from(jobs).where(jobs.c.state.in_(OPEN), where)
        there = int(connection.execute(query).scalar_one())
        if there >= most:
            message = f"{there} jobs are open, at most {most} may be; wait for some to finish"
            raise TooManyJobs(message, limit=most, requested=there + 1, setting=setting)


def _place_in_queue(connection: Connection, asked: Submission) -> int:
    """Start-time fair queueing: behind the owner's own open jobs, but no further back than the front of all others."""
    of_priority = (jobs.c.state.in_(OPEN), jobs.c.priority == asked.priority)
    mine = jobs.c.owner.is_(None) if asked.owner is None else jobs.c.owner == asked.owner
    front = connection.execute(select(func.min(jobs.c.place_in_queue)).where(*of_priority)).scalar_one()
    own = connection.execute(select(func.max(jobs.c.place_in_queue)).where(*of_priority, mine)).scalar_one()
    return max(front or 0, -1 if own is None else own + 1)


def _change(connection: Connection, job_id: str, **values: object) -> JobRecord:
    return job_of(connection.execute(changed(**values).where(jobs.c.id == job_id).returning(jobs)).one())


def _find(connection: Connection, job_id: str, *, lock: bool = False) -> JobRecord:
    query = select(jobs).where(jobs.c.id == job_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    if row.removal == DELETED:
        raise Gone(f"job {job_id} was deleted")
    return job_of(row)
