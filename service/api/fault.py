"""Describes an error as data that can be pickled and stored: code, message, details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from service.settings import variable
from storage.errors import ApspError, Conflict, DiskFull, DoesNotFit, InvalidRequest, LimitExceeded

#: resource -> the setting that limits it; no setting limits the GPU memory of a job, because each job states that limit
_HELD_BY: Final = {"memory": "memory", "disk": "data_dir"}
#: kinds of results to offer if a matrix does not fit; each is a value of the option ``result``, and the name of an
#: algorithm in ``DoesNotFit.candidates``
WAYS_OUT: Final = ("prepared", "measures", "near")


@dataclass(frozen=True)
class Fault:
    """An error as data; ``code`` is the ``kind`` of the error's class, ``details`` its machine-readable members."""

    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fault as JSON types, as the job store keeps it."""
        return {"code": self.code, "message": self.message, "details": self.details}


def for_want_of_disk(error: Mapping[str, Any] | None) -> bool:
    """Return whether a stored error says that a job failed because the disk was full; the job may succeed later."""
    if error is None:
        return False
    details: Mapping[str, Any] = error.get("details", {})
    return bool(error["code"] == DiskFull.kind or (error["code"], details.get("resource")) == (DoesNotFit.kind, "disk"))


def without_paths(fault: Fault, folder: Path) -> Fault:
    """Return the fault for a client: file names are relative to the data directory, whose own path is hidden."""
    return replace(fault, message=within(fault.message, folder))


def within(text: str, folder: Path) -> str:
    """Return ``text`` with paths in the data directory made relative to it."""
    path = str(folder.absolute())
    return text.replace(f"{path}/", "").replace(path, "the data directory")


class UnsupportedMedia(InvalidRequest):
    """The body has a media type or encoding that is not supported."""

    kind = "unsupported-media-type"


class TooManyAtOnce(LimitExceeded):
    """The caller has reached a limit on requests that run, or bodies that are held, at the same time."""

    kind = "too-many-at-once"


class TooMuchComputing(ApspError):
    """The caller has used up its processor seconds for questions; a retry after ``retry_after`` seconds makes sense."""

    kind = "too-much-computing"

    def __init__(self, message: str, *, limit: float, setting: str, retry_after: int) -> None:
        super().__init__(message)
        self.limit, self.setting, self.retry_after = limit, setting, retry_after

    def details(self) -> dict[str, object]:
        """Return the limit and the setting that holds it."""
        return {"limit": self.limit, "setting": self.setting}


class Refused(ApspError):
    """An error that happened in another process, raised again here."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class ResultNotReady(Conflict):
    """The job is still open; asking again after ``retry_after`` seconds makes sense."""

    kind = "result-not-ready"

    def __init__(self, message: str, *, state: str, retry_after: int) -> None:
        super().__init__(message)
        self.state, self.retry_after = state, retry_after

    def details(self) -> dict[str, object]:
        """Return the state of the job."""
        return {"state": self.state}


class NoResult(Conflict):
    """The job has ended without a result."""

    kind = "no-result"

    def __init__(self, message: str, *, state: str) -> None:
        super().__init__(message)
        self.state = state

    def details(self) -> dict[str, object]:
        """Return the state of the job."""
        return {"state": self.state}


class ResultReplaced(ApspError):
    """Another result was put into the place of the asked one while it was read; asking again soon makes sense."""

    kind = "result-replaced"


class Draining(ApspError):
    """The service is about to stop and takes no new work."""

    kind = "draining"


class NotAcceptable(InvalidRequest):
    """None of the requested media types is supported."""

    kind = "not-acceptable"


def _offered(refusal: DoesNotFit) -> dict[str, Any]:
    """Return the predicted seconds, memory and disk of the feasible results in ``WAYS_OUT``, by name."""
    found = {}
    for candidate in refusal.candidates:
        name = getattr(candidate, "algorithm", None)
        if name in WAYS_OUT and getattr(candidate, "feasible", False):
            found[name] = {figure: getattr(candidate, figure) for figure in ("seconds", "memory", "disk")}
    return found


def fault_of(error: BaseException) -> Fault:
    """Return the fault that describes ``error``; exceptions that are no ApspError are described by class and
    message.
    """
    if isinstance(error, Refused):
        return error.fault
    if isinstance(error, DoesNotFit):
        held = {"setting": variable(_HELD_BY[error.resource])} if error.resource in _HELD_BY else {}
        return Fault(error.kind, str(error), {**error.details(), **held, **_offered(error)})
    if isinstance(error, ApspError):
        return Fault(error.kind, str(error), error.details())
    if isinstance(error, MemoryError):
        return Fault("out-of-memory", f"memory ran out: {error}" if str(error) else "memory ran out")
    return Fault("internal", f"unexpected {type(error).__name__}: {error}"[:2000])
