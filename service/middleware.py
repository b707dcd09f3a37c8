"""Around every request: an id that ties answer and log together, and a limit on the body."""

from __future__ import annotations

import re
import secrets
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.fault import Fault
from service.problems import Problem
from service.settings import Settings, variable

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_.\-]{1,80}")


class RequestId:
    """Takes the client's ``X-Request-ID`` if it is harmless, else makes one; answers carry it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("x-request-id", "")
        request_id = asked if _SAFE_ID.fullmatch(asked) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        await self._app(scope, receive, answer)


class BodyLimit:
    """Refuses bodies that are announced too large, or grow too large, before they are held or stored.

    Must stand inside the exception middleware's reach: it raises from ``receive``, where the reader of the body is.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = "max_upload_bytes" if scope["path"] == "/v1/graphs" else "max_body_bytes"
        limit: int = getattr(self._settings, name)
        announced = Headers(scope=scope).get("content-length", "")
        total = 0

        async def limited() -> Message:
            nonlocal total
            if announced.isdigit() and int(announced) > limit:
                raise _too_large(name, limit, int(announced))
            message = await receive()
            total += len(message.get("body", b""))
            if total > limit:
                raise _too_large(name, limit, total)
            return message

        await self._app(scope, limited, send)


def _too_large(name: str, limit: int, requested: int) -> Problem:
    details = {"limit": limit, "requested": requested, "setting": variable(name)}
    return Problem(Fault("limit-exceeded", f"the body has {requested} bytes or more, {limit} are allowed", details))
