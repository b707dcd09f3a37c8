"""The authoritative record of graphs and jobs: SQL tables behind one class, on SQLite or PostgreSQL.

A change that callers rely on (a job is accepted, a job has ended, a result is removed) is on the disk when the method
returns; the progress of a job may not be.  This module does not depend on HTTP or algorithms: options, plans and errors
are JSON here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import Connection, func, insert, or_, select, update

from storage.errors import Conflict, Gone, KeyReused, NotFound, TooManyJobs
from storage.jobs.claims import MAX_ATTEMPTS, Beat, Claims, changed
from storage.jobs.database import Database
from storage.jobs.retention import ResultRetention
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
from storage.jobs.search import JobFilter, JobSearch

__all__ = [
    "ACCEPTED", "DELETED", "DISMISSED", "EXPIRED", "FAILED", "MAX_ATTEMPTS", "OPEN", "OVER", "RUNNING", "SUCCESSFUL",
    "Beat", "GraphRecord", "JobFilter", "JobRecord", "JobStore", "Json", "Progress", "RunnerRecord", "Submission",
    "new_id",
]  # fmt: skip


class JobStore(Claims, JobSearch, ResultRetention):
    """Graphs and jobs in one database; safe to use from many threads and processes at once.

    ``where`` is the path or URL of the database, and ``timeout`` the seconds to wait for a lock.  All methods raise
    ``DatabaseFailed`` when the database cannot be read or written.
    """

    def __init__(self, where: Path | str, *, timeout: float = 30.0) -> None:
        self.where = where
        super().__init__(Database(where, timeout=timeout))

    @property
    def database(self) -> Database:
        """The database of the jobs, for other stores that use the same database."""
        return self._database

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def ping(self) -> None:
        """Take and release the write lock, to check that the database can be written."""
        self._database.ping()

    # Graphs

    def add_graph(self, record: GraphRecord) -> tuple[GraphRecord, bool]:
        """Record a graph unless a graph of equal content is recorded already.  Return the record of the graph, and
        whether the graph is new or had been removed before.
        """
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
        """Return the graph with this id.  Raises NotFound if there is no such graph, Gone if it was deleted."""
        with self._database.transaction("read") as connection:
            return _graph(connection, graph_id)

    def refuse_removed(self, graph_id: str) -> None:
        """Raise NotFound if there is no such graph, Gone if it was deleted; wait for a deletion that has begun."""
        with self._database.transaction("durable") as connection:
            _graph(connection, graph_id, lock="read")

    def rename_graph(self, graph_id: str, name: str) -> None:
        """Change the name of a graph."""
        with self._database.transaction("durable") as connection:
            connection.execute(update(graphs).where(graphs.c.id == graph_id).values(name=name))

    def list_graphs(self, limit: int, after: float | None = None) -> list[GraphRecord]:
        """Return the newest ``limit`` graphs, newest first.  With ``after``, only graphs that were created before this
        time are returned, to continue a list.
        """
        query = select(graphs).where(graphs.c.removed.is_(None))
        if after is not None:
            query = query.where(graphs.c.created < after)
        with self._database.transaction("read") as connection:
            rows = connection.execute(query.order_by(graphs.c.created.desc(), graphs.c.id.desc()).limit(limit))
            return [GraphRecord(**row._mapping) for row in rows]

    def remove_graph(self, graph_id: str, take: Callable[[], None]) -> None:
        """Remove a graph; ``take``, which is called inside the transaction, moves the files of the graph away.

        Raises:
            NotFound, Gone: there is no such graph.
            Conflict: open jobs need the graph.
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
        """Accept a job without owner, limits or idempotency key, as :meth:`submit` does.

        Args:
            graph_id: the graph to solve.
            options, plan: options and plan of the job, JSON types, stored unchanged.
            name: the name of the job that people see.
        """
        return self.submit(Submission(graph_id, options, plan, name))[0]

    def submit(self, asked: Submission) -> tuple[JobRecord, bool]:
        """Accept a job durably.  Return the job and True, or the earlier job and False if the request was sent before.

        Raises:
            NotFound, Gone: the graph does not exist, or was removed.
            KeyReused: the idempotency key was used for a different request.
            TooManyJobs: the limit of open jobs, of the owner or of all, is reached.
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
                "fingerprint": asked.fingerprint, **_prediction(asked),
            }  # fmt: skip
            record = job_of(connection.execute(insert(jobs).values(**values).returning(jobs)).one())
            if asked.key is not None:
                entry = {"owner": owner, "key": asked.key, "digest": asked.digest, "job": record.id, "created": now}
                connection.execute(insert(idempotency).values(**entry))
            return record, True

    def replay(self, owner: str | None, key: str, digest: str) -> JobRecord | None:
        """Return the job that was submitted with an idempotency key; None if there is no such job.

        Args:
            owner: the caller; keys of different owners are independent.
            key: the Idempotency-Key.
            digest: digest of the request.

        Raises:
            KeyReused: the key was used with a different request.
        """
        with self._database.transaction("read") as connection:
            return _keyed(connection, owner or "", key, digest)

    def remember(self, owner: str | None, key: str, digest: str, job_id: str) -> None:
        """Record that an idempotency key stands for a job that already exists.

        Args:
            owner, key, digest: the caller, the Idempotency-Key, and the digest of the request.
            job_id: id of the job.

        Raises:
            KeyReused: the key was used with a different request.
        """
        with self._database.transaction("durable") as connection:
            self._database.one_at_a_time(connection, f"owner {owner or ''}")
            if _keyed(connection, owner or "", key, digest) is None:
                entry = {"owner": owner or "", "key": key, "digest": digest, "job": job_id, "created": time.time()}
                connection.execute(insert(idempotency).values(**entry))

    def finished(self, owner: str | None, fingerprint: str) -> JobRecord | None:
        """Return the owner's newest successful job with this fingerprint (digest of graph, options and format) that
        still has its result; None if there is no such job.
        """
        query = select(jobs).where(
            jobs.c.fingerprint == fingerprint, jobs.c.state == SUCCESSFUL, jobs.c.removed.is_(None),
            jobs.c.owner.is_(None) if owner is None else jobs.c.owner == owner,
        )  # fmt: skip
        with self._database.transaction("read") as connection:
            row = connection.execute(query.order_by(jobs.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else job_of(row)

    def job(self, job_id: str) -> JobRecord:
        """Return the job with this id.  Raises NotFound if there is no such job, Gone if it was deleted."""
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
        """List jobs, newest first, without their options.

        Args:
            limit: largest number of jobs to return.
            state: only jobs in this state, or in any of these states.
            graph: only jobs of the graph with this id.
            owner: only jobs of this owner.
            before: only jobs older than the job with this id, to continue a list.
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
        """Return the ids among ``job_ids`` whose jobs are open (wait or run)."""
        query = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state.in_(OPEN))
        with self._database.transaction("read") as connection:
            return set(connection.execute(query).scalars())

    def versions(self, job_ids: Sequence[str]) -> dict[str, int]:
        """Return the versions of these jobs by id.  The version of a job rises with every change."""
        query = select(jobs.c.id, jobs.c.version).where(jobs.c.id.in_(job_ids))
        with self._database.transaction("read") as connection:
            return {row.id: row.version for row in connection.execute(query)}

    def running(self) -> list[JobRecord]:
        """Return all jobs that are being solved."""
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(select(*LISTED).where(jobs.c.state == RUNNING))]

    def ended_since(self, moment: float, limit: int = 10_000) -> list[JobRecord]:
        """Return the jobs that ended at the time ``moment`` or later, including deleted jobs; the earliest first."""
        query = select(*LISTED).where(jobs.c.state.in_(OVER), jobs.c.finished >= moment)
        with self._database.transaction("read") as connection:
            return [job_of(row) for row in connection.execute(query.order_by(jobs.c.finished).limit(limit))]

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are in each state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        with self._database.transaction("read") as connection:
            found = {row[0]: int(row[1]) for row in connection.execute(query)}
        return {state: found.get(state, 0) for state in (*OPEN, *OVER)}

    def cancel(self, job_id: str) -> JobRecord:
        """Dismiss an accepted job at once, or ask a running job to stop; a job that has ended does not change."""
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
        """Accept a failed or dismissed job again, with a new count of attempts.

        Owner, priority and limits are taken from ``asked``.

        Raises:
            NotFound, Gone: the job does not exist or was deleted, or its graph was deleted.
            Conflict: the job is open, or successful.
            TooManyJobs: the limit of open jobs, of the owner or of all, is reached.
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
        """Delete a job that has ended, but remember its id.  Raises NotFound or Gone if there is no such job, Conflict
        if the job is open.
        """
        with self._database.transaction("durable") as connection:
            record = _find(connection, job_id, lock=True)
            if record.open:
                raise Conflict(f"job {job_id} is {record.state}; cancel it and wait until it is over, then delete it")
            _change(connection, job_id, removed=record.removed or time.time(), removal=DELETED)


def _prediction(asked: Submission) -> Json:
    """Return the predicted seconds and memory as columns; no columns unless one machine's processors solve the job."""
    plan = asked.plan
    if plan.get("device") != "cpu" or plan.get("workers"):
        return {}
    return {"predicted_seconds": plan.get("seconds"), "predicted_memory": plan.get("memory")}


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
    """Compute the place of a new job in the queue, by start-time fair queueing.

    The place is after the places of the owner's open jobs, and not before the first place that an open job has.
    """
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
