"""The exceptions that apsp raises on purpose: ``ApspError`` and its subclasses.

Each has a stable ``kind``, a message that names the line, option or limit at fault, and ``details()`` for programs.
Errors of a client (``ServiceError`` and its subclasses, ``StillOpen``, ``NoAnswer``) come from requests to a service.
"""

from service.client.errors import JobFailed, NoAnswer, ServiceError, StillOpen
from storage.errors import (
    ApspError,
    Cancelled,
    Conflict,
    DatabaseFailed,
    DiskFull,
    DoesNotFit,
    Gone,
    InvalidGraph,
    InvalidRequest,
    KeyReused,
    LimitExceeded,
    NegativeCycle,
    NotFound,
    SolveFailed,
    StorageFailed,
    TooManyJobs,
)

__all__ = [
    "ApspError",
    "Cancelled",
    "Conflict",
    "DatabaseFailed",
    "DiskFull",
    "DoesNotFit",
    "Gone",
    "InvalidGraph",
    "InvalidRequest",
    "JobFailed",
    "KeyReused",
    "LimitExceeded",
    "NegativeCycle",
    "NoAnswer",
    "NotFound",
    "ServiceError",
    "SolveFailed",
    "StillOpen",
    "StorageFailed",
    "TooManyJobs",
]
