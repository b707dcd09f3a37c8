"""Handles forms that change something: log in and out, solve, cancel, resume, delete.  Only the service's own pages may
send them.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.api.fault import Fault, fault_of
from service.api.problems import HTTPProblem, status_of
from service.auth.sessions import COOKIE, SESSION_SECONDS
from service.dashboard.options import read_options
from service.dashboard.pages import graph_page
from service.dashboard.render import page
from service.dashboard.visiting import Known, PageRoute
from service.jobs.checkpoints import refuse_unless_resumable
from service.jobs.folders import discard
from service.jobs.submission import refuse_if_draining, resume, submit
from service.state import Service, Shared
from storage.errors import ApspError

router = APIRouter(include_in_schema=False, route_class=PageRoute)

#: the most fields of a form, twice as many as any form of the pages has
_MOST_FIELDS: Final = 64


async def _filled(request: Request) -> dict[str, str]:
    """Return the fields of a form; the size of the body is limited as for every request.

    The body is parsed in a thread, because a long body would block the event loop.
    """
    return await anyio.to_thread.run_sync(_fields, await request.body())


def _fields(body: bytes) -> dict[str, str]:
    text = body.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise HTTPProblem(Fault("invalid-request", f"a form has at most {_MOST_FIELDS} fields")) from None


@router.post("/login")
async def log_in(request: Request, service: Shared) -> Response:
    """Exchange a key, or the ticket of a printed link, for a session."""
    filled = await _filled(request)
    key, ticket, wanted = filled.get("key", ""), filled.get("ticket", ""), filled.get("next", "")
    enter = service.visitors.redeem if ticket else service.visitors.enter
    token = await anyio.to_thread.run_sync(enter, ticket or key)
    if token is None:
        reason = "ticket" if ticket else "key"
        return page(request, "login.html", HTTPStatus.FORBIDDEN, wanted=wanted, refused=reason, keys=True)
    response = RedirectResponse(_inside(wanted), 303)
    # behind a proxy that ends TLS and is not in APSP_PROXIES, only the browser's Origin shows https
    secure = "https" in (request.url.scheme, request.headers.get("origin", "").partition(":")[0])
    response.set_cookie(
        COOKIE, token, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict", secure=secure
    )  # fmt: skip
    return response


@router.post("/logout")
async def log_out(request: Request, service: Shared) -> Response:
    """End the session."""
    await anyio.to_thread.run_sync(service.visitors.leave, request.headers.get("cookie", ""))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.post("/graphs/{graph_id}/solve")
async def solve(request: Request, graph_id: str, visitor: Known) -> Response:
    """Submit a job and redirect to its page; errors are shown on the graph's page."""
    visitor.need("submit")
    asked = await anyio.to_thread.run_sync(read_options, graph_id, await _filled(request))
    if asked.request is None:
        return await graph_page(request, visitor, graph_id, asked, planned=False, status=422)
    try:
        record, _ = await submit(visitor.service, asked.request, visitor.caller, None)
    except ApspError as error:
        asked = replace(asked, fault=fault_of(error))
        status = status_of(fault_of(error).code)
        return await graph_page(request, visitor, graph_id, asked, planned=False, status=status)
    return RedirectResponse(f"/jobs/{record.id}", 303)


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: str, visitor: Known) -> Response:
    """Ask a job to stop."""
    visitor.need("submit")
    visitor.job(job_id)
    visitor.service.jobs.cancel(job_id)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/resume")
def resume_job(job_id: str, visitor: Known) -> Response:
    """Queue a stopped job again."""
    visitor.need("submit")
    refuse_if_draining(visitor.service)
    record = visitor.job(job_id)
    refuse_unless_resumable(visitor.service.settings, record)
    resume(visitor.service, record)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/delete")
def delete(job_id: str, visitor: Known) -> Response:
    """Delete a finished job and its result."""
    visitor.need("submit")
    visitor.job(job_id)
    _delete(visitor.service, job_id)
    return RedirectResponse("/", 303)


def _delete(service: Service, job_id: str) -> None:
    service.jobs.delete(job_id)
    service.results.forget(job_id)
    discard(service.settings, job_id)


def _inside(address: str) -> str:
    """Return the address if it is a path of this service, else the home page."""
    inside = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if inside and address.isprintable() else "/"
