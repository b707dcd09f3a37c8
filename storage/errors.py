"""The errors of apsp, grouped by what a caller can do about them.

Every error carries a stable machine-readable ``kind`` and a message that a person can act on: it names the line,
field or limit, the wanted value and the value that was found.  The command line maps kinds to exit codes, and the
service maps them to RFC 9457 problems; nothing here depends on HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class ApspError(Exception):
    """Base of all errors that apsp raises on purpose; ``str(error)`` is the whole message."""

    kind: ClassVar[str] = "internal"

    def details(self) -> dict[str, object]:
        """Return machine-readable facts about the error, in addition to the message (JSON types only)."""
        return {}


class InvalidGraph(ApspError):
    """The graph file or upload cannot be understood; ``line`` is 1-based in the decompressed text."""

    kind = "invalid-graph"

    def __init__(self, message: str, *, line: int | None = None, field: str | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line
        self.field = field

    def details(self) -> dict[str, object]:
        """Return the line and the field at fault, as far as they are known."""
        return {k: v for k, v in (("line", self.line), ("field", self.field)) if v is not None}


class InvalidRequest(ApspError):
    """An option, vertex name or combination of options makes no sense; ``field`` names the option."""

    kind = "invalid-request"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def details(self) -> dict[str, object]:
        """Return the option at fault."""
        return {} if self.field is None else {"field": self.field}


class LimitExceeded(InvalidRequest):
    """Something is larger than a configured limit."""

    kind = "limit-exceeded"

    def __init__(self, message: str, *, limit: int, requested: int, setting: str) -> None:
        super().__init__(message, field=setting)
        self.limit, self.requested, self.setting = limit, requested, setting

    def details(self) -> dict[str, object]:
        """Return the limit, the requested number, and the name of the setting that holds the limit."""
        return {"limit": self.limit, "requested": self.requested, "setting": self.setting}


class DoesNotFit(ApspError):
    """The job needs more memory or disk than there is; nothing has been started.

    ``candidates`` are the algorithms that planning considered, with their predicted costs.  ``remedies`` are budgets
    with which the same job could be planned, as JSON types.  ``reason`` is the message without remedies; it is empty if
    the message names none.
    """

    kind = "does-not-fit"

    def __init__(
        self,
        message: str,
        *,
        resource: str,
        needed: int,
        available: int,
        candidates: Sequence[object] = (),
        remedies: Sequence[Mapping[str, object]] = (),
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.resource, self.needed, self.available, self.reason = resource, needed, available, reason
        self.candidates, self.remedies = tuple(candidates), tuple(remedies)

    def offering(self, candidate: object, text: str) -> DoesNotFit:
        """Return this error with one more candidate, whose description ``text`` is appended to the message."""
        return DoesNotFit(
            f"{self}; {text}",
            resource=self.resource,
            needed=self.needed,
            available=self.available,
            candidates=[*self.candidates, candidate],
            remedies=self.remedies,
            reason=self.reason or str(self),
        )

    def details(self) -> dict[str, object]:
        """Return the resource (such as ``memory`` or ``disk``), the bytes needed and available, and the remedies and
        the reason if there are any.
        """
        said: dict[str, object] = {"resource": self.resource, "needed": self.needed, "available": self.available}
        known = {"remedies": [dict(remedy) for remedy in self.remedies], "reason": self.reason}
        return {**said, **{name: value for name, value in known.items() if value}}


class NegativeCycle(ApspError):
    """The graph has a cycle of negative length, so shortest walks do not exist."""

    kind = "negative-cycle"

    def __init__(self, cycle: Sequence[object], weight: float) -> None:
        route = " -> ".join(str(v) for v in [*cycle, cycle[0]])
        super().__init__(f"the graph has a negative cycle, so distances are not defined: {route} (length {weight:g})")
        self.cycle = list(cycle)
        self.weight = weight

    def details(self) -> dict[str, object]:
        """Return the vertex labels along the cycle (first vertex once) and its length."""
        return {"cycle": [v if isinstance(v, int) else str(v) for v in self.cycle], "weight": self.weight}


class NotFound(ApspError):
    """The named job, graph, store or vertex does not exist."""

    kind = "not-found"


class Gone(NotFound):
    """The named job, graph or result existed, and was removed by its owner or because it had expired."""

    kind = "gone"


class TooManyJobs(LimitExceeded):
    """The limit on open jobs is reached; the request may succeed once some jobs have ended."""

    kind = "too-many-jobs"


class KeyReused(InvalidRequest):
    """An idempotency key was sent again with a different request."""

    kind = "idempotency-key-reused"


class Conflict(ApspError):
    """The request contradicts the present state: the store exists already, or the job is still open."""

    kind = "conflict"


class StorageFailed(ApspError):
    """Reading or writing the store failed, or what was read is damaged."""

    kind = "storage-failed"


class DiskFull(StorageFailed):
    """The disk or the quota is full.  Trying again later may help."""

    kind = "disk-full"


class DatabaseFailed(StorageFailed):
    """The job database cannot be used now: locked for too long, restarting, full.  Trying again later may help."""

    kind = "database-unavailable"


class SolveFailed(ApspError):
    """The solver stopped for a reason other than the caller's request."""

    kind = "solve-failed"


class Cancelled(ApspError):
    """The job was cancelled.  Mostly raised between tiles or batches, but an interrupt may raise it at any point."""

    kind = "cancelled"


def raised(error: BaseException | None) -> None:
    """Raise ``error`` if there is one.

    An error refers to the frames that it passes through.  A function that raised an error from one of its variables
    would be such a frame: both, and all that the frames of its callers refer to, such as graphs, would stay in memory
    until Python's next collection.  This function drops the error as it raises it.  ``os.walk``, which otherwise skips
    a folder that it cannot list, takes it as ``onerror``.
    """
    try:
        if error is not None:
            raise error
    finally:
        del error
