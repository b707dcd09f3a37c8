"""The log of a job: a text file beside its result, which grows while the job runs and is read over HTTP."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from service.api.fault import within
from service.logs import TextFormatter
from service.settings import Settings
from storage.errors import NotFound, StorageFailed
from storage.remote.objects import Objects

NAME = "log.txt"
#: the folder of a job's logs in the object store, where each claim has one log
_FOLDER = "logs"


class _JobHandler(logging.FileHandler):
    """A handler that ignores write errors, because a full disk must not end the job."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass


def log_path(settings: Settings, job_id: str) -> Path:
    """Return the path of the log of a job."""
    return settings.store(job_id).parent / NAME


class _Plain(TextFormatter):
    """Formats records as time in UTC, level and message.

    Secrets and server paths are left out, because the owner of the job reads the log.  The id of the job is left out,
    because the file is the log of one job.
    """

    def __init__(self, folder: Path, job_id: str) -> None:
        self._folder, self._job = folder, f"job {job_id}: "
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line, without the absolute path of the data folder."""
        said = super().format(record).replace(f" {record.levelname} {self._job}", f" {record.levelname} ", 1)
        return within(said, self._folder)


@contextlib.contextmanager
def job_log(settings: Settings, job_id: str, claim: int = 0) -> Iterator[None]:
    """Context manager that also writes this process's log records to the job's log file.

    Args:
        settings: the service's settings.
        job_id: id of the job.
        claim: number of the claim; names the log in the object store.
    """
    path = log_path(settings, job_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _JobHandler(path, encoding="utf-8")
    except OSError as error:
        logging.getLogger(__name__).warning("job %s has no log: %s", job_id, error)
        yield
        return
    handler.setFormatter(_Plain(settings.data_dir, job_id))
    handler.setLevel(logging.INFO)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        _send(settings, job_id, claim, path)


def _send(settings: Settings, job_id: str, claim: int, path: Path) -> None:
    """Send the log to the object store, if there is one, because nodes may share no folder."""
    if settings.store_url is None:
        return
    try:
        Objects(settings.store_url).below("jobs", job_id).write(f"{_FOLDER}/{claim:020d}.txt", path.read_bytes())
    except (StorageFailed, OSError) as error:
        logging.getLogger(__name__).warning("the log of job %s cannot be sent to the object store: %s", job_id, error)


def fetch_log(settings: Settings, job_id: str) -> bytes | None:
    """Return the log of the job's newest claim in the object store; None if there is none.  Raises StorageFailed."""
    if settings.store_url is None:
        return None
    there = Objects(settings.store_url).below("jobs", job_id)
    try:
        return there.read(max(there.names(f"{_FOLDER}/"), default=NAME))
    except NotFound:
        return None
