"""The short way to one distance: no dependency injection, no thread, while result and tile are at hand.

FastAPI resolves a route's dependencies and parameters anew for each request, which takes several times as long as
looking the distance up.  A request that is not plain in every respect takes the usual way instead, so there is one
place that knows about errors, conditions and cold results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.routing import APIRoute

from service.callers import ANYBODY
from service.conditional import tag_headers
from service.state import Service
from storage.errors import ApspError

_LONGEST_NAME: Final = 1000


class DistanceRoute(APIRoute):
    """A route of one distance: ``source`` and ``target`` as query parameters."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The short way, and behind it the usual one."""
        usual = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return _quick(request) or await usual(request)

        return handler


def _quick(request: Request) -> Response | None:
    scope = request.scope
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    asked = dict(pairs)
    if len(pairs) != 2 or asked.keys() != {"source", "target"} or max(map(len, asked.values())) > _LONGEST_NAME:
        return None
    if any(name == b"if-none-match" for name, _ in scope["headers"]):
        return None
    service: Service = request.app.state.service
    opened = service.results.peek(scope["path_params"]["job_id"], scope["state"].get("caller", ANYBODY))
    if opened is None:
        return None
    try:
        found = opened.quick_distance(asked["source"], asked["target"])
    except ApspError:
        return None  # whatever it is, the usual way says it properly
    if found is None:
        return None
    body = json.dumps(found, separators=(",", ":"))
    return Response(body, headers=tag_headers(scope, opened), media_type="application/json")
