"""Schemas of requests for jobs and of the answers about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from service.api.fault import Fault
from service.api.problems import document
from service.api.schemas.results import SnappedPoint
from service.api.schemas.wire import (
    NAME_PATTERN,
    ProblemDocument,
    Question,
    Shape,
    State,
    Wire,
    links_of,
    members_of,
    moment,
    plain,
)
from service.options import JobOptions, TableOptions
from service.pool.job_points import receipt_of
from storage.jobs.store import JobRecord
from storage.options import declared
from storage.semirings import MIN_PLUS

if TYPE_CHECKING:

    class _Options(Question):
        priority: int
        fresh: bool

else:
    _Options = create_model("_Options", __base__=Question, **members_of(JobOptions))


#: options that are stored with a job only if the request has them
_OF_SOME = frozenset({*declared(TableOptions), "also", "snap_limit"})


class JobRequest(_Options):
    """A graph and the options of a solve; all but the graph may be left out."""

    graph: str = Field(max_length=100, pattern=NAME_PATTERN, description="Id of an uploaded graph.")
    name: str | None = Field(None, max_length=200, pattern=NAME_PATTERN, description="A name of your own.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11"},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "dtype": "float64", "sources": [1, 17]},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "sources": [1, 17], "targets": [3, 4], "cutoff": 600},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "also": ["metres", "toll"]},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "result": "measures", "within": [15, 30]},
                {"graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11", "result": "betweenness", "of": "arcs"},
                {
                    "graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11",
                    "result": "near",
                    "nearest": 3,
                    "sources": [{"name": "home", "lon": 24.9405, "lat": 60.1697}],
                    "snap_limit": 500,
                },
                {
                    "graph": "2f1c0a7be85d4f0d9f4f3f8d0a3b7c11",
                    "result": "flows",
                    "demands": {"origins": [1, 17], "destinations": [17, 3], "flows": [120, 4.5]},
                },
            ]
        },
    )

    def options(self) -> dict[str, Any]:
        """Return the options of the request as they are stored with the job; options in ``_OF_SOME`` only if the
        request has them.
        """
        found = self.model_dump(exclude={"graph", "name", "priority", "fresh", "sources", "targets"})
        found |= {side: None if asked is None else plain(asked) for side, asked in self._sides().items()}
        return {
            name: value
            for name, value in found.items()
            if (value is not None or name not in _OF_SOME) and (name, value) != ("semiring", MIN_PLUS)
        }

    def _sides(self) -> dict[str, list[Any] | None]:
        return {"sources": getattr(self, "sources"), "targets": getattr(self, "targets")}  # noqa: B009 - made above


class PointsReceipt(Wire):
    """The points that a job has as its sources, or as its targets, and the vertices to which they were taken."""

    count: int
    vertices: int = Field(description="How many different ones.")
    farthest: float = Field(description="How far a point is from its vertex at most.")
    unit: Literal["m"] | None = Field(description="m along great circles; null for units of the plane.")
    far: list[SnappedPoint] = Field(description="Those that are more than 1,000 m away.")
    points: list[SnappedPoint]


class JobItem(Wire):
    """A job in a list."""

    id: str
    graph: str
    name: str | None
    state: State
    phase: str
    algorithm: str | None = Field(description="As planned.", examples=["dijkstra"])
    shape: Shape | None = Field(description="Sources, targets.")
    progress: float = Field(ge=0, le=1, description="Fraction of the whole job.")
    rate: float | None = Field(description="Recent rate, in units a second.")
    unit: str | None = Field(examples=["updates", "rows"])
    eta_seconds: float | None
    attempt: int
    priority: int
    cancel_requested: bool
    created: datetime
    started: datetime | None
    finished: datetime | None
    error: ProblemDocument | None
    links: dict[str, str]

    @classmethod
    def of(cls, record: JobRecord) -> JobItem:
        """Return the list item that describes the stored job ``record``."""
        return cls(**_job_members(record))


class JobDocument(JobItem):
    """A job with its options, its plan and, once it is over, the seconds of each phase."""

    options: dict[str, Any]
    plan: dict[str, Any] = Field(description="What is done, on what, in which type, and every rejected candidate.")
    seconds: dict[str, float] | None
    attempts: list[dict[str, Any]] = Field(description="Attempts that were lost with their runner, and why.")
    queue_position: int | None = Field(description="How many jobs are before it in the queue; null once it runs.")
    bytes: int | None = Field(description="Of the result.")
    removed: datetime | None = Field(description="When the result expired and was removed.")
    points: dict[str, PointsReceipt] | None = Field(
        None, description="Of sources and targets that were given as points: their vertices, and how far these are."
    )

    @classmethod
    def of(cls, record: JobRecord, *, queue_position: int | None = None, resumable: bool = False) -> JobDocument:
        """Return the document that describes a stored job.

        Args:
            record: the stored job.
            queue_position: jobs before it in the queue; None once it runs.
            resumable: whether the document has a link to ``resume``.
        """
        members, options = _job_members(record), dict(record.options)
        points = receipt_of(options.pop("points", None))
        if resumable:
            members["links"]["resume"] = f"/v1/jobs/{record.id}/resume"
        return cls(
            **members, points=points, options=options, plan=record.plan, seconds=record.seconds,
            attempts=record.history, queue_position=queue_position, bytes=record.bytes, removed=moment(record.removed),
        )  # fmt: skip


class Estimate(Wire):
    """What a job would need on this service now."""

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
    notes: list[str] = Field(description="What the reader selected or left out, as in the graph's receipt.")

    @classmethod
    def of(cls, graph: str, plan: dict[str, Any], notes: Sequence[str]) -> Estimate:
        """Return the estimate that a plan contains.

        Args:
            graph: id of the graph.
            plan: the plan as JSON types.
            notes: remarks on how the graph was read.
        """
        names = ("algorithm", "dtype", "device", "shape", "seconds", "memory", "device_memory", "disk")
        return cls(graph=graph, plan=plan, notes=list(notes), **{name: plan[name] for name in names})


class JobsQuery(BaseModel):
    """Selects the jobs that a list shows."""

    limit: int = Field(50, ge=1, le=200)
    state: State | None = Field(None, description="Only jobs in this state.")
    graph: str | None = Field(None, description="Only jobs of this graph.")
    cursor: str | None = Field(None, description="Where the list before this one ended.")


class JobList(Wire):
    """A page of jobs, newest first; ``next`` is the path of the page with older jobs."""

    jobs: list[JobItem]
    next: str | None


def _job_members(record: JobRecord) -> dict[str, Any]:
    base = f"/v1/jobs/{record.id}"
    links = {"self": base, "graph": f"/v1/graphs/{record.graph}", "log": f"{base}/log"}
    if record.open:
        links["cancel"] = f"{base}/cancel"
    if record.state == "successful" and record.removed is None:
        links |= {
            name: f"{base}/{name}"
            for name in links_of(record.options.get("result", "matrix"), also="also" in record.options)
            if name != "prepared"
        }
    progress = record.progress
    error = None
    if record.error is not None:
        error = ProblemDocument(**document(Fault(**record.error)))
    return {
        "id": record.id, "graph": record.graph, "name": record.name, "state": record.state, "phase": record.phase,
        "algorithm": record.plan.get("algorithm"), "shape": record.plan.get("shape"),
        "progress": progress.fraction, "rate": progress.rate if record.open else None, "unit": progress.unit,
        "eta_seconds": progress.eta if record.open else None,
        "attempt": record.attempt, "priority": record.priority, "cancel_requested": record.cancel,
        "created": moment(record.created), "started": moment(record.started), "finished": moment(record.finished),
        "error": error, "links": links,
    }  # fmt: skip
