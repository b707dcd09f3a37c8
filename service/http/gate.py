"""Around every request: who asks and how often, an id that ties answer and log together, limits on the body.

Everything here is decided before a byte of the body is read, so a refusal never costs an upload; what a body turns
out to be is decided while it comes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.fault import Fault
from service.api.problems import HTTPProblem, problem_of, respond, unexpected
from service.auth.callers import ANYBODY, Caller
from service.auth.callers import Scope as KeyScope
from service.http.origins import asks_for_this_host, comes_from_elsewhere, names_a_host
from service.http.protocol import HEADER_BYTES
from service.http.rates import Rates
from service.logs import REQUEST_ID
from service.settings import Settings, variable
from storage.errors import ApspError

log = logging.getLogger(__name__)

Identify = Callable[[str], Awaitable[Caller | None]]
Observe = Callable[[str, str, int, float], None]

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_.\-]{1,80}")
#: on every answer: none is to be sniffed, framed, run or read by other sites; pages bring a policy of their own
SECURITY: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
#: only pages set their own
_POLICY: Final = b"content-security-policy"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: headers of one request
MOST_HEADERS: Final = 200
#: forms that anybody may send, before it is known who does; a key and an address to go on to fit many times
_OPEN_FORMS: Final = {"/login", "/logout"}
_OPEN_FORM_BYTES: Final = 16_384
#: POST requests that change nothing
_QUESTIONS: Final = re.compile(r"/v1/(estimates|jobs/[^/]+/(distances|paths|submatrix))")


class RequestGate:
    """The outermost middleware: request id, key, rate, HEAD, security headers, one log line and one observation."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        identify: Identify | None,
        observe: Observe | None,
        visit: Identify | None = None,
    ) -> None:
        """``identify`` finds the caller of an Authorization header; None where keys are not asked for.

        ``visit`` finds the one of a Cookie header: pages of this service ask so.
        """
        self._app, self._settings = app, settings
        self._identify, self._observe, self._visit = identify, observe, visit
        self._rates = Rates(settings.max_requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = {name: value for name, value in scope["headers"] if name in _LOOKED_AT}
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
            except ApspError as error:  # no exception handler stands around this; the database may be away
                refused = problem_of(error)
            if refused is not None:
                response = respond(Request(scope), refused.fault, headers=dict(refused.headers or {}))
                await response(scope, receive, answer)
            elif scope["method"] == "HEAD":
                await _head(self._app, scope, answer)
            else:
                await self._app(scope, receive, answer)
        except Exception:
            if begun:  # the server closes the connection: the client sees that the answer is not whole
                status = 500
                raise
            # An exception that leaves the application has the server close the connection without a word, also
            # behind a whole answer; a client that sends its next request meanwhile gets a reset.
            log.exception("%s %s failed", scope["method"], scope["path"][:300])
            await unexpected(Request(scope))(scope, receive, answer)
        finally:
            self._tell(scope, status, time.perf_counter() - began)
            REQUEST_ID.reset(token)

    async def _refuse(self, scope: Scope, headers: dict[bytes, bytes]) -> HTTPProblem | None:
        """Why the request goes no further; notes the caller and what is left of the rate otherwise."""
        caller = ANYBODY
        path: str = scope["path"]
        if self._identify is None and not asks_for_this_host(scope, self._settings.host):
            return _another_host()
        if not names_a_host(scope):
            return HTTPProblem(Fault("invalid-request", "Host is not the name of a host", {"field": "Host"}))
        if self._identify is not None and path.startswith("/v1/"):
            given, cookie = headers.get(b"authorization"), headers.get(b"cookie")
            if given is None and cookie is not None and self._visit is not None:
                found = await self._visit(cookie.decode("latin-1"))
                if found is not None and comes_from_elsewhere(scope):
                    return _from_elsewhere()
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
        elif comes_from_elsewhere(scope, pages=not path.startswith("/v1/"), allowed=self._settings.cors_origins):
            return _from_elsewhere()
        scope["state"]["caller"] = caller
        if path.startswith("/health/"):
            return _no_control(path, scope["query_string"])
        wait = self._rates.wait(caller.owner or _address(scope))
        if wait > 0:
            return _too_fast(self._rates.limit, wait)
        expect = headers.get(b"expect", b"100-continue")
        if expect.lower() != b"100-continue":
            message = f"Expect: {expect[:40].decode('latin-1')} cannot be met"
            return HTTPProblem(Fault("expectation-failed", message, {"field": "Expect"}))
        return _too_long(scope) or _no_control(path, scope["query_string"])

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "")
        if self._observe is not None:
            self._observe(scope["method"], route, status, seconds)
        if status >= 500 or self._settings.log_requests or (scope["method"] not in _QUIET and status < 400):
            level = logging.ERROR if status >= 500 else logging.INFO
            facts = {"method": scope["method"], "path": scope["path"][:300], "status": status}
            facts["milliseconds"] = round(seconds * 1000, 3)
            job = scope.get("path_params", {}).get("job_id")
            if job is not None:
                facts["job_id"] = job[:80]
            log.log(
                level, "%s %s: %d", *list(facts.values())[:3], extra={**facts, "milliseconds": round(seconds * 1000, 3)}
            )


_LOOKED_AT: Final = {b"x-request-id", b"authorization", b"cookie", b"expect"}
#: methods that change nothing (RFC 9110, 9.2.1)
_QUIET: Final = {"GET", "HEAD", "OPTIONS", "TRACE"}


class BodyLimit:
    """Refuses bodies that are announced too large, grow too large or come too slowly, before they are held or stored.

    Must stand inside the exception middleware's reach: it raises from ``receive``, where the reader of the body is.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] != "http" or scope["method"] in _QUIET:
            await self._app(scope, receive, send)
            return
        limit, setting = self._limit(scope["path"])
        announced = next((value for key, value in scope["headers"] if key == b"content-length"), b"")
        total, more, began = 0, True, time.monotonic()

        async def limited() -> Message:
            nonlocal total, more
            if announced.isdigit() and int(announced) > limit:
                raise _too_large(setting, limit, int(announced))
            if not more:
                return await receive()
            message = await self._next(receive, total, began)
            total += len(message.get("body", b""))
            more = bool(message.get("more_body"))
            if total > limit:
                raise _too_large(setting, limit, total)
            return message

        await self._app(scope, limited, send)

    def _limit(self, path: str) -> tuple[int, str | None]:
        """The most bytes of a body, and the setting that says so, if one does."""
        name = "max_upload_bytes" if path == "/v1/graphs" else "max_body_bytes"
        limit: int = getattr(self._settings, name)
        if path in _OPEN_FORMS and limit > _OPEN_FORM_BYTES:
            return _OPEN_FORM_BYTES, None
        return limit, name

    async def _next(self, receive: Receive, total: int, began: float) -> Message:
        """The next part of the body, unless its sender is asleep or pretends to be awake."""
        silence, rate = self._settings.max_body_silence, self._settings.min_body_rate
        elapsed = time.monotonic() - began
        if elapsed > silence and total < rate * (elapsed - silence):
            raise HTTPProblem(Fault("too-slow", f"the body came at less than {rate} bytes a second", {
                "limit": rate, "requested": int(total / elapsed), "setting": variable("min_body_rate"),
            }))  # fmt: skip
        try:
            async with asyncio.timeout(silence):
                return await receive()
        except TimeoutError:
            details = {"limit": silence, "setting": variable("max_body_silence")}
            raise HTTPProblem(Fault("too-slow", f"no byte of the body came for {silence} s", details)) from None


def needed_scope(method: str, path: str) -> KeyScope:
    """The scope that a request needs: questions need ``read``, changes need ``submit``."""
    return "read" if method in _QUIET or _QUESTIONS.fullmatch(path) else "submit"


async def _head(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Answer HEAD with the headers of GET.  The body is made but not sent, and endless ones are ended."""
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
    """The server bounds what it waits for; what came at once can be longer."""
    size = len(scope["path"]) + len(scope["query_string"]) + sum(len(k) + len(v) for k, v in scope["headers"])
    if size <= HEADER_BYTES and len(scope["headers"]) <= MOST_HEADERS:
        return None
    message = f"address and headers have {size} bytes in {len(scope['headers'])} headers; at most {HEADER_BYTES} bytes"
    details = {"limit": HEADER_BYTES, "requested": size}
    return HTTPProblem(Fault("headers-too-large", f"{message} in {MOST_HEADERS} headers are read", details))


def _no_control(path: str, query: bytes) -> HTTPProblem | None:
    """No path of ours holds a control character (patterns of routes let a line end behind them pass).

    NUL is in no parameter either: not every database takes it.
    """
    if _CONTROL.search(path):
        return HTTPProblem(Fault("not-found", "there is nothing whose name holds a control character"))
    if b"%00" in query:
        return HTTPProblem(Fault("invalid-request", "a parameter holds a NUL, which is in no name", {"field": "query"}))
    return None


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def _unauthorized(given: bool) -> HTTPProblem:
    message = "the key is not known or was revoked" if given else "a key is needed: Authorization: Bearer apsp_..."
    error = ' error="invalid_token"' if given else ""
    return HTTPProblem(Fault("unauthorized", message), headers={"WWW-Authenticate": f'Bearer realm="apsp"{error}'})


def _from_elsewhere() -> HTTPProblem:
    message = "a change that a browser asks for without a key is taken from the pages of this service only"
    return HTTPProblem(Fault("forbidden", message, {"scope": "same-origin"}))


def _another_host() -> HTTPProblem:
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
