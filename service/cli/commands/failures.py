"""Turns errors into exit codes and one readable message on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Final

from storage import errors

FAILED: Final = 1
BAD_USE: Final = 2
DOES_NOT_FIT: Final = 3
#: 128 + SIGPIPE: the reader of standard output has closed it.
OUTPUT_CLOSED: Final = 141

_CODES: Final[dict[type[BaseException], int]] = {
    errors.InvalidGraph: BAD_USE,
    errors.InvalidRequest: BAD_USE,
    errors.NegativeCycle: BAD_USE,
    errors.NotFound: BAD_USE,
    errors.Conflict: BAD_USE,
    errors.DoesNotFit: DOES_NOT_FIT,
    MemoryError: DOES_NOT_FIT,
    FileNotFoundError: BAD_USE,
    NotADirectoryError: BAD_USE,
    IsADirectoryError: BAD_USE,
    PermissionError: BAD_USE,
}
#: exit codes by the ``code`` of a service's problem document; ``FAILED`` for all other codes
_SAID: Final = {
    **dict.fromkeys(
        (
            "invalid-graph", "invalid-request", "limit-exceeded", "negative-cycle", "not-found", "gone", "conflict",
            "unauthorized", "forbidden", "unsupported-media-type", "no-result", "result-not-ready",
        ),
        BAD_USE,
    ),
    "does-not-fit": DOES_NOT_FIT,
    "out-of-memory": DOES_NOT_FIT,
}  # fmt: skip


def exit_code(error: BaseException) -> int:
    """Return the exit code for ``error``.

    If the error has the code of a service's problem document, that code decides; otherwise its nearest base class does.
    """
    said = getattr(error, "code", None) if isinstance(error, errors.ApspError) else None
    if isinstance(said, str):
        return _SAID.get(said, FAILED)
    return next((_CODES[base] for base in type(error).__mro__ if base in _CODES), FAILED)


def message_of(error: BaseException) -> str:
    """Return one readable message; it names the class of the error only if the error is a bug of apsp."""
    if isinstance(error, errors.ApspError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"out of memory{f': {error}' if str(error) else ''}; set a lower --memory or use a smaller graph"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    fault = f"{type(error).__name__}: {error}".replace("\n", " ")
    return f"a fault in apsp, please report it: {fault} (APSP_DEBUG=1 shows where it happened)"


def comes_of_interrupt(error: BaseException) -> bool:
    """Return whether a library has made ``error`` from a KeyboardInterrupt."""
    inner: BaseException | None = None if isinstance(error, (errors.ApspError, OSError)) else error
    while inner is not None and not isinstance(inner, KeyboardInterrupt):
        inner = inner.__cause__ or inner.__context__
    return inner is not None


def complain(message: str) -> None:
    """Write the message on standard error, if that is open."""
    with contextlib.suppress(OSError, ValueError):
        print(f"apsp: {message}", file=sys.stderr, flush=True)


def report(error: BaseException) -> int:
    """Write the message, with a traceback if APSP_DEBUG is set, and return the exit code."""
    if os.environ.get("APSP_DEBUG"):
        traceback.print_exception(error)
    complain(message_of(error))
    return exit_code(error)
