"""The record of truth about graphs and jobs: two SQL tables behind one small class.

SQLite in write-ahead mode; transactions that keep a promise (a job is accepted, a job is over) are written through to
the disk, progress is not.  Every claim raises ``attempt`` and ``fence``; whoever writes about a running job shows the
fence it was given, so a runner that was overtaken can change nothing.  Knows no HTTP and no algorithm: options, plans
and errors are JSON to it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from storage.errors import Conflict, NotFound, StorageFailed

ACCEPTED, RUNNING, SUCCESSFUL, FAILED, DISMISSED = "accepted", "running", "successful", "failed", "dismissed"
OPEN: Final = (ACCEPTED, RUNNING)
#: how often a job whose runner died is tried before it fails
MAX_ATTEMPTS: Final = 3

Json = dict[str, Any]

metadata = MetaData()

graphs = Table(
    "graphs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("digest", String(80), nullable=False, unique=True),
    Column("name", String(200)),
    Column("n", BigInteger, nullable=False),
    Column("m", BigInteger, nullable=False),
    Column("facts", JSON, nullable=False),
    Column("receipt", JSON, nullable=False),
    Column("created", Float, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("graph", String(40), ForeignKey("graphs.id"), nullable=False),
    Column("name", String(200)),
    Column("state", String(12), nullable=False),
    Column("phase", String(60), nullable=False),
    Column("options", JSON, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("runner", String(120)),
    Column("heartbeat", Float),
    Column("cancel", Boolean, nullable=False, default=False),
    Column("progress", JSON, nullable=False),
    Column("error", JSON),
    Column("history", JSON, nullable=False),
    Column("seconds", JSON),
    Column("summary", JSON),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("finished", Float),
    Column("updated", Float, nullable=False),
    Index("jobs_by_state", "state", "created"),
)


@dataclass(frozen=True)
class GraphRecord:
    """One uploaded graph; ``facts`` holds directed, weighted, integral, arcs and the range of the weights."""

    id: str
    digest: str
    name: str | None
    n: int
    m: int
    facts: Json
    receipt: Json
    created: float


@dataclass(frozen=True)
class Progress:
    """How far a running job is: ``fraction`` 0..1 of the whole job; ``rate`` in ``unit`` a second; ``eta`` seconds."""

    fraction: float = 0.0
    rate: float | None = None
    unit: str | None = None
    eta: float | None = None


@dataclass(frozen=True)
class JobRecord:
    """One job as stored; times are seconds since the epoch, ``error`` is ``{"code", "message", "details"}``."""

    id: str
    graph: str
    name: str | None
    state: str
    phase: str
    options: Json
    plan: Json
    attempt: int
    fence: int
    runner: str | None
    heartbeat: float | None
    cancel: bool
    progress: Progress
    error: Json | None
    history: list[Json]
    seconds: Json | None
    summary: Json | None
    created: float
    started: float | None
    finished: float | None
    updated: float

    @property
    def open(self) -> bool:
        """Whether the job may still change by itself."""
        return self.state in OPEN


def new_id() -> str:
    """A fresh identifier that sorts by time of creation (UUID version 7, RFC 9562 section 5.7)."""
    stamp = time.time_ns() // 1_000_000
    value = (stamp & (2**48 - 1)) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


class JobStore:
    """Graphs and jobs in one SQLite file; safe to use from many threads and processes at once.

    All methods raise ``StorageFailed`` when the database cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._engine = create_engine(f"sqlite:///{path}", pool_size=8, max_overflow=64, pool_timeout=30)
        event.listen(self._engine, "connect", _on_connect)
        event.listen(self._engine, "begin", _on_begin)
        self._reads = self._engine.execution_options(apsp_begin="read")
        self._progress = self._engine.execution_options(apsp_begin="progress")
        with _transaction(self._engine) as connection:
            metadata.create_all(connection)

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    def ping(self) -> None:
        """Take the write lock and give it back: the database is there and can be written."""
        with _transaction(self._engine):
            pass

    # Graphs

    def add_graph(self, record: GraphRecord) -> tuple[GraphRecord, bool]:
        """Record a graph, or find the one of the same content; returns it and whether it is new."""
        with _transaction(self._engine) as connection:
            row = connection.execute(select(graphs).where(graphs.c.digest == record.digest)).one_or_none()
            if row is not None:
                return GraphRecord(**row._mapping), False
            connection.execute(insert(graphs).values(**asdict(record)))
            return record, True

    def graph(self, graph_id: str) -> GraphRecord:
        """The graph of this id; NotFound if there is none."""
        with _transaction(self._reads) as connection:
            row = connection.execute(select(graphs).where(graphs.c.id == graph_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no graph {graph_id!r}")
        return GraphRecord(**row._mapping)

    def list_graphs(self, limit: int, after: float | None = None) -> list[GraphRecord]:
        """The newest ``limit`` graphs, newest first; ``after`` continues behind that time of creation."""
        query = select(graphs).order_by(graphs.c.created.desc(), graphs.c.id.desc()).limit(limit)
        if after is not None:
            query = query.where(graphs.c.created < after)
        with _transaction(self._reads) as connection:
            return [GraphRecord(**row._mapping) for row in connection.execute(query)]

    # Jobs, as the service sees them

    def create(self, graph_id: str, options: Json, plan: Json, name: str | None = None) -> JobRecord:
        """Accept a job; it is on the disk when this returns.  NotFound if the graph is unknown."""
        now = time.time()
        values: Json = {
            "id": new_id(), "graph": graph_id, "name": name, "state": ACCEPTED, "phase": "queued", "options": options,
            "plan": plan, "progress": asdict(Progress()), "history": [], "created": now, "updated": now,
        }  # fmt: skip
        try:
            with _transaction(self._engine) as connection:
                return _record(connection.execute(insert(jobs).values(**values).returning(jobs)).one())
        except IntegrityError as error:
            raise NotFound(f"there is no graph {graph_id!r}") from error

    def job(self, job_id: str) -> JobRecord:
        """The job of this id; NotFound if there is none."""
        with _transaction(self._reads) as connection:
            return _find(connection, job_id)

    def list_jobs(
        self, limit: int, *, state: str | None = None, graph: str | None = None, before: str | None = None
    ) -> list[JobRecord]:
        """The newest ``limit`` jobs, newest first, of one state or graph; ``before`` continues behind that job."""
        query = select(jobs).order_by(jobs.c.id.desc()).limit(limit)
        for column, value in ((jobs.c.state, state), (jobs.c.graph, graph)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(jobs.c.id < before)
        with _transaction(self._reads) as connection:
            return [_record(row) for row in connection.execute(query)]

    def queue_position(self, record: JobRecord) -> int:
        """How many accepted jobs stand before this one."""
        query = select(func.count()).select_from(jobs).where(jobs.c.state == ACCEPTED, jobs.c.id < record.id)
        with _transaction(self._reads) as connection:
            return int(connection.execute(query).scalar_one())

    def cancel(self, job_id: str) -> JobRecord:
        """Dismiss an accepted job at once, ask a running one to stop, leave a finished one as it is."""
        now = time.time()
        with _transaction(self._engine) as connection:
            record = _find(connection, job_id)
            if record.state == ACCEPTED:
                return _change(connection, job_id, state=DISMISSED, phase="dismissed", cancel=True, finished=now)
            if record.state == RUNNING and not record.cancel:
                return _change(connection, job_id, cancel=True)
            return record

    def delete(self, job_id: str) -> None:
        """Forget a finished job; NotFound if there is none, Conflict while it is open."""
        with _transaction(self._engine) as connection:
            record = _find(connection, job_id)
            if record.open:
                raise Conflict(f"job {job_id} is {record.state}; cancel it and wait until it is over, then delete it")
            connection.execute(jobs.delete().where(jobs.c.id == job_id))

    def known(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these ids are jobs."""
        with _transaction(self._reads) as connection:
            return set(connection.execute(select(jobs.c.id).where(jobs.c.id.in_(job_ids))).scalars())

    # Jobs, as a runner sees them

    def claim(self, runner: str) -> JobRecord | None:
        """Take the oldest accepted job, atomically; None when there is none.  Raises attempt and fence by one."""
        with _transaction(self._reads) as connection:
            if connection.execute(select(jobs.c.id).where(jobs.c.state == ACCEPTED).limit(1)).first() is None:
                return None  # an idle runner asks often: it must not take the write lock for that
        oldest = (
            select(jobs.c.id)
            .where(jobs.c.state == ACCEPTED)
            .order_by(jobs.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        now = time.time()
        change = (
            update(jobs)
            .where(jobs.c.id == oldest, jobs.c.state == ACCEPTED)
            .values(
                state=RUNNING, phase="loading", runner=runner, heartbeat=now, started=now, updated=now,
                attempt=jobs.c.attempt + 1, fence=jobs.c.fence + 1, progress=asdict(Progress()),
            )
            .returning(jobs)
        )  # fmt: skip
        with _transaction(self._engine) as connection:
            row = connection.execute(change).one_or_none()
        return None if row is None else _record(row)

    def report(self, claimed: JobRecord, phase: str, progress: Progress) -> bool | None:
        """Store how far a running job is; whether its cancellation was asked for, None if the claim was lost."""
        now = time.time()
        values = {"phase": phase, "progress": asdict(progress), "heartbeat": now, "updated": now}
        with _transaction(self._progress) as connection:
            change = update(jobs).where(*_held(claimed)).values(**values).returning(jobs.c.cancel)
            return connection.execute(change).scalar_one_or_none()

    def replan(self, claimed: JobRecord, plan: Json) -> None:
        """Store the plan that is really followed, where it differs from the one made at submission."""
        with _transaction(self._progress) as connection:
            connection.execute(update(jobs).where(*_held(claimed)).values(plan=plan, updated=time.time()))

    def succeed(self, claimed: JobRecord, summary: Json, seconds: Json) -> bool:
        """The result is sealed; False if the claim was lost."""
        progress = asdict(Progress(fraction=1.0))
        return self._over(claimed, SUCCESSFUL, "done", summary=summary, seconds=seconds, progress=progress)

    def fail(self, claimed: JobRecord, error: Mapping[str, Any]) -> bool:
        """The job cannot be done, and why; False if the claim was lost."""
        return self._over(claimed, FAILED, "failed", error=dict(error))

    def dismiss(self, claimed: JobRecord) -> bool:
        """The job was cancelled while it ran; False if the claim was lost."""
        return self._over(claimed, DISMISSED, "dismissed")

    def release(self, claimed: JobRecord) -> bool:
        """Give a running job back unfinished because its runner has to stop; the attempt does not count."""
        values = {"state": ACCEPTED, "phase": "queued", "runner": None, "progress": asdict(Progress())}
        with _transaction(self._engine) as connection:
            change = update(jobs).where(*_held(claimed)).values(attempt=jobs.c.attempt - 1, updated=time.time())
            return connection.execute(change.values(**values)).rowcount == 1

    def recover(self, *, max_attempts: int = MAX_ATTEMPTS) -> list[JobRecord]:
        """Settle every running job, none of which has a live runner any more; returns them as they are now.

        A cancelled one is dismissed, one that was tried ``max_attempts`` times fails, the others are accepted again.
        """
        with _transaction(self._engine) as connection:
            rows = connection.execute(select(jobs).where(jobs.c.state == RUNNING)).all()
            return [_recover(connection, _record(row), max_attempts) for row in rows]

    def _over(self, claimed: JobRecord, state: str, phase: str, **values: object) -> bool:
        now = time.time()
        with _transaction(self._engine) as connection:
            change = update(jobs).where(*_held(claimed))
            done = connection.execute(change.values(state=state, phase=phase, finished=now, updated=now, **values))
            return done.rowcount == 1


def _recover(connection: Connection, record: JobRecord, max_attempts: int) -> JobRecord:
    now = time.time()
    if record.cancel:
        return _change(connection, record.id, state=DISMISSED, phase="dismissed", finished=now)
    lost = {"attempt": record.attempt, "runner": record.runner, "phase": record.phase, "at": now}
    history = [*record.history, {**lost, "reason": "runner-lost"}]
    if record.attempt < max_attempts:
        return _change(
            connection, record.id, state=ACCEPTED, phase="queued", runner=None, history=history,
            fence=record.fence + 1, progress=asdict(Progress()),
        )  # fmt: skip
    error = {
        "code": "runner-lost",
        "message": f"the runner died {record.attempt} times at work on this job, last in phase {record.phase!r}",
        "details": {"attempts": history},
    }
    return _change(connection, record.id, state=FAILED, phase="failed", history=history, error=error, finished=now)


def _held(claimed: JobRecord) -> tuple[Any, ...]:
    return jobs.c.id == claimed.id, jobs.c.fence == claimed.fence, jobs.c.state == RUNNING


def _change(connection: Connection, job_id: str, **values: object) -> JobRecord:
    change = update(jobs).where(jobs.c.id == job_id).values(updated=time.time(), **values).returning(jobs)
    return _record(connection.execute(change).one())


def _find(connection: Connection, job_id: str) -> JobRecord:
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    return _record(row)


def _record(row: Row[Any]) -> JobRecord:
    values = dict(row._mapping)
    return JobRecord(**{**values, "progress": Progress(**values["progress"])})


class _transaction(AbstractContextManager[Connection]):  # noqa: N801 - used like a function
    """One transaction; trouble with the database becomes StorageFailed, broken constraints and bugs pass through."""

    def __init__(self, engine: Engine) -> None:
        self._begin = engine.begin()

    def __enter__(self) -> Connection:
        try:
            return self._begin.__enter__()
        except SQLAlchemyError as error:
            raise _translated(error) from error

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        try:
            swallow = self._begin.__exit__(kind, error, trace)
        except SQLAlchemyError as failure:
            raise _translated(failure) from failure
        if isinstance(error, SQLAlchemyError) and (translated := _translated(error)) is not error:
            raise translated from error
        return swallow


def _translated(error: SQLAlchemyError) -> Exception:
    """StorageFailed for what may go away by itself; what trying again cannot mend stays what it is."""
    ours = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    if ours or isinstance(error, IntegrityError):
        return error
    reason = getattr(error, "orig", None) or error
    return StorageFailed(f"the job database cannot be used: {reason}")


def _on_connect(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # BEGIN is said by _on_begin, not guessed by the driver
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    kind = connection.get_execution_options().get("apsp_begin")
    if kind == "read":
        connection.exec_driver_sql("BEGIN")
        return
    # Taking the write lock at once avoids the deadlock of two readers that both want to write.
    connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if kind == 'progress' else 'FULL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
