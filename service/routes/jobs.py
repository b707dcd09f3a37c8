"""Jobs: submit, watch, cancel, delete."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response

from service.callers import Known
from service.parameters import known_parameters
from service.problems import documented
from service.schemas import Job, JobItem, JobList, JobRequest, State
from service.state import RETRY_AFTER, Shared
from service.stores import discard
from service.tasks import plan_job
from storage.jobs import JobRecord, Submission

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], dependencies=[Depends(known_parameters)])


@router.post("", status_code=201, response_model=Job, responses=documented(404, 413, 422, 507))
async def submit_job(body: JobRequest, response: Response, service: Shared, caller: Known) -> Job:
    """Plan a job and queue it.  What cannot be done is refused here, before any work."""
    await anyio.to_thread.run_sync(service.graph, body.graph, caller)
    plan = await service.worker.run(plan_job, service.settings, body.graph, body.options())

    def create() -> JobRecord:
        asked = Submission(body.graph, body.options(), plan, name=body.name, owner=caller.owner)
        return service.jobs.submit(asked)[0]

    record = await anyio.to_thread.run_sync(create)
    response.headers["Location"] = f"/v1/jobs/{record.id}"
    response.headers["Retry-After"] = str(RETRY_AFTER)
    return Job.of(record)


@router.get("", response_model=JobList)
def list_jobs(
    *,
    request: Request,
    service: Shared,
    caller: Known,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    state: Annotated[State | None, Query(description="Only jobs in this state.")] = None,
    graph: Annotated[str | None, Query(description="Only jobs of this graph.")] = None,
    before: Annotated[str | None, Query(description="Only jobs older than this one.")] = None,
) -> JobList:
    """Jobs, newest first."""
    owner = None if caller.may("admin") else caller.owner
    records = service.jobs.list_jobs(limit, state=state, graph=graph, owner=owner, before=before)
    following = None
    if len(records) == limit:
        url = request.url.include_query_params(before=records[-1].id)
        following = f"{url.path}?{url.query}"
    return JobList(jobs=[JobItem.of(record) for record in records], next=following)


@router.get("/{job_id}", response_model=Job, responses=documented(404))
def get_job(job_id: str, response: Response, service: Shared, caller: Known) -> Job:
    """State, phase, progress, plan; Retry-After while the job is open."""
    record = service.job(job_id, caller)
    if record.open:
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return Job.of(record)


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    response_model=Job,
    responses={200: {"model": Job, "description": "The job is over"}, **documented(404)},
)
def cancel_job(job_id: str, response: Response, service: Shared, caller: Known) -> Job:
    """Ask a job to stop: 202 while it still runs to the next tile or batch, 200 when it is over.  Safe to repeat."""
    service.job(job_id, caller)
    record = service.jobs.cancel(job_id)
    if record.open:
        response.headers["Retry-After"] = str(RETRY_AFTER)
    else:
        response.status_code = 200
    return Job.of(record)


@router.delete("/{job_id}", status_code=204, responses=documented(404, 409))
def delete_job(job_id: str, service: Shared, caller: Known) -> None:
    """Delete a finished job and its result."""
    service.job(job_id, caller)
    service.jobs.delete(job_id)
    service.results.forget(job_id)
    discard(service.settings, job_id)
