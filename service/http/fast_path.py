"""A fast path for single distances and tiles that bypasses routing and dependency injection.

FastAPI finds a route and resolves its dependencies for each request, which takes longer than reading one distance.
Only plain requests about an open result take the fast path; all others take the normal routes, which handle errors,
conditions and results that are not cached.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.callers import ANYBODY
from service.http.etags import tag_headers
from service.http.file_response import proxy_headers
from service.state import Service
from storage.errors import ApspError

if TYPE_CHECKING:
    from service.jobs.results import ResultReader

_Answer = tuple[dict[str, str], bytes]

_DISTANCE: Final = re.compile(r"/v1/jobs/(?P<job_id>[^/]+)/distance")
_TILE: Final = re.compile(r"/v1/jobs/(?P<job_id>[^/]+)/zarr/(?P<key>distances/c/[0-9]+/[0-9]+)", re.ASCII)
_LONGEST_NAME: Final = 1000
#: seconds to wait after each attempt to read a distance, while the kernel fetches the bytes from the disk; after the
#: last attempt the normal route reads them, in a thread that can wait
_PAUSES: Final = (0.0, 0.0005, 0.0)


class FastPath:
    """Middleware inside ``RequestGate``: answers plain requests for one distance, or lets the proxy send one tile.

    Args:
        app: the inner ASGI application.
        service: the objects that all routes share.
        distance, file: the normal routes, whose patterns label the requests in metrics.
    """

    def __init__(self, app: ASGIApp, service: Service, distance: APIRoute, file: APIRoute) -> None:
        self._app, self._service = app, service
        self._distance, self._file = distance, file
        self._proxied = bool(service.settings.accel_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request on the fast path, or pass it to the inner application (ASGI)."""
        found = asked = None
        # a traced request takes the normal route, so that its trace shows the parts of the route
        if scope["type"] == "http" and scope["method"] == "GET" and "fastapi.telemetry" not in scope:
            if asked := _DISTANCE.fullmatch(scope["path"]):
                found = await self._find(scope, asked[1])
                route = self._distance
            elif self._proxied and (asked := _TILE.fullmatch(scope["path"])):
                found = self._redirect(scope, asked[1], asked[2])
                route = self._file
        if found is None or asked is None:
            await self._app(scope, receive, send)
            return
        scope.update({"route": route, "path_params": asked.groupdict()})
        headers = [(name.lower().encode(), value.encode()) for name, value in found[0].items()]
        headers.append((b"content-length", str(len(found[1])).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": found[1]})

    def _redirect(self, scope: Scope, job_id: str, key: str) -> _Answer | None:
        """Return an answer that lets the reverse proxy send a tile; None if the normal route must answer."""
        opened = self._opened(scope, job_id)
        if opened is None or scope["query_string"] or not opened.matrix.holds(key):
            return None
        return proxy_headers(self._service.settings, job_id, key), b""

    async def _find(self, scope: Scope, job_id: str) -> _Answer | None:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        asked = dict(pairs)
        if len(pairs) != 2 or asked.keys() != {"source", "target"} or max(map(len, asked.values())) > _LONGEST_NAME:
            return None
        if any(name == b"if-none-match" for name, _ in scope["headers"]):
            return None
        opened = self._opened(scope, job_id)
        if opened is None or opened.table or opened.said:  # tables and other semirings take the normal route
            return None
        for pause in _PAUSES:
            try:
                opened.check_budget(scope["state"].get("caller", ANYBODY).owner)
                found = opened.peek_distance(asked["source"], asked["target"])
            except BlockingIOError:
                await asyncio.sleep(pause)  # meanwhile other requests are answered
            except ApspError:
                return None  # the normal route reports the error
            else:
                if found is None:
                    return None
                body = json.dumps(found, separators=(",", ":")).encode()
                return {**tag_headers(scope, opened), "Content-Type": "application/json"}, body
        return None

    def _opened(self, scope: Scope, job_id: str) -> ResultReader | None:
        return self._service.results.peek(job_id, scope["state"].get("caller", ANYBODY))
