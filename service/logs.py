"""Writes logs as JSON lines or as text, with the ids of request and job.  API keys are removed from every line."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal

#: id of the request that is being answered
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
#: id of the job that is being solved
JOB_ID: ContextVar[str | None] = ContextVar("job_id", default=None)

#: the secrets that are cut out of log lines: keys of this service, credentials in headers, and passwords in URLs
_SECRET: Final = re.compile(
    r"(apsp_[0-9a-z]{4,16}_)[A-Za-z0-9_\-]{8,}|((?:bearer|basic)\s+)[^\s\"',]+|(://[^/\s:@]+:)[^@/\s]+(?=@)",
    re.IGNORECASE,
)
#: characters that end a line, move the cursor, change colours or reverse the writing direction on a terminal
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MEMBERS: Final = ("job_id", "method", "path", "status", "milliseconds")


def configure(process: str, form: Literal["auto", "json", "text"]) -> None:
    """Send all logs of this process to standard error; ``auto`` is text on a terminal, else JSON."""
    root = logging.getLogger()
    if root.handlers:  # a program that embeds this service has configured logging already
        return
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Text(process) if as_text else _Json(process))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def redacted(text: str) -> str:
    """Return ``text`` with keys, credentials and passwords in URLs replaced by ``***``."""
    return _SECRET.sub(lambda match: f"{match[1] or match[2] or match[3]}***", text)


def harmless(text: str) -> str:
    """Return ``text`` on one line, with control characters escaped, because clients choose parts of what is logged."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """Formats log records for people, so that no text inside a record can be taken for another record.

    Each record begins on a line of its own, and the lines of its traceback are indented.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the first line of a record."""
        return harmless(super().formatMessage(record).rstrip())

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return a traceback, each line of it indented."""
        return "\n".join(f"  {harmless(line)}" for line in super().formatException(ei).split("\n"))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return a stack, each line of it indented."""
        return "\n".join(f"  {harmless(line)}" for line in super().formatStack(stack_info).split("\n"))

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record, without secrets."""
        return redacted(super().format(record))


class _Json(logging.Formatter):
    """Formats each log record as one JSON object on one line, without the members that are None."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        members: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": REQUEST_ID.get(),
            "job_id": JOB_ID.get(),
        }
        members |= {name: getattr(record, name) for name in _MEMBERS if hasattr(record, name)}
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return redacted(json.dumps({k: v for k, v in members.items() if v is not None}, default=str))


class _Text(TextFormatter):
    """Formats records for a person at a terminal."""

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s {process} %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the first line of a record, followed by the ids of request and job."""
        ids = [f"{name}={value}" for name, value in (("request", REQUEST_ID.get()), ("job", JOB_ID.get())) if value]
        return harmless(" ".join([super().formatMessage(record), *ids]))
