"""Checks around every request: the caller, the request rate, a request id for answer and log, limits on the body.

``RequestGate`` decides before any byte of the body is read, so a refusal never costs an upload.  ``BodyLimit`` checks
the body while it arrives.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.fault import Fault, TooManyAtOnce
from service.api.problems import HTTPProblem, problem_of, respond, unexpected
from service.auth.callers import ANYBODY, Caller
from service.auth.callers import Scope as KeyScope
from service.http.limits import Rates
from service.http.origins import is_cross_origin, is_for_this_host, names_a_host
from service.http.protocol import HEADER_BYTES
from service.logs import REQUEST_ID
from service.settings import Settings, variable
from storage.errors import ApspError

log = logging.getLogger(__name__)

Identify = Callable[[str], Awaitable[Caller | None]]
Observe = Callable[[str, str, int, float], None]

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_.\-]{1,80}")
#: headers of every answer, which prevent sniffing, framing, scripts and access by other sites; pages of the dashboard
#: replace the content security policy by their own
SECURITY: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
#: the security header that pages of the dashboard replace
_POLICY: Final = b"content-security-policy"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: the most headers of one request
MOST_HEADERS: Final = 200
#: forms that are accepted without a key, and the most bytes of such a form; its two fields, a key and an address, need
#: far fewer bytes
_OPEN_FORMS: Final = {"/login", "/logout"}
_OPEN_FORM_BYTES: Final = 16_384
#: the paths to which files are uploaded, and the setting that limits each; such bodies are written to the disk
_UPLOADS: Final = {"/v1/graphs": "max_upload_bytes", "/v1/tables": "max_table_bytes"}
#: POST requests that change nothing
_QUERIES: Final = re.compile(r"/v1/(estimates|jobs/[^/]+/(distances|paths|submatrix))")


class RequestGate:
    """The outermost middleware: it checks key and rate, answers HEAD, and adds request id and security headers.

    It also writes a log line for each request, and reports each request to ``observe`` for metrics.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        identify: Identify | None,
        observe: Observe | None,
        visit: Identify | None = None,
    ) -> None:
        """Wrap ``app``.

        Args:
            app: the inner ASGI application.
            settings: the service's settings.
            identify: finds the caller of an Authorization header; None if keys are not required.
            observe: called after every request with the method, the route pattern, the status and the seconds.
            visit: finds the caller of a Cookie header, as pages of this service send it.
        """
        self._app, self._settings = app, settings
        self._identify, self._observe, self._visit = identify, observe, visit
        self._rates = Rates(settings.max_requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it to the inner application (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = {name: value for name, value in scope["headers"] if name in _USED_HEADERS}
        asked = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = asked if _SAFE_ID.fullmatch(asked) else secrets.token_hex(8)
        token = REQUEST_ID.set(request_id)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        extra = [(b"x-request-id", request_id.encode())]
        status, begun = 500, False

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message = {**message, "headers": _with(message.get("headers", []), extra)}
            await send(message)

        try:
            try:
                refused = await self._refuse(scope, headers)
            except (
                ApspError
            ) as error:  # no exception handler encloses this middleware, so it answers errors of the database here
                refused = problem_of(error)
            if refused is not None:
                response = respond(Request(scope), refused.fault, headers=dict(refused.headers or {}))
                await response(scope, receive, answer)
            elif scope["method"] == "HEAD":
                await _head(self._app, scope, answer)
            else:
                await self._app(scope, receive, answer)
        except Exception:
            if begun:  # the server closes the connection, so the client notices that the answer is incomplete
                status = 500
                raise
            # If an exception leaves the application, the server closes the connection even after a complete answer,
            # and a client that has sent its next request gets a connection reset.
            log.exception("%s %s failed", scope["method"], scope["path"][:300])
            await unexpected(Request(scope))(scope, receive, answer)
        finally:
            self._report(scope, status, time.perf_counter() - began)
            REQUEST_ID.reset(token)

    async def _refuse(self, scope: Scope, headers: dict[bytes, bytes]) -> HTTPProblem | None:
        """Return the reason to refuse the request, or None to accept it.

        An accepted request counts against the request rate, and its scope gets the caller.
        """
        caller = ANYBODY
        path: str = scope["path"]
        if self._identify is None and not is_for_this_host(scope, self._settings.host):
            return _foreign_host()
        if not names_a_host(scope):
            return HTTPProblem(Fault("invalid-request", "Host is not the name of a host", {"field": "Host"}))
        if self._identify is not None and path.startswith("/v1/"):
            given, cookie = headers.get(b"authorization"), headers.get(b"cookie")
            if given is None and cookie is not None and self._visit is not None:
                found = await self._visit(cookie.decode("latin-1"))
                if found is not None and is_cross_origin(scope):
                    return _cross_origin()
            else:
                found = None if given is None else await self._identify(given.decode("latin-1"))
            if found is None:
                wait = self._rates.wait(_address(scope))
                return _too_fast(self._rates.limit, wait) if wait else _unauthorized(given is not None)
            caller = found
            needed = needed_scope(scope["method"], path)
            if not caller.may(needed):
                message = f"{scope['method']} {path} needs a key with the scope {needed!r}"
                return HTTPProblem(Fault("forbidden", message, {"scope": needed}))
        elif is_cross_origin(scope, pages=not path.startswith("/v1/"), allowed=self._settings.cors_origins):
            return _cross_origin()
        scope["state"]["caller"] = caller
        if path.startswith("/health/"):
            return _no_control(path, scope["query_string"])
        wait = self._rates.wait(_who(scope))
        if wait > 0:
            return _too_fast(self._rates.limit, wait)
        expect = headers.get(b"expect", b"100-continue")
        if expect.lower() != b"100-continue":
            message = f"Expect: {expect[:40].decode('latin-1')} cannot be met"
            return HTTPProblem(Fault("expectation-failed", message, {"field": "Expect"}))
        return _too_long(scope) or _no_control(path, scope["query_string"])

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "")
        if self._observe is not None:
            self._observe(scope["method"], route, status, seconds)
        if status >= 500 or self._settings.log_requests or (scope["method"] not in _SAFE_METHODS and status < 400):
            level = logging.ERROR if status >= 500 else logging.INFO
            facts = {"method": scope["method"], "path": scope["path"][:300], "status": status}
            facts["milliseconds"] = round(seconds * 1000, 3)
            job = scope.get("path_params", {}).get("job_id")
            if job is not None:
                facts["job_id"] = job[:80]
            log.log(
                level, "%s %s: %d", *list(facts.values())[:3], extra={**facts, "milliseconds": round(seconds * 1000, 3)}
            )


_USED_HEADERS: Final = {b"x-request-id", b"authorization", b"cookie", b"expect"}
#: methods that change nothing (RFC 9110, 9.2.1)
_SAFE_METHODS: Final = {"GET", "HEAD", "OPTIONS", "TRACE"}


class BodyLimit:
    """Refuses bodies whose Content-Length or size is too large, or that arrive too slowly, before they are stored.

    All bodies except uploads stay in memory until their requests are answered.  So the sum of these bodies is limited
    for each caller, too: otherwise one caller could fill the memory with requests on many connections.

    The errors are raised by ``receive``, in the code that reads the body, so the exception middleware must enclose that
    code.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the inner application with a ``receive`` that enforces the limits (ASGI)."""
        if scope["type"] != "http" or scope["method"] in _SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        limit, setting = self._limit(scope["path"])
        header = next((value for key, value in scope["headers"] if key == b"content-length"), b"")
        announced, caller = int(header) if header.isdigit() else 0, _who(scope)
        counted = scope["path"] not in _UPLOADS
        total, held, more, began = 0, 0, True, time.monotonic()

        async def limited() -> Message:
            nonlocal total, held, more
            if announced > limit:
                raise _too_large(setting, limit, announced)
            if not more:
                return await receive()
            if counted and total == 0:
                self._check_sum(caller, announced)
            message = await self._next(receive, total, began)
            size = len(message.get("body", b""))
            total += size
            more = bool(message.get("more_body"))
            if total > limit:
                raise _too_large(setting, limit, total)
            if counted:
                self._check_sum(caller, size)
                self._held[caller] += size
                held += size
            return message

        try:
            await self._app(scope, limited, send)
        finally:
            self._held[caller] -= held
            if not self._held[caller]:
                del self._held[caller]

    def _check_sum(self, caller: str, more: int) -> None:
        """Raise HTTPProblem if the bodies of the caller in memory and ``more`` further bytes exceed the limit."""
        most, requested = max(self._settings.max_bodies_bytes, self._settings.max_body_bytes), self._held[caller] + more
        if requested > most:
            message = (
                f"bodies of {requested} bytes at the same time, {most} are allowed; try again when one is answered"
            )
            setting = variable("max_bodies_bytes")
            raise problem_of(TooManyAtOnce(message, limit=most, requested=requested, setting=setting))

    def _limit(self, path: str) -> tuple[int, str | None]:
        """Return the most bytes of a body, and the name of the setting that defines this limit, if there is one."""
        name = _UPLOADS.get(path, "max_body_bytes")
        limit: int = getattr(self._settings, name)
        if path in _OPEN_FORMS and limit > _OPEN_FORM_BYTES:
            return _OPEN_FORM_BYTES, None
        return limit, name

    async def _next(self, receive: Receive, total: int, began: float) -> Message:
        """Return the next part of the body.  Raises HTTPProblem if the client is silent or slow for too long."""
        silence, rate = self._settings.max_body_silence, self._settings.min_body_rate
        elapsed = time.monotonic() - began
        if elapsed > silence and total < rate * (elapsed - silence):
            raise HTTPProblem(Fault("too-slow", f"the body arrived at less than {rate} bytes a second", {
                "limit": rate, "requested": int(total / elapsed), "setting": variable("min_body_rate"),
            }))  # fmt: skip
        try:
            async with asyncio.timeout(silence):
                return await receive()
        except TimeoutError:
            details = {"limit": silence, "setting": variable("max_body_silence")}
            raise HTTPProblem(Fault("too-slow", f"no byte of the body arrived for {silence} s", details)) from None


def needed_scope(method: str, path: str) -> KeyScope:
    """Return the scope that a request needs: ``read`` for queries, ``submit`` for changes."""
    return "read" if method in _SAFE_METHODS or _QUERIES.fullmatch(path) else "submit"


async def _head(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Answer HEAD with the headers of GET.  The body is generated but not sent, and a stream is closed."""
    over = asyncio.Event()
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await over.wait()
        return {"type": "http.disconnect"}

    async def headers_only(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
        elif not over.is_set():
            over.set()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    inner = {**scope, "method": "GET", "state": {**scope["state"], "head": True}}
    try:
        await app(inner, receive, headers_only)
    finally:
        scope.update({name: inner[name] for name in ("route", "path_params") if name in inner})


def _with(headers: list[tuple[bytes, bytes]], extra: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    own = any(name == _POLICY for name, _ in headers)
    kept = [item for item in headers if item[0] != b"x-request-id"]
    return [*kept, *extra, *(SECURITY[:-1] if own else SECURITY)]


def _too_long(scope: Scope) -> HTTPProblem | None:
    """Refuse long headers: the server limits only headers that arrive in several pieces."""
    size = len(scope["path"]) + len(scope["query_string"]) + sum(len(k) + len(v) for k, v in scope["headers"])
    if size <= HEADER_BYTES and len(scope["headers"]) <= MOST_HEADERS:
        return None
    message = f"address and headers have {size} bytes in {len(scope['headers'])} headers; at most {HEADER_BYTES} bytes"
    details = {"limit": HEADER_BYTES, "requested": size}
    return HTTPProblem(Fault("headers-too-large", f"{message} in {MOST_HEADERS} headers are read", details))


def _no_control(path: str, query: bytes) -> HTTPProblem | None:
    """Refuse control characters in paths (patterns of routes accept a newline at the end) and NUL in parameters.

    Not every database accepts NUL.
    """
    if _CONTROL.search(path):
        return HTTPProblem(Fault("not-found", "there is nothing whose name holds a control character"))
    if b"%00" in query:
        return HTTPProblem(
            Fault("invalid-request", "a parameter holds a NUL, which no name contains", {"field": "query"})
        )
    return None


def _who(scope: Scope) -> str:
    """Return whom a request is counted for: the owner of its key, or without keys the address of the client."""
    caller: Caller = scope["state"].get("caller", ANYBODY)
    return caller.owner or _address(scope)


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def _unauthorized(given: bool) -> HTTPProblem:
    message = "the key is unknown or was revoked" if given else "a key is needed: Authorization: Bearer apsp_..."
    error = ' error="invalid_token"' if given else ""
    return HTTPProblem(Fault("unauthorized", message), headers={"WWW-Authenticate": f'Bearer realm="apsp"{error}'})


def _cross_origin() -> HTTPProblem:
    message = "changes without a key are accepted only from the pages of this service"
    return HTTPProblem(Fault("forbidden", message, {"scope": "same-origin"}))


def _foreign_host() -> HTTPProblem:
    message = "without keys (APSP_AUTH=false) only requests to localhost, 127.0.0.1 or [::1] are answered"
    return HTTPProblem(Fault("forbidden", message, {"field": "Host"}))


def _too_fast(limit: int, wait: float) -> HTTPProblem:
    message = f"more than {limit} requests a second; try again in {wait:.3g} s"
    details = {"limit": limit, "setting": variable("max_requests_per_second")}
    return HTTPProblem(Fault("too-many-requests", message, details), headers={"Retry-After": str(max(1, round(wait)))})


def _too_large(setting: str | None, limit: int, requested: int) -> HTTPProblem:
    details: dict[str, object] = {"limit": limit, "requested": requested}
    if setting is not None:
        details["setting"] = variable(setting)
    return HTTPProblem(Fault("limit-exceeded", f"the body has {requested} bytes or more, {limit} are allowed", details))
