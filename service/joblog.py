"""The log of a job: a text file beside its result, which grows while the job runs and is read over HTTP."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from service.logs import redacted
from service.settings import Settings
from storage.errors import NotFound, StorageFailed
from storage.objects import Objects

NAME = "log.txt"


class _JobHandler(logging.FileHandler):
    """A full disk must not end the job whose log cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass


def log_path(settings: Settings, job_id: str) -> Path:
    """Where the log of a job lies."""
    return settings.store(job_id).parent / NAME


class _Plain(logging.Formatter):
    """Time in UTC, level, message; never a secret, for the holder of the job reads it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        return redacted(super().format(record))


@contextlib.contextmanager
def job_log(settings: Settings, job_id: str) -> Iterator[None]:
    """What this process logs meanwhile also goes to the job's log."""
    path = log_path(settings, job_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _JobHandler(path, encoding="utf-8")
    except OSError as error:
        logging.getLogger(__name__).warning("job %s has no log: %s", job_id, error)
        yield
        return
    handler.setFormatter(_Plain())
    handler.setLevel(logging.INFO)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        _send(settings, job_id, path)


def _send(settings: Settings, job_id: str, path: Path) -> None:
    """Where nodes share no folder, the log goes to the object store when an attempt ends."""
    if settings.store_url is None:
        return
    try:
        Objects(settings.store_url).below("jobs", job_id).write(NAME, path.read_bytes())
    except (StorageFailed, OSError) as error:
        logging.getLogger(__name__).warning("the log of job %s is not sent: %s", job_id, error)


def fetch_log(settings: Settings, job_id: str) -> bytes | None:
    """The log of attempts that have ended on other nodes; None if there is none.  StorageFailed."""
    if settings.store_url is None:
        return None
    try:
        return Objects(settings.store_url).below("jobs", job_id).read(NAME)
    except NotFound:
        return None
