"""Answers every error of the API with an RFC 9457 problem document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.api.fault import Fault, ResultNotReady, TooMuchComputing, fault_of, without_paths
from storage.errors import ApspError

MEDIA_TYPE: Final = "application/problem+json"

#: code -> HTTP status and title; a code is the ``kind`` of an error class, or one that only the service has
CODES: Final[dict[str, tuple[int, str]]] = {
    "invalid-graph": (422, "The graph cannot be understood"),
    "invalid-request": (422, "The request is invalid"),
    "limit-exceeded": (413, "A limit is exceeded"),
    "does-not-fit": (507, "The job does not fit"),
    "negative-cycle": (422, "The graph has a negative cycle"),
    "unauthorized": (401, "A key is needed"),
    "forbidden": (403, "The key does not allow this"),
    "not-found": (404, "Not found"),
    "gone": (410, "Gone"),
    "too-many-jobs": (429, "Too many jobs are open"),
    "idempotency-key-reused": (422, "The idempotency key was used for something else"),
    "draining": (503, "The service is shutting down"),
    "database-unavailable": (503, "The job database cannot be used now"),
    "result-replaced": (503, "The result was replaced while it was read"),
    "method-not-allowed": (405, "Method not allowed"),
    "not-acceptable": (406, "No acceptable representation"),
    "conflict": (409, "The request clashes with the present state"),
    "result-not-ready": (409, "The job has not finished"),
    "no-result": (409, "The job has no result"),
    "too-slow": (408, "The request comes too slowly"),
    "expectation-failed": (417, "The expectation cannot be met"),
    "headers-too-large": (431, "The headers are too large"),
    "too-many-requests": (429, "Too many requests"),
    "unsupported-media-type": (415, "The format of the body is not supported"),
    "too-many-at-once": (429, "Too many requests at the same time"),
    "too-much-computing": (429, "Too much computing"),
    "range-not-satisfiable": (416, "The range lies outside the file"),
    "cancelled": (409, "The job was cancelled"),
    "disk-full": (507, "The disk is full"),
    "storage-failed": (500, "Stored data cannot be used"),
    "solve-failed": (500, "The solver failed"),
    "runner-lost": (500, "The runner died"),
    "result-lost": (500, "The result was lost"),
    "worker-lost": (500, "The reading process died"),
    "out-of-memory": (500, "Memory ran out"),
    "internal": (500, "Unexpected error"),
}
#: code -> seconds after which asking again makes sense
RETRY_AFTER: Final = {"too-many-jobs": 1, "too-many-at-once": 1, "draining": 5, "database-unavailable": 2,
                      "result-replaced": 1}  # fmt: skip
_BY_STATUS: Final = {404: "not-found", 405: "method-not-allowed", 406: "not-acceptable", 409: "conflict",
                     413: "limit-exceeded", 416: "range-not-satisfiable", 422: "invalid-request"}  # fmt: skip

#: FastAPI's message for a body that its parser cannot read, and the message that the service sends instead
_NOT_PARSED: Final = "There was an error parsing the body"
NO_JSON: Final = "the body is no JSON: it is not UTF-8, or nested too deeply"
#: limits on the errors listed for one request and on the length of each name; clients control both
_MOST_ERRORS: Final = 20
_LONGEST_PART: Final = 100


class HTTPProblem(HTTPException):
    """A fault as an HTTPException, for code in which only Starlette's exceptions are handled, such as ``receive``."""

    def __init__(self, fault: Fault, *, status: int | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(status or status_of(fault.code), fault.message, headers)
        self.fault = fault


def status_of(code: str) -> int:
    """Return the HTTP status of a code; 500 for an unknown code."""
    return CODES.get(code, CODES["internal"])[0]


def problem_of(error: ApspError) -> HTTPProblem:
    """Return the problem document for an ApspError, with Retry-After where a retry makes sense."""
    fault = fault_of(error)
    seconds = error.retry_after if isinstance(error, ResultNotReady | TooMuchComputing) else RETRY_AFTER.get(fault.code)
    return HTTPProblem(fault, headers=None if seconds is None else {"Retry-After": str(seconds)})


def document(fault: Fault, *, status: int | None = None, instance: str | None = None) -> dict[str, Any]:
    """Return the members of the problem document.

    Args:
        fault: what went wrong.
        status: HTTP status; None for the status of the fault's code.
        instance: path of the request.
    """
    number, title = CODES.get(fault.code, (500, "Unexpected error"))
    number = status or number
    members = {
        "type": f"urn:apsp:problem:{fault.code}",
        "title": title,
        "status": number,
        "detail": fault.message,
        "code": fault.code,
        "details": fault.details,
    }
    return members if instance is None else {**members, "instance": instance}


def respond(
    request: Request, fault: Fault, *, status: int | None = None, headers: dict[str, str] | None = None
) -> Response:
    """Return the problem document of ``fault`` as the answer to ``request``.

    Args:
        request: the request to answer.
        fault: what went wrong; paths of the server are removed from its message.
        status: HTTP status; None for the status of the fault's code.
        headers: further headers of the answer.
    """
    # ``instance`` is not taken from request.url, which is made from the Host header and raises an error if that header
    # is malformed
    service = getattr(request.app.state, "service", None)
    if service is not None:
        fault = without_paths(fault, service.settings.data_dir)
    body = document(fault, status=status, instance=request.scope["path"])
    request_id = getattr(request.state, "request_id", None)
    headers = dict(headers or {})
    if request_id is not None:
        body["request_id"] = request_id
        headers["X-Request-ID"] = request_id
    return JSONResponse(body, status_code=body["status"], headers=headers, media_type=MEDIA_TYPE)


#: renders an error for a browser that asked for a page; called with the request, what went wrong, and the status
ErrorPage = Callable[[Request, Fault, int], Response]
#: beginnings of paths that only programs request
_FOR_PROGRAMS: Final = ("/v1/", "/health/", "/static/", "/openapi.json")


def install(app: FastAPI, error_page: ErrorPage) -> None:
    """Answer all errors of ``app`` with problem documents; a browser that requests a missing page gets an HTML page.

    Args:
        app: the application.
        error_page: renders the HTML page.
    """

    @app.exception_handler(ApspError)
    async def ours(request: Request, error: ApspError) -> Response:
        problem = problem_of(error)
        return respond(request, problem.fault, headers=dict(problem.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        if isinstance(error.body, bytes):  # FastAPI leaves a body unparsed if its Content-Type is not JSON
            message = "the body must be JSON, with the header Content-Type: application/json"
            return respond(request, Fault("invalid-request", message))
        return respond(request, validation_fault(error.errors()))

    @app.exception_handler(HTTPException)
    async def starlette(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.NOT_MODIFIED:
            return Response(status_code=304, headers=headers)
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = _allowed(request) or headers.get("Allow", "")
        if isinstance(error, HTTPProblem):
            return respond(request, error.fault, status=error.status_code, headers=headers)
        if error.status_code == HTTPStatus.BAD_REQUEST and error.detail == _NOT_PARSED:
            return respond(request, Fault("invalid-request", NO_JSON))
        code = _BY_STATUS.get(error.status_code, "internal" if error.status_code >= 500 else "invalid-request")
        fault = Fault(code, _http_message(request, error))
        if error.status_code == HTTPStatus.NOT_FOUND and _wants_a_page(request):
            return error_page(request, fault, error.status_code)
        return respond(request, fault, status=error.status_code, headers=headers)


def unexpected(request: Request) -> Response:
    """Return the answer to an exception that has no other handler; the log has the traceback under the request id."""
    return respond(request, Fault("internal", "an unexpected error happened; the log names it by request_id"))


def _wants_a_page(request: Request) -> bool:
    """Return whether the request comes from a browser that expects a page."""
    readable = "text/html" in request.headers.get("accept", "")
    return readable and request.method in ("GET", "HEAD") and not request.scope["path"].startswith(_FOR_PROGRAMS)


def _allowed(request: Request) -> str:
    """Return all methods of the path, because Starlette names the methods of the first route only."""
    methods: set[str] = set()
    for route in request.app.state.routes:
        if route.matches(request.scope)[0] is Match.PARTIAL:
            methods |= route.methods or set()
    return ", ".join(sorted(methods))


def _http_message(request: Request, error: HTTPException) -> str:
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == "Not Found":
        return f"there is nothing at {request.scope['path']}"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{request.scope['path']} does not accept {request.method}"
    return str(error.detail)


def validation_fault(errors: Sequence[Mapping[str, Any]]) -> Fault:
    """Return the fault of a request that does not fit its schema; it lists the first errors and counts all others.

    If a single member of the body or a single parameter is wrong, ``field`` names it, as in other faults.
    """
    found = [
        {"pointer": "/" + "/".join(str(part)[:_LONGEST_PART] for part in item["loc"]), "detail": str(item["msg"])}
        for item in errors[:_MOST_ERRORS]
    ]
    first = found[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    details: dict[str, Any] = {"errors": found}
    fields = {item["loc"][1] if len(item["loc"]) > 1 else None for item in errors}
    if len(fields) == 1 and isinstance(field := fields.pop(), str):
        details["field"] = field[:_LONGEST_PART]
    return Fault("invalid-request", f"{first['pointer']}: {first['detail']}{more}", details)


# Routes pass the returned dict to FastAPI as the argument ``responses``.
def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of the problem documents with these statuses."""
    reference = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": reference}}}
        for status in statuses
    }
