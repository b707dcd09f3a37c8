"""The routes of pages that change nothing; ``forms.py`` has the routes that change something."""

from __future__ import annotations

import functools
from hashlib import blake2b
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request, Response

from service.api.fault import Fault, fault_of
from service.api.problems import CODES, HTTPProblem
from service.dashboard import page_data, path_answers
from service.dashboard.options import FIELDS, FormOptions, read_options
from service.dashboard.render import HERE, page
from service.dashboard.visiting import Known, PageRoute
from service.http.ranges import matches
from service.state import ReadPermit, Shared
from storage.errors import ApspError

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
Vertex = Annotated[str | None, Query(max_length=1000)]


@router.get("/")
async def get_home(
    request: Request, visitor: Known, before: Annotated[str | None, Query(max_length=60)] = None
) -> Response:
    """Return the home page: running, waiting and finished jobs, devices, and the upload of a graph.

    Args:
        before: show finished jobs that are older than the job of this id.
    """
    found = await anyio.to_thread.run_sync(page_data.home, visitor, before)
    return page(request, "home.html", visitor=visitor, **found, q="", state="", filters=page_data.FILTERS)


@router.get("/graphs/{graph_id}")
async def get_graph(request: Request, graph_id: str, visitor: Known) -> Response:
    """Return the page of a graph: its receipt, and the plan of a job."""
    asked = read_options(graph_id, dict(request.query_params))
    return await graph_page(request, visitor, graph_id, asked, planned="plan" in request.query_params)


@router.get("/jobs/{job_id}")
async def get_job(
    *, request: Request, job_id: str, visitor: Known, source: Vertex = None, target: Vertex = None
) -> Response:
    """Return the page of a job: progress, plan, result; with ``source`` and ``target`` also the distance and the path.

    Args:
        source, target: vertices as the file names them.
    """
    found = await anyio.to_thread.run_sync(page_data.job, visitor, job_id)
    answer = None
    if source and target and found["result"] is not None:
        answer = await anyio.to_thread.run_sync(path_answers.answer, visitor, job_id, source, target)
    base = str(request.base_url).rstrip("/")
    return page(
        request, "job.html", visitor=visitor, **found, answer=answer, source=source or "", target=target or "",
        base=base, keys=visitor.service.settings.auth,
    )  # fmt: skip


@router.get("/jobs/{job_id}/eccentricities")
def get_eccentricities(request: Request, job_id: str, visitor: Known, _permit: ReadPermit) -> Response:
    """Return the eccentricities, a slow part of the job's page that is loaded separately."""
    return page(request, "eccentricities.html", visitor=visitor, **page_data.eccentricities(visitor, job_id))


@router.get("/jobs/{job_id}/counted")
def get_counted(request: Request, job_id: str, visitor: Known, _permit: ReadPermit) -> Response:
    """Return the summary of all pairs, a slow part of a prepared result's page that is loaded separately."""
    return page(request, "counted.html", visitor=visitor, **page_data.all_pairs(visitor, job_id))


async def graph_page(
    request: Request, visitor: Known, graph_id: str, asked: FormOptions, *,
    planned: bool, status: int = 200,
) -> Response:  # fmt: skip
    """Return the page of a graph with the options as they were filled in, and the plan if that was asked for.

    Args:
        request: the HTTP request.
        visitor: the person who asks, with the rights of the session's key.
        graph_id: id of the graph.
        asked: the options as they were filled in, and what was wrong with them.
        planned: whether a plan was asked for.
        status: HTTP status of the page.
    """
    found = await anyio.to_thread.run_sync(page_data.graph, visitor, graph_id)
    plan: dict[str, Any] | None = None
    fault = asked.fault
    if planned and asked.request is not None and fault is None:
        try:
            plan = await visitor.service.plans.get(visitor.service, graph_id, asked.request.options())
        except ApspError as error:
            fault = fault_of(error)
            status = CODES.get(fault.code, (500, ""))[0]
    return page(
        request, "graph.html", status, visitor=visitor, **found, fields=FIELDS, filled=asked.filled, planned=planned,
        plan=None if plan is None else page_data.plan(plan), fault=fault,
    )  # fmt: skip


@router.get("/login")
def get_login(request: Request, service: Shared, next: Annotated[str, Query(max_length=2000)] = "") -> Response:  # noqa: A002
    """Return the log-in page.

    Args:
        next: path of the page to show after the log-in.
    """
    return page(request, "login.html", wanted=next, refused=False, keys=service.settings.auth)


@router.get("/static/{name}")
def get_static(name: str, if_none_match: Annotated[str, Header()] = "") -> Response:
    """Return a static file: style, script or icon."""
    found = _static().get(name)
    if found is None:
        raise HTTPProblem(Fault("not-found", f"there is no file {name[:80]!r}"))
    content, media_type, etag = found
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


@functools.cache
def _static() -> dict[str, tuple[bytes, str, str]]:
    """Return the content, type and entity tag of the files that are served."""
    found = {}
    for path in (HERE / "static").iterdir():
        if path.suffix in _TYPES:
            content = path.read_bytes()
            etag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
            found[path.name] = (content, _TYPES[path.suffix], etag)
    return found
