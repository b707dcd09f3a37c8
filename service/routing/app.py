"""Serves the protocols of OSRM and Valhalla over one result."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware

from service.auth.keys import is_loopback
from service.http.listening import address_of, listen
from service.routing.network import RoutingNetwork
from service.routing.osrm import SERVICES as OSRM_SERVICES
from service.routing.osrm import Osrm
from service.routing.valhalla import NO_PATH, Valhalla, refused
from service.routing.valhalla import SERVICES as VALHALLA_SERVICES
from storage.version import VERSION

#: Most bytes of a URL, and of a body.  URLs are long because they list the coordinates of OSRM's requests.
_ADDRESS_BYTES: Final = 1 << 20
_BODY_BYTES: Final = 16 << 20
#: Requests that are answered at a time; any further request gets status 503.
_MOST_AT_ONCE: Final = 64
#: Names of this machine that a request's ``Host`` may have.  VROOM, a client of OSRM, uses 0.0.0.0 by default.
_NAMES: Final = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0", "testserver"]  # noqa: S104 - a name, not an address
_BRACKET: Final = re.compile(rb"\)|%29")


def create_app(network: RoutingNetwork, *, local: bool = True) -> FastAPI:
    """Return the application.

    Args:
        network: the network that requests are about.
        local: whether to answer only requests whose ``Host`` is a name of this machine, so that no web page can reach
            the service under the page's host name (DNS rebinding).
    """
    app = FastAPI(title="apsp serve-routes", version=VERSION, docs_url=None, redoc_url=None)
    osrm, valhalla = Osrm(network), Valhalla(network)
    if local:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=_NAMES)

    def service(name: str) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request, mode: str, places: str) -> Response:  # noqa: ARG001 - one network, one mode
            named, asked = _asked(request, places)
            if twice := [word for word, times in Counter(word for word, _ in asked).items() if times > 1]:
                message = f"{twice[0][:40]} is given more than once; a list is one parameter, such as sources=0;1"
                return _json(400, {"code": "InvalidOptions", "message": message})
            return _json(*await run_in_threadpool(osrm.answer, name, named, dict(asked)))

        return answer

    for name in OSRM_SERVICES:
        app.add_api_route(f"/{name}/v1/{{mode}}/{{places:path}}", service(name), methods=["GET"], name=name)

    def json_service(name: str) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            # null characters separate several parameters ``json``; no JSON has them, so such a request is refused
            body = bytearray("\0".join(request.query_params.getlist("json")).encode())
            async for piece in request.stream():
                body += piece
                if len(body) > _BODY_BYTES:
                    return _json(413, {"error": f"the body is larger than {_BODY_BYTES:,} bytes", "status_code": 413})
            return _json(*await run_in_threadpool(valhalla.answer, name, bytes(body)))

        return answer

    for name in VALHALLA_SERVICES:
        app.add_api_route(f"/{name}", json_service(name), methods=["GET", "POST"], name=f"valhalla_{name}")
    app.add_exception_handler(404, _no_service)
    return app


def _asked(request: Request, places: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the places and the parameters of a request of OSRM.

    A polyline may contain question marks, which clients send unencoded; the parameters then begin after the
    closing bracket of the polyline.
    """
    raw: bytes = request.scope["query_string"]
    if places.startswith(("polyline(", "polyline6(")) and ")" not in places and _BRACKET.search(raw):
        line, behind = _BRACKET.split(raw, maxsplit=1)
        form, _, query = behind.decode("latin-1").partition("?")
        return f"{places}?{unquote(line.decode('latin-1'))}){form}", parse_qsl(query, keep_blank_values=True)
    return places, request.query_params.multi_items()


async def _no_service(request: Request, _error: Exception) -> Response:
    """Answer a request for an unknown service as OSRM or Valhalla does."""
    parts = request.url.path.split("/")
    if len(parts) > 3 and parts[2] == "v1":
        message = f"Service {parts[1][:40]} not found! There are {', '.join(OSRM_SERVICES)}"
        return _json(400, {"code": "InvalidService", "message": message})
    return _json(404, refused(404, NO_PATH, f"Try any of: {', '.join(f'/{name}' for name in VALHALLA_SERVICES)}")[1])


def _json(status: int, content: dict[str, Any]) -> Response:
    # orjson writes infinity as null
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json")


class _Announcing(uvicorn.Server):
    """A server that prints its address once it listens."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            served = f"OSRM: {', '.join(OSRM_SERVICES)}; Valhalla: {', '.join(VALHALLA_SERVICES)}"
            print(f"routes are served at {self._address} ({served})")


def serve(network: RoutingNetwork, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT.  Raises InvalidRequest: the address cannot be listened on."""
    config = uvicorn.Config(
        create_app(network, local=is_loopback(host)),
        http="h11",
        h11_max_incomplete_event_size=_ADDRESS_BYTES,
        limit_concurrency=_MOST_AT_ONCE,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    with listen(host, port) as listener:
        _Announcing(config, address_of(host, listener)).run(sockets=[listener])
