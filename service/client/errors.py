"""Errors of the client; each contains the service's problem document, if there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.errors import ApspError


@dataclass(frozen=True)
class ProblemDetails:
    """An RFC 9457 problem document.  ``code`` is stable; docs/api.md says which ``details`` each code has."""

    title: str
    status: int
    detail: str
    code: str = "unknown"
    type: str = "about:blank"
    details: Mapping[str, Any] = field(default_factory=dict)
    instance: str | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ProblemDetails:
        """Return the problem that a document describes; unknown members are ignored."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if document.get(name) is not None}
        return cls(**{"title": "Failed", "status": 500, "detail": "no reason was given", **known})

    @classmethod
    def read(cls, status: int, content: bytes) -> ProblemDetails:
        """Return the problem in the body of an answer; other bodies, such as a proxy's, give the status only."""
        try:
            document = json.loads(content)
            if isinstance(document, dict) and "code" in document:
                return cls.of({**document, "status": status})
        except ValueError:
            pass
        return cls("Not the service's answer", status, f"status {status}, without a reason; is this apsp's address?")

    @property
    def limit(self) -> Any:
        """The limit that the request exceeded, or else how much of the resource is available; None if the problem has
        neither.
        """
        return self.details.get("limit", self.details.get("available"))

    @property
    def asked(self) -> Any:
        """The requested or needed number that exceeds the limit, or None."""
        return self.details.get("requested", self.details.get("needed"))

    @property
    def setting(self) -> str | None:
        """The setting of the service that holds the limit, or None."""
        return self.details.get("setting")


#: The name by which programs import ``ProblemDetails``.
Problem = ProblemDetails


class ServiceError(ApspError):
    """The service refused; ``problem`` says what and why.

    ``retry_after`` is the number of seconds after which a new attempt makes sense.
    """

    kind = "service-error"

    def __init__(self, problem: ProblemDetails, *, retry_after: float | None = None) -> None:
        super().__init__(problem.detail)
        self.problem, self.retry_after = problem, retry_after

    @property
    def code(self) -> str:
        """The stable code of the problem, such as ``not-found``."""
        return self.problem.code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    def details(self) -> dict[str, object]:
        """Return the members of the problem document except its message."""
        return dict(self.problem.details)


class JobFailed(ServiceError):
    """A job ended without a result: it failed, or was cancelled (``state``: failed or dismissed)."""

    kind = "job-failed"

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job, self.state = str(job["id"]), str(job["state"])
        found = job.get("error") or {
            "title": "Cancelled",
            "status": 409,
            "detail": "it was cancelled",
            "code": "cancelled",
        }
        super().__init__(ProblemDetails.of(found))
        self.args = (f"job {self.job} {self.state}: {self.problem.detail}",)


class StillOpen(ApspError, TimeoutError):
    """A job took longer than its caller wanted to wait; the job continues."""

    kind = "still-open"


class NoAnswer(ApspError):
    """The service was unreachable, or its answers were incomplete, for longer than the client's patience."""

    kind = "no-answer"
