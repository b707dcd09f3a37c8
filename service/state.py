"""The objects that the routes of one API process share."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Final, cast

import anyio.to_thread
from fastapi import Depends, Request

from service.api.fault import NoResult, Refused, ResultNotReady, ResultReplaced
from service.auth.callers import Caller, Known
from service.http.limits import ConcurrencyLimit
from service.jobs.answering import Answering
from service.jobs.folders import redo_if_lost, result_place
from service.pool.process_pool import ProcessPool
from service.settings import Settings
from storage.errors import Conflict, Gone, NotFound, StorageFailed
from storage.graph.uploads import Uploads
from storage.jobs.keys import KeyStore
from storage.jobs.store import OPEN, SUCCESSFUL, GraphRecord, JobRecord, JobStore, RunnerRecord
from storage.remote.objects import Objects
from storage.semirings import EVERY, MIN_PLUS, check_understood

if TYPE_CHECKING:
    from service.auth.sessions import Sessions
    from service.http.waiting import Waiters
    from service.jobs.events import EventStreams
    from service.jobs.results import ResultReader
    from service.jobs.submission import Plans
    from service.jobs.table_results import TableReader

#: seconds after which a client should ask again about a job that is not over
RETRY_AFTER = 1
#: seconds for which an open result in an object store is assumed to exist, before the job's record is read again
TRUSTED_SECONDS: Final = 10.0


def _no_wake() -> None:
    """Do nothing: this process has no runners."""


@dataclass
class _Opened:
    """An open result.  The job's record was last found to have a result at ``looked``, a ``time.monotonic()``."""

    result: ResultReader
    owner: str | None
    looked: float


class Results:
    """A cache of open result stores, the least recently used dropped first; safe to use from many threads.

    Each store holds one file descriptor, so ``matrix_cache`` bounds their number.  A store that was dropped is closed
    when the last request that uses it ends.  The next query notices if any process has deleted a store on a disk.  A
    store in an object store could still answer from memory after it was deleted, so the job's record is checked again
    after ``TRUSTED_SECONDS``.
    """

    def __init__(self, settings: Settings, answering: Answering) -> None:
        self._settings, self._answering = settings, answering
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._trusted = inf if settings.store_url is None else TRUSTED_SECONDS
        self._lock = threading.Lock()

    def peek(self, job_id: str, caller: Caller) -> ResultReader | None:
        """Return the result if it is open, still exists and belongs to the caller; does not block noticeably."""
        with self._lock:
            found = self._open.get(job_id)
            if found is None or not caller.sees(found.owner) or time.monotonic() - found.looked > self._trusted:
                return None
            self._open.move_to_end(job_id)
        if found.result.matrix.current():
            return found.result
        self.forget(job_id)
        return None

    def get(self, job_id: str, owner: str | None) -> ResultReader:
        """Return the opened result of a job; the caller has just read in the job's record that there is a result."""
        from service.jobs.prepared_results import open_reader

        with self._lock:
            kept = self._open.get(job_id)
        if kept is not None and kept.result.matrix.current():
            fresh = kept.result  # the open result is kept rather than opened again, because its cache holds tiles
        else:
            self.forget(job_id)
            # opening takes a while, so the lock is not held meanwhile
            fresh = open_reader(result_place(self._settings, job_id), self._answering)
        with self._lock:
            found = self._open.setdefault(job_id, _Opened(fresh, owner, 0.0))
            found.looked = time.monotonic()
            self._open.move_to_end(job_id)
            while len(self._open) > self._settings.matrix_cache:
                self._open.popitem(last=False)
        return found.result

    def forget(self, job_id: str) -> None:
        """Drop the result of a job that is being deleted."""
        with self._lock:
            self._open.pop(job_id, None)


@dataclass
class Service:
    """Settings and everything that is opened once per process.

    Attributes:
        worker, planner, checker: processes that read uploads, plan jobs and check long bodies.
        answering: computes answers from prepared results.
        results: open result stores.
        plans: recent plans.
        waiters: requests that wait for the end of a job.
        events: event streams of jobs.
        visitors: sessions of the dashboard.
        wake: notifies the runners of this node of a new job.
        draining: whether the service is about to stop and accepts no new jobs.
    """

    settings: Settings
    jobs: JobStore
    uploads: Uploads
    worker: ProcessPool
    planner: ProcessPool
    checker: ProcessPool
    answering: Answering
    results: Results
    keys: KeyStore
    plans: Plans
    waiters: Waiters
    events: EventStreams
    visitors: Sessions
    wake: Callable[[], None] = _no_wake
    draining: bool = False
    uploading: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("uploads", "max_uploads"))
    watching: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit("event streams", "max_streams"))

    def stop_workers(self) -> None:
        """Stop the helper processes."""
        for pool in (self.worker, self.planner, self.checker, self.answering):
            pool.stop()

    def job(self, job_id: str, caller: Caller) -> JobRecord:
        """Return the job with this id.  Raises NotFound if there is no such job, or if it belongs to another owner."""
        if "\0" in job_id:  # PostgreSQL refuses null characters with an error
            raise NotFound(f"there is no job {job_id!r}")
        try:
            record = self.jobs.job(job_id)
        except Gone:
            if caller.sees(self.keys.job_owner(job_id)):
                raise
            raise NotFound(f"there is no job {job_id!r}") from None
        if not caller.sees(record.owner):
            raise NotFound(f"there is no job {job_id!r}")
        return record

    def graph(self, graph_id: str, caller: Caller) -> GraphRecord:
        """Return the graph of this id, with the name and the receipt of the caller's upload.

        Admins see the receipt of the first upload.  They see the name from that upload, or the name that an admin gave
        in a later upload.

        Raises:
            NotFound: there is no such graph, or the caller did not upload it.
            Gone: the graph was deleted.
        """
        if caller.owner is None or caller.may("admin"):
            return self.jobs.graph(graph_id)
        found = self.keys.owned_graph(caller.owner, graph_id)
        if found is None:
            raise NotFound(f"there is no graph {graph_id!r}")
        return found if found.removed is None else self.jobs.graph(graph_id)

    def add_graph(self, record: GraphRecord, caller: Caller, name: str | None = None) -> tuple[GraphRecord, bool]:
        """Record an upload; returns the graph as the caller sees it, and whether it is new to the caller.

        Args:
            record: the graph, with the name that it gets if it is new to the caller.
            caller: who uploaded it.
            name: the name that the caller gave; a graph that was uploaded before gets it too.  None leaves the name of
                such a graph as it is.
        """
        kept, new = self.jobs.add_graph(record)
        if name and name != kept.name and (caller.owner is None or caller.may("admin")):
            self.jobs.rename_graph(kept.id, name)
            kept = replace(kept, name=name)
        if caller.owner is None:
            return kept, new
        new = self.keys.own_graph(caller.owner, replace(record, id=kept.id))
        if name and not new:
            self.keys.rename_graph(caller.owner, kept.id, name)
        return self.graph(kept.id, caller), new

    def remove_graph(self, graph_id: str, caller: Caller) -> None:
        """Remove the caller's graph, and delete it if no owner is left.  Raises Conflict if open jobs need it."""
        self.graph(graph_id, caller)
        owner = caller.owner
        if owner is not None and not caller.may("admin"):
            for state in OPEN:
                if self.jobs.list_jobs(1, state=state, graph=graph_id, owner=owner):
                    raise Conflict(f"graph {graph_id} is needed by open jobs")
            if not self.keys.disown_graph(owner, graph_id):
                return
        folder, rubbish = self.settings.data_dir / "graphs" / graph_id, self.settings.data_dir / "trash" / graph_id

        def take() -> None:
            shutil.rmtree(rubbish, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                folder.rename(rubbish)

        self.jobs.remove_graph(graph_id, take)
        shutil.rmtree(rubbish, ignore_errors=True)
        if self.settings.store_url is not None:
            Objects(self.settings.store_url).remove_all(f"graphs/{graph_id}/")

    def result(self, job_id: str, caller: Caller, *, semiring: str | Collection[str] = MIN_PLUS) -> ResultReader:
        """Return the result of a job, for the queries of one request.

        Args:
            job_id: id of the job.
            caller: who asks.
            semiring: the semiring, or several, whose values the caller understands.

        Raises:
            NotFound: there is no such job, or it belongs to another owner.
            Gone: the job or its result was removed.
            ResultNotReady: the job is open, or its store was lost and it was queued again.
            NoResult: the job ended without a result.
            Conflict: the values of the result are of a semiring that the caller does not understand.
        """
        found = self.results.peek(job_id, caller)
        if found is None:
            record = self.job(job_id, caller)
            require_result(record)
            try:
                found = self.results.get(job_id, record.owner)
            except NotFound:
                self._redo(record)
                raise
        if not found.table:
            check_result(job_id, found, semiring)
        return found.asked_by(caller.owner)

    def _redo(self, record: JobRecord) -> None:
        """If the store of a job is lost, queue the job again and raise ResultNotReady; else do nothing."""
        again = redo_if_lost(self.settings, self.jobs, record)
        if again is None:
            return
        self.wake()
        if again.open:
            message = f"the store of job {again.id} was lost; the job is solved again and is {again.state}"
            raise ResultNotReady(message, state=again.state, retry_after=RETRY_AFTER)
        require_result(again)


def check_result(job_id: str, found: ResultReader, semiring: str | Collection[str]) -> None:
    """Raise Conflict if the values of a result are of none of the semirings that a question understands."""
    check_understood(f"the result of job {job_id}", found.matrix.attributes, semiring, _OF_SEMIRINGS)


def require_result(job: JobRecord) -> None:
    """Raise ResultNotReady, NoResult or Gone unless the job was successful and still has its result."""
    if job.open:
        message = f"job {job.id} is {job.state} ({job.phase}); its result is not ready"
        raise ResultNotReady(message, state=job.state, retry_after=RETRY_AFTER)
    if job.state != SUCCESSFUL:
        reason = f": {job.error['message']}" if job.error else ""
        raise NoResult(f"job {job.id} is {job.state} and has no result{reason}", state=job.state)
    if job.removed is not None:
        raise Gone(f"the result of job {job.id} was removed when it expired; submit the job again")


def silent(runner: RunnerRecord, settings: Settings) -> bool:
    """Return whether a runner has sent no heartbeat for three intervals, so that it counts as gone."""
    return runner.heartbeat <= time.time() - 3 * settings.heartbeat_seconds


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_service)]


@dataclass(frozen=True)
class Asker:
    """A caller together with the service."""

    service: Service
    caller: Caller

    @property
    def owner(self) -> str | None:
        """The owner whose graphs and jobs are listed; None for all owners."""
        return None if self.caller.may("admin") else self.caller.owner

    def job(self, job_id: str) -> JobRecord:
        """Return the job of this id; raises what :meth:`Service.job` raises."""
        return self.service.job(job_id, self.caller)

    def graph(self, graph_id: str) -> GraphRecord:
        """Return the graph of this id; raises what :meth:`Service.graph` raises."""
        return self.service.graph(graph_id, self.caller)


async def _asker(service: Shared, caller: Known) -> Asker:
    return Asker(service, caller)


#: the dependency by which a route gets the caller and the service
KnownAsker = Annotated[Asker, Depends(_asker)]


async def _permit() -> AsyncIterator[None]:
    yield


#: At most two requests that read hundreds of megabytes run at a time; the others wait without holding a thread.
ReadPermit = Annotated[None, Depends(_permit, scope="function", max_concurrency=2)]


async def _opened_any(job_id: str, service: Shared, caller: Known) -> AsyncIterator[ResultReader]:
    found = service.results.peek(job_id, caller)
    if found is None:
        found = await anyio.to_thread.run_sync(partial(service.result, job_id, caller, semiring=EVERY))
    try:
        if not found.prepared:
            yield found
            return
        async with service.answering.permit(caller.owner):
            yield found.asked_by(caller.owner)
    except (NotFound, StorageFailed, Refused) as error:  # the result may have been removed or replaced meanwhile
        require_result(await anyio.to_thread.run_sync(service.job, job_id, caller))
        if not found.matrix.current():
            service.results.forget(job_id)
            raise ResultReplaced(f"the result of job {job_id} was replaced while it was read; ask again") from error
        raise


#: the opened result, of any kind, of the job that the URL names; a result that is not cached is opened in a thread
if TYPE_CHECKING:
    OpenedAny = Annotated[ResultReader, Depends(_opened_any, scope="function")]
else:
    OpenedAny = Annotated[object, Depends(_opened_any, scope="function")]  # importing the class would import NumPy


async def _opened_values(job_id: str, found: OpenedAny) -> ResultReader:
    if found.table:
        raise Conflict(
            f"the result of job {job_id} is a table of {_KINDS[found.kind]}, which holds no distances of all pairs; "
            f"read /v1/jobs/{job_id}/table, or solve the graph for a matrix"
        )
    return found


async def _opened(job_id: str, found: OpenedAny) -> ResultReader:
    found = await _opened_values(job_id, found)
    check_result(job_id, found, MIN_PLUS)
    return found


async def _opened_table(job_id: str, found: OpenedAny) -> TableReader:
    if not found.table:
        raise Conflict(
            f"the result of job {job_id} is a {_KINDS[found.kind]}, which is read by its rows; tables are results "
            "measures, near, betweenness and flows of a job"
        )
    return cast("TableReader", found)


#: the questions that are answered for every semiring; the error of a question for min-plus only lists them
_OF_SEMIRINGS: Final = (
    "distance, distances, rows, columns, submatrix, nearest, path and paths (with semiring=NAME), results, summary, "
    "and the store (zarr, apsp fetch), "
    "which apsp query, verify and export take"
)
_KINDS: Final = {"matrix": "matrix", "prepared": "prepared graph", "measures": "measures", "near": "near pairs",
                 "betweenness": "betweenness", "flows": "flows"}  # fmt: skip
#: the opened result of the job; OpenedValues refuses a result without values of pairs, Opened refuses one without
#: distances, and OpenedTable refuses one that is no table
if TYPE_CHECKING:
    OpenedValues = Annotated[ResultReader, Depends(_opened_values, scope="function")]
    Opened = Annotated[ResultReader, Depends(_opened, scope="function")]
    OpenedTable = Annotated[TableReader, Depends(_opened_table, scope="function")]
else:
    OpenedValues = Annotated[object, Depends(_opened_values, scope="function")]
    Opened = Annotated[object, Depends(_opened, scope="function")]
    OpenedTable = Annotated[object, Depends(_opened_table, scope="function")]
