"""Accepts jobs: checks idempotency keys and existing results, plans the job, and stores it in the job database."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import anyio.to_thread

from service.api.fault import Draining, Refused
from service.api.schemas.jobs import JobRequest
from service.auth.callers import Caller
from service.jobs.folders import has_result
from service.options import TableOptions
from service.pool.job_points import sides_with_points, take_points
from service.pool.tasks import plan_job, wants_prepared
from service.settings import Settings
from service.state import Service, require_result
from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.jobs.store import JobRecord, Submission
from storage.options import declared
from storage.semirings import MIN_PLUS
from storage.tables.uploaded import UploadedTables

#: a task of a helper process: settings, id of a graph and options of a job -> a plan, or options
PlanningTask = Callable[[Settings, str, dict[str, Any]], dict[str, Any]]

#: version of results; it grows when the same graph and options lead to a new store, so that old stores are not reused
RESULT_FORMAT: Final = 1
#: seconds for which a plan is cached; the runner makes its own plan, so an old plan here does no harm
_PLAN_SECONDS: Final = 10.0
_PLANS: Final = 256
#: options that earlier versions did not have: left out of digests where they are None, so that digests stay the same
_LATER: Final = frozenset({*declared(TableOptions), "also", "snap_limit"})
#: options that do not change the result
_CIRCUMSTANCES: Final = frozenset({"memory", "device_memory", "threads", "executor"})


def fingerprint(graph_id: str, options: dict[str, Any]) -> str:
    """Return the digest of everything that determines a result: graph (its id is a digest), options, format of the
    store.
    """
    asked = {k: v for k, v in _plain(options).items() if v is not None and k not in _CIRCUMSTANCES}
    return _digest({"graph": graph_id, "options": asked, "format": RESULT_FORMAT})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without ``_LATER`` options that are None, and without result ``matrix`` and min-plus.

    A request for a matrix then has the same digest as in versions that had no other results and semirings.
    """
    usual = (("result", "matrix"), ("semiring", MIN_PLUS))
    return {k: v for k, v in options.items() if (k, v) not in usual and (v is not None or k not in _LATER)}


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def check_key(key: str | None) -> str | None:
    """Check an Idempotency-Key, which has 1 to 255 printable ASCII characters, and return it."""
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise InvalidRequest("an Idempotency-Key has 1 to 255 printable ASCII characters", field="Idempotency-Key")
    return key


class Plans:
    """A cache of recent plans."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()

    async def get(self, service: Service, graph_id: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the plan of a job; raise the errors of planning.

        Args:
            service: the objects that the routes of this process share.
            graph_id: id of the graph.
            options: options of the job.
        """
        key = await anyio.to_thread.run_sync(
            _digest, [graph_id, options]
        )  # in a thread, because the request may list a million vertices
        found = self._made.get(key)
        if found is not None and time.monotonic() - found[0] < _PLAN_SECONDS:
            return found[1]
        plan = await _planned(service, plan_job, graph_id, options)
        self._made[key] = (time.monotonic(), plan)
        while len(self._made) > _PLANS:
            self._made.popitem(last=False)
        return plan


async def with_vertices(service: Service, graph_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a job with vertices in place of points; the points are kept as ``points``.

    Args:
        service: the objects that the routes of this process share.
        graph_id: id of a graph that the caller may use.
        options: options of the job, as asked.

    Raises:
        InvalidRequest, LimitExceeded: ``service.pool.job_points.take_points`` refuses the points.
    """
    if not await anyio.to_thread.run_sync(sides_with_points, options):
        return options
    return await _planned(service, take_points, graph_id, options)


async def _planned(service: Service, task: PlanningTask, graph_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a task about a graph returns in another process.

    A task that reads a graph while it is deleted finds some files, or none.  Its error then says that files are missing
    or damaged, and Gone is raised instead.
    """
    try:
        found: dict[str, Any] = await service.planner.run(task, service.settings, graph_id, options)
    except Refused as refused:
        if refused.fault.code in (NotFound.kind, StorageFailed.kind):
            await anyio.to_thread.run_sync(service.jobs.refuse_removed, graph_id)
        raise
    return found


def check_named(service: Service, graph_id: str, options: dict[str, Any], caller: Caller) -> None:
    """Check that the caller has the uploaded tables and the prepared result that the options name by their ids.

    Args:
        service: the objects that the routes of this process share.
        graph_id: id of the graph of the job.
        options: options of the job.
        caller: who asks.

    Raises:
        NotFound: the caller has no such table or job.
        Gone, NoResult, ResultNotReady: the job that the options name has no result, or has none yet.
        InvalidRequest: the result of that job is no prepared graph, or was prepared from another graph.
    """
    for name in ("opportunities", "demands"):
        if isinstance(options.get(name), str):
            UploadedTables(service.settings.data_dir).get(options[name], caller.owner)
    if (source := options.get("prepared")) is None:
        return
    record = service.job(source, caller)
    if not wants_prepared(record.options):
        kind = record.options.get("result", "matrix")
        raise InvalidRequest(f"prepared: the result of job {source} is {kind}, not prepared", field="prepared")
    if record.graph != graph_id:
        raise InvalidRequest(
            f"prepared: job {source} has prepared graph {record.graph}, and this request is for graph {graph_id}",
            field="prepared",
        )
    require_result(record)


def refuse_if_draining(service: Service) -> None:
    """Raise Draining if the service is about to stop."""
    if service.draining:
        raise Draining("the service is shutting down and takes no more jobs; try again when it is back")


async def submit(service: Service, body: JobRequest, caller: Caller, key: str | None) -> tuple[JobRecord, bool]:
    """Accept a job; return its record, and False if the job was submitted or solved before, else True.

    Args:
        service: the objects that the routes of this process share.
        body: the request.
        caller: who asks.
        key: the Idempotency-Key, if there is one.

    Raises:
        Draining: the service is about to stop.
        KeyReused, NotFound, Gone, TooManyJobs: raised by the job store.
        ApspError: planning raised it.
    """
    refuse_if_draining(service)
    owner = caller.owner

    def digested() -> tuple[dict[str, Any], str]:
        return body.options(), _digest(_plain(body.model_dump(mode="json")))

    # in a thread, because the request may list a million vertices
    options, digest = await anyio.to_thread.run_sync(digested)

    def replayed() -> JobRecord | None:
        if key is not None and (found := service.jobs.replay(owner, key, digest)) is not None:
            return found
        service.graph(body.graph, caller)
        check_named(service, body.graph, options, caller)
        return None

    record = await anyio.to_thread.run_sync(replayed)
    if record is not None:
        return record, False
    options = await with_vertices(service, body.graph, options)
    mark = await anyio.to_thread.run_sync(fingerprint, body.graph, options)

    def known() -> JobRecord | None:
        found = None if body.fresh else service.jobs.finished(owner, mark)
        if found is None or not has_result(service.settings, found.id):
            return None
        if key is not None:
            service.jobs.remember(owner, key, digest, found.id)
        return found

    record = await anyio.to_thread.run_sync(known)
    if record is not None:
        return record, False
    plan = await service.plans.get(service, body.graph, options)
    settings, own = service.settings, options["executor"] == "local"
    asked = Submission(
        graph=body.graph, options=options, plan=plan, name=body.name, owner=owner, priority=body.priority,
        device="cuda" if own and "cuda" in (options["device"], plan.get("device")) else "any", fingerprint=mark,
        key=key, digest=digest, most_of_owner=settings.max_open_jobs, most=settings.max_open_jobs_total,
    )  # fmt: skip
    accepted = await anyio.to_thread.run_sync(service.jobs.submit, asked)
    service.wake()
    return accepted


def resume(service: Service, record: JobRecord) -> JobRecord:
    """Accept a stopped job again; raises the errors of the job store."""
    refuse_if_draining(service)
    settings = service.settings
    asked = Submission(
        graph=record.graph, options=record.options, plan=record.plan, owner=record.owner, priority=record.priority,
        most_of_owner=settings.max_open_jobs, most=settings.max_open_jobs_total,
    )  # fmt: skip
    found = service.jobs.resume(record.id, asked)
    service.wake()
    return found
