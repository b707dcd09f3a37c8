"""Routes that estimate, submit, show, cancel, resume and delete jobs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Annotated, Final

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.problems import documented
from service.api.schemas.jobs import Estimate, JobDocument, JobItem, JobList, JobRequest, JobsQuery
from service.http import cursors
from service.http.bodies import BodyRoute
from service.http.file_response import OpenFile
from service.http.parameters import known_parameters
from service.http.ranges import matches
from service.http.waiting import asked_to_wait
from service.jobs import events
from service.jobs.checkpoints import refuse_unless_resumable, resumable
from service.jobs.folders import discard
from service.jobs.joblog import fetch_log, log_path
from service.jobs.submission import check_key, check_named, refuse_if_draining, resume, submit, with_vertices
from service.state import RETRY_AFTER, KnownAsker, Service
from storage.jobs.store import ACCEPTED, JobRecord

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], dependencies=[Depends(known_parameters)], route_class=BodyRoute)
estimates = APIRouter(
    prefix="/v1/estimates", tags=["jobs"], dependencies=[Depends(known_parameters)], route_class=BodyRoute
)

_RETRY: Final = {"Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer"}}}
_LOCATION: Final = {"Location": {"description": "Where the job is.", "schema": {"type": "string"}}}
_EVENTS: Final = {
    "example": (
        'id: 7.220\nevent: progress\ndata: {"state":"running","phase":"search","progress":0.31,"rate":5200.0,'
        '"unit":"rows","eta_seconds":4.2,"attempt":1}\n\n'
    )
}
Prefer = Annotated[str, Header(description="wait=N answers when the job is over, or after N seconds.")]


@estimates.post("", response_model=Estimate, responses=documented(404, 409, 410, 413, 422, 503, 507))
async def estimate(body: JobRequest, asker: KnownAsker) -> Estimate:
    """Plan a job and say what it would take; nothing is queued.  Refuses what submitting the job would refuse."""
    found = await anyio.to_thread.run_sync(asker.graph, body.graph)
    options = await anyio.to_thread.run_sync(body.options)
    await anyio.to_thread.run_sync(check_named, asker.service, body.graph, options, asker.caller)
    options = await with_vertices(asker.service, body.graph, options)
    plan = await asker.service.plans.get(asker.service, body.graph, options)
    return Estimate.of(body.graph, plan, found.receipt.get("notes", ()))


@router.post(
    "",
    status_code=201,
    response_model=JobDocument,
    responses={
        200: {"model": JobDocument, "description": "It was submitted, or solved, before"},
        201: {"headers": {**_LOCATION, **_RETRY}},
        **documented(404, 409, 410, 413, 422, 429, 503, 507),
    },
)
async def submit_job(
    *,
    body: JobRequest,
    response: Response,
    asker: KnownAsker,
    idempotency_key: Annotated[str | None, Header(description="Sent again, it stands for the same job.")] = None,
    prefer: Prefer = "",
) -> JobDocument:
    """Plan a job and queue it.  A job that cannot be done is refused here, before any work.

    The job is on the disk when the answer is sent.  If the same graph was solved with the same options before, that
    job is the answer (200), unless the request says `fresh`.

    Args:
        body: the job.
        idempotency_key: the same key stands for the same job.
        prefer: ``wait=N`` asks to wait for the end of the job.
    """
    record, new = await submit(asker.service, body, asker.caller, check_key(idempotency_key))
    record = await _waited(asker.service, record, prefer, response)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/jobs/{record.id}"
    return await anyio.to_thread.run_sync(_shown, asker.service, record, response)


@router.get("", response_model=JobList, responses=documented(422))
def list_jobs(
    *,
    request: Request,
    response: Response,
    asker: KnownAsker,
    asked: Annotated[JobsQuery, Query()],
) -> JobList:
    """Jobs, newest first; the link `next` leads to older ones.

    Args:
        asked: which jobs the list shows.
    """
    before = None if asked.cursor is None else cursors.decode_id(asked.cursor)
    limit = asked.limit
    records = asker.service.jobs.list_jobs(
        limit + 1, state=asked.state, graph=asked.graph, owner=asker.owner, before=before
    )
    following = None
    if len(records) > limit:
        records = records[:limit]
        following = cursors.following(request, cursor=cursors.encode(records[-1].id))
        response.headers["Link"] = f'<{following}>; rel="next"'
    return JobList(jobs=[JobItem.of(record) for record in records], next=following)


@router.get(
    "/{job_id}",
    response_model=JobDocument,
    responses={304: {"description": "As it was when the client's ETag was given"}, **documented(404, 410)},
)
async def get_job(
    *,
    job_id: str,
    response: Response,
    asker: KnownAsker,
    prefer: Prefer = "",
    if_none_match: Annotated[str, Header()] = "",
) -> JobDocument | Response:
    """State, phase, progress, plan; Retry-After while the job is open; an ETag that changes with the job.

    Args:
        prefer: ``wait=N`` asks to wait for the end of the job.
        if_none_match: entity tag of the answer that the client has.
    """
    record = await anyio.to_thread.run_sync(asker.job, job_id)
    record = await _waited(asker.service, record, prefer, response)
    shown = await anyio.to_thread.run_sync(_shown, asker.service, record, response)
    if if_none_match and matches(if_none_match, response.headers["ETag"]):
        return Response(status_code=304, headers=dict(response.headers))
    return shown


@router.get(
    "/{job_id}/log",
    response_class=Response,
    responses={
        200: {"description": "The whole log.", "content": {"text/plain": {}}},
        206: {"description": "The part that was asked for by a Range.", "content": {"text/plain": {}}},
        304: {"description": "It has not grown since"},
        **documented(400, 404, 410, 416),
    },
)
def get_log(job_id: str, request: Request, asker: KnownAsker) -> Response:
    """What the runners wrote about the job so far, oldest first; reading removes nothing, and ranges are supported."""
    record = asker.job(job_id)
    try:  # the log is opened before the answer starts, because the job may be deleted meanwhile
        handle = os.open(log_path(asker.service.settings, record.id), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        headers = {"Cache-Control": "no-cache"}
        if (sent := fetch_log(asker.service.settings, record.id)) is not None:
            return Response(sent, media_type="text/plain", headers=headers)
        # no runner has started the job yet, so its log is empty
        return Response("", media_type="text/plain", headers={**headers, "Accept-Ranges": "bytes"})
    try:
        return OpenFile(handle, request, media_type="text/plain", cache="no-cache")
    finally:
        os.close(handle)


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses={
        200: {"description": "Events until the job is over.", "content": {events.MEDIA_TYPE: _EVENTS}},
        204: {"description": "The job is over, and the client has heard all."},
        **documented(404, 410, 429, 503),
    },
)
async def get_events(
    *,
    job_id: str,
    asker: KnownAsker,
    last_event_id: Annotated[str, Header(description="The id of the last event that was heard.")] = "",
) -> Response:
    """The events of the job until it is over, as server-sent events.

    `phase` and `progress` hold the job's numbers, `log` lines of its log, `done` the job at its end.  With
    Last-Event-ID the stream continues after that event.

    Args:
        last_event_id: id of the last event that the client received.
    """
    refuse_if_draining(asker.service)
    record = await anyio.to_thread.run_sync(asker.job, job_id)
    snapshot = await anyio.to_thread.run_sync(asker.service.events.snapshot, record)
    at = events.Position.of(last_event_id)
    if snapshot.heard(at):
        return Response(status_code=204)
    return _Events(asker.service, asker.caller.owner, asker.service.events.stream(snapshot, at))


class _Events(StreamingResponse):
    """An event stream that counts towards the caller's limit of streams while it runs."""

    def __init__(self, service: Service, owner: str | None, stream: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(stream, media_type=events.MEDIA_TYPE, headers=headers)
        self._service, self._owner = service, owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["state"].get("head"):
            await Response(headers=dict(self.headers))(scope, receive, send)
            return
        with self._service.watching.hold(self._owner, self._service.settings.max_streams):
            await super().__call__(scope, receive, send)


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    response_model=JobDocument,
    responses={200: {"model": JobDocument, "description": "The job is over"}, **documented(404, 410)},
)
def cancel_job(job_id: str, response: Response, asker: KnownAsker) -> JobDocument:
    """Ask a job to stop: 202 while it still runs to the next tile or batch, 200 when it is over.  Safe to repeat."""
    asker.job(job_id)
    record = asker.service.jobs.cancel(job_id)
    response.status_code = 202 if record.open else 200
    return _shown(asker.service, record, response)


@router.post(
    "/{job_id}/resume",
    status_code=202,
    response_model=JobDocument,
    responses=documented(404, 409, 410, 429, 503),
)
def resume_job(job_id: str, response: Response, asker: KnownAsker) -> JobDocument:
    """Queue a failed or dismissed job again; it goes on from its checkpoint.  409 if it has none."""
    refuse_if_draining(asker.service)
    record = asker.job(job_id)
    refuse_unless_resumable(asker.service.settings, record)
    return _shown(asker.service, resume(asker.service, record), response)


@router.delete("/{job_id}", status_code=204, response_class=Response, responses=documented(404, 409, 410))
def delete_job(job_id: str, asker: KnownAsker) -> None:
    """Delete a finished job and its result; 409 while it is open.  Afterwards its id is answered with 410."""
    asker.job(job_id)
    asker.service.jobs.delete(job_id)
    asker.service.results.forget(job_id)
    discard(asker.service.settings, job_id)


async def _waited(service: Service, record: JobRecord, prefer: str, response: Response) -> JobRecord:
    """Wait for the end of the job if the client asks for it (``prefer``), at most until the timeout; return the job."""
    seconds = asked_to_wait(prefer, service.settings.max_wait_seconds)
    if seconds is None:
        return record
    response.headers["Preference-Applied"] = f"wait={seconds}"
    if not record.open or seconds == 0:
        return record
    await service.waiters.wait(record.id, seconds)
    return await anyio.to_thread.run_sync(service.jobs.job, record.id)


def _shown(service: Service, record: JobRecord, response: Response) -> JobDocument:
    position = service.jobs.queue_position(record) if record.state == ACCEPTED else None
    again = resumable(service.settings, record)
    response.headers["ETag"] = f'"{record.version}.{position or 0}.{int(again)}"'
    response.headers["Cache-Control"] = "private, no-cache"
    if record.open:
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return JobDocument.of(record, queue_position=position, resumable=again)
