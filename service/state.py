"""What the routes of one API process share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
from fastapi import Depends, Request

from service.callers import Caller, Known
from service.fault import NoResult, ResultNotReady
from service.settings import Settings
from service.work import Worker
from storage.errors import Gone, NotFound
from storage.jobs import SUCCESSFUL, JobRecord, JobStore
from storage.uploads import Uploads

if TYPE_CHECKING:
    from service.results import Result

#: seconds after which a client should ask again about an open job
RETRY_AFTER = 1


class Results:
    """The result stores that were used last, kept open; safe to use from many threads.

    Each holds one file descriptor, so ``matrix_cache`` bounds these; one that was put aside is closed when the last
    request that uses it ends.  A store that was deleted, by whatever process, is noticed at the next question.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: OrderedDict[str, tuple[Result, str | None]] = OrderedDict()
        self._lock = threading.Lock()

    def peek(self, job_id: str, caller: Caller) -> Result | None:
        """The opened result if it is at hand, still there and the caller's; takes no wait worth mentioning."""
        with self._lock:
            found = self._open.get(job_id)
            if found is None or not caller.sees(found[1]):
                return None
            self._open.move_to_end(job_id)
        if found[0].matrix.current():
            return found[0]
        self.forget(job_id)
        return None

    def get(self, job_id: str, owner: str | None) -> Result:
        """The opened result of a successful job of this owner."""
        from service.results import Result

        fresh = Result(self._settings.store(job_id))  # opening takes a while: not under the lock
        with self._lock:
            found, _ = self._open.setdefault(job_id, (fresh, owner))
            while len(self._open) > self._settings.matrix_cache:
                self._open.popitem(last=False)
        return found

    def forget(self, job_id: str) -> None:
        """Drop the result of a job that is being deleted."""
        with self._lock:
            self._open.pop(job_id, None)


@dataclass(frozen=True)
class Service:
    """Settings and everything that is opened once per process."""

    settings: Settings
    jobs: JobStore
    uploads: Uploads
    worker: Worker
    results: Results

    def job(self, job_id: str, caller: Caller) -> JobRecord:
        """The job of this id.  NotFound if there is none, or it is somebody else's."""
        record = self.jobs.job(job_id)
        if not caller.sees(record.owner):
            raise NotFound(f"there is no job {job_id!r}")
        return record

    def result(self, job_id: str, caller: Caller) -> Result:
        """The result of a job.

        Raises:
            NotFound: there is no such job, or it is somebody else's; Gone: it, or its result, was removed.
            ResultNotReady: it is still open; NoResult: it is over without a result.
        """
        found = self.results.peek(job_id, caller)
        if found is None:
            record = self.job(job_id, caller)
            require_result(record)
            found = self.results.get(job_id, record.owner)
        return found


def require_result(job: JobRecord) -> None:
    """Raise what :meth:`Service.result` raises unless the job was successful and still has its result."""
    if job.open:
        message = f"job {job.id} is {job.state} ({job.phase}); its result is not ready"
        raise ResultNotReady(message, state=job.state, retry_after=RETRY_AFTER)
    if job.state != SUCCESSFUL:
        reason = f": {job.error['message']}" if job.error else ""
        raise NoResult(f"job {job.id} is {job.state} and has no result{reason}", state=job.state)
    if job.removed is not None:
        raise Gone(f"the result of job {job.id} was removed when its time was over; submit the job again")


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_service)]


async def _opened(job_id: str, service: Shared, caller: Known) -> Result:
    found = service.results.peek(job_id, caller)
    if found is None:
        found = await anyio.to_thread.run_sync(service.result, job_id, caller)
    return found


#: the result of the job in the path, open: on the event loop where it is at hand, else in a thread
if TYPE_CHECKING:
    Opened = Annotated[Result, Depends(_opened)]
else:
    Opened = Annotated[object, Depends(_opened)]  # importing the class would import NumPy
