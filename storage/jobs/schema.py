"""The tables of the job database, and the records of their rows as plain data.  Independent of HTTP and algorithms.

A change of a table here needs a migration under ``storage/jobs/migrations/versions``; a test compares these tables with
the result of the migrations.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
)

ACCEPTED, RUNNING, SUCCESSFUL, FAILED, DISMISSED = "accepted", "running", "successful", "failed", "dismissed"
OPEN: Final = (ACCEPTED, RUNNING)
OVER: Final = (SUCCESSFUL, FAILED, DISMISSED)
#: Why the result of a job was removed.
DELETED, EXPIRED = "deleted", "expired"

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
    Column("removed", Float),
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
    Column("owner", String(80)),
    Column("priority", Integer, nullable=False, server_default="0", default=0),
    Column("turn", BigInteger, key="place_in_queue", nullable=False, server_default="0", default=0),
    Column("device", String(8), nullable=False, server_default="any", default="any"),
    Column("beat", BigInteger, nullable=False, server_default="0", default=0),
    Column("version", BigInteger, nullable=False, server_default="0", default=0),
    Column("fingerprint", String(80)),
    Column("bytes", BigInteger),
    Column("removed", Float),
    Column("removal", String(12)),
    Column("predicted_seconds", Float),
    Column("predicted_memory", BigInteger),
    Index("jobs_by_prediction", "state", "predicted_seconds"),
    Index("jobs_by_state", "state", "created"),
    Index("jobs_by_turn", "state", "priority", "place_in_queue", "id"),
    Index("jobs_by_owner", "owner", "state"),
    Index("jobs_by_fingerprint", "fingerprint"),
    Index("jobs_by_graph", "graph", "state"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("owner", String(80), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("digest", String(80), nullable=False),
    Column("job", String(40), nullable=False),
    Column("created", Float, nullable=False),
)

runners = Table(
    "runners",
    metadata,
    Column("slot", String(120), primary_key=True),
    Column("name", String(120), nullable=False),
    Column("device", String(20), nullable=False),
    Column("state", String(12), nullable=False),
    Column("detail", String(500)),
    Column("heartbeat", Float, nullable=False),
    Column("figures", JSON),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("created", Float, nullable=False),
    Column("revoked", Float),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("key", String(16), ForeignKey("keys.id"), nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
)

graph_owners = Table(
    "graph_owners",
    metadata,
    Column("owner", String(80), primary_key=True),
    Column("graph", String(40), ForeignKey("graphs.id"), primary_key=True),
    Column("name", String(200)),
    Column("created", Float, nullable=False),
    Column("facts", JSON),
    Column("receipt", JSON),
    Index("graph_owners_by_graph", "graph"),
)


@dataclass(frozen=True)
class GraphRecord:
    """One uploaded graph; ``facts`` are directed, weighted, integral, arcs, the range of the weights, and others."""

    id: str
    digest: str
    name: str | None
    n: int
    m: int
    facts: Json
    receipt: Json
    created: float
    removed: float | None = None


@dataclass(frozen=True)
class Progress:
    """The progress of a running job: ``fraction`` of the whole job that is done, from 0 to 1; ``rate``, units of work
    (``unit``) per second; ``eta``, the remaining seconds.
    """

    fraction: float = 0.0
    rate: float | None = None
    unit: str | None = None
    eta: float | None = None


@dataclass(frozen=True)
class JobRecord:
    """One job as stored; times are seconds since the epoch, ``error`` is ``{"code", "message", "details"}``.

    Attributes:
        owner: the caller who submitted the job; None if the service does not distinguish callers.
        priority: jobs of higher priority are solved first.
        place_in_queue: among jobs of equal priority, the job with the lowest number is solved first; numbers are
            assigned such that owners alternate.
        device: ``cuda`` for a job that only a runner with a GPU may claim, else ``any``.
        beat: number of heartbeats of the runner; version: number of changes of the job.
        options: the options as submitted; empty in lists of jobs.
        fingerprint: digest of graph, options and result format; jobs with equal fingerprints have equal results.
        bytes: size of the result; removed, removal: when and why the result was removed (``deleted``, ``expired``).
        predicted_seconds, predicted_memory: the job's seconds and bytes as planned at submission; None unless it is
            planned for the processors of one machine.
    """

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
    owner: str | None = None
    priority: int = 0
    place_in_queue: int = 0
    device: str = "any"
    beat: int = 0
    version: int = 0
    fingerprint: str | None = None
    bytes: int | None = None
    removed: float | None = None
    removal: str | None = None
    predicted_seconds: float | None = None
    predicted_memory: int | None = None

    @property
    def open(self) -> bool:
        """Whether the job waits or runs, so that it may still change without a request."""
        return self.state in OPEN


@dataclass(frozen=True)
class RunnerRecord:
    """The last runner of a slot.  The name of a slot is ``NODE/DEVICE``; it passes from a runner to the next.

    ``state`` is ``idle``, ``busy`` or ``sick``; ``detail`` says why the runner is sick.
    ``figures`` are numbers that the runner reports about itself, for metrics.
    """

    slot: str
    name: str
    device: str
    state: str
    detail: str | None
    heartbeat: float
    figures: Json | None = None


@dataclass(frozen=True)
class Submission:
    """A job to be submitted; :class:`JobRecord` describes the fields that both classes have.

    ``key`` is the Idempotency-Key of the request, and ``digest`` the digest of the request.  ``most_of_owner`` limits
    the open jobs of the owner, and ``most`` the open jobs of all owners.
    """

    graph: str
    options: Json
    plan: Json
    name: str | None = None
    owner: str | None = None
    priority: int = 0
    device: str = "any"
    fingerprint: str | None = None
    key: str | None = None
    digest: str = ""
    most_of_owner: int | None = None
    most: int | None = None


def new_id() -> str:
    """Return a fresh identifier that sorts by time of creation (UUID version 7, RFC 9562 section 5.7)."""
    stamp = time.time_ns() // 1_000_000
    value = (stamp & (2**48 - 1)) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


#: The columns of jobs in lists: options are left out, because the options of one job may name a million vertices.
LISTED: Final = tuple(column for column in jobs.c if column is not jobs.c.options)


def job_of(row: Row[Any]) -> JobRecord:
    """Return a row of the table ``jobs`` as a record.  Its options are empty if they were not selected."""
    values = {"options": {}, **row._mapping}
    values["place_in_queue"] = values.pop(jobs.c.place_in_queue.name)
    return JobRecord(**{**values, "progress": Progress(**values["progress"])})
