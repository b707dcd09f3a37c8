"""What goes over the wire, with examples: the OpenAPI document is made from these."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from service.api.fault import Fault
from service.api.problems import document
from storage.jobs.store import GraphRecord, JobRecord, RunnerRecord

#: what one list of a request holds at most, what a name in it does, and how many members that there are not are named
MOST_LISTED: Final = 1_000_000
LONGEST_NAME: Final = 10_000
_MOST_UNKNOWN: Final = 10
#: a vertex as the file names it
Label = StrictInt | StrictStr
#: one that is asked for
Asked = StrictInt | Annotated[StrictStr, Field(max_length=LONGEST_NAME)]
#: some that are asked for; checking ends at the first that is no name, for there may be a million of them
AskedList = Annotated[list[Asked], Field(fail_fast=True, min_length=1, max_length=MOST_LISTED)]
Size = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
#: NUL is in no name: not every database keeps it
_NAME = r"^[^\x00]*$"
#: sources, targets
Shape = Annotated[list[int], Field(min_length=2, max_length=2)]
State = Literal["accepted", "running", "successful", "failed", "dismissed"]


#: below a job, once it has a result
RESULT_LINKS = (
    "results", "summary", "histogram", "distance", "distances", "rows", "columns", "submatrix", "path", "paths",
    "nearest", "zarr",
)  # fmt: skip


class Wire(BaseModel):
    """Unknown members are refused, so that a misspelt option is not silently ignored."""

    model_config = ConfigDict(extra="forbid")


class Question(Wire):
    """A body that somebody sends; however it was made, a handful of errors is built and no more."""

    @model_validator(mode="before")
    @classmethod
    def _few_members(cls, members: Any) -> Any:
        if isinstance(members, dict) and len(members) > len(cls.model_fields) + _MOST_UNKNOWN:
            message = "{given} members are given, and there are only {known}"
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("too_many_members", message, {"given": len(members), "known": known})
        return members


class Problem(Wire):
    """An RFC 9457 problem document; ``code`` is stable, ``details`` depends on it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any]
    instance: str | None = None
    request_id: str | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:apsp:problem:limit-exceeded",
                    "title": "A limit is exceeded",
                    "status": 413,
                    "detail": "12000000 entries are asked for, at most 4000000 go in one answer",
                    "code": "limit-exceeded",
                    "details": {"limit": 4000000, "requested": 12000000, "setting": "APSP_MAX_CELLS"},
                    "instance": "/v1/jobs/01a1fd52-422a-70e5-8284-8de96e7ad0e1/rows",
                    "request_id": "5f0c1f6c9d1b4a55",
                }
            ]
        }
    )


class Graph(Wire):
    """An uploaded graph."""

    id: str = Field(examples=["2f1c0a7be85d4f0d9f4f3f8d0a3b7c11"])
    digest: str = Field(description="SHA-256 of the content: vertices, arcs, weights, direction.")
    name: str | None = None
    n: int = Field(description="Vertices.", examples=[3353])
    m: int = Field(description="Arcs of a directed graph, edges of an undirected one.", examples=[8859])
    facts: dict[str, Any] = Field(description="Direction, weights, components, degrees.")
    receipt: dict[str, Any] = Field(description="What the reader understood and what cleaning changed.")
    created: datetime
    links: dict[str, str]

    @classmethod
    def of(cls, record: GraphRecord) -> Graph:
        """The wire form of a record."""
        links = {"self": f"/v1/graphs/{record.id}", "jobs": f"/v1/jobs?graph={record.id}"}
        return cls(
            id=record.id, digest=record.digest, name=record.name, n=record.n, m=record.m, facts=record.facts,
            receipt=record.receipt, created=_time(record.created), links=links,
        )  # fmt: skip


class GraphList(Wire):
    """Graphs, newest first; ``next`` leads to older ones."""

    graphs: list[Graph]
    next: str | None


class JobRequest(Question):
    """A graph and the options of a solve; all but the graph may be left out."""

    graph: str = Field(max_length=100, pattern=_NAME, description="Id of an uploaded graph.")
    name: str | None = Field(None, max_length=200, pattern=_NAME, description="A name of your own.")
    dtype: Literal["auto", "uint16", "int32", "float32", "float64"] = "auto"
    algorithm: str = Field(
        "auto", max_length=100, description="Name of an algorithm, or auto.", examples=["auto", "dijkstra"]
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    memory: Size | None = Field(None, description="Host memory in bytes.")
    device_memory: Size | None = Field(None, description="Device memory in bytes.")
    max_hops: Size | None = Field(None, description="At most that many arcs a path.")
    sources: AskedList | None = Field(None, description="Only these rows; vertices as in the file.")
    targets: AskedList | None = Field(None, description="Only these columns; vertices as in the file.")
    cutoff: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        strict=True,
        description="Only distances up to this one; longer ones become unreachable.",
    )
    threads: Size | None = Field(None, description="Processors.")
    executor: Literal["local", "dask"] = Field(
        "local", description="Who solves: the runner, or the workers of the service's Dask scheduler, if it has one."
    )
    priority: int = Field(0, ge=-100, le=100, strict=True, description="Higher goes first.")
    fresh: bool = Field(False, description="Solve again even if there is a result of the same graph and options.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11"},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "dtype": "float64", "sources": [1, 17]},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "sources": [1, 17], "targets": [3, 4], "cutoff": 600},
            ]
        },
    )

    def options(self) -> dict[str, Any]:
        """The members that are options, as stored with the job."""
        return self.model_dump(exclude={"graph", "name", "priority", "fresh"})


class JobItem(Wire):
    """A job in a list."""

    id: str
    graph: str
    name: str | None
    state: State
    phase: str
    progress: float = Field(ge=0, le=1, description="Fraction of the whole job.")
    rate: float | None = Field(description="Units a second, of late.")
    unit: str | None = Field(examples=["updates", "rows"])
    eta_seconds: float | None
    attempt: int
    priority: int
    cancel_requested: bool
    created: datetime
    started: datetime | None
    finished: datetime | None
    error: Problem | None
    links: dict[str, str]

    @classmethod
    def of(cls, record: JobRecord) -> JobItem:
        """The wire form of a record."""
        return cls(**_job_members(record))


class Job(JobItem):
    """A job with its options, its plan and, once it is over, the seconds of each phase."""

    options: dict[str, Any]
    plan: dict[str, Any] = Field(description="What is done, on what, in which type, and every rejected candidate.")
    seconds: dict[str, float] | None
    attempts: list[dict[str, Any]] = Field(description="Attempts that were lost with their runner, and why.")
    queue_position: int | None = Field(description="How many jobs go first; null once it runs.")
    bytes: int | None = Field(description="Of the result.")
    removed: datetime | None = Field(description="When the result was removed because its time was over.")

    @classmethod
    def of(cls, record: JobRecord, *, queue_position: int | None = None, resumable: bool = False) -> Job:
        """The wire form of a record."""
        members = _job_members(record)
        if resumable:
            members["links"]["resume"] = f"/v1/jobs/{record.id}/resume"
        return cls(
            **members, options=record.options, plan=record.plan, seconds=record.seconds,
            attempts=record.history, queue_position=queue_position, bytes=record.bytes, removed=_time(record.removed),
        )  # fmt: skip


class Estimate(Wire):
    """What a job would take here and now."""

    graph: str
    algorithm: str
    dtype: str
    device: str
    shape: Shape = Field(description="Sources, targets.")
    seconds: float = Field(description="Predicted wall time.")
    memory: int = Field(description="Bytes of host memory, at the peak.")
    device_memory: int
    disk: int = Field(description="Bytes of the result.")
    plan: dict[str, Any]
    notes: list[str] = Field(description="What was chosen or left out when the graph was read, as in its receipt.")

    @classmethod
    def of(cls, graph: str, plan: dict[str, Any], notes: Sequence[str]) -> Estimate:
        """The wire form of a plan."""
        names = ("algorithm", "dtype", "device", "shape", "seconds", "memory", "device_memory", "disk")
        return cls(graph=graph, plan=plan, notes=list(notes), **{name: plan[name] for name in names})


class JobList(Wire):
    """Jobs, newest first; ``next`` leads to older ones."""

    jobs: list[JobItem]
    next: str | None


class Distance(Wire):
    """One distance; null where there is no path."""

    source: Label
    target: Label
    reachable: bool
    distance: int | float | None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"source": 1, "target": 17, "reachable": True, "distance": 4711}]}
    )


class PairsRequest(Question):
    """Pairs of vertices, source first."""

    pairs: list[tuple[Asked, Asked]] = Field(
        fail_fast=True, min_length=1, max_length=MOST_LISTED, examples=[[[1, 17], [17, 1]]]
    )


class Distances(Wire):
    """Distances in the order of the pairs; null where there is no path."""

    distances: list[int | float | None] = Field(examples=[[4711, None]])


class Path(Wire):
    """One shortest path; ``weights[i]`` belongs to the arc from ``vertices[i]`` to ``vertices[i + 1]``."""

    source: Label
    target: Label
    reachable: bool
    length: int | float | None
    vertices: list[Label]
    weights: list[int | float]

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"source": 1, "target": 3, "reachable": True, "length": 7, "vertices": [1, 2, 3], "weights": [3, 4]}
            ]
        }
    )


class Paths(Wire):
    """Paths in the order of the pairs."""

    paths: list[Path]


class SubmatrixRequest(Question):
    """Sources and targets, each a vertex as the file names it; null for all."""

    sources: AskedList | None = Field(None, examples=[[1, 17]])
    targets: AskedList | None = Field(None, examples=[[17, 40]])


class Nearest(Wire):
    """The vertices nearest to a source; ``distances[i]`` belongs to ``targets[i]``."""

    source: Label
    targets: list[Label]
    distances: list[int | float]

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"source": 1, "targets": [2, 17], "distances": [3, 4711]}]}
    )


class Histogram(Wire):
    """Finite distances, the diagonal left out; bin i holds those from ``edges[i]`` to below ``edges[i + 1]``."""

    edges: list[int | float]
    counts: list[int]
    below_zero: int = Field(description="How many are negative; with a source they are also in the bins.")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"edges": [0, 2, 4], "counts": [10, 3], "below_zero": 0}]}
    )


class Sample(Wire):
    """Entries of evenly spaced rows and columns; ``distances[i][j]`` is that of ``sources[i]`` and ``targets[j]``."""

    rows: list[int] = Field(description="Positions in the matrix, from 0.")
    columns: list[int] = Field(description="Positions in the matrix, from 0.")
    sources: list[Label]
    targets: list[Label]
    distances: list[list[int | float | None]] = Field(
        description="A list for each source; null where there is no path."
    )
    complete: bool = Field(description="Whether these are all rows and columns that were asked for.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "rows": [1], "columns": [0, 2], "sources": [17], "targets": [1, 40], "distances": [[3, None]],
                    "complete": False,
                }
            ]
        }
    )  # fmt: skip


class Eccentricities(Wire):
    """The largest finite distance from each of some sources to another target; null where there is none."""

    sources: list[Label]
    eccentricities: list[int | float | None]
    reached: list[int] = Field(description="How many targets each source reaches, itself counted where it is one.")
    central: list[bool] = Field(
        description="Whether a source reaches nine tenths of what any of them reaches: only those compare as centres."
    )
    of: int = Field(description="Sources of the matrix.")
    complete: bool = Field(description="Whether these are all of them.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "sources": [1, 17], "eccentricities": [4711, None], "reached": [2, 1], "central": [True, False],
                    "of": 2, "complete": True,
                }
            ]
        }
    )  # fmt: skip


class Manifest(Wire):
    """What a sealed result is, and where to read it."""

    job: str
    shape: Shape = Field(description="Sources, targets.")
    dtype: str
    unreachable: int | float | str | None = Field(description="The stored value of *no path*.")
    unit: str | None
    directed: bool
    algorithm: str | None
    max_hops: int | None
    cutoff: float | None
    graph: str | None = Field(description="Digest of the graph.")
    sources: str | None = Field(description="all or subset.")
    targets: str | None = Field(description="all or subset.")
    compression: str | None
    software: str | None
    tiles: dict[str, list[int]] = Field(description="Shape of a tile, tiles down and across.")
    bytes: int
    digest: str = Field(description="Of the seal, which names size and checksum of every file.")
    links: dict[str, str]

    @staticmethod
    def links_of(job_id: str) -> dict[str, str]:
        """All that can be read of a result."""
        base = f"/v1/jobs/{job_id}"
        return {"job": base, **{name: f"{base}/{name}" for name in RESULT_LINKS}}


class Summary(Wire):
    """Facts about a solved matrix."""

    job: str
    shape: Shape
    dtype: str
    directed: bool
    unit: str
    summary: dict[str, Any]


class Version(Wire):
    """Versions of the software and of this interface."""

    apsp: str
    api: Literal["v1"] = "v1"


class Device(Wire):
    """What one runner solves on; ``state`` is ``silent`` if it gave no sign of life of late."""

    runner: str = Field(description="Its place: node and device.", examples=["gpu-node-1/cuda0"])
    device: str = Field(examples=["cuda0", "cpu"])
    name: str | None = Field(description="What the chip is called.", examples=["NVIDIA H100 80GB HBM3"])
    state: Literal["idle", "busy", "sick", "silent"]
    reason: str | None = Field(description="Why it is out of service.")
    memory_bytes: int | None = Field(description="Memory that there is, where the runner knows it.")
    memory_used_bytes: int | None
    seen: datetime

    @classmethod
    def of(cls, runner: RunnerRecord, silent: bool) -> Device:
        """The wire form of a record.  What a busy runner works on is nobody else's business."""
        figures = runner.figures or {}
        memory = figures.get("memory") or {}
        return cls(
            runner=runner.slot, device=runner.device, name=figures.get("name"),
            state="silent" if silent else runner.state,  # type: ignore[arg-type]
            reason=runner.detail if runner.state == "sick" else None,
            memory_bytes=memory.get("limit"), memory_used_bytes=memory.get("used"), seen=_time(runner.heartbeat),
        )  # fmt: skip


class Devices(Wire):
    """All devices that solve jobs of this service."""

    devices: list[Device]


class Limit(Wire):
    """One limit and the setting that holds it; null for one that is not set or cannot be."""

    value: int | float | None
    setting: str | None
    description: str


class Limits(Wire):
    """All limits that a client can run into."""

    limits: dict[str, Limit]


class Health(Wire):
    """``ok`` or what is wrong, by name."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = {}


def _job_members(record: JobRecord) -> dict[str, Any]:
    base = f"/v1/jobs/{record.id}"
    links = {"self": base, "graph": f"/v1/graphs/{record.graph}", "log": f"{base}/log"}
    if record.open:
        links["cancel"] = f"{base}/cancel"
    if record.state == "successful" and record.removed is None:
        links |= {name: f"{base}/{name}" for name in RESULT_LINKS}
    progress = record.progress
    error = None
    if record.error is not None:
        error = Problem(**document(Fault(**record.error)))
    return {
        "id": record.id, "graph": record.graph, "name": record.name, "state": record.state, "phase": record.phase,
        "progress": progress.fraction, "rate": progress.rate if record.open else None, "unit": progress.unit,
        "eta_seconds": progress.eta if record.open else None,
        "attempt": record.attempt, "priority": record.priority, "cancel_requested": record.cancel,
        "created": _time(record.created), "started": _time(record.started), "finished": _time(record.finished),
        "error": error, "links": links,
    }  # fmt: skip


def _time(seconds: float | None) -> Any:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
