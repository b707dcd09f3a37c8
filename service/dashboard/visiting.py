"""Finds the visitor of a page, and renders errors as pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from service.api.fault import Fault, Refused, fault_of
from service.api.problems import CODES, HTTPProblem
from service.auth.callers import ANYBODY, Caller, Scope
from service.dashboard.render import page
from service.state import Asker, Shared, require_result
from storage.errors import ApspError, NotFound, StorageFailed


@dataclass(frozen=True)
class Visitor(Asker):
    """A person who requests a page; ``name`` is the name of their key, None if keys are not required."""

    name: str | None

    @property
    def submits(self) -> bool:
        """Whether the visitor may change anything."""
        return self.caller.may("submit")

    def need(self, scope: Scope) -> None:
        """Raise HTTPProblem unless the visitor's key has this scope."""
        if not self.caller.may(scope):
            raise HTTPProblem(Fault("forbidden", f"this needs a key with the scope {scope!r}", {"scope": scope}))


class NotLoggedIn(Exception):  # noqa: N818 - it redirects and is not an error
    """The request has no valid session."""


async def _visitor(request: Request, service: Shared) -> Visitor:
    if not service.settings.auth:
        return Visitor(service, ANYBODY, None)
    key = await service.visitors.key(request.headers.get("cookie", ""))
    if key is None:
        raise NotLoggedIn
    visitor = Visitor(service, Caller(key.id, frozenset(key.scopes)), key.name)
    visitor.need("read")
    return visitor


Known = Annotated[Visitor, Depends(_visitor)]


class PageRoute(APIRoute):
    """A route whose errors are pages, and which redirects requests without a session to the log-in page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that renders errors as pages."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except NotLoggedIn:
                asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                wanted = asked if request.method == "GET" and asked != "/" else ""
                return RedirectResponse(f"/login?next={quote(wanted, safe='')}" if wanted else "/login", 303)
            except ApspError as error:
                return error_page(request, fault_of(await _meant(request, error)))
            except HTTPProblem as error:
                return error_page(request, error.fault, error.status_code)
            except RequestValidationError:
                return error_page(request, Fault("invalid-request", "this address was not understood"))

        return handler


async def _meant(request: Request, error: ApspError) -> ApspError:
    """Return the error that a page shows: ``error``, or that the result is gone if it was removed while it was read."""
    job_id = request.path_params.get("job_id")
    if job_id is None or not isinstance(error, NotFound | StorageFailed | Refused):
        return error
    try:
        visitor = await _visitor(request, request.app.state.service)
        record = await anyio.to_thread.run_sync(visitor.job, job_id)
        if record.removed is not None:
            require_result(record)
    except ApspError as removed:
        return removed
    except (NotLoggedIn, HTTPProblem):
        pass
    return error


def error_page(request: Request, fault: Fault, status: int | None = None) -> Response:
    """Render an error as a page.

    Args:
        request: the HTTP request.
        fault: what went wrong.
        status: HTTP status; that of the fault's code if None.
    """
    number, title = CODES.get(fault.code, (500, "Unexpected error"))
    request_id = getattr(request.state, "request_id", None)
    return page(
        request, "error.html", status or number, title=title, fault=fault,
        request_id=request_id if (status or number) >= HTTPStatus.INTERNAL_SERVER_ERROR else None,
    )  # fmt: skip
